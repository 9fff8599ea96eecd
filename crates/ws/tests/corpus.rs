//! Replays the corpus of the fuzz targets, so that every test run covers what fuzzing has found.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a target fails by panicking")]

mod fuzz;

use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        run(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= 5, "{} files in {}", count, folder.display());
}

#[test]
fn frame_decode() {
    replay("frame_decode", fuzz::frame_decode::run);
}

#[test]
fn server_handshake() {
    replay("server_handshake", fuzz::server_handshake::run);
}

#[test]
fn client_handshake() {
    replay("client_handshake", fuzz::client_handshake::run);
}

#[test]
fn request_body() {
    replay("request_body", fuzz::request_body::run);
}

#[test]
fn inflate() {
    replay("inflate", fuzz::inflate::run);
}

#[test]
fn deflate() {
    replay("deflate", fuzz::deflate::run);
}

#[test]
fn state() {
    replay("ws_state", fuzz::state::run);
}
