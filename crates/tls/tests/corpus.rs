//! Replays the corpus of the fuzz target `tls_hello`, so that every test run covers what fuzzing has found.

mod fuzz;

use std::path::Path;

#[test]
fn tls_hello() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/tls_hello");
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let inputs: Vec<_> = files.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    assert!(inputs.len() >= 5, "{} files in {}", inputs.len(), folder.display());
    inputs.iter().for_each(|input| fuzz::hello::run(input));
}
