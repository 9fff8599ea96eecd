//! The pages that one loop has the log read: a bounded number at a time, since each takes memory until the loop has sent it.
//!
//! A connection gets one page at a time, whatever the number of its topics. The next one follows once the kernel has it, so pages
//! alone never add up to a [lag](crate::Config::max_lag).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tautline::ConnId;
use tautline::layers::engine::sized::{map_memory, shrink_map, table};

/// Most pages that the log reads for one loop at a time.
const MOST: usize = 32;

/// A subscriber of a topic.
type Reader = (Arc<str>, ConnId);

/// The pages of connections.
#[derive(Default)]
pub(crate) struct Readings {
    /// The number of the last reading.
    last: u64,
    running: usize,
    /// Subscribers that wait for a place, in the order of their requests. Each is there once, however often it asks.
    waiting: VecDeque<Reader>,
    known: HashSet<Reader>,
    /// Connections with a page on its way, and the number of all topics that wait for one.
    pages: HashMap<ConnId, Pages>,
    topics: usize,
}

/// The pages of a connection.
#[derive(Default)]
struct Pages {
    /// The number of the reading whose page is on its way.
    reading: Option<u64>,
    /// Whether the page was queued, and the connection has to [drain](tautline::Handler::on_drain) it.
    waits: bool,
    /// Whether the connection has drained since the reading began. The news of both come in any order.
    drained: bool,
    /// Topics whose pages wait for it, each once.
    waiting: VecDeque<Arc<str>>,
}

impl Readings {
    /// Its memory, in bytes, without the topics' names.
    pub(crate) fn memory(&self) -> usize {
        let reader = size_of::<Reader>();
        let waiting = self.waiting.capacity() * reader + table(self.known.capacity(), reader);
        // A queue of topics is two thirds full.
        waiting + map_memory(&self.pages) + self.topics * size_of::<Arc<str>>() * 3 / 2
    }

    /// The number of a new reading. `None` if the subscriber has to wait until [`next`](Self::next) or [`free`](Self::free) returns
    /// it.
    pub(crate) fn begin(&mut self, topic: &Arc<str>, conn: ConnId) -> Option<u64> {
        let is_busy = self.pages.get(&conn).is_some_and(|pages| pages.reading.is_some());
        if self.running >= MOST && !is_busy {
            let reader = (topic.clone(), conn);
            if self.known.insert(reader.clone()) {
                self.waiting.push_back(reader);
            }
            return None;
        }
        let number = self.deliver(topic, conn)?;
        self.running += 1;
        Some(number)
    }

    /// The number of a page that needs no reading. `None` if the subscriber has to wait until [`free`](Self::free) returns it.
    pub(crate) fn deliver(&mut self, topic: &Arc<str>, conn: ConnId) -> Option<u64> {
        let pages = self.pages.entry(conn).or_default();
        if pages.reading.is_some() {
            if !pages.waiting.contains(topic) {
                pages.waiting.push_back(topic.clone());
                self.topics += 1;
            }
            return None;
        }
        self.last += 1;
        (pages.reading, pages.waits, pages.drained) = (Some(self.last), false, false);
        pages.reading
    }

    /// A reading has ended, also if nobody wants its page any more.
    pub(crate) const fn end(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// The page of a reading was delivered, or there is none. Returns the connection's next topic.
    pub(crate) fn free(&mut self, conn: ConnId, reading: u64) -> Option<Arc<str>> {
        let pages = self.pages.get_mut(&conn).filter(|pages| pages.reading == Some(reading))?;
        pages.reading = None;
        self.next_of(conn)
    }

    /// The page of a reading was queued. Whether it still waits there.
    pub(crate) fn queue(&mut self, conn: ConnId, reading: u64) -> bool {
        let Some(pages) = self.pages.get_mut(&conn).filter(|pages| pages.reading == Some(reading)) else {
            return false;
        };
        pages.waits = !pages.drained;
        pages.waits
    }

    /// Nothing waits for the connection any more. Returns the reading of a page that had waited.
    pub(crate) fn drain(&mut self, conn: ConnId) -> Option<u64> {
        let pages = self.pages.get_mut(&conn)?;
        pages.drained = true;
        pages.reading.filter(|_| pages.waits)
    }

    /// The topic that waits for a page of this connection, unless one is on its way.
    pub(crate) fn next_of(&mut self, conn: ConnId) -> Option<Arc<str>> {
        let pages = self.pages.get_mut(&conn).filter(|pages| pages.reading.is_none())?;
        let next = pages.waiting.pop_front();
        if next.is_none() {
            self.pages.remove(&conn);
            shrink_map(&mut self.pages);
        } else {
            self.topics -= 1;
        }
        next
    }

    /// A connection has ended.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        if let Some(pages) = self.pages.remove(&conn) {
            self.topics -= pages.waiting.len();
        }
    }

    /// The subscriber that has waited longest, if there is a place for it.
    pub(crate) fn next(&mut self) -> Option<Reader> {
        let reader = if self.running < MOST { self.waiting.pop_front() } else { None }?;
        self.known.remove(&reader);
        if self.waiting.is_empty() {
            // A crowd that came at once leaves no memory behind.
            (self.waiting, self.known) = (VecDeque::new(), HashSet::new());
        }
        Some(reader)
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Readings};
    use std::sync::Arc;
    use tautline::ConnId;

    fn conn(index: usize) -> ConnId {
        format!("0.{index}.0").parse().unwrap()
    }

    #[test]
    fn a_connection_gets_one_page_at_a_time_of_its_topics_in_turn() {
        let mut readings = Readings::default();
        let [a, b, c]: [Arc<str>; 3] = ["a", "b", "c"].map(Into::into);
        let first = readings.begin(&a, conn(1)).unwrap();
        for topic in [&b, &c, &b] {
            assert_eq!(readings.begin(topic, conn(1)), None);
        }
        assert!(readings.begin(&a, conn(2)).is_some(), "another connection does not wait");
        assert_eq!(readings.free(conn(1), first + 7), None, "another reading");
        assert_eq!(readings.next_of(conn(1)), None, "a page is on its way");
        // The first topic has more.
        assert_eq!(readings.begin(&a, conn(1)), None);
        assert_eq!(readings.free(conn(1), first).as_deref(), Some("b"));
        // Nothing is missing in it.
        assert_eq!(readings.next_of(conn(1)).as_deref(), Some("c"));
        let second = readings.deliver(&c, conn(1)).unwrap();
        assert_eq!(readings.free(conn(1), first), None, "freed twice");
        assert_eq!(readings.free(conn(1), second).as_deref(), Some("a"));
        assert_eq!((readings.next_of(conn(1)), readings.pages.len()), (None, 1));
    }

    #[test]
    fn a_page_that_was_queued_is_delivered_once_the_connection_has_drained() {
        let mut readings = Readings::default();
        let topic: Arc<str> = "a".into();
        assert_eq!(readings.drain(conn(1)), None, "no page");
        let first = readings.begin(&topic, conn(1)).unwrap();
        assert_eq!(readings.drain(conn(1)), None, "of something else");
        assert!(!readings.queue(conn(1), first), "the news of the drain came first");
        assert_eq!(readings.free(conn(1), first), None);
        let second = readings.begin(&topic, conn(1)).unwrap();
        assert!(!readings.queue(conn(1), first), "another page");
        assert!(readings.queue(conn(1), second));
        assert_eq!(readings.drain(conn(1)), Some(second));
        readings.forget(conn(1));
        assert!(!readings.queue(conn(1), second), "the connection has ended");
    }

    #[test]
    fn connections_wait_for_a_place_in_their_order() {
        let mut readings = Readings::default();
        let topic: Arc<str> = "a".into();
        (0..10).for_each(|index| assert!(readings.begin(&topic, conn(index)).is_some()));
        for index in 10..100 {
            assert_eq!(readings.begin(&topic, conn(index)).is_some(), index < MOST);
        }
        assert_eq!(readings.next(), None);
        readings.end();
        assert_eq!(readings.next(), Some((topic, conn(MOST))));
    }
}
