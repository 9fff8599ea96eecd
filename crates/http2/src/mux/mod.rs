//! Streams as connections of a loop: a driver in front of another one.
//!
//! A loop knows nothing of HTTP/2. It has TLS, and gives the plaintext of a connection with the protocol `h2` to its driver. That is
//! the [`Multiplexer`], for which each stream is one more connection that was accepted: it has a token, receives, sends and closes
//! like a socket. So limits, deadlines, handlers, topics and counters of streams are those of connections.
//!
//! A stream speaks HTTP/1.1 with the loop: [`request`] writes the head of a request for it, and [`response`] reads its answer. A
//! WebSocket's bytes pass without a change. All output of streams in a turn leaves in one piece, as the plaintext of their connection.

mod carrier;
mod driver;
mod front;
mod request;
mod response;
mod sink;
mod stream;
mod table;

pub use driver::Multiplexer;
