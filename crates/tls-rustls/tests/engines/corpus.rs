//! Replays the corpus of the fuzz targets, so that every test run checks the findings of fuzzing.

#[path = "../fuzz/mod.rs"]
mod fuzz;
#[path = "../../../testkit/corpus/replay.rs"]
mod replay;

use replay::replay;

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
