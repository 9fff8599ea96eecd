//! Replays the corpus of the fuzz targets for parts of connections, so that every test run covers what fuzzing has found.
#![expect(clippy::unwrap_used, reason = "a target fails by panicking")]

mod fuzz;

use std::path::Path;

#[test]
fn proxy_header() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/proxy_header");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        fuzz::proxy_header::run(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= 5, "{count} files in {}", folder.display());
}
