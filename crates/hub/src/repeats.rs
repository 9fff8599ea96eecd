//! Requests that are repeated: they are answered as before, and not done twice.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most requests that are remembered, and for how long.
const MOST: usize = 10_000;
const KEPT: Duration = Duration::from_secs(300);
/// Most bytes of an answer that is remembered.
const MOST_ANSWER: usize = 4 << 10;

/// The state of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing: it is to be done.
    New,
    /// It is being done.
    Running,
    /// It was answered with this.
    Answered(u16, String),
    /// Another request had the same identifier.
    Other,
}

/// The requests of a while, by the names that their senders gave them.
#[derive(Default)]
pub(crate) struct Repeats(Mutex<State>);

#[derive(Default)]
struct State {
    known: HashMap<Box<str>, Entry>,
    order: VecDeque<(Instant, Box<str>)>,
}

struct Entry {
    /// Tells requests with one identifier apart.
    hash: u64,
    answer: Option<(u16, String)>,
}

impl Repeats {
    /// A request begins.
    pub(crate) fn begin(&self, id: &str, hash: u64, now: Instant) -> Known {
        let mut state = self.lock();
        while state.order.front().is_some_and(|(at, _)| state.order.len() >= MOST || now.duration_since(*at) > KEPT)
            && let Some((_, oldest)) = state.order.pop_front()
        {
            state.known.remove(&oldest);
        }
        match state.known.get(id) {
            Some(entry) if entry.hash != hash => Known::Other,
            Some(Entry { answer: Some((status, body)), .. }) => Known::Answered(*status, body.clone()),
            Some(_) => Known::Running,
            None => {
                state.known.insert(id.into(), Entry { hash, answer: None });
                state.order.push_back((now, id.into()));
                Known::New
            }
        }
    }

    /// A request was answered. One that may succeed later is forgotten.
    pub(crate) fn end(&self, id: &str, status: u16, body: &str) {
        let mut state = self.lock();
        if status >= 429 || body.len() > MOST_ANSWER {
            state.known.remove(id);
            state.order.retain(|(_, other)| &**other != id);
        } else if let Some(entry) = state.known.get_mut(id) {
            entry.answer = Some((status, body.to_owned()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT, Known, MOST, Repeats};
    use std::time::{Duration, Instant};

    #[test]
    fn a_repetition_gets_the_first_answer_for_a_while() {
        let (repeats, now) = (Repeats::default(), Instant::now());
        assert_eq!(repeats.begin("a", 1, now), Known::New);
        assert_eq!(repeats.begin("a", 1, now), Known::Running);
        repeats.end("a", 200, "{}");
        assert_eq!(repeats.begin("a", 1, now), Known::Answered(200, "{}".to_owned()));
        assert_eq!(repeats.begin("a", 2, now), Known::Other);
        assert_eq!(repeats.begin("a", 1, now + KEPT + Duration::from_secs(1)), Known::New);
        repeats.end("a", 503, "{}");
        assert_eq!(repeats.begin("a", 1, now), Known::New, "it failed");
    }

    #[test]
    fn the_memory_of_requests_is_bounded() {
        let (repeats, now) = (Repeats::default(), Instant::now());
        for number in 0..MOST + 100 {
            repeats.begin(&number.to_string(), 1, now);
        }
        let state = repeats.lock();
        assert_eq!((state.known.len(), state.order.len()), (MOST, MOST));
    }
}
