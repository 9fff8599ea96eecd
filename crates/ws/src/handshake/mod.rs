//! The opening handshake (RFC 6455, section 4) of both sides, with the types of the crate [`http`].
//!
//! A server reads requests with a [`HeadReader`], distinguishes upgrades from plain HTTP with [`is_upgrade`], and
//! answers with [`accept`] or [`write_response`]. A client makes an [`Opening`], writes it, and reads the server's
//! answer with it.
//!
//! ```
//! # mod tautline {
//! #     pub use tautline_ws::handshake::{HeadLimits, Policy};
//! #     pub mod layers { pub use {tautline_buf as buf, tautline_ws as ws}; }
//! # }
//! use tautline::layers::buf::Buf;
//! use tautline::layers::ws::handshake::{HeadReader, Opening, Options, accept};
//! use tautline::{HeadLimits, Policy};
//!
//! let uri = "ws://example.org/chat".parse()?;
//! let mut opening = Opening::new(&uri, *b"16 random bytes!", &Options::default())?;
//! let (mut to_server, mut to_client) = (Buf::new(), Buf::new());
//! opening.write(&mut to_server);
//!
//! let mut reader = HeadReader::new(HeadLimits::default());
//! let (request, used) = reader.request(to_server.filled())?.expect("the whole head is there");
//! to_server.take(used);
//! let accepted = accept(&request, &Policy::default()).expect("a good request");
//! accepted.write(&mut to_client);
//!
//! let (established, used) = opening.read(to_client.filled())?.expect("the whole head is there");
//! assert_eq!(established.negotiated, accepted.negotiated);
//! assert_eq!(used, to_client.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod body;
mod chunked;
mod client;
mod error;
mod head;
mod host;
mod key;
mod negotiated;
mod origin;
mod rejection;
mod response;
mod server;
mod uri;

pub use body::BodyReader;
pub use chunked::{ChunkFlaw, ChunkPart, Chunked};
pub use client::{Established, Opening, Options};
pub use error::HandshakeError;
pub use head::{HeadLimits, HeadReader};
pub use host::{ascii_host, ascii_name, split_zone};
pub use negotiated::Negotiated;
pub use origin::{Origin, OriginError, Origins, authority, is_loopback};
pub use response::{Framing, Reply, keep_alive, write_response, write_response_head};
pub use server::{Accepted, Policy, Refusal, Refused, accept, accept_for, is_upgrade};
pub use uri::{Target, parse_uri, percent_decode};
