//! Rules that no other tool checks.

mod graph;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use crate::paths;
use crate::stage::{Context, Failure, Outcome};

/// Folders that hold nothing of ours.
const NOT_OURS: [&str; 6] = ["target", ".git", "node_modules", "corpus", "artifacts", "LICENSES"];

/// Checks every text file of the checkout and the way its crates depend on each other.
pub(crate) fn run(_: &Context) -> Outcome {
    let root = paths::root();
    let mut wrong = Vec::new();
    let mut files = Vec::new();
    list(&root, &mut files)?;
    for file in &files {
        let path = file.strip_prefix(&root).unwrap_or(file).to_string_lossy().into_owned();
        // What is not UTF-8 is no text.
        if let Ok(content) = fs::read_to_string(file) {
            wrong.extend(text::check(&path, &content));
            if let Some(name) = path.strip_prefix("crates/").and_then(|path| path.strip_suffix("/Cargo.toml")) {
                wrong.extend(graph::check(name, &content));
            }
        }
    }
    wrong.iter().for_each(|line| eprintln!("{line}"));
    match wrong.len() {
        0 => Ok(()),
        count => Err(Failure::Failed(format!("{count} findings"))),
    }
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Outcome {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && !NOT_OURS.iter().any(|name| entry.file_name() == *name) {
            list(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(())
}
