use crate::keys::Keys;
use crate::material::{Key, Maker, Random};
use core::fmt;
use core::time::Duration;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tautline_tls::{ClientAuth, Error, ServerConfig, TicketKeySource, Tickets};

/// Longest sleep between two looks at the clock, which may be set.
const LOOK: Duration = Duration::from_secs(60);

/// Shortest time between two questions to a source.
pub(crate) const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// The keys of one server, for all shards at once and without a lock: they are read through one atomic pointer.
///
/// Who meets keys whose time has passed renews them, so none is ever used beyond it. A thread sees to it that they are
/// erased in time where nobody comes, and asks the source; it ends with the ticketer.
pub struct Ticketer<K> {
    pub(crate) keys: Arc<Keys<K>>,
    /// The thread ends when this is dropped.
    _alive: Sender<()>,
}

impl<K: Key> Ticketer<K> {
    /// `None` where tickets are off. Keys of a server's own are made with `random`; those of a fleet are derived for tickets of
    /// this `format`, which only hosts whose engines have the same understand.
    ///
    /// # Errors
    /// [`Error::Config`] for a period or an epoch that cannot be, and whatever the source says; [`Error::Library`] where there
    /// is no randomness or no thread.
    pub fn new(tickets: &Tickets, format: &'static str, random: Random) -> Result<Option<Self>, Error> {
        let maker = Maker { format, random };
        let (keys, source) = match tickets {
            Tickets::Off => return Ok(None),
            Tickets::Own { rotate } => (Keys::own(maker, period(*rotate)?, now())?, None),
            Tickets::Fleet { source, epoch } if epoch.subsec_nanos() == 0 => {
                (Keys::fleet(maker, source.secrets()?, period(*epoch)?, now())?, Some(Arc::clone(source)))
            }
            Tickets::Fleet { .. } => {
                return Err(Error::Config("tickets: an epoch is so many whole seconds".to_owned()));
            }
        };
        let keys = Arc::new(keys);
        let (alive, over) = channel();
        let tended = Arc::clone(&keys);
        std::thread::Builder::new()
            .name("tautline-tickets".to_owned())
            .spawn(move || tend(&tended, source.as_deref(), &over))
            .map_err(|error| Error::Library(format!("no thread for ticket keys: {error}")))?;
        Ok(Some(Self { keys, _alive: alive }))
    }

    /// The key that seals now; `None` where its time has passed and no other could be made.
    #[must_use]
    pub fn current(&self) -> Option<Arc<K>> {
        self.keys.current(now())
    }

    /// What `look` makes of the first key, of those that open now, that it makes something of.
    pub fn find<T>(&self, look: impl FnMut(&K) -> Option<T>) -> Option<T> {
        self.keys.find(now(), look)
    }

    /// Seconds for which every ticket can be opened, whenever it was sealed: how long a key is the current one.
    #[must_use]
    pub fn period(&self) -> u32 {
        self.keys.period()
    }

    /// Seconds for which a ticket sealed now can be opened.
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

/// The tickets of a server with this configuration. A resumed session does not show a client's certificate again, so a revoked
/// one would live on in tickets. Nor is a ticket taken that was issued while no certificate was asked for.
#[must_use]
pub fn wanted(config: &ServerConfig) -> Tickets {
    match config.client_auth {
        ClientAuth::None => config.tickets.clone(),
        ClientAuth::Required(_) | ClientAuth::Optional(_) => Tickets::Off,
    }
}

/// What the ticketer's thread does.
fn tend<K: Key>(keys: &Keys<K>, source: Option<&dyn TicketKeySource>, over: &Receiver<()>) {
    let interval = source.map_or(Duration::MAX, |source| source.interval().max(SHORTEST_INTERVAL));
    let mut asked = Instant::now();
    let mut complaint = String::new();
    loop {
        let left = Duration::from_secs(keys.ring.load().until.saturating_sub(now()).max(1));
        let wait = LOOK.min(left).min(interval.saturating_sub(asked.elapsed()));
        if over.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        if keys.renew(now()).is_err() {
            log::error!("no new ticket keys could be made; sessions are not resumed until they can");
        }
        let Some(source) = source.filter(|_| asked.elapsed() >= interval) else { continue };
        asked = Instant::now();
        match source.secrets().and_then(|secrets| keys.replace(secrets, now())) {
            Ok(true) => log::info!("the ticket secrets have changed"),
            Ok(false) => {}
            Err(error) if error.to_string() == complaint => continue,
            Err(error) => {
                log::warn!("the ticket secrets of before are kept: {error}");
                complaint = error.to_string();
                continue;
            }
        }
        complaint.clear();
    }
}

fn period(period: Duration) -> Result<u64, Error> {
    let longest = Tickets::LONGEST;
    match period.as_secs() {
        seconds if seconds > 0 && period <= longest => Ok(seconds),
        _ => Err(Error::Config(format!("tickets: keys change every second at most and every {longest:?} at least"))),
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
