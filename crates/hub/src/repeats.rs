//! Requests that are repeated: they are answered as before, and not done twice.

use crate::lock::lock;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Most requests that are remembered, for how long, and the bytes of all of them.
const MOST: usize = 10_000;
const KEPT: Duration = Duration::from_secs(300);
const MOST_BYTES: usize = 16 << 20;
/// Memory of a request beside its answer and its name, which is there twice.
const BESIDE: usize = 2 * (size_of::<Entry>() + size_of::<Place>());

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
    /// In their order. The request of a place may have failed, and its name may have another place by now.
    order: VecDeque<Place>,
    /// The number of the last request.
    last: u64,
    bytes: usize,
}

/// The time, name and number of a request.
type Place = (Instant, Box<str>, u64);

struct Entry {
    number: u64,
    /// Tells requests with one identifier apart.
    hash: u64,
    answer: Option<(u16, Box<str>)>,
}

impl Repeats {
    /// A request begins.
    pub(crate) fn begin(&self, id: &str, hash: u64, now: Instant) -> Known {
        let mut state = lock(&self.0);
        while state.is_over(now) && state.forget_oldest() {}
        match state.known.get(id) {
            Some(entry) if entry.hash != hash => Known::Other,
            Some(Entry { answer: Some((status, body)), .. }) => Known::Answered(*status, body.to_string()),
            Some(_) => Known::Running,
            None => {
                state.last += 1;
                let number = state.last;
                state.known.insert(id.into(), Entry { number, hash, answer: None });
                state.order.push_back((now, id.into(), number));
                state.bytes += 2 * id.len() + BESIDE;
                Known::New
            }
        }
    }

    /// A request was answered. One that may succeed later is forgotten.
    pub(crate) fn end(&self, id: &str, status: u16, body: &str) {
        let mut state = lock(&self.0);
        if status >= 429 {
            state.known.remove(id);
        } else if let Some(entry) = state.known.get_mut(id) {
            entry.answer = Some((status, body.into()));
            state.bytes += body.len();
            while state.bytes > MOST_BYTES && state.forget_oldest() {}
        }
    }

    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        lock(&self.0).bytes
    }
}

impl State {
    /// Whether the oldest request is to be forgotten.
    fn is_over(&self, now: Instant) -> bool {
        let is_old = |(at, ..): &Place| now.saturating_duration_since(*at) > KEPT;
        self.order.len() >= MOST || self.order.front().is_some_and(is_old)
    }

    /// Forgets the oldest request. False if there is none.
    fn forget_oldest(&mut self) -> bool {
        let Some((_, id, number)) = self.order.pop_front() else { return false };
        self.bytes -= 2 * id.len() + BESIDE;
        if self.known.get(&id).is_some_and(|entry| entry.number == number) {
            let entry = self.known.remove(&id);
            self.bytes -= entry.and_then(|entry| entry.answer).map_or(0, |(_, body)| body.len());
        }
        if self.order.is_empty() {
            *self = Self { last: self.last, ..Self::default() };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT, Known, MOST, MOST_BYTES, Repeats, lock};
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
        let state = lock(&repeats.0);
        assert_eq!((state.known.len(), state.order.len()), (MOST, MOST));
    }

    #[test]
    fn long_answers_are_remembered_and_their_bytes_are_bounded() {
        let (repeats, now) = (Repeats::default(), Instant::now());
        let long = "x".repeat(64 << 10);
        for number in 0..1_000 {
            let id = number.to_string();
            assert_eq!(repeats.begin(&id, 1, now), Known::New);
            repeats.end(&id, 200, &long);
            assert_eq!(repeats.begin(&id, 1, now), Known::Answered(200, long.clone()));
        }
        assert!((MOST_BYTES - (128 << 10)..=MOST_BYTES).contains(&repeats.memory()), "{}", repeats.memory());
        repeats.begin("late", 1, now + 2 * KEPT);
        assert_eq!(lock(&repeats.0).order.len(), 1);
        repeats.begin("later", 1, now + 4 * KEPT);
        assert!(repeats.memory() < 1_000, "{}", repeats.memory());
    }

    #[test]
    fn a_request_that_failed_and_its_repetition_are_two() {
        let (repeats, now) = (Repeats::default(), Instant::now());
        repeats.begin("a", 1, now);
        repeats.end("a", 503, "");
        let later = now + KEPT;
        assert_eq!(repeats.begin("a", 1, later), Known::New);
        repeats.end("a", 200, "{}");
        // The time of the first one is over, and that of its repetition is not.
        assert_eq!(repeats.begin("a", 1, now + KEPT * 3 / 2), Known::Answered(200, "{}".to_owned()));
    }
}
