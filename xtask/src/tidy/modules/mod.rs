//! The files of one crate may use each other in one direction only.

mod calls;
mod ceilings;
mod circles;
mod edges;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::files::{Files, packages};
use calls::{Calls, Methods};
use circles::{circles, explain};
use edges::{Edges, edges};
use tree::Sources;

/// Checks every crate, given the files of the checkout.
pub(super) fn check(files: &Files) -> Vec<String> {
    let circles = packages(files).into_iter().flat_map(|package| check_package(package, &sources(files, package)));
    circles.chain(ceilings::check(&calls(files))).collect()
}

fn check_package(package: &str, sources: &Sources) -> Vec<String> {
    let mut wrong = Vec::new();
    for (_, edges) in graphs(sources) {
        for circle in circles(&edges) {
            let files: Vec<&str> = circle.iter().copied().collect();
            wrong.push(format!("{package}/src: these files use each other in a circle: {}", files.join(", ")));
            wrong.extend(explain(&format!("{package}/src"), &edges, &circle));
        }
    }
    wrong
}

/// The graph of a crate as text, file by file, with the lines that make its circles.
pub(super) fn draw(package: &str, files: &Files) -> String {
    let sources = sources(files, package);
    let mut text = String::new();
    let mut line = |words: &str| {
        text.push_str(words);
        text.push('\n');
    };
    for (root, edges) in graphs(&sources) {
        line(&format!("{package}/src/{root}"));
        for (from, to) in &edges {
            let to: Vec<&str> = to.keys().map(String::as_str).collect();
            line(&format!("  {from} -> {}", if to.is_empty() { "nothing".to_owned() } else { to.join(", ") }));
        }
        for (number, circle) in circles(&edges).iter().enumerate() {
            let files: Vec<&str> = circle.iter().copied().collect();
            line(&format!("circle {} of {} files: {}", number + 1, files.len(), files.join(", ")));
            explain(&format!("{package}/src"), &edges, circle).iter().for_each(|use_| line(use_));
        }
    }
    for calls in calls(files).iter().filter(|calls| calls.package == package) {
        for circle in circles(&calls.edges) {
            let files: Vec<&str> = circle.iter().copied().collect();
            line(&format!("circle by calls of {} files: {}", files.len(), files.join(", ")));
            explain(&format!("{package}/src"), &calls.edges, &circle).iter().for_each(|use_| line(use_));
        }
    }
    text
}

/// The calls of all crates.
fn calls(files: &Files) -> Vec<Calls<'_>> {
    let read = packages(files).into_iter().map(|package| {
        let sources = sources(files, package);
        let of_crate = reached(&sources);
        let methods = Methods::read(&sources, of_crate.iter().map(String::as_str));
        (package, sources, of_crate, methods)
    });
    let read: Vec<_> = read.collect();
    let mut crates_with: BTreeMap<&str, usize> = BTreeMap::new();
    for name in read.iter().flat_map(|(.., methods)| methods.names()) {
        *crates_with.entry(name).or_default() += 1;
    }
    let shared: BTreeSet<&str> = crates_with.iter().filter(|(_, count)| **count > 1).map(|(name, _)| *name).collect();
    let edges: Vec<Edges> = read
        .iter()
        .map(|(_, sources, of_crate, _)| calls::edges(sources, of_crate.iter().map(String::as_str), &shared))
        .collect();
    read.into_iter().zip(edges).map(|((package, _, _, methods), edges)| Calls { package, methods, edges }).collect()
}

/// The files of a crate, other than those for tests alone.
fn reached(sources: &Sources) -> BTreeSet<String> {
    let roots = ["lib.rs", "main.rs"].into_iter().filter(|root| sources.contains_key(*root));
    roots.flat_map(|root| tree::read(sources, root)).map(|module| module.file).collect()
}

/// The graph below each root of a crate.
fn graphs(sources: &Sources) -> impl Iterator<Item = (&'static str, Edges)> {
    let roots = ["lib.rs", "main.rs"].into_iter().filter(|root| sources.contains_key(*root));
    roots.map(|root| (root, edges(&tree::read(sources, root))))
}

/// The Rust files of a crate by their path below `src`.
fn sources(files: &Files, package: &str) -> Sources {
    let folder = format!("{package}/src/");
    let below = files.iter().filter_map(|(path, text)| Some((path.strip_prefix(&folder)?.to_owned(), text.clone())));
    below.filter(|(path, _)| path.ends_with(".rs")).collect()
}
