//! Replays the corpus of the fuzz targets, so that every test run covers what fuzzing has found.

#[path = "../fuzz/mod.rs"]
mod fuzz;
#[path = "../../../testkit/corpus/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn forwarded_body() {
    replay("forwarded_body", 5, fuzz::forwarded_body::run);
}
