use super::Excess;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lines of counters. Loops beyond this number share them.
const LINES: usize = 16;

/// The way of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From a client to its server.
    ToServer,
    /// From a server to its client.
    ToClient,
}

/// The counters of a route.
#[derive(Debug, Default)]
pub struct Counts {
    /// Each message counts in the line of its loop, so that loops do not wait for each other's caches.
    lines: [Line; LINES],
    opened: AtomicU64,
    ended: AtomicU64,
    rate_connection: AtomicU64,
    rate_address: AtomicU64,
    rate_route: AtomicU64,
    too_large: AtomicU64,
    slow: AtomicU64,
    dropped: AtomicU64,
}

/// The counters of one loop, in lines of the cache that no other loop writes.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line {
    ways: [[AtomicU64; 2]; 2],
}

/// Counters at one moment, since the start of the route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Pairs that were opened.
    pub opened: u64,
    /// Pairs that are open.
    pub open: u64,
    /// Messages to servers.
    pub messages_to_server: u64,
    /// Their bytes.
    pub bytes_to_server: u64,
    /// Messages to clients.
    pub messages_to_client: u64,
    /// Their bytes.
    pub bytes_to_client: u64,
    /// Clients that were closed because of the rate of their connection.
    pub rate_connection: u64,
    /// Clients that were closed because of the rate of their address.
    pub rate_address: u64,
    /// Clients that were closed because of the rate of the route.
    pub rate_route: u64,
    /// Ends that sent a message beyond the limit.
    pub too_large: u64,
    /// Clients that were closed because they did not read.
    pub slow: u64,
    /// Messages that were dropped because their client did not read.
    pub dropped: u64,
}

impl Counts {
    pub(crate) fn add(&self, shard: u32, way: Way, len: usize) {
        let [messages, bytes] = &self.lines[shard as usize % LINES].ways[way as usize];
        messages.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_excess(&self, excess: Excess) {
        let count = match excess {
            Excess::Connection => &self.rate_connection,
            Excess::Address => &self.rate_address,
            Excess::Route => &self.rate_route,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_too_large(&self) {
        self.too_large.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_slow(&self) {
        self.slow.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_dropped(&self, count: u32) {
        self.dropped.fetch_add(count.into(), Ordering::Relaxed);
    }

    /// The counters now.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let sum = |way: Way, at: usize| self.lines.iter().map(|line| of(&line.ways[way as usize][at])).sum();
        // In this order, so that no pair has ended before it was opened.
        let ended = of(&self.ended);
        let opened = of(&self.opened);
        Totals {
            opened,
            open: opened.saturating_sub(ended),
            messages_to_server: sum(Way::ToServer, 0),
            bytes_to_server: sum(Way::ToServer, 1),
            messages_to_client: sum(Way::ToClient, 0),
            bytes_to_client: sum(Way::ToClient, 1),
            rate_connection: of(&self.rate_connection),
            rate_address: of(&self.rate_address),
            rate_route: of(&self.rate_route),
            too_large: of(&self.too_large),
            slow: of(&self.slow),
            dropped: of(&self.dropped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_summed_up_and_ways_are_not() {
        let counts = Counts::default();
        for shard in 0..40 {
            counts.add(shard, Way::ToServer, 10);
            counts.add(shard, Way::ToClient, 1);
        }
        counts.add(7, Way::ToClient, 100);
        counts.add_opened();
        counts.add_opened();
        counts.add_ended();
        counts.add_excess(Excess::Address);
        counts.add_dropped(5);
        let expected = Totals {
            opened: 2,
            open: 1,
            messages_to_server: 40,
            bytes_to_server: 400,
            messages_to_client: 41,
            bytes_to_client: 140,
            rate_address: 1,
            dropped: 5,
            ..Totals::default()
        };
        assert_eq!(counts.totals(), expected);
    }
}
