//! Loads over HTTP/2: a driver in front of another one, which makes streams of a loop's outgoing connections.
//!
//! A loop of a load knows nothing of HTTP/2 nor of its TLS. Each of its connections is a [lane](lane) of a [carrier](carrier): the
//! driver opens the carrier's socket, its TLS session and the HTTP/2 connection in it. A lane speaks HTTP/1.1 with the loop, whose
//! request becomes a stream. A WebSocket's request becomes an extended CONNECT (RFC 8441), and its answer a 101.
//!
//! So all loads run over HTTP/2 as they are. They measure servers: the work of this side may cost more than a client needs.

mod carrier;
mod carriers;
mod dialer;
mod front;
mod lane;
mod over;
mod plan;
mod sink;
#[cfg(test)]
mod tests;

pub use over::over_http2;
