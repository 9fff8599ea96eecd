//! Shared code of the end-to-end tests: a server whose application records events, a peer controlled byte by byte, and the log.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of this")]

pub(crate) mod app;
pub(crate) mod frame;
pub(crate) mod logs;
pub(crate) mod peer;
pub(crate) mod server;

pub(crate) use app::{App, Event, Events};
pub(crate) use peer::Peer;
pub(crate) use server::{Over, Started, serve, serve_at, serve_driver};

use std::time::{Duration, Instant};

/// Longest wait. A test that waits longer fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `done` returns true.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs a test over `ws://` and over `wss://`.
pub(crate) fn both(test: impl Fn(Over)) {
    for over in [Over::Plain, Over::Fused] {
        test(over);
    }
}

/// Pseudo-random bytes.
pub(crate) fn payload(len: usize) -> Vec<u8> {
    let mut state = len as u64 | 1;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()[6]
    })
    .take(len)
    .collect()
}
