use crate::config::{self, Demands};
use crate::signers::Signers;
use crate::sys::{Context, Library, TicketKeys, ticket_keys};
use arc_swap::ArcSwap;
use std::sync::{Arc, Mutex, PoisonError};
use tautline_tls::{Error, KeyCost, ServerConfig, Signing, Tickets};
use tautline_tls_tickets::wanted;

/// A server's configuration of this moment.
pub(crate) struct Serving {
    library: Library,
    secrets: bool,
    now: ArcSwap<Current>,
    /// Held by those who replace it, one at a time.
    reloading: Mutex<()>,
}

/// What a connection that begins now uses.
struct Current {
    context: Arc<Context>,
    signers: Signers,
    asked: Tickets,
    tickets: Option<Arc<TicketKeys>>,
}

impl Serving {
    pub(crate) fn new(library: Library, config: &ServerConfig, secrets: bool) -> Result<Self, Error> {
        let asked = wanted(config);
        let tickets = ticket_keys(library, &asked)?;
        let (context, signers) = config::server(library, config, tickets.clone(), Demands::Start, secrets)?;
        let now = ArcSwap::from_pointee(Current { context: Arc::new(context), signers, asked, tickets });
        Ok(Self { library, secrets, now, reloading: Mutex::new(()) })
    }

    pub(crate) fn context(&self) -> Arc<Context> {
        Arc::clone(&self.now.load().context)
    }

    /// What a signature for the client whose first bytes these are will cost.
    pub(crate) fn signing(&self, hello: &[u8]) -> Option<Signing> {
        self.now.load().signers.signing(hello)
    }

    /// What keys take to sign.
    pub(crate) fn key_costs(&self) -> Vec<KeyCost> {
        self.now.load().signers.key_costs()
    }

    /// Has connections that begin from now on use `config`, or changes nothing.
    pub(crate) fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        let _one_at_a_time = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.now.load_full();
        let asked = wanted(config);
        let tickets = if before.asked == asked { before.tickets.clone() } else { ticket_keys(self.library, &asked)? };
        let (context, signers) = config::server(self.library, config, tickets.clone(), Demands::Reload, self.secrets)?;
        self.now.store(Arc::new(Current { context: Arc::new(context), signers, asked, tickets }));
        Ok(())
    }
}
