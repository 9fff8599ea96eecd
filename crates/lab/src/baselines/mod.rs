//! Servers that do it another way, kept only to be measured.
//!
//! They stand on the same sessions, decoders and encoders as ours and differ in who runs them when:
//!
//! | model | threads | who serves a connection |
//! |---|---|---|
//! | [`LoopPerCore`](Model::LoopPerCore) | each a loop of this project, with a port of its own | always the same loop |
//! | [`SharedLoop`](Model::SharedLoop) | all wait at one epoll(7) | whichever thread is free, behind a lock per connection |
//! | [`AlwaysOffload`](Model::AlwaysOffload) | one loop for the sockets, a pool for TLS | the loop, which hands every TLS operation over and waits to be called back |
//!
//! The last two are what two published reports describe: a proactor run by many threads, and a loop whose TLS library sits
//! behind pairs of rings in a thread pool.

mod always_offload;
mod end;
mod loop_per_core;
mod shared_loop;

use crate::Error;
use crate::limit::listen;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::str::FromStr;
use std::sync::Arc;
use tautline::layers::tls::Engine;
use tautline::layers::tls_rustls::{self, fused};
use tautline::{Message, Records, ServerConfig, TlsEngine};

/// Bytes that one receive takes.
const RECEIVE: usize = 64 << 10;

/// Largest message that a baseline takes.
const MAX_MESSAGE: usize = 16 << 20;

/// What a source answers with.
type Source = Arc<Vec<u8>>;

fn source() -> Source {
    Arc::new(vec![b'.'; MAX_MESSAGE])
}

/// As many bytes as the message asks for: a number, little-endian.
fn answer<'a>(source: &'a Source, message: &Message<'_>) -> &'a [u8] {
    let size = message.data().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    &source[..usize::try_from(size).map_or(MAX_MESSAGE, |size| size.min(MAX_MESSAGE))]
}

/// How threads and connections come together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Loops that share nothing.
    LoopPerCore,
    /// Threads that share one poller.
    SharedLoop,
    /// One loop, and a pool for all of TLS.
    AlwaysOffload,
}

impl Model {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::LoopPerCore, Self::SharedLoop, Self::AlwaysOffload];

    /// Name in results and arguments.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LoopPerCore => "loop-per-core",
            Self::SharedLoop => "shared-loop",
            Self::AlwaysOffload => "always-offload",
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Model {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|model| model.name() == name).ok_or_else(|| format!("there is no model {name:?}"))
    }
}

/// A server to measure.
pub struct Baseline {
    /// Who serves whom.
    pub model: Model,
    /// Loops, threads at the poller, or threads of the pool.
    pub threads: usize,
    /// Answer with as many bytes as a message asks for, instead of with the message itself.
    pub is_source: bool,
    /// TLS library.
    pub tls: TlsEngine,
    /// Its certificate.
    pub config: ServerConfig,
    /// Help with large messages, for [`Model::LoopPerCore`].
    pub records: Option<Records>,
    /// CPUs that threads are pinned to, in turn; empty leaves them to the scheduler. Those of a pool always are.
    pub cpus: Vec<usize>,
}

impl Baseline {
    /// Serves until the process ends. `ready` is told where once connections are accepted. Loops that share nothing
    /// have a port each: the first has that of `address`, the others any that is free.
    ///
    /// # Errors
    /// It cannot listen, or its poller fails.
    pub fn serve(self, address: SocketAddr, ready: impl FnOnce(&[SocketAddr])) -> Result<(), Error> {
        if self.threads == 0 {
            return Err(Error::Usage("a server needs at least one thread".to_owned()));
        }
        if self.model == Model::LoopPerCore {
            return loop_per_core::serve(self, address, ready);
        }
        let listener = listen(address).map_err(|error| Error::io(format_args!("listen at {address}"), error))?;
        ready(&[listener.local_addr().map_err(|error| Error::io("the address", error))?]);
        let failed = |error: tautline::layers::tls::Error| Error::Usage(error.to_string());
        match self.tls {
            TlsEngine::Rustls => self.run(listener, tls_rustls::Engine::server(&self.config).map_err(failed)?),
            #[cfg(feature = "libssl")]
            TlsEngine::Libssl(flavour) => {
                let engine = tautline::layers::tls_libssl::Engine::new(flavour, Some(&self.config), None);
                self.run(listener, engine.map_err(failed)?)
            }
            #[cfg(feature = "libssl")]
            TlsEngine::FusedLibssl(flavour) => {
                let engine = tautline::layers::tls_libssl::fused::Engine::new(flavour, Some(&self.config), None);
                self.run(listener, engine.map_err(failed)?)
            }
            TlsEngine::Fused => self.run(listener, fused::Engine::server(&self.config).map_err(failed)?),
            other => Err(Error::Usage(format!("{} is not served by {other}", self.model))),
        }
    }

    fn run<E: Engine>(&self, listener: TcpListener, engine: E) -> Result<(), Error> {
        debug_assert_eq!(engine.name(), self.tls.name(), "what is measured is not what results say");
        let answer = self.is_source.then(source);
        let result = match self.model {
            Model::AlwaysOffload => always_offload::serve(listener, engine, self, answer),
            _ => shared_loop::serve(listener, engine, self, answer),
        };
        result.map_err(|error| Error::io(self.model, error))
    }
}

#[cfg(test)]
mod tests;
