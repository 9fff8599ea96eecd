//! Files of a crate that use each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use super::edges::Edges;

/// The circles: each a set of files, every one of which reaches every other one.
pub(super) fn circles(edges: &Edges) -> Vec<BTreeSet<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|file| (file.as_str(), reach(edges, file))).collect();
    let mut circles = Vec::new();
    let mut seen = BTreeSet::new();
    for (file, others) in &reached {
        let circle: BTreeSet<&str> = others
            .iter()
            .filter(|other| reached.get(*other).is_some_and(|back| back.contains(file)))
            .copied()
            .collect();
        if !circle.is_empty() && seen.insert(circle.clone()) {
            circles.push(circle);
        }
    }
    circles
}

/// The lines that make a circle.
pub(super) fn explain(folder: &str, edges: &Edges, circle: &BTreeSet<&str>) -> Vec<String> {
    let mut lines = Vec::new();
    for (from, to) in circle.iter().flat_map(|from| circle.iter().map(move |to| (*from, *to))) {
        for (line, path) in edges[from].get(to).into_iter().flatten() {
            lines.push(format!("  {folder}/{from}:{line}: `{path}` of {to}"));
        }
    }
    lines
}

/// The files that a file reaches in one step or more.
fn reach<'a>(edges: &'a Edges, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = edges[from].keys().map(String::as_str).collect();
    while let Some(file) = next.pop() {
        if reached.insert(file) {
            next.extend(edges.get(file).into_iter().flat_map(|to| to.keys().map(String::as_str)));
        }
    }
    reached
}
