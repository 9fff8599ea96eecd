use super::baseline::Baseline;
use super::model::Model;
use super::source::Source;
use super::{always_offload, loop_per_core, shared_loop};
use std::net::{SocketAddr, TcpListener};
use tautline::{EngineChoice as _, EngineKind, Then};
use tautline_measure::Error;
use tautline_measure::poll::listen;

impl Baseline {
    /// Serves until the process ends. `ready` gets the addresses once connections are accepted.
    ///
    /// Each loop of [`Model::LoopPerCore`] has its own port: the first that of `address`, the others any free one.
    ///
    /// # Errors
    /// It cannot listen, or its poller fails.
    pub fn serve(self, address: SocketAddr, ready: impl FnOnce(&[SocketAddr])) -> Result<(), Error> {
        if self.threads == 0 {
            return Err(Error::Usage("a server needs at least one thread".to_owned()));
        }
        if self.model == Model::LoopPerCore {
            return loop_per_core::serve(&self, address, ready);
        }
        let listener = listen(address).map_err(|error| Error::io(format_args!("listen at {address}"), error))?;
        ready(&[listener.local_addr().map_err(|error| Error::io("the address", error))?]);
        self.tls.choose(Serve { baseline: &self, listener })
    }
}

/// A server that listens, before its engine is known.
struct Serve<'a> {
    baseline: &'a Baseline,
    listener: TcpListener,
}

impl Then for Serve<'_> {
    type Output = Result<(), Error>;

    fn with<K: EngineKind>(self, kind: K) -> Self::Output {
        let Self { baseline, listener } = self;
        let engine = kind.server(&baseline.config).map_err(Error::usage)?;
        let source = baseline.is_source.then(Source::new);
        let result = match baseline.model {
            Model::AlwaysOffload => always_offload::serve(listener, engine, baseline, source),
            _ => shared_loop::serve(listener, engine, baseline, source),
        };
        result.map_err(|error| Error::io(baseline.model, error))
    }
}
