use std::cell::Cell;
use std::rc::Rc;

/// Microseconds since the begin of a simulation.
pub(crate) type Time = u64;

/// One second.
pub(crate) const SECOND: Time = 1_000_000;

/// The time of a simulation. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Rc<Cell<Time>>);

impl Clock {
    pub(crate) fn now(&self) -> Time {
        self.0.get()
    }

    pub(crate) fn set(&self, now: Time) {
        self.0.set(now);
    }
}

/// A hash of everything that happened. Equal hashes of two runs mean that the runs were equal.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    pub(crate) events: u64,
    prints: bool,
}

impl Trace {
    /// A trace without events. It `prints` each of them, if told so.
    pub(crate) const fn new(prints: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, events: 0, prints }
    }

    /// Adds an event of a host, with two numbers that describe it.
    pub(crate) fn note(&mut self, now: Time, host: usize, what: &str, (a, b): (u64, u64)) {
        self.events += 1;
        for byte in what.bytes() {
            self.mix(u64::from(byte));
        }
        [now, host as u64, a, b].into_iter().for_each(|word| self.mix(word));
        if self.prints {
            println!("{:>10} us  host {host}  {what} {a} {b}", now);
        }
    }

    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    /// FNV-1a over words, with a rotation, since its multiplication moves bits only upwards.
    fn mix(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    }
}
