//! Loops of this project's client without type parameters, so that no load is compiled for each engine.

use super::server::Server;
use crate::Error;
use crate::loops::App;
use std::sync::Arc;
use std::time::Duration;
use tautline::layers::engine::probe::{Probe, Stages};
use tautline::layers::tls::Engine;
use tautline::{ClientConfig, CloseCode, Config, Conn, ConnId, DialId, EngineKind, Shard, SlowConsumer};
use tautline::{Target, Then, settle_driver};

/// A shard with any TLS engine; see the methods of [`Shard`].
pub(super) trait Loop {
    fn connect(&mut self, target: Arc<Target>) -> DialId;

    fn turn(&mut self, longest: Duration) -> Result<(), Error>;

    fn with_conn(&mut self, conn: ConnId, act: &mut dyn FnMut(&mut Conn<'_, ()>));

    fn flush(&mut self);

    /// Closes all connections normally.
    fn drain(&mut self, deadline: Duration);

    fn is_drained(&self) -> bool;

    fn stages(&self) -> Option<Box<Stages>>;

    /// Bytes that the driver received.
    fn received(&self) -> u64;
}

impl<E: Engine> Loop for Shard<E, App> {
    fn connect(&mut self, target: Arc<Target>) -> DialId {
        Self::connect(self, target)
    }

    fn turn(&mut self, longest: Duration) -> Result<(), Error> {
        Self::turn(self, Some(longest)).map_err(|error| Error::Failed(format!("the driver failed: {error}")))
    }

    fn with_conn(&mut self, conn: ConnId, act: &mut dyn FnMut(&mut Conn<'_, ()>)) {
        Self::with_conn(self, conn, |_, conn| act(conn));
    }

    fn flush(&mut self) {
        Self::flush(self);
    }

    fn drain(&mut self, deadline: Duration) {
        Self::drain(self, CloseCode::NORMAL, "", deadline);
    }

    fn is_drained(&self) -> bool {
        Self::is_drained(self)
    }

    fn stages(&self) -> Option<Box<Stages>> {
        Self::stages(self)
    }

    fn received(&self) -> u64 {
        self.counters().bytes_in
    }
}

/// A loop before its engine is known.
pub(super) struct MakeLoop<'a> {
    pub(super) server: &'a Server,
    pub(super) tls: &'a ClientConfig,
    pub(super) config: Config,
    pub(super) app: App,
    pub(super) probe: Option<Box<dyn Probe>>,
}

impl Then for MakeLoop<'_> {
    type Output = Result<Box<dyn Loop>, Error>;

    fn with<K: EngineKind>(self, kind: K) -> Self::Output {
        let engine = kind.client(self.tls).map_err(Error::usage)?;
        let driver = settle_driver(self.server.driver.clone(), kind.capabilities()).map_err(Error::usage)?;
        let open = driver.open();
        let open = open.map_err(|error| Error::Failed(format!("cannot use the driver {}: {error}", driver.name())))?;
        let shard = Shard::new(0, self.config.into(), engine, open, self.app);
        let mut shard = shard.map_err(|error| Error::Failed(format!("cannot make a loop: {error}")))?;
        if let Some(probe) = self.probe {
            shard.set_probe(probe);
        }
        Ok(Box::new(shard))
    }
}

/// Limits and deadlines of a client that must neither end a connection nor hold messages back.
///
/// Above all it reads while it cannot send: two echoing ends that both stop reading would wait for ever.
pub(super) fn config(size: usize, in_flight: usize) -> Config {
    let mut config = Config::low_latency();
    config.limits.max_message = size.max(1 << 10);
    config.limits.max_connections = usize::MAX;
    config.limits.max_handshakes = usize::MAX;
    config.limits.memory = usize::MAX;
    config.limits.pause_receive_above = usize::MAX;
    config.deadlines.ping = None;
    config.deadlines.idle = None;
    let most = (size + 1024).saturating_mul(in_flight + 1).saturating_add(1 << 20);
    config.slow_consumer = SlowConsumer::Disconnect(most);
    config
}
