use crate::tally::Rule;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const SECOND: u64 = 1_000_000_000;
/// Addresses that are kept before those without a connection are looked for.
const FIRST_SWEEP: usize = 64;

/// The rate that a message exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// That of its connection.
    Connection,
    /// That of its client's address.
    Address,
    /// That of the route.
    Route,
}

impl Excess {
    /// The rule by which the connection is closed.
    pub(crate) const fn rule(self) -> Rule {
        match self {
            Self::Connection => Rule::Rate,
            Self::Address => Rule::RateByAddress,
            Self::Route => Rule::RateInAll,
        }
    }

    /// The reason in the close frame.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Connection => "too many messages a second",
            Self::Address => "too many messages a second from this address",
            Self::Route => "too many messages a second for this service",
        }
    }
}

/// Messages a second, one second's worth of them at once. It is one number, so that loops share it without a lock: the time at
/// which all messages so far are paid for (GCRA).
#[derive(Debug)]
pub struct Rate {
    /// Nanoseconds that a message takes.
    cost: u64,
    paid: AtomicU64,
}

impl Rate {
    /// At most this number of messages in a second.
    #[must_use]
    pub fn new(most: NonZeroU32) -> Self {
        Self { cost: SECOND / u64::from(most.get()), paid: AtomicU64::new(0) }
    }

    /// Takes a message at this time, in nanoseconds from any begin. False if it exceeds the rate: it then costs nothing.
    pub fn take(&self, now: u64) -> bool {
        let next = |paid: u64| {
            let next = paid.max(now).saturating_add(self.cost);
            (next - now <= SECOND).then_some(next)
        };
        self.paid.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Whether it is as if no message had come.
    fn is_fresh(&self, now: u64) -> bool {
        self.paid.load(Ordering::Relaxed) <= now
    }
}

/// The rates of clients by their addresses. A message takes no lock: a connection keeps its address's rate.
#[derive(Debug)]
pub struct Sources {
    most: Option<NonZeroU32>,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    rates: HashMap<IpAddr, Arc<Rate>>,
    /// The number of addresses at which those that nothing is known of are forgotten.
    sweep_at: usize,
}

impl Sources {
    /// No address is known. `None` is no limit.
    #[must_use]
    pub fn new(most: Option<NonZeroU32>) -> Self {
        Self { most, table: Mutex::new(Table { rates: HashMap::new(), sweep_at: FIRST_SWEEP }) }
    }

    /// The rate of an address; one of IPv6 stands for its /64, which one host has. A client that connects again finds its own.
    #[must_use]
    pub fn rate_of(&self, source: IpAddr, now: u64) -> Option<Arc<Rate>> {
        let most = self.most?;
        let Table { rates, sweep_at } = &mut *self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if rates.len() >= *sweep_at {
            rates.retain(|_, rate| Arc::strong_count(rate) > 1 || !rate.is_fresh(now));
            rates.shrink_to(FIRST_SWEEP);
            *sweep_at = (rates.len() * 2).max(FIRST_SWEEP);
        }
        Some(rates.entry(network(source)).or_insert_with(|| Arc::new(Rate::new(most))).clone())
    }
}

fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(most: u32) -> NonZeroU32 {
        NonZeroU32::new(most).unwrap()
    }

    #[test]
    fn a_second_has_its_messages_and_no_more() {
        for most in [1, 4, 1000] {
            let rate = Rate::new(of(most));
            let begin = 7 * SECOND;
            let taken = (0..most * 3).filter(|_| rate.take(begin)).count();
            assert_eq!(taken, most as usize, "at once");
            assert!(!rate.take(begin + SECOND / u64::from(most) - 1));
            assert!(rate.take(begin + SECOND / u64::from(most)), "the next one has its time");
            let later = begin + 10 * SECOND;
            assert_eq!(
                (0..most * 3).filter(|_| rate.take(later)).count(),
                most as usize,
                "silence saves up one second"
            );
        }
    }

    #[test]
    fn addresses_have_rates_of_their_own_and_networks_of_ipv6_one() {
        let sources = Sources::new(Some(of(1)));
        let take = |text: &str| sources.rate_of(text.parse().unwrap(), 0).unwrap().take(0);
        assert!(take("192.0.2.1") && take("192.0.2.2") && !take("192.0.2.1") && !take("::ffff:192.0.2.2"));
        assert!(take("2001:db8::1") && !take("2001:db8::ffff:1") && take("2001:db8:0:1::1"));
        assert!(Sources::new(None).rate_of("192.0.2.1".parse().unwrap(), 0).is_none());
    }

    #[test]
    fn addresses_that_nobody_has_are_forgotten_once_they_may_send_again() {
        let sources = Sources::new(Some(of(1)));
        let len = || sources.table.lock().unwrap().rates.len();
        let kept = sources.rate_of("192.0.2.1".parse().unwrap(), 0).unwrap();
        for number in 0..10_000_u32 {
            let rate = sources.rate_of(IpAddr::V4((0x0a00_0000 + number).into()), 0).unwrap();
            assert!(rate.take(0));
        }
        assert_eq!(len(), 10_001, "connecting again gains nothing");
        for number in 0..10_000_u32 {
            let _ = sources.rate_of(IpAddr::V4((0x0b00_0000 + number).into()), 2 * SECOND).unwrap();
        }
        assert!(len() < 200, "{}", len());
        assert!(Arc::ptr_eq(&kept, &sources.rate_of("192.0.2.1".parse().unwrap(), 2 * SECOND).unwrap()));
    }
}
