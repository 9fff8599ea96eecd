//! Replays the corpus of the fuzz target `tls_hello`, so that every test run covers what fuzzing has found.

mod fuzz;
#[path = "../../testkit/corpus/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn tls_hello() {
    replay("tls_hello", 5, fuzz::hello::run);
}
