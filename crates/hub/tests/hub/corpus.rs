//! Replays the corpus of the fuzz target for hubs, so that every test run covers what fuzzing has found.

#[path = "../fuzz/mod.rs"]
mod fuzz;

use std::path::Path;

#[test]
fn hub_requests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/hub_requests");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        fuzz::requests::run(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= 5, "{count} files in {}", folder.display());
}
