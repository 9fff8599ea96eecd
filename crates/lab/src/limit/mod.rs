//! The reference for WebSocket servers: echo over bare TCP at the least cost.
//!
//! Server and load are written by hand over epoll(7): level-triggered, one `recv` and one `send` per event, one buffer
//! per thread. They have no frames, timers, limits or callbacks. Costs above this one are those of TLS, WebSocket and
//! the engine.

mod load;
mod server;
#[cfg(test)]
mod tests;

pub(crate) use load::Load;
pub use server::serve;
pub use tautline_measure::poll::listen;
