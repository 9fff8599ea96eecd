//! How records meet buffers: the ways that a library's ciphertext and plaintext can take between its caller's buffers.
//!
//! What most programs do (memory BIOs, rustls' readers and writers) is here to be measured beside what the engines do; the
//! AEAD alone, in the framing of TLS 1.3, is the limit. Every way is an [`End`], so that all of them do the same work:
//! records in memory ([`Memory`]), both directions of one connection at once ([`Duplex`]), many small reads beside large
//! ones ([`Frames`]), and requests over TLS ([`Gets`]).

mod bare;
mod buffered;
mod duplex;
mod end;
mod frames;
mod get;
#[cfg(feature = "libssl")]
mod libssl;
mod link;
mod memory;

use crate::Error;
use end::Own;
use std::fmt::Display;
use tautline::layers::tls::Engine;
use tautline::layers::tls_rustls::{self, fused};
use tautline::{Certificate, ClientConfig, Roots, ServerConfig, Tickets};
use tautline_testkit::certificate::{Authority, Leaf};

pub use duplex::{Duplex, Moved};
pub use end::End;
pub use frames::Frames;
pub use get::{Gets, Got};
pub use memory::{Direction, Memory};

/// How records meet buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Records lie in memory of a BIO's on their way in and out, as in most programs.
    MemoryBio,
    /// The library reads from and writes to the caller's buffers; what it opened is copied to whoever wants it.
    WindowBio,
    /// It also opens straight into the memory of whoever wants it, where that has room for a whole record.
    Direct,
    /// rustls' readers and writers.
    Buffered,
    /// rustls' interface without buffers of its own.
    Unbuffered,
    /// Records opened and sealed in place.
    Fused,
    /// No TLS: the AEAD alone, in the framing of TLS 1.3.
    Aead,
}

impl Strategy {
    /// Name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemoryBio => "memory-bio",
            Self::WindowBio => "window-bio",
            Self::Direct => "direct",
            Self::Buffered => "buffered",
            Self::Unbuffered => "unbuffered",
            Self::Fused => "fused",
            Self::Aead => "aead",
        }
    }
}

/// A library and how its records meet buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The engine that the library belongs to; none for the AEAD alone.
    pub tls: Option<&'static str>,
    /// How its records meet buffers.
    pub strategy: Strategy,
}

impl Way {
    /// Every way of this build.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut ways = Vec::new();
        #[cfg(feature = "libssl")]
        for flavour in libssl::flavours() {
            // Only the OpenSSL family has BIOs of its own.
            let has_memory_bio = tautline::layers::tls_libssl::Flavour::ALL.contains(&flavour);
            ways.extend(has_memory_bio.then_some(Self { tls: Some(flavour.name()), strategy: Strategy::MemoryBio }));
            ways.extend(
                [Strategy::WindowBio, Strategy::Direct].map(|strategy| Self { tls: Some(flavour.name()), strategy }),
            );
        }
        ways.extend([Strategy::Buffered, Strategy::Unbuffered].map(|strategy| Self { tls: Some("rustls"), strategy }));
        ways.push(Self { tls: Some("fused"), strategy: Strategy::Fused });
        ways.push(Self { tls: None, strategy: Strategy::Aead });
        ways
    }

    /// For people.
    #[must_use]
    pub fn name(self) -> String {
        self.tls.map_or_else(|| self.strategy.name().to_owned(), |tls| format!("{tls} {}", self.strategy.name()))
    }

    /// Whether the library can be made to write past its caller's buffers.
    #[must_use]
    pub const fn can_spill(self) -> bool {
        matches!(self.strategy, Strategy::WindowBio)
    }
}

/// Makes both ends of connections, each with a full handshake.
pub struct Maker(Box<Make>);

type Make = dyn Fn(Side) -> Result<Box<dyn End>, Error> + Send + Sync;

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It accepts.
    Server,
    /// It connects, to `localhost`.
    Client,
}

impl Maker {
    /// Of connections with AES-128-GCM and a P-256 certificate.
    ///
    /// # Errors
    /// The library refuses the configuration, or is not in this build.
    pub fn new(way: Way) -> Result<Self, Error> {
        let authority = Authority::new("windows").map_err(|error| failed(&error))?;
        let leaf = Leaf { names: &["localhost"], ..Leaf::default() };
        let certificate = authority.issue(&leaf).map_err(|error| failed(&error))?;
        let server = server(certificate);
        let roots = Roots::Pem(authority.certificate().as_bytes().to_vec());
        let client = ClientConfig { roots, no_resumption: true, ..ClientConfig::default() };
        match way.strategy {
            Strategy::Fused => Self::of(fused::Engine::new(Some(&server), Some(&client))),
            Strategy::Unbuffered => Self::of(tls_rustls::Engine::new(Some(&server), Some(&client))),
            Strategy::Buffered => buffered::maker(&server.certificates[0], authority.certificate()),
            Strategy::Aead => Ok(Self(Box::new(|side| Ok(Box::new(bare::Bare::new(side)?))))),
            Strategy::MemoryBio | Strategy::WindowBio | Strategy::Direct => Self::libssl(way, &server, &client),
        }
    }

    fn of<E: Engine>(engine: Result<E, tautline::layers::tls::Error>) -> Result<Self, Error> {
        let engine = engine.map_err(|error| failed(&error))?;
        Ok(Self(Box::new(move |side| {
            let session = match side {
                Side::Server => engine.accept(),
                Side::Client => engine.connect("localhost"),
            };
            Ok(Box::new(Own::new(session.map_err(|error| failed(&error))?)))
        })))
    }

    #[cfg(feature = "libssl")]
    fn libssl(way: Way, server: &ServerConfig, client: &ClientConfig) -> Result<Self, Error> {
        libssl::maker(way, server, client)
    }

    #[cfg(not(feature = "libssl"))]
    fn libssl(way: Way, _: &ServerConfig, _: &ClientConfig) -> Result<Self, Error> {
        Err(Error::Usage(format!("{} is not in this build", way.name())))
    }

    /// One end, before its handshake.
    ///
    /// # Errors
    /// The library has no memory for it.
    pub fn end(&self, side: Side) -> Result<Box<dyn End>, Error> {
        (self.0)(side)
    }

    /// Both ends, the client's first, behind a handshake in memory.
    ///
    /// # Errors
    /// The handshake failed, or agreed on another cipher.
    pub fn pair(&self) -> Result<[Box<dyn End>; 2], Error> {
        let mut ends = [self.end(Side::Client)?, self.end(Side::Server)?];
        let mut wires = [Vec::new(), Vec::new()];
        let mut done = [false; 2];
        // Each flight takes a turn; a handshake has three, and one with another group five.
        for turn in 0..12 {
            let at = turn % 2;
            let mut wire = std::mem::take(&mut wires[at]);
            let mut out = tautline::layers::window::Buf::new();
            let mut used = 0;
            if !done[at] {
                (used, done[at]) = ends[at].handshake(&mut wire, &mut out)?;
            }
            while used < wire.len() {
                // What a server sends behind its handshake.
                let read = ends[at].open(&mut wire[used..], &mut out, &mut |_| ())?;
                if read == 0 {
                    break;
                }
                used += read;
            }
            wires[1 - at].extend_from_slice(out.filled());
            wire.drain(..used);
            wire.append(&mut wires[at]);
            wires[at] = wire;
        }
        match done {
            [true, true] => Ok(ends),
            _ => Err(Error::Failed("a handshake in memory came to no end".to_owned())),
        }
    }
}

fn server(certificate: Certificate) -> ServerConfig {
    ServerConfig { certificates: vec![certificate], tickets: Tickets::Off, ..ServerConfig::default() }
}

fn failed(error: &dyn Display) -> Error {
    Error::Failed(format!("windows: {error}"))
}

#[cfg(test)]
mod tests;
