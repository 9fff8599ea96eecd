//! Rules that no other tool checks.

mod errors;
mod examples;
mod files;
mod layers;
mod modules;
mod parts;
mod printing;
mod prose;
mod text;
mod tokens;

use std::process::ExitCode;

use crate::locks::{self, Lock, Network};
use crate::outcome::{Failure, Outcome};
use crate::stage::Context;
use files::packages;

/// Checks every text file of the checkout, and how files and crates depend on each other.
pub(crate) fn run(_: &Context) -> Outcome {
    let files = files::read()?;
    let checks = [
        errors::check,
        examples::check,
        text::check,
        layers::check,
        modules::check,
        parts::check,
        printing::check,
        prose::check,
    ];
    let mut wrong: Vec<String> = checks.iter().flat_map(|check| check(&files)).collect();
    for (path, lock) in locks::look(Network::Unused)? {
        match (locks::finding(&path, &lock), lock) {
            // Its dependencies were never downloaded here. The stage `clippy apart` does that.
            (Some(finding), Lock::Unclear(_)) => eprintln!("not checked: {finding}"),
            (finding, _) => wrong.extend(finding),
        }
    }
    wrong.iter().for_each(|line| eprintln!("{line}"));
    match wrong.len() {
        0 => Ok(()),
        count => Err(Failure::Failed(format!("{count} findings"))),
    }
}

/// Prints which files of a crate use which, given the name of the crate's folder.
pub(crate) fn draw(name: &str) -> ExitCode {
    let files = match files::read() {
        Ok(files) => files,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let Some(package) = packages(&files).into_iter().find(|package| package.rsplit('/').next() == Some(name)) else {
        eprintln!("no crate has a folder `{name}`");
        return ExitCode::FAILURE;
    };
    print!("{}", modules::draw(package, &files));
    ExitCode::SUCCESS
}
