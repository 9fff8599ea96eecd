//! Replays the corpus of the fuzz targets, so that every test run covers what fuzzing has found.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a target fails by panicking")]

mod fuzz;
#[path = "../../testkit/corpus/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn frame_decode() {
    replay("frame_decode", 5, fuzz::frame_decode::run);
}

#[test]
fn server_handshake() {
    replay("server_handshake", 5, fuzz::server_handshake::run);
}

#[test]
fn client_handshake() {
    replay("client_handshake", 5, fuzz::client_handshake::run);
}

#[test]
fn request_body() {
    replay("request_body", 5, fuzz::request_body::run);
}

#[test]
fn inflate() {
    replay("inflate", 5, fuzz::inflate::run);
}

#[test]
fn deflate() {
    replay("deflate", 5, fuzz::deflate::run);
}

#[test]
fn state() {
    replay("ws_state", 5, fuzz::state::run);
}
