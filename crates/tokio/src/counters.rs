use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the connections of a server, or of a part of it. Clones share the counts.
///
/// ```
/// use tautline_tokio::{Acceptor, Counted};
///
/// let counted = Counted::new();
/// let acceptor = Acceptor::plain().with_counted(&counted);
/// // At each scrape of the metrics:
/// let counters = counted.counters();
/// let text = format!("connections {}\nmessages_received_total {}\n", counters.connections, counters.messages_received);
/// assert_eq!(text, "connections 0\nmessages_received_total 0\n");
/// # drop(acceptor);
/// ```
///
/// A socket adds to the counts when it waits, not with each message, so that tasks of several threads do not write the same
/// memory all the time.
#[derive(Clone, Debug, Default)]
pub struct Counted(Arc<Live>);

/// The counts of a [`Counted`] as of some moment. All but `connections` only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Connections that are open.
    pub connections: u64,
    /// Connections that have opened.
    pub opened: u64,
    /// Streams that did not become a WebSocket: the handshake failed, or the request was no valid upgrade.
    pub refused: u64,
    /// Messages that arrived.
    pub messages_received: u64,
    /// Bytes of these messages, without framing and decompressed.
    pub bytes_received: u64,
    /// Messages that were taken to be sent.
    pub messages_sent: u64,
    /// Bytes of these messages, before compression.
    pub bytes_sent: u64,
    /// Messages that [`Config::slow_consumer`](crate::Config) has dropped. Older ones that made way count as sent, too.
    pub messages_dropped: u64,
}

#[derive(Debug, Default)]
struct Live {
    connections: AtomicU64,
    opened: AtomicU64,
    refused: AtomicU64,
    messages_received: AtomicU64,
    bytes_received: AtomicU64,
    messages_sent: AtomicU64,
    bytes_sent: AtomicU64,
    messages_dropped: AtomicU64,
}

impl Counted {
    /// Counts that begin at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The counts as of now. Each is exact, but they are not all of one instant.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let live = &*self.0;
        Counters {
            connections: of(&live.connections),
            opened: of(&live.opened),
            refused: of(&live.refused),
            messages_received: of(&live.messages_received),
            bytes_received: of(&live.bytes_received),
            messages_sent: of(&live.messages_sent),
            bytes_sent: of(&live.bytes_sent),
            messages_dropped: of(&live.messages_dropped),
        }
    }
}

/// A stream that has not become a WebSocket yet. Counts as refused if it never does.
#[derive(Debug, Default)]
pub(crate) struct Candidate(Option<Counted>);

impl Candidate {
    pub(crate) fn new(counted: Option<&Counted>) -> Self {
        Self(counted.cloned())
    }

    /// It has become one.
    pub(crate) fn open(mut self) -> Option<Counted> {
        self.0.take()
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        if let Some(counted) = &self.0 {
            counted.0.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The counts of one socket that are to be added to those of all.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counted: Option<Counted>,
    messages_received: u64,
    bytes_received: u64,
    messages_sent: u64,
    bytes_sent: u64,
    /// The dropped messages that were added.
    dropped: u64,
}

impl Tally {
    /// Counts an open connection here from now on, of which `dropped` messages were dropped before.
    pub(crate) fn begin(&mut self, counted: &Counted, dropped: u64) {
        *self = Self { counted: Some(counted.clone()), dropped, ..Self::default() };
        counted.0.connections.fetch_add(1, Ordering::Relaxed);
        counted.0.opened.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) const fn received(&mut self, len: usize) {
        self.messages_received += 1;
        self.bytes_received += len as u64;
    }

    #[inline]
    pub(crate) const fn sent(&mut self, len: usize) {
        self.messages_sent += 1;
        self.bytes_sent += len as u64;
    }

    /// Adds to the counts. The policy has dropped `dropped` messages so far.
    pub(crate) fn add(&mut self, dropped: u64) {
        let Some(Counted(live)) = &self.counted else { return };
        for (own, all) in [
            (&mut self.messages_received, &live.messages_received),
            (&mut self.bytes_received, &live.bytes_received),
            (&mut self.messages_sent, &live.messages_sent),
            (&mut self.bytes_sent, &live.bytes_sent),
        ] {
            if *own > 0 {
                all.fetch_add(std::mem::take(own), Ordering::Relaxed);
            }
        }
        if dropped > self.dropped {
            live.messages_dropped.fetch_add(dropped - self.dropped, Ordering::Relaxed);
            self.dropped = dropped;
        }
    }

    /// The connection has ended.
    pub(crate) fn end(&mut self) {
        self.add(self.dropped);
        if let Some(counted) = self.counted.take() {
            counted.0.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.end();
    }
}
