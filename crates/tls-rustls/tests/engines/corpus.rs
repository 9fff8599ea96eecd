//! Replays the corpus of the fuzz targets, so that every test run checks the findings of fuzzing.

#[path = "../fuzz/mod.rs"]
mod fuzz;

use std::path::Path;

/// Gives every file of a target's corpus to `run`. The corpus must have at least `least` files.
fn replay(target: &str, least: usize, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        run(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= least, "{count} files in {}", folder.display());
}

#[test]
fn tls_records() {
    replay("tls_records", 5, |input| {
        // Each input goes to both engines in both roles, before and after the handshake.
        for how in 0..8 {
            fuzz::tls_records::run(&[&[how][..], &input[1.min(input.len())..]].concat());
        }
    });
}

#[test]
fn snapshot() {
    replay("snapshot", 5, fuzz::snapshot::run);
}
