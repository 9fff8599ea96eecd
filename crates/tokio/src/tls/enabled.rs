use crate::error::Error;
use crate::session::Session;
use std::sync::{Mutex, PoisonError};
use tautline_tls::{ClientConfig, Engine as _, ServerConfig};
use tautline_tls_rustls::fused;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// TLS of an acceptor and its clones.
pub(crate) struct Server {
    engine: fused::Engine,
    /// The task that erases old ticket keys. It ends with its runtime.
    renewing: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    pub(crate) fn new(config: &ServerConfig) -> Result<Self, Error> {
        Ok(Self { engine: fused::Engine::server_without_thread(config)?, renewing: Mutex::default() })
    }

    /// Begins a connection.
    pub(crate) fn accept(&self) -> Result<Session, Error> {
        self.renew_tickets();
        Ok(Box::new(self.engine.accept()?))
    }

    /// Whether a task erases old ticket keys.
    #[cfg(test)]
    pub(crate) fn is_renewing(&self) -> bool {
        self.renewing.lock().unwrap().as_ref().is_some_and(|task| !task.is_finished())
    }

    pub(crate) fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        Ok(self.engine.reload(config)?)
    }

    /// Has ticket keys erased in time from now on, also if no other connection follows. Outside of a runtime, only handshakes
    /// erase them.
    fn renew_tickets(&self) {
        let mut renewing = self.renewing.lock().unwrap_or_else(PoisonError::into_inner);
        if renewing.as_ref().is_none_or(JoinHandle::is_finished)
            && self.engine.renew_tickets().is_some()
            && let Ok(runtime) = Handle::try_current()
        {
            let engine = self.engine.clone();
            *renewing = Some(runtime.spawn(async move {
                while let Some(wait) = engine.renew_tickets() {
                    tokio::time::sleep(wait).await;
                }
            }));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(renewing) = self.renewing.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            renewing.abort();
        }
    }
}

/// TLS of a connector and its clones.
#[derive(Clone)]
pub(crate) struct Client(fused::Engine);

impl Client {
    pub(crate) fn new(config: &ClientConfig) -> Result<Self, Error> {
        Ok(Self(fused::Engine::client(config)?))
    }

    /// Begins a connection.
    pub(crate) fn connect(&self, host: &str) -> Result<Session, tautline_tls::Error> {
        Ok(Box::new(self.0.connect(host)?))
    }
}
