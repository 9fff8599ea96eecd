//! Replays the corpus of the fuzz target for hubs, so that every test run covers what fuzzing has found.

#[path = "../fuzz/mod.rs"]
mod fuzz;
#[path = "../../../testkit/corpus/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn hub_requests() {
    replay("hub_requests", 5, fuzz::requests::run);
}
