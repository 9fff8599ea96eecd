//! Requests that wait for a server of a group.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Has the loop of a request try again. It may be called in any thread.
pub type Wake = Box<dyn Fn() + Send>;

/// Requests that wait for a server of a group, over all loops, in the order in which they came.
///
/// The end of a [`Lease`](super::Lease) wakes the first one, which then tries to get a server. A request that came later does not
/// overtake it. While nobody waits, nothing here is locked.
#[derive(Default)]
pub struct Queue {
    /// The number of those that wait, for leases that end.
    len: AtomicUsize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// The number of the next request.
    next: u64,
    requests: BTreeMap<u64, Waiter>,
    /// But for those that wait now.
    counts: QueueCounts,
}

struct Waiter {
    wake: Wake,
    /// Whether it was woken, and has not tried since.
    is_woken: bool,
}

/// Counts of a [`Queue`] since the process has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Requests that wait now.
    pub waiting: usize,
    /// Requests that have waited, or wait.
    pub joined: u64,
    /// Requests that found the queue full.
    pub refused: u64,
    /// Requests that waited for the whole time.
    pub expired: u64,
}

/// The place of one request in a [`Queue`]. It is free once this is dropped.
#[derive(Debug)]
pub struct Place {
    queue: Arc<Queue>,
    number: u64,
}

impl Queue {
    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::SeqCst) == 0
    }

    /// Puts a request at the end. `None` if `most` requests wait.
    #[must_use]
    pub fn join(self: &Arc<Self>, most: usize, wake: Wake) -> Option<Place> {
        let mut waiting = self.lock();
        if waiting.requests.len() >= most {
            waiting.counts.refused += 1;
            return None;
        }
        let number = waiting.next;
        waiting.next += 1;
        // The first one tries at once: a server may have become free before it came here.
        let is_woken = waiting.requests.is_empty();
        waiting.requests.insert(number, Waiter { wake, is_woken });
        self.len.store(waiting.requests.len(), Ordering::SeqCst);
        waiting.counts.joined += 1;
        Some(Place { queue: self.clone(), number })
    }

    /// Wakes the first request.
    pub fn wake_first(&self) {
        if !self.is_empty() {
            self.wake(Bound::Unbounded);
        }
    }

    /// Counts a request that has waited for the whole time.
    pub fn count_expired(&self) {
        self.lock().counts.expired += 1;
    }

    /// The counts.
    #[must_use]
    pub fn counts(&self) -> QueueCounts {
        let waiting = self.lock();
        QueueCounts { waiting: waiting.requests.len(), ..waiting.counts }
    }

    /// Wakes the first request behind a number, unless it was woken already.
    fn wake(&self, behind: Bound<u64>) {
        let mut waiting = self.lock();
        if let Some((_, waiter)) = waiting.requests.range_mut((behind, Bound::Unbounded)).next()
            && !std::mem::replace(&mut waiter.is_woken, true)
        {
            (waiter.wake)();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queue").field(&self.counts()).finish()
    }
}

impl Place {
    /// Whether the request may try to get a server: it is its turn, and it was woken since it tried.
    #[must_use]
    pub fn may_try(&self) -> bool {
        let mut waiting = self.queue.lock();
        waiting.requests.get_mut(&self.number).is_some_and(|waiter| std::mem::take(&mut waiter.is_woken))
    }

    /// Lets the next request try: this one cannot use the server that became free.
    pub fn pass(&self) {
        self.queue.wake(Bound::Excluded(self.number));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.queue.lock();
        waiting.requests.remove(&self.number);
        self.queue.len.store(waiting.requests.len(), Ordering::SeqCst);
        drop(waiting);
        // Several servers may have become free, and this request may not have taken the one for which it was woken.
        self.queue.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue, and the requests that were woken.
    fn queue() -> (Arc<Queue>, Arc<Mutex<Vec<u32>>>) {
        (Arc::default(), Arc::default())
    }

    fn join(queue: &Arc<Queue>, woken: &Arc<Mutex<Vec<u32>>>, most: usize, name: u32) -> Option<Place> {
        let woken = woken.clone();
        queue.join(most, Box::new(move || woken.lock().unwrap().push(name)))
    }

    #[test]
    fn the_first_request_is_woken_once_until_it_has_tried() {
        let (queue, woken) = queue();
        let first = join(&queue, &woken, 9, 1).unwrap();
        let second = join(&queue, &woken, 9, 2).unwrap();
        assert!(first.may_try() && !first.may_try() && !second.may_try());
        queue.wake_first();
        queue.wake_first();
        assert_eq!(*woken.lock().unwrap(), [1]);
        assert!(first.may_try() && !second.may_try());
        queue.wake_first();
        assert_eq!(*woken.lock().unwrap(), [1, 1]);
        // It leaves, with a server or without: the next one tries, since more than one may be free.
        drop(first);
        assert_eq!(*woken.lock().unwrap(), [1, 1, 2]);
        assert!(second.may_try());
        drop(second);
        assert!(queue.is_empty());
        queue.wake_first();
    }

    #[test]
    fn a_request_that_cannot_use_a_server_lets_the_next_one_try() {
        let (queue, woken) = queue();
        let places: Vec<Place> = (0..3).map(|name| join(&queue, &woken, 9, name).unwrap()).collect();
        places[0].pass();
        assert!(places[1].may_try() && !places[2].may_try());
        places[2].pass();
        assert_eq!(*woken.lock().unwrap(), [1]);
    }

    #[test]
    fn no_more_than_the_most_wait_and_one_that_leaves_frees_its_place() {
        let (queue, woken) = queue();
        assert!(join(&queue, &woken, 0, 0).is_none());
        let mut places: Vec<Place> = (0..2).map(|name| join(&queue, &woken, 2, name).unwrap()).collect();
        assert!(join(&queue, &woken, 2, 3).is_none());
        places.pop();
        assert!(join(&queue, &woken, 2, 4).is_some());
        queue.count_expired();
        let counts = QueueCounts { waiting: 1, joined: 3, refused: 2, expired: 1 };
        assert_eq!(queue.counts(), counts);
    }
}
