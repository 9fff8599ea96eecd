//! Limits of requests by source.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Cells of each row of a table. Sources that share their cells in both rows share one limit.
const CELLS: usize = 1 << 15;

/// A rate of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests per second, at least 1.
    pub per_second: u32,
    /// Requests that may come at once, at least 1.
    pub burst: u32,
}

/// The part of an address whose requests are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A host: an IPv4 address, or an IPv6 /64, in which a host may take any address.
    Host,
    /// A network: an IPv4 /24, or an IPv6 /56.
    Network,
}

impl Source {
    pub(crate) fn of(self, address: IpAddr) -> (u8, u64) {
        let is_host = self == Self::Host;
        match address.to_canonical() {
            IpAddr::V4(address) => (4, u64::from(address.to_bits()) >> if is_host { 0 } else { 8 }),
            IpAddr::V6(address) => {
                let bits = u64::try_from(address.to_bits() >> 64).unwrap_or(u64::MAX);
                (6, bits >> if is_host { 0 } else { 8 })
            }
        }
    }
}

/// The requests of all sources in the past, in a memory that does not grow.
///
/// Each cell has the time up to which the requests of its sources are spread at their rate (GCRA). A source has a cell in each of
/// two rows, and counts by the lesser one. So it suffers from another one only if both its cells are full of others.
pub struct Table {
    keys: [RandomState; 2],
    /// Nanoseconds since `born`.
    rows: [Box<[AtomicU64]>; 2],
    born: Instant,
    refused: AtomicU64,
}

impl Table {
    fn new(now: Instant) -> Self {
        let row = || (0..CELLS).map(|_| AtomicU64::new(0)).collect();
        Self {
            keys: [RandomState::new(), RandomState::new()],
            rows: [row(), row()],
            born: now,
            refused: AtomicU64::new(0),
        }
    }

    fn cells(&self, source: (u8, u64)) -> [&AtomicU64; 2] {
        let mut cells = self.keys.iter().zip(&self.rows).map(|(key, row)| {
            let at = usize::try_from(key.hash_one(source) % CELLS as u64).unwrap_or(0);
            &row[at]
        });
        let first = cells.next();
        let second = cells.next();
        // Each row has cells.
        [first.unwrap_or(&self.refused), second.unwrap_or(&self.refused)]
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("refused", &self.refused).finish_non_exhaustive()
    }
}

/// A limit of the requests of each source, for all loops. A reload keeps what it has counted.
#[derive(Clone, Debug)]
pub struct Limit {
    source: Source,
    rate: Rate,
    table: Arc<Table>,
}

impl Limit {
    /// A limit that goes on where the one before a reload was.
    #[must_use]
    pub fn new(source: Source, rate: Rate, before: Option<&Self>, now: Instant) -> Self {
        let table = before.map_or_else(|| Arc::new(Table::new(now)), |before| before.table.clone());
        Self { source, rate, table }
    }

    /// The part of an address that is limited.
    #[must_use]
    pub const fn source(&self) -> Source {
        self.source
    }

    /// Counts a request.
    ///
    /// # Errors
    /// The source has had too many. The time after which it may have another one.
    pub fn count(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let now = nanos(now.saturating_duration_since(self.table.born));
        let every = 1_000_000_000 / u64::from(self.rate.per_second.max(1));
        let ahead = every.saturating_mul(u64::from(self.rate.burst.max(1)) - 1);
        let cells = self.table.cells(self.source.of(address));
        let spread = cells.iter().map(|cell| cell.load(Ordering::Relaxed)).min().unwrap_or(0);
        let over = spread.saturating_sub(now).saturating_sub(ahead);
        if over > 0 {
            self.table.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Duration::from_nanos(over));
        }
        let next = spread.max(now).saturating_add(every);
        cells.iter().for_each(|cell| _ = cell.fetch_max(next, Ordering::Relaxed));
        Ok(())
    }

    /// Requests that were refused since the limit exists.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.table.refused.load(Ordering::Relaxed)
    }
}

/// Most connections that a source may have at a time, over all loops.
#[derive(Clone, Debug)]
pub struct Cap {
    source: Source,
    most: u32,
    refused: Arc<AtomicU64>,
}

impl Cap {
    /// A bound that goes on counting where the one before a reload was.
    #[must_use]
    pub fn new(source: Source, most: u32, before: Option<&Self>) -> Self {
        let refused = before.map(|before| before.refused.clone()).unwrap_or_default();
        Self { source, most, refused }
    }

    /// The part of an address that is bounded.
    #[must_use]
    pub const fn source(&self) -> Source {
        self.source
    }

    /// Whether a source that has this many connections may have no other, which is counted then.
    pub(crate) fn refuses(&self, has: u32) -> bool {
        let is_full = has >= self.most;
        self.refused.fetch_add(u64::from(is_full), Ordering::Relaxed);
        is_full
    }

    /// Connections that were refused since the bound exists.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(source: Source, per_second: u32, burst: u32) -> (Limit, Instant) {
        let now = Instant::now();
        (Limit::new(source, Rate { per_second, burst }, None, now), now)
    }

    fn passed(limit: &Limit, address: &str, now: Instant, count: usize) -> usize {
        (0..count).filter(|_| limit.count(address.parse().unwrap(), now).is_ok()).count()
    }

    #[test]
    fn a_source_has_its_burst_and_then_its_rate() {
        let (limit, now) = limit(Source::Host, 10, 5);
        assert_eq!(passed(&limit, "192.0.2.1", now, 9), 5);
        let wait = limit.count("::ffff:192.0.2.1".parse().unwrap(), now).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        assert_eq!(passed(&limit, "192.0.2.1", now + wait, 9), 1);
        assert_eq!(passed(&limit, "192.0.2.1", now + Duration::from_secs(60), 9), 5);
        assert_eq!(limit.refused(), 4 + 1 + 8 + 4);
    }

    #[test]
    fn sources_are_hosts_or_networks() {
        let (hosts, now) = limit(Source::Host, 1, 1);
        assert_eq!(passed(&hosts, "192.0.2.1", now, 2) + passed(&hosts, "192.0.2.2", now, 2), 2);
        assert_eq!(passed(&hosts, "2001:db8::1", now, 1) + passed(&hosts, "2001:db8::2", now, 1), 1);
        let (networks, now) = limit(Source::Network, 1, 1);
        assert_eq!(passed(&networks, "192.0.2.1", now, 2) + passed(&networks, "192.0.2.2", now, 2), 1);
        assert_eq!(passed(&networks, "192.0.3.1", now, 2), 1);
        assert_eq!(passed(&networks, "2001:db8::1", now, 1) + passed(&networks, "2001:db8:0:1::1", now, 1), 1);
    }

    #[test]
    fn a_flood_of_other_sources_leaves_most_sources_their_requests() {
        let (limit, now) = limit(Source::Host, 1, 1);
        for number in 0..10_000_u32 {
            let _ = limit.count(IpAddr::from(number.to_be_bytes()), now);
        }
        let honest =
            (0..1000_u32).filter(|number| limit.count(IpAddr::from((1 << 31 | number).to_be_bytes()), now).is_ok());
        let honest = honest.count();
        // About (1 - 1/e^0.3)^2 of them share both cells.
        assert!(honest > 850, "{honest} of 1000");
    }

    #[test]
    fn a_reload_keeps_the_counts() {
        let (before, now) = limit(Source::Host, 1, 1);
        assert_eq!(passed(&before, "192.0.2.1", now, 1), 1);
        let after = Limit::new(Source::Host, Rate { per_second: 1, burst: 1 }, Some(&before), now);
        assert_eq!(passed(&after, "192.0.2.1", now, 1), 0);
    }
}
