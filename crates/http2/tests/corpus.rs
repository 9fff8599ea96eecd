//! Replays the corpus of the fuzz targets, so that every test run covers what fuzzing has found.

mod fuzz;

use std::path::Path;

#[test]
fn http2_connection() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/http2_connection");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        fuzz::http2_connection::run(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= 10, "{count} files in {}", folder.display());
}
