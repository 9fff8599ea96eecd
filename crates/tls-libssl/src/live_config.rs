use crate::config::{self, Strictness};
use crate::signers::Signers;
use crate::sys::{Context, Library, TicketKeys, ticket_keys};
use arc_swap::ArcSwap;
use std::sync::{Arc, Mutex, PoisonError};
use tautline_tls::{Error, KeyCost, ServerConfig, Signing, Tickets};
use tautline_tls_tickets::wanted;

/// The current configuration of a server, which a reload replaces.
pub(crate) struct LiveConfig {
    library: Library,
    secrets: bool,
    now: ArcSwap<Current>,
    /// The lock of a reload, which runs one at a time.
    reloading: Mutex<()>,
}

/// The state that a connection which begins now uses.
struct Current {
    context: Arc<Context>,
    signers: Signers,
    ticket_settings: Tickets,
    tickets: Option<Arc<TicketKeys>>,
}

impl LiveConfig {
    pub(crate) fn new(library: Library, config: &ServerConfig, secrets: bool) -> Result<Self, Error> {
        let ticket_settings = wanted(config);
        let tickets = ticket_keys(library, &ticket_settings)?;
        let (context, signers) = config::server(library, config, tickets.clone(), Strictness::Start, secrets)?;
        let now = ArcSwap::from_pointee(Current { context: Arc::new(context), signers, ticket_settings, tickets });
        Ok(Self { library, secrets, now, reloading: Mutex::new(()) })
    }

    pub(crate) fn context(&self) -> Arc<Context> {
        Arc::clone(&self.now.load().context)
    }

    /// The cost of the signature for a client, from its first bytes; `None` if it is not known.
    pub(crate) fn signing(&self, hello: &[u8]) -> Option<Signing> {
        self.now.load().signers.signing(hello)
    }

    /// The times that the server's keys take to sign.
    pub(crate) fn key_costs(&self) -> Vec<KeyCost> {
        self.now.load().signers.key_costs()
    }

    /// Appends the ticket keys, if they are this server's own.
    pub(crate) fn save_tickets(&self, out: &mut Vec<u8>) {
        if let Some(tickets) = &self.now.load().tickets {
            tickets.save(out);
        }
    }

    /// Goes on with the ticket keys of another process, unless tickets are off.
    pub(crate) fn restore_tickets(&self, saved: &[u8]) -> Result<(), Error> {
        let _no_reload_meanwhile = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        self.now.load().tickets.as_ref().map_or(Ok(()), |tickets| tickets.restore(saved))
    }

    /// Replaces the configuration for new connections, or changes nothing if `config` has an error.
    pub(crate) fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        let _one_at_a_time = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.now.load_full();
        let ticket_settings = wanted(config);
        let tickets = if before.ticket_settings == ticket_settings {
            before.tickets.clone()
        } else {
            ticket_keys(self.library, &ticket_settings)?
        };
        let (context, signers) =
            config::server(self.library, config, tickets.clone(), Strictness::Reload, self.secrets)?;
        self.now.store(Arc::new(Current { context: Arc::new(context), signers, ticket_settings, tickets }));
        Ok(())
    }
}
