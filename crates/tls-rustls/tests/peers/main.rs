//! Other implementations of TLS against ours, below WebSocket: key updates, tickets, closes and alerts, both ways.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod go;
mod openssl;
mod wire;
