//! Replays the corpus of the fuzz targets for parts of connections, so that every test run covers what fuzzing has found.
#![expect(clippy::unwrap_used, reason = "a target fails by panicking")]

mod fuzz;
#[path = "../../testkit/corpus/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn proxy_header() {
    replay("proxy_header", 5, fuzz::proxy_header::run);
}
