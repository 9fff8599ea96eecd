use super::{Excess, Rate, Sources};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;
use tautline::SlowConsumer;

/// The keys of a route whose WebSockets end at the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Longest message either way, in bytes after inflation.
    pub max_size: usize,
    /// Messages of clients.
    pub rates: Rates,
    /// Whether clients are offered compression. The server's side has none.
    pub deflate: bool,
    /// The policy for clients that do not read.
    pub slow: Slow,
}

impl Default for Settings {
    fn default() -> Self {
        Self { max_size: 1 << 20, rates: Rates::default(), deflate: false, slow: Slow::default() }
    }
}

/// Most messages of clients in a second; `None` for no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Of one connection.
    pub connection: Option<NonZeroU32>,
    /// Of all connections of one address.
    pub address: Option<NonZeroU32>,
    /// Of all connections of the route.
    pub route: Option<NonZeroU32>,
}

/// The policy for a client that does not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slow {
    /// Its server is not read until it does.
    #[default]
    Pause,
    /// That of the loop: its messages wait up to a limit.
    Policy(SlowConsumer),
}

impl Slow {
    /// The policy for messages to this client. A pause bounds them by itself.
    #[must_use]
    pub const fn policy(self) -> SlowConsumer {
        match self {
            Self::Pause => SlowConsumer::Disconnect(usize::MAX),
            Self::Policy(policy) => policy,
        }
    }
}

/// The state that all pairs of a route share, in all loops. A reload that does not change the settings keeps it.
#[derive(Debug)]
pub struct Messages {
    /// The route's keys.
    pub settings: Settings,
    begun: Instant,
    route: Option<Rate>,
    sources: Sources,
}

impl Messages {
    /// Nothing has passed.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let route = settings.rates.route.map(Rate::new);
        let sources = Sources::new(settings.rates.address);
        Self { settings, begun: Instant::now(), route, sources }
    }

    /// The rate that all connections of an address share, if it is limited.
    #[must_use]
    pub fn rate_of(&self, source: Option<IpAddr>) -> Option<Arc<Rate>> {
        self.sources.rate_of(source?, self.now())
    }

    /// Takes a message of a client, in the rates of its connection, its address and the route.
    ///
    /// # Errors
    /// The one that is exceeded.
    pub fn take(&self, connection: Option<&Rate>, address: Option<&Rate>) -> Result<(), Excess> {
        if connection.is_none() && address.is_none() && self.route.is_none() {
            return Ok(());
        }
        let now = self.now();
        let takes = |rate: Option<&Rate>| rate.is_none_or(|rate| rate.take(now));
        if !takes(connection) {
            return Err(Excess::Connection);
        }
        if !takes(address) {
            return Err(Excess::Address);
        }
        if takes(self.route.as_ref()) { Ok(()) } else { Err(Excess::Route) }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
