use super::tally;
use hdrhistogram::Histogram;
use std::fmt;
use tautline_io::Ticker;

/// A part of a message's way. [`Nic`](Self::Nic) to [`Callback`](Self::Callback) add up to [`Total`](Self::Total).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// From the stamp of the last segment of the read to the end of the loop's wait: interrupt, the kernel's TCP, waking up,
    /// and reading, where the kernel does that within the wait, as io_uring.
    /// Nothing where it arrived while the loop was awake. Only where the driver knows.
    Nic,
    /// What it waited for in the loop: other connections of the same turn, earlier messages of the same read.
    Loop,
    /// Reading it: the system call, or the copy out of a TCP stack of ours. Only where the driver reads by itself;
    /// io_uring does it before the wait is over.
    Read,
    /// Opening its TLS record. Messages of one record have this in common.
    Tls,
    /// Parsing its frame, unmasking and validating it.
    Parse,
    /// From there to the handler.
    Callback,
    /// From the end of the wait to the handler: all but [`Nic`](Self::Nic).
    App,
    /// From the stamp to the handler; only where there is one.
    Total,
}

impl Stage {
    /// All, in order.
    pub const ALL: [Self; 8] =
        [Self::Nic, Self::Loop, Self::Read, Self::Tls, Self::Parse, Self::Callback, Self::App, Self::Total];

    /// Name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nic => "nic",
            Self::Loop => "loop",
            Self::Read => "read",
            Self::Tls => "tls",
            Self::Parse => "parse",
            Self::Callback => "callback",
            Self::App => "app",
            Self::Total => "total",
        }
    }
}

/// What a [`Stamps`](super::Stamps) found.
///
/// A message that came in several pieces is told by the read that completed it.
#[derive(Clone)]
pub struct Stages {
    /// In ticks, in the order of [`Stage::ALL`].
    histograms: [Histogram<u64>; 8],
    per_read: Shared,
    per_record: Shared,
    ticker: Ticker,
    nanos_per_tick: f64,
    /// Largest relative error of that.
    scale_error: f64,
    /// What one stamp costs, in ticks.
    stamp: f64,
    /// Reads of which one was timed.
    every: u32,
    /// How far the stamps of arrivals may be off, in ticks.
    arrival_error: u64,
}

/// What messages had in common.
#[derive(Clone, Copy, Default)]
struct Shared {
    /// Reads, or records, that completed a message.
    count: u64,
    /// Most messages of one.
    most: u64,
}

impl Shared {
    /// One completed so many messages, this one included.
    fn record(&mut self, messages: u64) {
        self.count += u64::from(messages == 1);
        self.most = self.most.max(messages);
    }
}

/// How a stage's times are spread, in microseconds; all 0 where it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Messages.
    pub count: u64,
    /// Shortest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Median.
    pub p50: f64,
    /// 90 % take no longer.
    pub p90: f64,
    /// 95 % take no longer.
    pub p95: f64,
    /// 99 % take no longer.
    pub p99: f64,
    /// Longest.
    pub max: f64,
}

impl Stages {
    pub(super) fn new(ticker: Ticker, stamp: f64, every: u32) -> Self {
        let scale = ticker.scale();
        Self {
            histograms: std::array::from_fn(|_| tally::empty()),
            per_read: Shared::default(),
            per_record: Shared::default(),
            ticker,
            nanos_per_tick: scale.nanos_per_tick,
            scale_error: scale.error,
            stamp,
            every,
            arrival_error: 0,
        }
    }

    /// With the times of all messages.
    pub(super) fn with(&self, histograms: [Histogram<u64>; 8]) -> Self {
        let scale = self.ticker.scale();
        // The longer the clocks were compared, the better the scale.
        Self { histograms, nanos_per_tick: scale.nanos_per_tick, scale_error: scale.error, ..self.clone() }
    }

    /// A message was the n-th of its read, and of its record.
    #[inline]
    pub(super) fn shares(&mut self, in_read: u64, in_record: u64) {
        self.per_read.record(in_read);
        self.per_record.record(in_record);
    }

    /// Stamps of arrivals may be off by so many ticks.
    pub(super) fn arrivals_within(&mut self, error: u64) {
        self.arrival_error = self.arrival_error.max(error);
    }

    /// Adds what another shard of this process found.
    pub fn merge(&mut self, other: &Self) {
        for (mine, other) in self.histograms.iter_mut().zip(&other.histograms) {
            // All have the same bounds.
            let _ = mine.add(other);
        }
        for (mine, other) in [(&mut self.per_read, other.per_read), (&mut self.per_record, other.per_record)] {
            *mine = Shared { count: mine.count + other.count, most: mine.most.max(other.most) };
        }
        self.arrival_error = self.arrival_error.max(other.arrival_error);
        self.every = self.every.max(other.every);
    }

    /// Messages that were timed.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.of(Stage::App).len()
    }

    /// How the times of a stage are spread.
    #[must_use]
    pub fn spread(&self, stage: Stage) -> Spread {
        let times = self.of(stage);
        if times.is_empty() {
            return Spread::default();
        }
        let us = |ticks: f64| ticks * self.nanos_per_tick / 1e3;
        let quantile = |share| us(times.value_at_quantile(share) as f64);
        Spread {
            count: times.len(),
            min: us(times.min() as f64),
            mean: us(times.mean()),
            stddev: us(times.stdev()),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p95: quantile(0.95),
            p99: quantile(0.99),
            max: us(times.max() as f64),
        }
    }

    /// The histogram of a stage, for programs: upper ends in microseconds, exact to five thousandths, and how many messages
    /// lie below each and above the one before; empty ones are left out.
    pub fn histogram(&self, stage: Stage) -> impl Iterator<Item = (f64, u64)> {
        let us = self.nanos_per_tick / 1e3;
        self.of(stage).iter_recorded().map(move |step| (step.value_iterated_to() as f64 * us, step.count_at_value()))
    }

    /// Mean and largest number of messages that one read completed.
    #[must_use]
    pub fn per_read(&self) -> (f64, u64) {
        self.share(self.per_read)
    }

    /// Mean and largest number of messages that one TLS record completed.
    #[must_use]
    pub fn per_record(&self) -> (f64, u64) {
        self.share(self.per_record)
    }

    /// Which share of the time after the wait TLS takes (0 to 1).
    #[must_use]
    pub fn tls_share(&self) -> f64 {
        let app = self.of(Stage::App).mean();
        if app > 0.0 { self.of(Stage::Tls).mean() / app } else { 0.0 }
    }

    /// What one stamp costs, in microseconds. Each stage holds one.
    #[must_use]
    pub fn stamp(&self) -> f64 {
        self.stamp * self.nanos_per_tick / 1e3
    }

    /// What the stamps are told by, and how exact they are.
    #[must_use]
    pub fn clock(&self) -> String {
        let scale = format!(
            "{} of {:.3} ticks a ns, exact to {:.2} ppm; a stamp costs {:.0} ns",
            self.ticker.name(),
            1.0 / self.nanos_per_tick,
            self.scale_error * 1e6,
            self.stamp * self.nanos_per_tick
        );
        if self.of(Stage::Nic).is_empty() {
            return format!("{scale}; no stamps of arrivals");
        }
        format!("{scale}; arrivals exact to {:.0} ns", self.arrival_error as f64 * self.nanos_per_tick)
    }

    fn share(&self, shared: Shared) -> (f64, u64) {
        (self.messages() as f64 / shared.count.max(1) as f64, shared.most)
    }

    fn of(&self, stage: Stage) -> &Histogram<u64> {
        &self.histograms[stage as usize]
    }
}

impl fmt::Display for Stages {
    /// A table of at most 100 columns, and what it rests on.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<9}{:>10}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}",
            "stage, us", "messages", "min", "mean", "stddev", "p50", "p90", "p95", "p99", "max"
        )?;
        for stage in Stage::ALL {
            let Spread { count, min, mean, stddev, p50, p90, p95, p99, max } = self.spread(stage);
            if count == 0 {
                writeln!(f, "{:<9}{:>10}{:>9}", stage.name(), 0, "-")?;
                continue;
            }
            write!(f, "{:<9}{count:>10}{min:>9.3}{mean:>9.3}{stddev:>9.3}", stage.name())?;
            writeln!(f, "{p50:>9.3}{p90:>9.3}{p95:>9.3}{p99:>9.3}{max:>10.1}")?;
        }
        let ((read, most_read), (record, most_record)) = (self.per_read(), self.per_record());
        writeln!(
            f,
            "TLS is {:.0} % of app; a read completed {read:.2} messages, at most {most_read}; a record {record:.2}, at most {most_record}",
            self.tls_share() * 1e2
        )?;
        if self.every > 1 {
            writeln!(f, "timed: one read in {}", self.every)?;
        }
        writeln!(f, "clock: {}", self.clock())
    }
}

impl fmt::Debug for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stages").field("messages", &self.messages()).finish_non_exhaustive()
    }
}
