//! Replays the corpus of the fuzz targets, so that every test run covers what fuzzing has found.

#[path = "../fuzz/mod.rs"]
mod fuzz;

use std::path::Path;

#[test]
fn forwarded_body() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/forwarded_body");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        fuzz::forwarded_body::run(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= 5, "{count} files in {}", folder.display());
}
