use crate::timer::now;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tautline_engine::{AddressMemory, ConnectError};

/// The addresses at which attempts of a connector failed recently. Its clones share them.
pub(crate) struct Addresses {
    began: Instant,
    memory: Mutex<AddressMemory>,
}

impl Addresses {
    /// The order in which to try the addresses of a name.
    pub(crate) fn order(&self, addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
        self.lock().order(addresses, self.elapsed())
    }

    /// An attempt at this address failed.
    pub(crate) fn failed(&self, address: SocketAddr, error: &ConnectError) {
        self.lock().failed(address, error, self.elapsed());
    }

    /// A connection to this address was opened.
    pub(crate) fn opened(&self, address: &SocketAddr) {
        self.lock().opened(address);
    }

    fn lock(&self) -> MutexGuard<'_, AddressMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elapsed(&self) -> Duration {
        now().saturating_duration_since(self.began)
    }
}

impl Default for Addresses {
    fn default() -> Self {
        Self { began: Instant::now(), memory: Mutex::default() }
    }
}
