//! Other TLS implementations as peers, below WebSocket: key updates, tickets, closes and alerts, in both roles.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod go;
mod openssl;
mod wire;
