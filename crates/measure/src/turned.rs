//! Loops without type parameters that their owner turns, so that no load is compiled for each engine.

use crate::Error;
use crate::loops::App;
use std::ops::{Deref, DerefMut};
use std::time::Duration;
use tautline::layers::engine::probe::Probe;
use tautline::{ClientConfig, CloseCode, Config, DriverConfig, EngineChoice as _, EngineKind};
use tautline::{Shard, StatelessLoop, Then, TlsEngine, settle_driver};

/// A loop with any TLS engine, whose errors are those of a measurement.
pub struct Turned(Box<dyn StatelessLoop>);

impl Turned {
    /// Takes one turn, which waits at most `longest`.
    ///
    /// # Errors
    /// The driver failed.
    pub fn turn(&mut self, longest: Duration) -> Result<(), Error> {
        self.0.turn(Some(longest)).map_err(|error| Error::Failed(format!("the driver failed: {error}")))
    }

    /// Closes all connections normally.
    pub fn drain(&mut self, deadline: Duration) {
        self.0.drain(CloseCode::NORMAL, "", deadline);
    }
}

impl Deref for Turned {
    type Target = dyn StatelessLoop;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl DerefMut for Turned {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.0
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
    pub fn make(self, engine: TlsEngine) -> Result<Turned, Error> {
        engine.choose(self)
    }
}

impl Then for MakeLoop<'_> {
    type Output = Result<Turned, Error>;

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
        Ok(Turned(Box::new(shard)))
    }
}
