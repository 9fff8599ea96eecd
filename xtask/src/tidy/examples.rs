//! Examples in the documentation of types that users find in the crate `tautline`.

use super::files::Files;

/// The crate that re-exports them.
const FACADE: &str = "crates/tautline/src/lib.rs";
/// Crates whose types it re-exports.
const LAYERS: [&str; 5] = ["conn", "engine", "io", "tls", "ws"];

/// Finds imports that a user of the crate `tautline` cannot copy. A hidden `mod tautline` stands for it, since no crate below may
/// depend on it.
pub(super) fn check(files: &Files) -> Vec<String> {
    let Some(facade) = files.get(FACADE) else { return vec![format!("{FACADE} is missing")] };
    let names = names(facade);
    let of_layers = |path: &str| LAYERS.iter().any(|layer| path.starts_with(&format!("crates/{layer}/src/")));
    let sources = files.iter().filter(|(path, _)| of_layers(path) && path.ends_with(".rs"));
    sources.flat_map(|(path, content)| imports(path, content, &names)).collect()
}

/// The names that the crate re-exports at its root.
fn names(facade: &str) -> Vec<&str> {
    let statements = facade.split("\npub use tautline_").skip(1).filter_map(|rest| rest.split(';').next());
    let words = statements.filter(|statement| !statement.contains(" as ")).flat_map(words);
    words.filter(|word| word.starts_with(char::is_uppercase)).collect()
}

fn imports(path: &str, content: &str, names: &[&str]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, line) in content.lines().enumerate() {
        let line = line.trim_start();
        let shown = line.strip_prefix("/// use tautline_").or_else(|| line.strip_prefix("//! use tautline_"));
        if let Some(name) = shown.and_then(|shown| words(shown).find(|word| names.contains(word))) {
            wrong.push(format!("{path}:{}: users import {name} from tautline; see other examples", number + 1));
        }
    }
    wrong
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

#[cfg(test)]
mod tests {
    use super::{imports, names};

    #[test]
    fn imports_of_what_tautline_re_exports_are_found() {
        let names = names(
            "mod a;\npub use tautline_ws::{\n    Kind, deflate::DeflateConfig,\n};\npub use tautline_tls::X as Y;\n",
        );
        assert_eq!(names, ["Kind", "DeflateConfig"]);
        let wrong = imports(
            "a.rs",
            "/// use tautline_ws::Kind;\n/// use tautline_ws::Decoder;\n/// # use tautline_ws::Kind;",
            &names,
        );
        assert_eq!(wrong, ["a.rs:1: users import Kind from tautline; see other examples"]);
        assert!(imports("a.rs", "/// use tautline::Kind;", &names).is_empty());
    }
}
