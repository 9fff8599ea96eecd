use crate::config;
use crate::hello::Acceptor;
use crate::ticket::Sealer;
use arc_swap::{ArcSwap, Guard};
use std::sync::{Arc, Mutex, PoisonError};
use tautline_tls::{Error, ServerConfig, Tickets};
use tautline_tls_tickets::wanted;

/// A server's configuration of this moment. Handshakes read it through one atomic pointer.
pub(crate) struct Serving {
    now: ArcSwap<Acceptor>,
    /// Held by those who replace it, one at a time.
    tickets: Mutex<Ticketing>,
    /// Whether sessions may hand out their keys.
    secrets: bool,
}

/// Which tickets are used, and their keys, which outlive a reload.
struct Ticketing {
    asked: Tickets,
    ticketer: Option<Arc<Sealer>>,
}

impl Ticketing {
    fn new(config: &ServerConfig) -> Result<Self, Error> {
        let asked = wanted(config);
        let ticketer = Sealer::new(&asked)?.map(Arc::new);
        Ok(Self { asked, ticketer })
    }
}

impl Serving {
    pub(crate) fn new(config: &ServerConfig, secrets: bool) -> Result<Self, Error> {
        let tickets = Ticketing::new(config)?;
        let now = config::server(config, secrets, tickets.ticketer.clone(), config::Demands::Start)?;
        Ok(Self { now: ArcSwap::from_pointee(now), tickets: Mutex::new(tickets), secrets })
    }

    /// What a connection that begins now uses.
    pub(crate) fn acceptor(&self) -> Guard<Arc<Acceptor>> {
        self.now.load()
    }

    /// Has connections that begin from now on use `config`, or changes nothing.
    pub(crate) fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = if tickets.asked == wanted(config) { None } else { Some(Ticketing::new(config)?) };
        let ticketer = changed.as_ref().unwrap_or(&tickets).ticketer.clone();
        let new = config::server(config, self.secrets, ticketer, config::Demands::Reload)?;
        self.now.store(Arc::new(new));
        if let Some(changed) = changed {
            *tickets = changed;
        }
        Ok(())
    }
}
