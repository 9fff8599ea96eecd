//! The files of one crate may use each other in one direction only.

mod circles;
mod edges;
#[cfg(test)]
mod tests;
mod tree;

use crate::tidy::files::{Files, packages};
use circles::{circles, explain};
use edges::{Edges, edges};
use tree::Sources;

/// Checks every crate, given the files of the checkout.
pub(super) fn check(files: &Files) -> Vec<String> {
    packages(files).into_iter().flat_map(|package| check_package(package, &sources(files, package))).collect()
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
    text
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
