use super::Probe;
use super::dial_tallies::DialTallies;
use super::message_times::MessageTimes;
use super::stages::{Stage, Stages};
use super::tally::{Tallies, UNKNOWN};
use crate::ids::DialId;
use std::io;
use std::num::NonZeroU32;
use tautline_io::{Anchor, Arrival, Clock, Driver, Scale, Ticker};

/// Readings of the clock that are timed to learn the cost of one.
const READINGS: u32 = 1_000;

/// Nanoseconds after which the kernel's clock and ours are compared again: they may drift apart, and the kernel's may be set.
const COMPARE: f64 = 10e6;

/// [`COMPARE`] in ticks.
fn compare(scale: Scale) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some millions")]
    let ticks = (COMPARE / scale.nanos_per_tick) as u64;
    ticks
}

/// A [`Probe`] that measures the stages of messages.
///
/// All times are ticks of the shard's [`Ticker`].
pub struct Stamps {
    ticker: Ticker,
    scale: Scale,
    /// Ticks until the clocks are compared again.
    compare: u64,
    /// The last comparison of the kernel's clock with ours.
    anchor: Option<(Clock, Anchor)>,
    /// The results without the times.
    stages: Box<Stages>,
    tallies: Tallies,
    dials: DialTallies,
    /// One read in this number is timed, chosen at random.
    every: u32,
    /// State of the random numbers.
    chance: u64,
    /// Whether the current read is timed.
    timed: bool,
    /// Whether the next read is timed.
    next: bool,
    /// Messages left that are not counted.
    warm_up: u64,
    /// The driver's time of arrival of the current read.
    arrival: Option<Arrival>,
    /// Stamp 1. It is converted to our clock when the message is complete, so that no stage includes the conversion.
    arrived: Option<u64>,
    /// Stamp 2.
    woke: u64,
    /// When the driver began to receive, if it knows.
    began: Option<u64>,
    /// Stamp 3.
    read: u64,
    /// The latest stamp.
    mark: u64,
    /// Whether other work was done since `mark`.
    stale: bool,
    /// Whether a message was delivered since the last record was opened.
    delivered: bool,
    /// Time spent on opening the records of the current message.
    tls: u64,
    /// Time spent on parsing the current message.
    parse: u64,
    in_read: u64,
    in_record: u64,
}

impl Stamps {
    /// Times every message but the first `warm_up`. The first value in a process takes 10 ms, to compare clocks.
    #[must_use]
    pub fn after(warm_up: u64) -> Self {
        Self { warm_up, ..Self::of_one_in(NonZeroU32::MIN) }
    }

    /// Times the messages of one read in `every`, chosen at random, and so costs less.
    #[must_use]
    pub fn of_one_in(every: NonZeroU32) -> Self {
        let ticker = Ticker::here();
        let scale = ticker.scale();
        let stages = Box::new(Stages::new(ticker, stamp_cost(ticker), every.get()));
        Self {
            ticker,
            scale,
            compare: compare(scale),
            anchor: None,
            stages,
            tallies: Tallies::new(),
            dials: DialTallies::default(),
            every: every.get(),
            chance: ticker.now() | 1,
            timed: true,
            next: true,
            warm_up: 0,
            arrival: None,
            arrived: None,
            woke: ticker.now(),
            began: None,
            read: 0,
            mark: 0,
            stale: false,
            delivered: false,
            tls: 0,
            parse: 0,
            in_read: 0,
            in_record: 0,
        }
    }

    /// Converts the kernel's time of arrival to our clock.
    fn ticks_of(&mut self, arrival: Arrival, now: u64) -> u64 {
        let anchor = match self.anchor {
            Some((clock, anchor)) if clock == arrival.clock && now.saturating_sub(anchor.ticks) < self.compare => {
                anchor
            }
            _ => self.compare_clocks(arrival.clock),
        };
        anchor.ticks_of(arrival, self.scale)
    }

    #[cold]
    fn compare_clocks(&mut self, clock: Clock) -> Anchor {
        let anchor = self.ticker.anchor(clock);
        self.anchor = Some((clock, anchor));
        self.stages.add_arrival_error(anchor.error);
        anchor
    }

    /// Counts a message whose handler is called now.
    fn count(&mut self, called: u64, dial: Option<DialId>) -> Option<MessageTimes> {
        self.in_read += 1;
        self.in_record += 1;
        if let Some(arrival) = self.arrival.take() {
            self.arrived = Some(self.ticks_of(arrival, called).min(self.read));
        }
        if self.warm_up > 0 {
            self.warm_up -= 1;
            return None;
        }
        debug_assert!(self.began.is_none_or(|began| began <= self.read));
        debug_assert!(self.read <= self.mark && self.mark <= called, "stamps run backwards");
        let begin = self.began.unwrap_or(self.read);
        // For bytes that arrived while the loop was awake, the stages begin with the arrival.
        let woke = self.woke.max(self.arrived.unwrap_or(0)).min(begin);
        let callback = called.saturating_sub(self.mark);
        let read = self.read.saturating_sub(begin);
        let app = called.saturating_sub(woke);
        // The rest is the wait for other connections, and for earlier messages of the same read.
        let waited = app.saturating_sub(read + self.tls + self.parse + callback);
        let (nic, total) = self.arrived.map_or((UNKNOWN, UNKNOWN), |arrival| {
            let nic = woke.saturating_sub(arrival);
            (nic, nic + app)
        });
        let read = if self.began.is_some() { read } else { UNKNOWN };
        let times = [nic, waited, read, self.tls, self.parse, callback, app, total];
        self.tallies.add(times);
        if let Some(dial) = dial {
            self.dials.add(dial, times);
        }
        self.stages.add_completed(self.in_read, self.in_record);
        Some(MessageTimes::new(self.ticker, self.scale.nanos_per_tick, times, called))
    }

    /// Begins a read, which completes messages of its own.
    #[inline]
    fn begin_read(&mut self, now: u64) {
        (self.read, self.mark, self.stale) = (now, now, false);
        (self.tls, self.parse, self.delivered) = (0, 0, false);
        (self.in_read, self.in_record, self.arrived) = (0, 0, None);
    }

    /// Draws whether a read is timed.
    #[inline]
    const fn draw(&mut self) -> bool {
        if self.every == 1 {
            return true;
        }
        // Xorshift (Marsaglia, 2003), which is more than good enough for sampling.
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        ((self.chance >> 32) * self.every as u64) >> 32 == 0
    }

    #[inline]
    /// Renews the latest stamp if other work was done since.
    fn freshen(&mut self) {
        if self.stale {
            self.mark = self.ticker.now();
            self.stale = false;
        }
    }
}

impl Default for Stamps {
    fn default() -> Self {
        Self::after(0)
    }
}

impl Probe for Stamps {
    fn begin(&mut self, driver: &mut dyn Driver) -> io::Result<()> {
        driver.stamp_arrivals()
    }

    fn without_tls(&mut self) {
        self.stages.without_tls();
    }

    fn times_sends(&self) -> bool {
        true
    }

    #[inline]
    fn woke(&mut self) {
        self.woke = self.ticker.now();
    }

    #[inline]
    fn received(&mut self, driver: &mut dyn Driver) {
        self.timed = self.next;
        if self.timed {
            let now = self.ticker.now();
            self.begin_read(now);
            (self.began, self.arrival) = (driver.began(), driver.arrival());
        }
        self.next = self.draw();
        if self.next != self.timed {
            driver.stamp_next(self.next);
        }
    }

    fn resumed(&mut self) {
        self.timed = self.draw();
        if self.timed {
            let now = self.ticker.now();
            self.begin_read(now);
            (self.began, self.arrival) = (None, None);
        }
    }

    #[inline]
    fn opening(&mut self) {
        if self.timed {
            self.freshen();
        }
    }

    #[inline]
    fn opened(&mut self) {
        if !self.timed {
            return;
        }
        let now = self.ticker.now();
        if self.delivered {
            (self.tls, self.delivered, self.in_record) = (0, false, 0);
        }
        self.tls += now.saturating_sub(self.mark);
        (self.mark, self.stale) = (now, false);
    }

    #[inline]
    fn decoding(&mut self) {
        if self.timed {
            self.freshen();
        }
    }

    #[inline]
    fn parsed(&mut self) {
        if !self.timed {
            return;
        }
        let now = self.ticker.now();
        self.parse += now.saturating_sub(self.mark);
        (self.mark, self.stale) = (now, false);
    }

    #[inline]
    fn calling(&mut self, dial: Option<DialId>) -> Option<MessageTimes> {
        if !self.timed {
            return None;
        }
        let now = self.ticker.now();
        let times = self.count(now, dial);
        (self.parse, self.delivered, self.stale) = (0, true, true);
        times
    }

    fn stages(&self) -> Option<Box<Stages>> {
        Some(Box::new(self.stages.with(self.tallies.histograms())))
    }

    fn stages_of(&self, dial: DialId) -> Option<Box<Stages>> {
        self.dials.of(dial).map(|tallies| Box::new(self.stages.of_part(tallies.histograms())))
    }

    fn dial_ended(&mut self, dial: DialId) {
        self.dials.remove(dial);
    }
}

impl std::fmt::Debug for Stamps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stamps").field("messages", &self.tallies.messages(Stage::App as usize)).finish_non_exhaustive()
    }
}

/// The cost of one reading of the clock, in ticks.
fn stamp_cost(ticker: Ticker) -> f64 {
    let begun = ticker.now();
    let last = (0..READINGS).fold(begun, |_, _| ticker.now());
    last.saturating_sub(begun) as f64 / f64::from(READINGS)
}
