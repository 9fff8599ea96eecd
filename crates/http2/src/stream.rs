//! Streams and their windows (RFC 9113, sections 5.1 and 5.2).

use crate::code::Fault;
use crate::frame::MAX_WINDOW;
use std::collections::VecDeque;

/// Streams that this end reset lately, whose frames may still be on their way: at least so many are known.
const LEAST_RESET: usize = 64;

/// A stream that is open in one direction at least.
///
/// ```text
///                      HEADERS
///                         │
///                     ┌───▼───┐  END_STREAM sent   ┌──────────────────┐
///                     │ open  ├───────────────────►│ ours has ended   ├──┐ END_STREAM received
///                     └───┬───┘                    └──────────────────┘  │
///     END_STREAM received │                        ┌──────────────────┐  ├─► closed: not in the list
///                         └───────────────────────►│ theirs has ended ├──┘
///                                                  └──────────────────┘ END_STREAM sent
///     RST_STREAM in either direction closes a stream from every state.
/// ```
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    /// Bytes that we may send. Below zero if the peer has made its window smaller.
    pub(crate) window: i64,
    /// Bytes that the peer may send. Below zero if it has sent them before it knew of our window.
    pub(crate) credit: i64,
    /// Bytes that the application has taken, and the peer does not know of.
    pub(crate) taken: u32,
    /// Bytes of the body that are still to come, if the peer has said how many.
    pub(crate) left: Option<u64>,
    /// Whether our direction has ended.
    pub(crate) ours_ended: bool,
    /// Whether the peer's direction has ended.
    pub(crate) theirs_ended: bool,
    /// Whether the head of the request or response has arrived.
    pub(crate) has_head: bool,
}

/// The open streams, in the order of their numbers.
#[derive(Debug)]
pub(crate) struct Streams {
    list: Vec<Stream>,
    reset: VecDeque<u32>,
    /// The most of `reset`.
    most_reset: usize,
}

impl Streams {
    /// None. The peer may have `most` at once, and all of them may be reset together.
    pub(crate) fn new(most: u32) -> Self {
        Self { list: Vec::new(), reset: VecDeque::new(), most_reset: LEAST_RESET.max(2 * most as usize) }
    }

    pub(crate) const fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn get(&mut self, id: u32) -> Option<&mut Stream> {
        let at = self.list.binary_search_by_key(&id, |stream| stream.id).ok()?;
        self.list.get_mut(at)
    }

    /// Adds a stream. Its number is above all others of its side.
    pub(crate) fn add(&mut self, stream: Stream) {
        let at = self.list.partition_point(|other| other.id < stream.id);
        self.list.insert(at, stream);
    }

    pub(crate) fn remove(&mut self, id: u32) -> bool {
        let at = self.list.binary_search_by_key(&id, |stream| stream.id);
        at.is_ok_and(|at| {
            self.list.remove(at);
            true
        })
    }

    /// Removes a stream that has ended in both directions.
    pub(crate) fn remove_ended(&mut self, id: u32) {
        if self.get(id).is_some_and(|stream| stream.ours_ended && stream.theirs_ended) {
            self.remove(id);
        }
    }

    /// Notes that this end has reset a stream.
    pub(crate) fn note_reset(&mut self, id: u32) {
        if self.reset.len() == self.most_reset {
            self.reset.pop_front();
        }
        self.reset.push_back(id);
    }

    pub(crate) fn was_reset(&self, id: u32) -> bool {
        self.reset.contains(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.list.iter()
    }

    /// The peer knows that the window of each stream is smaller by so many bytes than it was.
    pub(crate) fn take_credit(&mut self, bytes: u32) {
        for stream in &mut self.list {
            stream.credit -= i64::from(bytes);
        }
    }

    /// The peer has changed the window with which streams begin.
    pub(crate) fn change_windows(&mut self, by: i64) -> Result<(), Fault> {
        for stream in &mut self.list {
            stream.window += by;
            if stream.window > MAX_WINDOW {
                return Err(Fault::flow("SETTINGS_INITIAL_WINDOW_SIZE makes a window larger than 2^31 - 1"));
            }
        }
        Ok(())
    }
}
