//! Loops without type parameters that their owner turns, so that no load is compiled for each engine.

use crate::Error;
use crate::loops::App;
use std::sync::Arc;
use std::time::Duration;
use tautline::layers::engine::probe::{Probe, Stages};
use tautline::layers::tls::Engine;
use tautline::{ClientConfig, CloseCode, Config, Conn, ConnId, DialId, DriverConfig, EngineChoice as _, EngineKind};
use tautline::{Shard, Target, Then, TlsEngine, settle_driver};

/// A shard with any TLS engine; see the methods of [`Shard`].
pub trait Loop {
    /// Begins to connect.
    fn connect(&mut self, target: Arc<Target>) -> DialId;

    /// Takes one turn, which waits at most `longest`.
    ///
    /// # Errors
    /// The driver failed.
    fn turn(&mut self, longest: Duration) -> Result<(), Error>;

    /// Calls `act` with a connection, if it is open.
    fn with_conn(&mut self, conn: ConnId, act: &mut dyn FnMut(&mut Conn<'_, ()>));

    /// Sends what waits in corks.
    fn flush(&mut self);

    /// Closes all connections normally.
    fn drain(&mut self, deadline: Duration);

    /// Whether all connections are closed.
    fn is_drained(&self) -> bool;

    /// The times of messages, with a probe for stages.
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
pub struct MakeLoop<'a> {
    /// Driver of the sockets.
    pub driver: DriverConfig,
    /// TLS of the connections.
    pub tls: &'a ClientConfig,
    /// Limits and deadlines.
    pub config: Config,
    /// Handler of the connections.
    pub app: App,
    /// Observer of the messages.
    pub probe: Option<Box<dyn Probe>>,
}

impl MakeLoop<'_> {
    /// Makes the loop with an engine.
    ///
    /// # Errors
    /// The engine, its configuration or the driver cannot work.
    pub fn make(self, engine: TlsEngine) -> Result<Box<dyn Loop>, Error> {
        engine.choose(self)
    }
}

impl Then for MakeLoop<'_> {
    type Output = Result<Box<dyn Loop>, Error>;

    fn with<K: EngineKind>(self, kind: K) -> Self::Output {
        let engine = kind.client(self.tls).map_err(Error::usage)?;
        let driver = settle_driver(self.driver.clone(), kind.capabilities()).map_err(Error::usage)?;
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
