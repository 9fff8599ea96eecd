//! Forwarding of one request over HTTP/1.1, without I/O.
//!
//! [`head`] writes the head of a request for a server, and that of its response for the client. [`identity`] tells a server of the
//! client's certificate, and a header of the [PROXY protocol](ProxyProtocol) of its address. [`Framing`] says how long a body is, and refuses all on which two parties could disagree: that is how requests are smuggled (RFC 9112, section 11.2). [`Body`]
//! passes a body on. Chunks are framed anew, so extensions and trailers are dropped.
//!
//! Heads come from [`HeadReader`](tautline::layers::ws::handshake::HeadReader), which refuses bare CR and LF and folded lines.

mod body;
mod framing;
pub mod head;
pub mod identity;
mod preface;
mod switching;

pub use body::{Body, Form};
pub use framing::{Flaw, Framing};
pub use preface::ProxyProtocol;
pub use switching::check_switching;
