//! The table of attacks in `docs/hub.md`, each row of which names its tests.

use std::path::Path;

/// Adds the sources below a folder.
fn read(folder: &Path, sources: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn the_tests_of_each_attack_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = String::new();
    for folder in ["crates/hub", "crates/cli/tests", "examples"] {
        read(&root.join(folder), &mut sources);
    }
    let text = std::fs::read_to_string(root.join("docs/hub.md")).unwrap();
    let table = text.split("\n## ").find_map(|section| section.strip_prefix("Attacks\n")).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut number = 0;
    for row in rows {
        let (_, tests) = row.trim_end_matches(" |").rsplit_once(" | ").unwrap();
        for test in tests.split(", ") {
            let name = test.trim_matches('`');
            assert!(is_test(&sources, name), "there is no test `{name}`: {row}");
            number += 1;
        }
    }
    assert!(number > 25, "{number} tests");
}

/// Whether a function is a test, perhaps with further attributes.
fn is_test(sources: &str, name: &str) -> bool {
    let begin = sources.find(&format!("fn {name}()"));
    begin.is_some_and(|begin| sources[..begin].lines().rev().take(4).any(|line| line.trim() == "#[test]"))
}
