//! Replays the fuzz target's corpus, so that what fuzzing found once is looked at in every test run.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fuzz;

use std::path::Path;

#[test]
fn tls_records() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/tls_records");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        let input = std::fs::read(&path).unwrap();
        // Every input for both engines and both roles, before and after the handshake.
        for how in 0..8 {
            fuzz::tls_records::run(&[&[how][..], &input[1.min(input.len())..]].concat());
        }
        count += 1;
    }
    assert!(count >= 5, "{count} files in {}", folder.display());
}
