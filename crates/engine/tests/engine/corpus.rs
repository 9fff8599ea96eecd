//! Replays the corpus of the fuzz targets for whole connections, so that every test run covers what fuzzing has found.

#[path = "../fuzz/mod.rs"]
mod fuzz;
#[path = "../../../testkit/corpus/replay.rs"]
mod replay;

use replay::replay;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn server_connection() {
    replay("server_connection", 5, fuzz::server_connection::run);
}

#[test]
fn client_connection() {
    replay("client_connection", 5, fuzz::client_connection::run);
}

#[test]
fn saved_connection() {
    let accepted = AtomicUsize::new(0);
    replay("saved_connection", 5, |data| {
        accepted.fetch_add(usize::from(fuzz::saved_connection::run(data)), Ordering::Relaxed);
    });
    // Refused ones cover little: a new version of the format needs new files.
    let accepted = accepted.into_inner();
    assert!(accepted >= 40, "{accepted} are accepted");
}

#[test]
fn retry_after() {
    replay("retry_after", 5, fuzz::retry_after::run);
}
