use std::time::{Duration, Instant};
use tautline_conn::config::Deadlines;
use tautline_conn::due::{Due, Times};
use tautline_conn::phase::Phase;
use tautline_conn::tick::{Tick, millis};

/// The times of a connection, in milliseconds since it began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    origin: Instant,
    /// When input last arrived.
    pub(super) heard: Tick,
    /// [`Times::phase_end`].
    pub(super) phase_end: Tick,
    /// When the peer took no more bytes, if it has taken none since.
    pub(super) stuck: Option<Tick>,
    /// Whether a ping was sent since the peer's last input.
    pub(super) ping_sent: bool,
    /// Whether input was held back, so that the peer could not be heard.
    pub(super) held_back: bool,
}

impl Clock {
    pub(super) fn new(now: Instant, deadlines: &Deadlines) -> Self {
        Self {
            origin: now,
            heard: 0,
            phase_end: millis(deadlines.handshake),
            stuck: None,
            ping_sent: false,
            held_back: false,
        }
    }

    pub(super) fn tick(&self, now: Instant) -> Tick {
        millis(now.saturating_duration_since(self.origin))
    }

    /// The time of a tick; `None` for one that never comes.
    pub(super) fn at(&self, tick: Tick) -> Option<Instant> {
        // The longest durations are cut to a quarter of all ticks.
        (tick < Tick::MAX / 4).then(|| self.origin.checked_add(Duration::from_millis(tick))).flatten()
    }

    /// The connection opened at `now`, or reads again: the peer has not been silent so far.
    pub(super) const fn restart(&mut self, now: Tick) {
        self.heard = now;
        (self.ping_sent, self.held_back) = (false, false);
    }

    /// The next deadline, and the action that is then due. `reads` is whether an open connection reads input.
    pub(super) fn next<W, R>(&self, phase: &Phase<W, R>, reads: bool, deadlines: &Deadlines) -> (Tick, Due) {
        let Self { heard, phase_end, ping_sent, stuck: stuck_since, .. } = *self;
        Times { heard, phase_end, ping_sent, reads, stuck_since }.next(phase, deadlines)
    }
}
