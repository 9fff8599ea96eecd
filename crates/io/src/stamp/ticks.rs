//! The clock of stamps.

use super::arrival::{Arrival, Clock};
use super::sys::{self, tsc};
use std::sync::OnceLock;

/// The fastest clock that runs evenly: the processor's time-stamp counter where that is invariant ("Invariant TSC",
/// Intel SDM volume 3, 19.17.1), elsewhere `CLOCK_MONOTONIC`. Its unit is a tick; [`scale`](Self::scale) gives
/// nanoseconds.
///
/// A stamp does not wait for what comes before it, which would cost the program more than the stamp does: the
/// processor may take it some tens of nanoseconds early, while the last instructions before it are still under way.
#[derive(Clone, Copy, Debug)]
pub struct Ticker {
    tsc: bool,
}

/// How long a tick is.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub nanos_per_tick: f64,
    /// Largest relative error of that.
    pub error: f64,
    /// Ticks of a nanosecond, in parts of 2^32: integers are converted in fewer instructions.
    ticks_per_nano: i128,
}

/// One instant by two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Anchor {
    /// By the ticker.
    pub ticks: u64,
    /// By the other clock.
    pub nanos: u64,
    /// How far apart both readings may be, in ticks.
    pub error: u64,
}

/// Ways to read two clocks at once are tried so often; the quickest counts.
const TRIES: usize = 5;

/// Over how long the scale is found at first. It gets more exact from then on.
const FIRST: u64 = 10_000_000;

static BEGIN: OnceLock<Anchor> = OnceLock::new();

impl Ticker {
    /// The clock of this machine. The first call of a process takes 10 ms, to compare it with `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn here() -> Self {
        let ticker = Self { tsc: tsc::is_invariant() };
        BEGIN.get_or_init(|| {
            let begin = ticker.anchor(Clock::Monotonic);
            while sys::nanos(Clock::Monotonic) - begin.nanos < FIRST {
                std::hint::spin_loop();
            }
            begin
        });
        ticker
    }

    /// Its name: `TSC`, or `CLOCK_MONOTONIC`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        if self.tsc { "TSC" } else { "CLOCK_MONOTONIC" }
    }

    /// Now, in ticks.
    #[inline]
    #[must_use]
    pub fn now(self) -> u64 {
        if self.tsc { tsc::read() } else { sys::nanos(Clock::Monotonic) }
    }

    /// Now, by both clocks.
    #[must_use]
    pub fn anchor(self, clock: Clock) -> Anchor {
        let read = || {
            let before = self.now();
            let nanos = sys::nanos(clock);
            let took = self.now().saturating_sub(before);
            Anchor { ticks: before + took / 2, nanos, error: took.div_ceil(2) }
        };
        let first = read();
        (1..TRIES).map(|_| read()).fold(first, |best, next| if next.error < best.error { next } else { best })
    }

    /// Compares with `CLOCK_MONOTONIC` since [`here`](Self::here) was first called.
    #[must_use]
    pub fn scale(self) -> Scale {
        let (Some(begin), true) = (BEGIN.get(), self.tsc) else { return Scale::new(1.0, 0.0) };
        let now = self.anchor(Clock::Monotonic);
        let ticks = now.ticks.saturating_sub(begin.ticks).max(1) as f64;
        let nanos_per_tick = now.nanos.saturating_sub(begin.nanos) as f64 / ticks;
        Scale::new(nanos_per_tick, (begin.error + now.error) as f64 / ticks)
    }
}

impl Scale {
    fn new(nanos_per_tick: f64, error: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "saturates")]
        let ticks_per_nano = ((1_u64 << 32) as f64 / nanos_per_tick) as i128;
        Self { nanos_per_tick, error, ticks_per_nano }
    }
}

impl Anchor {
    /// When something arrived, in ticks; the anchor is of its clock.
    #[must_use]
    pub fn ticks_of(&self, arrival: Arrival, scale: Scale) -> u64 {
        // Both are of this age: the difference has a sign.
        let later = arrival.nanos.wrapping_sub(self.nanos).cast_signed();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "within 64 bits where clocks are less than centuries apart"
        )]
        let later = ((i128::from(later) * scale.ticks_per_nano) >> 32) as i64;
        self.ticks.saturating_add_signed(later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn ticks_agree_with_the_monotonic_clock() {
        let ticker = Ticker::here();
        let (start, began) = (Instant::now(), ticker.now());
        std::thread::sleep(Duration::from_millis(30));
        let (ticks, took) = (ticker.now() - began, start.elapsed().as_nanos() as f64);
        let scale = ticker.scale();
        let by_ticks = ticks as f64 * scale.nanos_per_tick;
        assert!(scale.error < 0.01, "{scale:?}");
        // Both clocks are read one after the other; the machine may do something else in between.
        assert!((by_ticks / took - 1.0).abs() < 0.05 + scale.error, "{by_ticks} ns by ticks, {took} by the clock");
    }

    #[test]
    fn arrivals_are_told_in_ticks() {
        let anchor = Anchor { ticks: 1_000, nanos: 5_000, error: 0 };
        let scale = Scale::new(0.5, 0.0);
        let ticks = |nanos| anchor.ticks_of(Arrival { clock: Clock::Realtime, nanos }, scale);
        assert_eq!([4_900, 5_000, 5_100].map(ticks), [800, 1_000, 1_200]);
        assert_eq!(ticks(0), 0);
    }

    #[test]
    fn without_a_counter_a_tick_is_a_nanosecond() {
        let ticker = Ticker { tsc: false };
        assert_eq!((ticker.name(), ticker.scale().nanos_per_tick), ("CLOCK_MONOTONIC", 1.0));
        let before = ticker.now();
        assert!(ticker.now() >= before);
    }

    #[test]
    fn stamps_do_not_run_backwards() {
        let ticker = Ticker::here();
        let mut last = ticker.now();
        for _ in 0..10_000 {
            let now = ticker.now();
            assert!(now >= last);
            last = now;
        }
    }
}
