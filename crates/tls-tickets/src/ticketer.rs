use crate::keys::Keys;
use crate::material::{Key, KeyMaker, Random};
use core::fmt;
use core::time::Duration;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tautline_tls::{ClientAuth, Error, ServerConfig, TicketKeySource, Tickets};

/// Longest sleep between two reads of the clock, since somebody may set it.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// Shortest time between two calls of a source.
pub(crate) const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// Renewal of keys while no handshake needs one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// A background thread, which also polls the source of a fleet's secrets.
    Thread,
    /// The caller, by [`Ticketer::renew`]: for a runtime with timers of its own. A fleet has the thread nevertheless, since
    /// its source may block.
    Caller,
}

/// The ticket keys of one server, for all shards and without a lock: one atomic pointer leads to them.
///
/// A thread that needs a key renews the keys first if their period has passed, so no key is used after its time. A
/// [`Renewal`] erases keys in time when no handshake comes. A background thread ends with the ticketer.
pub struct Ticketer<K> {
    pub(crate) keys: Arc<Keys<K>>,
    /// Dropping this ends the background thread. Without one it is `None`.
    alive: Option<Sender<()>>,
}

impl<K: Key> Ticketer<K> {
    /// Makes the keys, and starts their thread if they are to have one; `None` if tickets are off.
    ///
    /// `random` makes a server's own keys. A fleet's keys are derived for `format`: hosts resume each other's sessions
    /// if their engines have one format.
    ///
    /// # Errors
    /// [`Error::Config`] if the period or the epoch is out of range, the error of the source, and [`Error::Library`]
    /// without randomness or a thread.
    pub fn new(
        tickets: &Tickets,
        format: &'static str,
        random: Random,
        renewal: Renewal,
    ) -> Result<Option<Self>, Error> {
        let maker = KeyMaker { format, random };
        let (keys, source) = match tickets {
            Tickets::Off => return Ok(None),
            Tickets::Own { rotate } => (Keys::own(maker, period(*rotate)?, now())?, None),
            Tickets::Fleet { source, epoch } if epoch.subsec_nanos() == 0 => {
                (Keys::fleet(maker, source.secrets()?, period(*epoch)?, now())?, Some(Arc::clone(source)))
            }
            Tickets::Fleet { .. } => {
                return Err(Error::Config("tickets: an epoch must be a whole number of seconds".to_owned()));
            }
            _ => return Err(Error::unknown("tickets")),
        };
        let keys = Arc::new(keys);
        if renewal == Renewal::Caller && source.is_none() {
            return Ok(Some(Self { keys, alive: None }));
        }
        let (alive, stop) = channel();
        let rotated = Arc::clone(&keys);
        std::thread::Builder::new()
            .name("tautline-tickets".to_owned())
            .spawn(move || rotate_keys(&rotated, source.as_deref(), &stop))
            .map_err(|error| Error::Library(format!("no thread for ticket keys: {error}")))?;
        Ok(Some(Self { keys, alive: Some(alive) }))
    }

    /// Erases keys whose time is over. Returns the time until the next call is due; `None` if a thread does it.
    pub fn renew(&self) -> Option<Duration> {
        if self.alive.is_some() {
            return None;
        }
        renew_keys(&self.keys);
        Some(until_renewal(&self.keys))
    }

    /// Appends a server's own keys as bytes, for the process that takes its place. They are secret. Nothing for a fleet.
    pub fn save(&self, out: &mut Vec<u8>) {
        self.keys.save(out);
    }

    /// Goes on with the keys that another process [saved](Self::save). Tickets of this one's keys are then no longer opened. A
    /// fleet keeps its keys.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] if the bytes are no keys for tickets of this format. Nothing has changed then.
    pub fn restore(&self, saved: &[u8]) -> Result<(), Error> {
        self.keys.restore(saved)
    }

    /// The key that seals now; `None` if its period has passed and no other key could be made.
    #[must_use]
    pub fn current(&self) -> Option<Arc<K>> {
        self.keys.current(now())
    }

    /// Returns the first result of `look` that is `Some`, over the keys that open tickets now.
    pub fn find<T>(&self, look: impl FnMut(&K) -> Option<T>) -> Option<T> {
        self.keys.find(now(), look)
    }

    /// How many seconds a key is the current one, and therefore every ticket can be opened.
    #[must_use]
    pub fn period(&self) -> u32 {
        self.keys.period()
    }

    /// How many seconds a ticket that is sealed now can be opened.
    #[must_use]
    pub fn lifetime(&self) -> u32 {
        self.keys.lifetime(now())
    }
}

impl<K> fmt::Debug for Ticketer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticketer")
    }
}

/// The tickets of a server with this configuration: off if it requests certificates of all clients.
///
/// Sessions of clients from which a certificate is requested get no tickets, whatever others of the server get. A resumed session
/// does not present the client's certificate again, so a revoked certificate would live on in tickets. A ticket that was issued
/// before the server requested certificates is not accepted either.
#[must_use]
pub fn wanted(config: &ServerConfig) -> Tickets {
    let is_open = |auth: &ClientAuth| *auth == ClientAuth::None;
    let mut demands = config.certificates.iter().map(|certificate| config.client_auth_of(certificate));
    let is_any_open = if config.certificates.is_empty() { is_open(&config.client_auth) } else { demands.any(is_open) };
    if is_any_open { config.tickets.clone() } else { Tickets::Off }
}

/// Renews the keys and polls the source until `stop` is closed; the body of the background thread.
fn rotate_keys<K: Key>(keys: &Keys<K>, source: Option<&dyn TicketKeySource>, stop: &Receiver<()>) {
    let interval = source.map_or(Duration::MAX, |source| source.interval().max(SHORTEST_INTERVAL));
    let mut asked = Instant::now();
    let mut last_warning = String::new();
    loop {
        let wait = until_renewal(keys).min(interval.saturating_sub(asked.elapsed()));
        if stop.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        renew_keys(keys);
        let Some(source) = source.filter(|_| asked.elapsed() >= interval) else { continue };
        asked = Instant::now();
        match source.secrets().and_then(|secrets| keys.replace(secrets, now())) {
            Ok(true) => log::info!("the ticket secrets have changed"),
            Ok(false) => {}
            Err(error) if error.to_string() == last_warning => continue,
            Err(error) => {
                log::warn!("the old ticket secrets stay in use: {error}");
                last_warning = error.to_string();
                continue;
            }
        }
        last_warning.clear();
    }
}

/// The time after which the keys are to be looked at again.
fn until_renewal<K: Key>(keys: &Keys<K>) -> Duration {
    MAX_SLEEP.min(Duration::from_secs(keys.ring.load().until.saturating_sub(now()).max(1)))
}

fn renew_keys<K: Key>(keys: &Keys<K>) {
    if keys.renew(now()).is_err() {
        log::error!("no new ticket keys could be made; sessions are not resumed until they can be");
    }
}

fn period(period: Duration) -> Result<u64, Error> {
    let longest = Tickets::LONGEST;
    match period.as_secs() {
        seconds if seconds > 0 && period <= longest => Ok(seconds),
        _ => Err(Error::Config(format!("tickets: the period of a key must be 1s to {longest:?}"))),
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
