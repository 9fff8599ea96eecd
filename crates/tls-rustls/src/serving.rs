use crate::config;
use crate::hello::Acceptor;
use crate::ticket::Ticketer;
use arc_swap::{ArcSwap, Guard};
use std::sync::{Arc, Mutex, PoisonError};
use tautline_tls::{ClientAuth, Error, ServerConfig, Tickets};

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
    ticketer: Option<Arc<Ticketer>>,
}

impl Ticketing {
    fn new(config: &ServerConfig) -> Result<Self, Error> {
        let asked = wanted(config);
        let ticketer = Ticketer::new(&asked)?;
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

/// A resumed session does not show a client's certificate again, so a revoked one would live on in tickets. Nor is a ticket
/// taken that was issued while no certificate was asked for.
fn wanted(config: &ServerConfig) -> Tickets {
    match config.client_auth {
        ClientAuth::None => config.tickets.clone(),
        ClientAuth::Required(_) | ClientAuth::Optional(_) => Tickets::Off,
    }
}
