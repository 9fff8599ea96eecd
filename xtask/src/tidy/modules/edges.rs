//! The graph of a crate: which file uses an item that another file defines.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{Import, Module};

/// From each file, the files whose items it uses, with the lines that do: their numbers, and the paths as they stand there.
pub(super) type Edges = BTreeMap<String, BTreeMap<String, BTreeSet<(usize, String)>>>;

/// A chain of imports that is longer leads back into itself.
const MOST_STEPS: usize = 32;

/// The place that a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Module(usize),
    /// An item that this module defines, or something of that item.
    ItemOf(usize),
}

/// The edges between the files of a crate.
///
/// A file that only declares or re-exports another one does not use it. A path through a re-export leads to the file that
/// defines the item. Calls of methods are no edges here, but in `calls`.
pub(super) fn edges(modules: &[Module]) -> Edges {
    let mut edges = Edges::new();
    for (from, module) in modules.iter().enumerate() {
        edges.entry(module.file.clone()).or_default();
        let mut add = |places: Vec<Place>, line: usize, path: &[String]| {
            for place in places {
                let Place::ItemOf(to) = place else { continue };
                let to = &modules[to].file;
                if *to != module.file {
                    let lines = edges.entry(module.file.clone()).or_default().entry(to.clone()).or_default();
                    lines.insert((line, path.join("::")));
                }
            }
        };
        let imports = module.imports.values().flatten().chain(&module.globs);
        for Import { path, line, .. } in imports.filter(|import| !import.exported) {
            add(resolve(modules, from, path, 0), *line, path);
        }
        for mention in &module.mentions {
            let [head, rest @ ..] = &mention.path[..] else { continue };
            // The import of an item is an edge already; the import of a module is none.
            let is_private = |import: &Import| !import.exported;
            let leads_to_module = lookup(modules, from, head, false, 0).iter().any(|to| matches!(to, Place::Module(_)));
            let imported = module.imports.get(head).is_some_and(|imports| imports.iter().any(is_private))
                && (rest.is_empty() || !leads_to_module);
            let is_own = rest.is_empty() && (module.items.contains(head) || module.bound.contains(head));
            if !imported && !is_own {
                add(resolve(modules, from, &mention.path, 0), mention.line, &mention.path);
            }
        }
    }
    edges
}

/// Follows a path from a module. A path into another crate leads to no place.
fn resolve(modules: &[Module], from: usize, path: &[String], steps: usize) -> Vec<Place> {
    let mut places = vec![Place::Module(from)];
    for (at, name) in path.iter().enumerate() {
        let is_last = at + 1 == path.len();
        let next = |place| match (place, name.as_str()) {
            (Place::ItemOf(_), _) | (_, "self") => vec![place],
            (_, "crate") => vec![Place::Module(0)],
            (Place::Module(module), "super") => modules[module].parent.map(Place::Module).into_iter().collect(),
            (Place::Module(module), name) => {
                let found = lookup(modules, module, name, is_last, steps);
                // A name that a module does not import is its own, or without a path another crate's.
                let is_own = found.is_empty() && at > 0 && !modules[module].imports.contains_key(name);
                if is_own { vec![Place::ItemOf(module)] } else { found }
            }
        };
        places = places.into_iter().flat_map(next).collect();
    }
    places
}

/// The places that a name of a module leads to: none if another crate defines it, or if the module has no such name.
///
/// A function may share its name with a module. If the path goes on, the name is that of the module.
fn lookup(modules: &[Module], module: usize, name: &str, is_last: bool, steps: usize) -> Vec<Place> {
    let Module { children, imports, globs, items, macros, .. } = &modules[module];
    let mut places: Vec<Place> = children.get(name).into_iter().flatten().map(|child| Place::Module(*child)).collect();
    if steps > MOST_STEPS || (!is_last && !places.is_empty()) {
        return places;
    }
    let definer = if items.contains(name) { Some(module) } else { macros.get(name).copied() };
    places.extend(definer.map(Place::ItemOf));
    for import in imports.get(name).into_iter().flatten() {
        places.extend(resolve(modules, module, &import.path, steps + 1));
    }
    if places.is_empty() && !imports.contains_key(name) {
        for glob in globs.iter().flat_map(|glob| resolve(modules, module, &glob.path, steps + 1)) {
            if let Place::Module(source) = glob
                && source != module
            {
                places.extend(lookup(modules, source, name, is_last, steps + 1));
            }
        }
    }
    places
}
