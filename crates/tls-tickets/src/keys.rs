use crate::material::{Key, Maker};
use arc_swap::ArcSwap;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use tautline_tls::{Error, TicketSecret};

/// RFC 8446, section 4.6.1.
const LONGEST_LIFETIME: u64 = 7 * 24 * 60 * 60;

/// Three keys for each secret, and how to make the next.
pub(crate) struct Keys<K> {
    maker: Maker,
    pub(crate) ring: ArcSwap<Ring<K>>,
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
pub(crate) struct Ring<K> {
    /// Seconds since 1970 that it is for, the last not among them.
    from: u64,
    pub(crate) until: u64,
    pub(crate) current: Arc<K>,
    next: Arc<K>,
    /// The previous one and, where there are several secrets, all of the others.
    others: Vec<Arc<K>>,
}

impl<K: Key> Keys<K> {
    pub(crate) fn own(maker: Maker, period: u64, now: u64) -> Result<Self, Error> {
        let ring = own_ring(&maker, period, now)?;
        Ok(Self { maker, ring: ArcSwap::from_pointee(ring), period, origin: Mutex::new(Origin::Own) })
    }

    pub(crate) fn fleet(maker: Maker, secrets: Vec<TicketSecret>, period: u64, now: u64) -> Result<Self, Error> {
        check(&secrets)?;
        let ring = fleet_ring(&maker, &secrets, period, now)?;
        Ok(Self { maker, ring: ArcSwap::from_pointee(ring), period, origin: Mutex::new(Origin::Fleet(secrets)) })
    }

    /// The key that seals; `None` where its time has passed and there is no other.
    pub(crate) fn current(&self, now: u64) -> Option<Arc<K>> {
        self.renew(now).ok()?;
        Some(Arc::clone(&self.ring.load().current))
    }

    /// What `look` makes of the first key that it makes something of.
    pub(crate) fn find<T>(&self, now: u64, mut look: impl FnMut(&K) -> Option<T>) -> Option<T> {
        self.renew(now).ok()?;
        let ring = self.ring.load();
        [&ring.current, &ring.next].into_iter().chain(&ring.others).find_map(|key| look(key))
    }

    pub(crate) fn period(&self) -> u32 {
        u32::try_from(self.period).unwrap_or(u32::MAX)
    }

    /// Seconds for which a ticket sealed now can be opened.
    pub(crate) fn lifetime(&self, now: u64) -> u32 {
        let left = (self.ring.load().until + self.period).saturating_sub(now);
        u32::try_from(left.min(LONGEST_LIFETIME)).unwrap_or(0)
    }

    /// Replaces keys whose time has passed.
    pub(crate) fn renew(&self, now: u64) -> Result<(), Error> {
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
                Origin::Own => old.followed(&self.maker, self.period, now)?,
                Origin::Fleet(secrets) => fleet_ring(&self.maker, secrets, self.period, now)?,
            };
            self.ring.store(Arc::new(new));
        }
        Ok(())
    }

    /// Takes new secrets; says whether they are.
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
    /// Whether these are the keys for `now`: a thread may be late with the time that it read before the period began, and
    /// to take that for a clock set back would bring the next keys early.
    fn covers(&self, now: u64) -> bool {
        let period = self.until - self.from;
        (self.from.saturating_sub(period)..self.until).contains(&now)
    }

    /// The keys that come after these. A clock that was set back by more than a period begins the same keys' period anew.
    fn followed(&self, maker: &Maker, period: u64, now: u64) -> Result<Self, Error> {
        if now >= self.until + period {
            return own_ring(maker, period, now);
        }
        if now < self.from {
            let (current, next) = (Arc::clone(&self.current), Arc::clone(&self.next));
            return Ok(Self { from: now, until: now + period, current, next, others: self.others.clone() });
        }
        Ok(Self {
            from: self.until,
            until: self.until + period,
            current: Arc::clone(&self.next),
            next: Arc::new(maker.random()?),
            others: vec![Arc::clone(&self.current)],
        })
    }
}

fn own_ring<K: Key>(maker: &Maker, period: u64, now: u64) -> Result<Ring<K>, Error> {
    let (current, next) = (Arc::new(maker.random()?), Arc::new(maker.random()?));
    Ok(Ring { from: now, until: now + period, current, next, others: Vec::new() })
}

fn fleet_ring<K: Key>(maker: &Maker, secrets: &[TicketSecret], period: u64, now: u64) -> Result<Ring<K>, Error> {
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
    })
}

fn check(secrets: &[TicketSecret]) -> Result<(), Error> {
    match secrets.len() {
        0 => Err(no_secret()),
        count if count > TicketSecret::MOST => Err(Error::Config(format!(
            "the source of ticket secrets gave {count}, at most {} are kept",
            TicketSecret::MOST
        ))),
        _ => Ok(()),
    }
}

fn no_secret() -> Error {
    Error::Config("the source of ticket secrets gave none".to_owned())
}
