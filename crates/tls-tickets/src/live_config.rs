use crate::{Key, Ticketer, wanted};
use arc_swap::{ArcSwap, Guard};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tautline_tls::chain::Strictness;
use tautline_tls::{Error, ServerConfig, Tickets};

/// Makes a library's parts of a server's configuration.
pub trait Builder {
    /// The library's configuration, with which connections begin.
    type Config;
    /// The library's key for tickets.
    type Key: Key;

    /// Makes the keys for tickets; `None` if tickets are off.
    ///
    /// # Errors
    /// The errors of [`Ticketer::new`].
    fn ticketer(&self, tickets: &Tickets) -> Result<Option<Ticketer<Self::Key>>, Error>;

    /// Makes the library's configuration.
    ///
    /// # Errors
    /// [`Error::Config`] if `config` is not usable.
    fn config(
        &self,
        config: &ServerConfig,
        ticketer: Option<Arc<Ticketer<Self::Key>>>,
        strictness: Strictness,
    ) -> Result<Self::Config, Error>;
}

/// The server's side of an engine: the current configuration, which a reload replaces. Clones share it.
///
/// An engine for clients alone has none. Handshakes read the configuration through one atomic pointer.
pub struct LiveConfig<B: Builder>(Option<Arc<Live<B>>>);

struct Live<B: Builder> {
    builder: B,
    now: ArcSwap<B::Config>,
    /// The lock of a reload, which runs one at a time.
    tickets: Mutex<Ticketing<B::Key>>,
}

/// The ticket settings and their keys, which a reload keeps unless it changes the settings.
struct Ticketing<K> {
    settings: Tickets,
    ticketer: Option<Arc<Ticketer<K>>>,
}

impl<K: Key> Ticketing<K> {
    fn new(builder: &impl Builder<Key = K>, config: &ServerConfig) -> Result<Self, Error> {
        let settings = wanted(config);
        let ticketer = builder.ticketer(&settings)?.map(Arc::new);
        Ok(Self { settings, ticketer })
    }
}

impl<B: Builder> LiveConfig<B> {
    /// Makes the library's configuration of a server, if there is one.
    ///
    /// # Errors
    /// The errors of `builder`.
    pub fn new(builder: B, config: Option<&ServerConfig>) -> Result<Self, Error> {
        let Some(config) = config else { return Ok(Self(None)) };
        let tickets = Ticketing::new(&builder, config)?;
        let now = builder.config(config, tickets.ticketer.clone(), Strictness::Start)?;
        Ok(Self(Some(Arc::new(Live { builder, now: ArcSwap::from_pointee(now), tickets: Mutex::new(tickets) }))))
    }

    /// The configuration for a connection that begins now.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] if the engine was built without a server configuration.
    pub fn current(&self) -> Result<Guard<Arc<B::Config>>, Error> {
        let live = self.0.as_ref().ok_or(Error::ApiMisuse("accept on an engine without server configuration"))?;
        Ok(live.now.load())
    }

    /// Replaces the configuration for new connections, or changes nothing if `config` has an error.
    ///
    /// # Errors
    /// The errors of the builder, and [`Error::ApiMisuse`] if the engine was built without a server configuration.
    pub fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        let live = self.0.as_ref().ok_or(Error::ApiMisuse("reload on an engine without server configuration"))?;
        let mut tickets = live.tickets();
        let changed =
            if tickets.settings == wanted(config) { None } else { Some(Ticketing::new(&live.builder, config)?) };
        let ticketer = changed.as_ref().unwrap_or(&tickets).ticketer.clone();
        live.now.store(Arc::new(live.builder.config(config, ticketer, Strictness::Reload)?));
        if let Some(changed) = changed {
            *tickets = changed;
        }
        Ok(())
    }

    /// The keys for tickets, unless tickets are off.
    fn ticketer(&self) -> Option<Arc<Ticketer<B::Key>>> {
        self.0.as_ref()?.tickets().ticketer.clone()
    }

    /// Appends the ticket keys, if they are this server's own.
    pub fn save_tickets(&self, out: &mut Vec<u8>) {
        if let Some(ticketer) = self.ticketer() {
            ticketer.save(out);
        }
    }

    /// Goes on with the ticket keys of another process, unless tickets are off.
    ///
    /// # Errors
    /// The errors of [`Ticketer::restore`].
    pub fn restore_tickets(&self, saved: &[u8]) -> Result<(), Error> {
        self.ticketer().map_or(Ok(()), |ticketer| ticketer.restore(saved))
    }

    /// Erases ticket keys whose time is over. Returns the time until the next call; `None` if none is due.
    pub fn renew_tickets(&self) -> Option<Duration> {
        self.ticketer()?.renew()
    }
}

impl<B: Builder> Live<B> {
    fn tickets(&self) -> MutexGuard<'_, Ticketing<B::Key>> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Builder> Clone for LiveConfig<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
