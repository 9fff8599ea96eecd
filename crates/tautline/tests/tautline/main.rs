//! Handlers without sockets, and an example.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

mod chat;
#[path = "../../../../examples/chat.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests run the application, and leave out `main`")]
mod example;
mod http;
mod push;
mod testing;
