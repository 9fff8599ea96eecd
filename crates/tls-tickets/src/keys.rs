use crate::material::{Key, KeyMaker};
use crate::own::Own;
use arc_swap::ArcSwap;
use core::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use tautline_tls::{Error, TicketSecret};

/// Longest lifetime of a ticket in seconds (RFC 8446, section 4.6.1).
const LONGEST_LIFETIME: u64 = 7 * 24 * 60 * 60;

/// The keys of the current period, and the means to make the next ones.
pub(crate) struct Keys<K> {
    maker: KeyMaker,
    pub(crate) ring: ArcSwap<Ring<K>>,
    /// How many seconds a key is the current one.
    period: u64,
    /// Locked only to replace the ring, so sealing and opening never wait for it.
    origin: Mutex<Origin>,
}

enum Origin {
    Own,
    Fleet(Vec<TicketSecret>),
}

/// The keys of one period; a key that leaves the last ring is erased.
pub(crate) struct Ring<K> {
    /// First second of the period, counted since 1970.
    from: u64,
    /// First second after the period.
    pub(crate) until: u64,
    pub(crate) current: Arc<K>,
    next: Arc<K>,
    /// The previous key and all keys of the other secrets.
    others: Vec<Arc<K>>,
    /// The material of a server's own keys, which may move to another process.
    own: Option<Own>,
}

impl<K: Key> Keys<K> {
    pub(crate) fn own(maker: KeyMaker, period: u64, now: u64) -> Result<Self, Error> {
        let ring = own_ring(&maker, period, now)?;
        Ok(Self { maker, ring: ArcSwap::from_pointee(ring), period, origin: Mutex::new(Origin::Own) })
    }

    pub(crate) fn fleet(maker: KeyMaker, secrets: Vec<TicketSecret>, period: u64, now: u64) -> Result<Self, Error> {
        check(&secrets)?;
        let ring = fleet_ring(&maker, &secrets, period, now)?;
        Ok(Self { maker, ring: ArcSwap::from_pointee(ring), period, origin: Mutex::new(Origin::Fleet(secrets)) })
    }

    /// The key that seals; `None` if its period has passed and no other key could be made.
    pub(crate) fn current(&self, now: u64) -> Option<Arc<K>> {
        self.renew(now).ok()?;
        Some(Arc::clone(&self.ring.load().current))
    }

    /// Returns the first result of `look` that is `Some`, over all keys.
    pub(crate) fn find<T>(&self, now: u64, mut look: impl FnMut(&K) -> Option<T>) -> Option<T> {
        self.renew(now).ok()?;
        let ring = self.ring.load();
        [&ring.current, &ring.next].into_iter().chain(&ring.others).find_map(|key| look(key))
    }

    pub(crate) fn period(&self) -> u32 {
        u32::try_from(self.period).unwrap_or(u32::MAX)
    }

    /// How many seconds a ticket that is sealed now can be opened.
    pub(crate) fn lifetime(&self, now: u64) -> u32 {
        let left = (self.ring.load().until + self.period).saturating_sub(now);
        u32::try_from(left.min(LONGEST_LIFETIME)).unwrap_or(0)
    }

    /// Replaces the keys if their period has passed.
    pub(crate) fn renew(&self, now: u64) -> Result<(), Error> {
        if self.ring.load().covers(now) {
            return Ok(());
        }
        let origin = match self.origin.try_lock() {
            Ok(origin) => origin,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread is replacing them. Until it has, the old keys serve.
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        let old = self.ring.load();
        if !old.covers(now) {
            let new = match &*origin {
                Origin::Own => old.successor(&self.maker, self.period, now)?,
                Origin::Fleet(secrets) => fleet_ring(&self.maker, secrets, self.period, now)?,
            };
            self.ring.store(Arc::new(new));
        }
        Ok(())
    }

    /// A server's own keys as bytes, appended to `out`. Nothing for a fleet, whose hosts all derive the same keys.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        let ring = self.ring.load();
        if let Some(own) = &ring.own {
            own.encode(self.maker.format, ring.from..ring.until, out);
        }
    }

    /// Goes on with the keys that another process [saved](Self::save), in place of this one's own.
    pub(crate) fn restore(&self, saved: &[u8]) -> Result<(), Error> {
        let origin = self.origin.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*origin, Origin::Own) {
            let (own, time) = Own::decode(self.maker.format, saved)?;
            self.ring.store(Arc::new(Ring::of(own, time)?));
        }
        Ok(())
    }

    /// Replaces the secrets; returns whether they differ from the old ones.
    pub(crate) fn replace(&self, secrets: Vec<TicketSecret>, now: u64) -> Result<bool, Error> {
        check(&secrets)?;
        let mut origin = self.origin.lock().unwrap_or_else(PoisonError::into_inner);
        if let Origin::Fleet(known) = &*origin
            && known.iter().map(TicketSecret::bytes).eq(secrets.iter().map(TicketSecret::bytes))
        {
            return Ok(false);
        }
        let ring = fleet_ring(&self.maker, &secrets, self.period, now)?;
        self.ring.store(Arc::new(ring));
        *origin = Origin::Fleet(secrets);
        Ok(true)
    }
}

impl<K: Key> Ring<K> {
    /// Whether these keys serve at `now`, or `now` lies at most one period before them.
    ///
    /// A thread may have read the clock before the period began. That must not count as a clock that was set back.
    fn covers(&self, now: u64) -> bool {
        let period = self.until - self.from;
        (self.from.saturating_sub(period)..self.until).contains(&now)
    }

    /// Makes the keys that follow these. If the clock was set back by more than a period, these keys start over.
    fn successor(&self, maker: &KeyMaker, period: u64, now: u64) -> Result<Self, Error> {
        let Some(own) = self.own.as_ref().filter(|_| now < self.until + period) else {
            return own_ring(maker, period, now);
        };
        if now < self.from {
            let (current, next) = (Arc::clone(&self.current), Arc::clone(&self.next));
            let (others, own) = (self.others.clone(), Some(own.clone()));
            return Ok(Self { from: now, until: now + period, current, next, others, own });
        }
        let own = own.successor(maker.random()?);
        Ok(Self {
            from: self.until,
            until: self.until + period,
            current: Arc::clone(&self.next),
            next: Arc::new(K::new(&own.next)?),
            others: vec![Arc::clone(&self.current)],
            own: Some(own),
        })
    }

    /// The keys of this material, for this time.
    fn of(own: Own, time: Range<u64>) -> Result<Self, Error> {
        let key = |material| K::new(material).map(Arc::new);
        Ok(Self {
            from: time.start,
            until: time.end,
            current: key(&own.current)?,
            next: key(&own.next)?,
            others: own.previous.iter().map(|previous| key(previous)).collect::<Result<_, _>>()?,
            own: Some(own),
        })
    }
}

fn own_ring<K: Key>(maker: &KeyMaker, period: u64, now: u64) -> Result<Ring<K>, Error> {
    Ring::of(Own::new(maker.random()?, maker.random()?), now..now + period)
}

fn fleet_ring<K: Key>(maker: &KeyMaker, secrets: &[TicketSecret], period: u64, now: u64) -> Result<Ring<K>, Error> {
    let epoch = now / period;
    let (first, rest) = secrets.split_first().ok_or_else(no_secret)?;
    let key = |secret, epoch| maker.derived(secret, period, epoch).map(Arc::new);
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
        own: None,
    })
}

fn check(secrets: &[TicketSecret]) -> Result<(), Error> {
    match secrets.len() {
        0 => Err(no_secret()),
        count if count > TicketSecret::MOST => Err(Error::Config(format!(
            "the source of ticket secrets returned {count}, but at most {} are allowed",
            TicketSecret::MOST
        ))),
        _ => Ok(()),
    }
}

fn no_secret() -> Error {
    Error::Config("the source of ticket secrets returned none".to_owned())
}
