use crate::config;
use crate::server_configs::ServerConfigs;
use crate::strictness::Strictness;
use crate::ticket::Sealer;
use arc_swap::{ArcSwap, Guard};
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};
use tautline_tls::{Error, ServerConfig, Tickets};
use tautline_tls_tickets::{Renewal, wanted};

/// The current configuration of a server, which a reload replaces. Handshakes read it through one atomic pointer.
pub(crate) struct LiveConfig {
    now: ArcSwap<ServerConfigs>,
    /// The lock of a reload, which runs one at a time.
    tickets: Mutex<Ticketing>,
    /// Whether sessions may export their keys.
    secrets: bool,
    renewal: Renewal,
}

/// The ticket settings and their keys, which a reload keeps unless it changes the settings.
struct Ticketing {
    settings: Tickets,
    ticketer: Option<Arc<Sealer>>,
}

impl Ticketing {
    fn new(config: &ServerConfig, renewal: Renewal) -> Result<Self, Error> {
        let settings = wanted(config);
        let ticketer = Sealer::new(&settings, renewal)?.map(Arc::new);
        Ok(Self { settings, ticketer })
    }
}

impl LiveConfig {
    pub(crate) fn new(config: &ServerConfig, secrets: bool, renewal: Renewal) -> Result<Self, Error> {
        let tickets = Ticketing::new(config, renewal)?;
        let now = config::server(config, secrets, tickets.ticketer.clone(), Strictness::Start)?;
        Ok(Self { now: ArcSwap::from_pointee(now), tickets: Mutex::new(tickets), secrets, renewal })
    }

    /// The configurations for a connection that begins now.
    pub(crate) fn current(&self) -> Guard<Arc<ServerConfigs>> {
        self.now.load()
    }

    /// Replaces the configuration for new connections, or changes nothing if `config` has an error.
    pub(crate) fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        let changed =
            if tickets.settings == wanted(config) { None } else { Some(Ticketing::new(config, self.renewal)?) };
        let ticketer = changed.as_ref().unwrap_or(&tickets).ticketer.clone();
        let new = config::server(config, self.secrets, ticketer, Strictness::Reload)?;
        self.now.store(Arc::new(new));
        if let Some(changed) = changed {
            *tickets = changed;
        }
        Ok(())
    }

    /// Appends the ticket keys, if they are this server's own.
    pub(crate) fn save_tickets(&self, out: &mut Vec<u8>) {
        let tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ticketer) = &tickets.ticketer {
            ticketer.save(out);
        }
    }

    /// Goes on with the ticket keys of another process, unless tickets are off.
    pub(crate) fn restore_tickets(&self, saved: &[u8]) -> Result<(), Error> {
        let tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.ticketer.as_ref().map_or(Ok(()), |ticketer| ticketer.restore(saved))
    }

    /// Erases ticket keys whose time is over. Returns the time until the next call; `None` if none is due.
    pub(crate) fn renew_tickets(&self) -> Option<Duration> {
        let tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.ticketer.as_ref().and_then(|ticketer| ticketer.renew())
    }
}
