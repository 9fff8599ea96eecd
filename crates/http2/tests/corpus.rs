//! Replays the corpus of the fuzz targets, so that every test run covers what fuzzing has found.

mod fuzz;
#[path = "../../testkit/corpus/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn http2_connection() {
    replay("http2_connection", 10, fuzz::http2_connection::run);
}
