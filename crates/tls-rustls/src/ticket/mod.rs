//! Tickets: which key seals them now, and which open them.

mod key;
#[cfg(test)]
mod tests;

use arc_swap::ArcSwap;
use aws_lc_rs::error::Unspecified;
use core::fmt;
use core::time::Duration;
use key::Key;
use rustls::pki_types::UnixTime;
use rustls::server::ProducesTickets;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Instant;
use tautline_tls::{Error, TicketKeySource, TicketSecret, Tickets};

/// Longest sleep between two looks at the clock, which may be set.
const LOOK: Duration = Duration::from_secs(60);

/// Shortest time between two questions to a source.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// RFC 8446, section 4.6.1.
const LONGEST_LIFETIME: u64 = 7 * 24 * 60 * 60;

/// Seals and opens tickets, for all shards at once and without a lock: the keys are read through one atomic pointer.
///
/// Who meets keys whose time has passed renews them, so none is ever used beyond it. A thread sees to it that they are
/// erased in time where nobody comes, and asks the source; it ends with the ticketer.
pub(crate) struct Ticketer {
    keys: Arc<Keys>,
    /// The thread ends when this is dropped.
    _alive: Sender<()>,
}

impl Ticketer {
    /// `None` where tickets are off.
    pub(crate) fn new(tickets: &Tickets) -> Result<Option<Arc<Self>>, Error> {
        let (keys, source) = match tickets {
            Tickets::Off => return Ok(None),
            Tickets::Own { rotate } => (Keys::own(period(*rotate)?, now())?, None),
            Tickets::Fleet { source, epoch } if epoch.subsec_nanos() == 0 => {
                (Keys::fleet(source.secrets()?, period(*epoch)?, now())?, Some(Arc::clone(source)))
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
        Ok(Some(Arc::new(Self { keys, _alive: alive })))
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.keys.lifetime(now())
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.keys.seal(now(), plain)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.keys.open(now(), ticket)
    }
}

impl fmt::Debug for Ticketer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticketer")
    }
}

/// Three keys for each secret, and how to make the next.
struct Keys {
    ring: ArcSwap<Ring>,
    /// Seconds for which a key is the current one.
    period: u64,
    /// Held to replace the ring only, so those who seal and open never wait for it.
    origin: Mutex<Origin>,
}

enum Origin {
    Own,
    Fleet(Vec<TicketSecret>),
}

/// The keys of one period; a key that is in no ring any more is erased.
struct Ring {
    /// Seconds since 1970 that it is for, the last not among them.
    from: u64,
    until: u64,
    current: Arc<Key>,
    next: Arc<Key>,
    /// The previous one and, where there are several secrets, all of the others.
    others: Vec<Arc<Key>>,
}

impl Keys {
    fn own(period: u64, now: u64) -> Result<Self, Error> {
        let ring = own_ring(period, now).map_err(no_key)?;
        Ok(Self { ring: ArcSwap::from_pointee(ring), period, origin: Mutex::new(Origin::Own) })
    }

    fn fleet(secrets: Vec<TicketSecret>, period: u64, now: u64) -> Result<Self, Error> {
        check(&secrets)?;
        let ring = fleet_ring(&secrets, period, now).map_err(no_key)?;
        Ok(Self { ring: ArcSwap::from_pointee(ring), period, origin: Mutex::new(Origin::Fleet(secrets)) })
    }

    fn seal(&self, now: u64, session: &[u8]) -> Option<Vec<u8>> {
        self.renew(now).ok()?;
        self.ring.load().current.seal(session)
    }

    fn open(&self, now: u64, ticket: &[u8]) -> Option<Vec<u8>> {
        self.renew(now).ok()?;
        let ring = self.ring.load();
        [&ring.current, &ring.next].into_iter().chain(&ring.others).find_map(|key| key.open(ticket))
    }

    /// Seconds for which a ticket sealed now can be opened.
    fn lifetime(&self, now: u64) -> u32 {
        let left = (self.ring.load().until + self.period).saturating_sub(now);
        u32::try_from(left.min(LONGEST_LIFETIME)).unwrap_or(0)
    }

    /// Replaces keys whose time has passed.
    fn renew(&self, now: u64) -> Result<(), Unspecified> {
        if self.ring.load().covers(now) {
            return Ok(());
        }
        let origin = match self.origin.try_lock() {
            Ok(origin) => origin,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread is at it: for this moment the keys of before do.
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        let old = self.ring.load();
        if !old.covers(now) {
            let new = match &*origin {
                Origin::Own => old.followed(self.period, now)?,
                Origin::Fleet(secrets) => fleet_ring(secrets, self.period, now)?,
            };
            self.ring.store(Arc::new(new));
        }
        Ok(())
    }

    /// Takes new secrets; says whether they are.
    fn replace(&self, secrets: Vec<TicketSecret>, now: u64) -> Result<bool, Error> {
        check(&secrets)?;
        let mut origin = self.origin.lock().unwrap_or_else(PoisonError::into_inner);
        if let Origin::Fleet(known) = &*origin
            && known.iter().map(TicketSecret::bytes).eq(secrets.iter().map(TicketSecret::bytes))
        {
            return Ok(false);
        }
        let ring = fleet_ring(&secrets, self.period, now).map_err(no_key)?;
        self.ring.store(Arc::new(ring));
        *origin = Origin::Fleet(secrets);
        Ok(true)
    }
}

impl Ring {
    /// Whether these are the keys for `now`: a thread may be late with the time that it read before the period began, and
    /// to take that for a clock set back would bring the next keys early.
    fn covers(&self, now: u64) -> bool {
        let period = self.until - self.from;
        (self.from.saturating_sub(period)..self.until).contains(&now)
    }

    /// The keys that come after these. A clock that was set back by more than a period begins the same keys' period anew.
    fn followed(&self, period: u64, now: u64) -> Result<Self, Unspecified> {
        if now >= self.until + period {
            return own_ring(period, now);
        }
        if now < self.from {
            let (current, next) = (Arc::clone(&self.current), Arc::clone(&self.next));
            return Ok(Self { from: now, until: now + period, current, next, others: self.others.clone() });
        }
        Ok(Self {
            from: self.until,
            until: self.until + period,
            current: Arc::clone(&self.next),
            next: Arc::new(Key::random()?),
            others: vec![Arc::clone(&self.current)],
        })
    }
}

fn own_ring(period: u64, now: u64) -> Result<Ring, Unspecified> {
    let (current, next) = (Arc::new(Key::random()?), Arc::new(Key::random()?));
    Ok(Ring { from: now, until: now + period, current, next, others: Vec::new() })
}

fn fleet_ring(secrets: &[TicketSecret], period: u64, now: u64) -> Result<Ring, Unspecified> {
    let epoch = now / period;
    let (first, rest) = secrets.split_first().ok_or(Unspecified)?;
    let key = |secret, epoch| Key::derived(secret, period, epoch).map(Arc::new);
    let mut others = vec![key(first, epoch.saturating_sub(1))?];
    for secret in rest {
        for epoch in epoch.saturating_sub(1)..=epoch + 1 {
            others.push(key(secret, epoch)?);
        }
    }
    Ok(Ring {
        from: epoch * period,
        until: (epoch + 1) * period,
        current: key(first, epoch)?,
        next: key(first, epoch + 1)?,
        others,
    })
}

/// What the ticketer's thread does.
fn tend(keys: &Keys, source: Option<&dyn TicketKeySource>, over: &Receiver<()>) {
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

fn check(secrets: &[TicketSecret]) -> Result<(), Error> {
    match secrets.len() {
        0 => Err(Error::Config("the source of ticket secrets gave none".to_owned())),
        count if count > TicketSecret::MOST => Err(Error::Config(format!(
            "the source of ticket secrets gave {count}, at most {} are kept",
            TicketSecret::MOST
        ))),
        _ => Ok(()),
    }
}

fn no_key(_: Unspecified) -> Error {
    Error::Library("no ticket key could be made".to_owned())
}

fn now() -> u64 {
    UnixTime::now().as_secs()
}
