use super::send_stages::{SendResults, SendStage};
use super::tally;
use hdrhistogram::Histogram;
use std::fmt;
use std::sync::OnceLock;
use tautline_io::Ticker;

/// A part of a message's way. [`Nic`](Self::Nic) to [`Callback`](Self::Callback) add up to [`Total`](Self::Total).
///
/// ```
/// # mod tautline { pub use tautline_engine::probe::Stage; }
/// use tautline::Stage;
///
/// assert_eq!(Stage::ALL.map(Stage::name)[..3], ["nic", "loop", "read"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// From the arrival of the read's last segment to the end of the loop's wait: interrupt, the kernel's TCP, waking up.
    ///
    /// With io_uring it includes reading. It is 0 for bytes that arrived while the loop was awake. It is missing if the driver
    /// does not know the time of arrival.
    Nic,
    /// Waiting in the loop for other connections of the same turn and for earlier messages of the same read.
    Loop,
    /// Reading: the system call, or the copy from a TCP stack in user space.
    ///
    /// It is missing for io_uring, which reads before the wait ends.
    Read,
    /// Opening the message's TLS record. All messages of a record share this time.
    Tls,
    /// Parsing, unmasking and validating the message's frame.
    Parse,
    /// From the parsed frame to the call of the handler.
    Callback,
    /// From the end of the wait to the handler: all stages but [`Nic`](Self::Nic).
    App,
    /// From the arrival to the handler. It is missing if the driver does not know the time of arrival.
    Total,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Self; 8] =
        [Self::Nic, Self::Loop, Self::Read, Self::Tls, Self::Parse, Self::Callback, Self::App, Self::Total];

    /// The stage's name in results.
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

/// The results of a [`Stamps`](super::Stamps): the distribution of each stage's times.
///
/// A message that arrived in several pieces is timed by the read that completed it.
///
/// ```
/// # mod tautline { pub use tautline_engine::probe::{Stage, Stages}; }
/// use tautline::{Stage, Stages};
///
/// fn report(stages: &Stages) {
///     for stage in Stage::ALL {
///         let spread = stages.spread(stage);
///         println!("{}: {:.1} us, of {} messages", stage.name(), spread.p50, spread.count);
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Stages {
    /// In ticks, in the order of [`Stage::ALL`].
    histograms: [Histogram<u64>; 8],
    per_read: Completed,
    per_record: Completed,
    ticker: Ticker,
    nanos_per_tick: f64,
    /// Largest relative error of `nanos_per_tick`.
    scale_error: f64,
    /// The cost of one stamp, in ticks.
    stamp: f64,
    /// One read in this number was timed.
    every: u32,
    /// Largest error of the times of arrival, in ticks.
    arrival_error: u64,
    /// Whether records are opened: not without TLS.
    tls: bool,
    /// The results of sends, if any were timed.
    sends: Option<Box<SendResults>>,
}

/// Reads or records that completed messages.
#[derive(Clone, Copy, Default)]
struct Completed {
    /// Reads, or records, that completed at least one message.
    count: u64,
    /// Most messages that one of them completed.
    most: u64,
}

impl Completed {
    /// A message was completed, the `nth` of its read or record, from 1.
    fn add(&mut self, nth: u64) {
        self.count += u64::from(nth == 1);
        self.most = self.most.max(nth);
    }
}

/// The distribution of a stage's times, in microseconds; all 0 if it has none.
///
/// ```
/// # mod tautline { pub use tautline_engine::probe::Spread; }
/// use tautline::Spread;
///
/// fn is_calm(spread: &Spread) -> bool {
///     spread.p99 < 10.0 * spread.p50
/// }
/// # assert!(!is_calm(&Spread::default()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Spread {
    /// Number of messages.
    pub count: u64,
    /// Shortest time.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Longest time.
    pub max: f64,
}

impl Stages {
    pub(super) fn new(ticker: Ticker, stamp: f64, every: u32) -> Self {
        let scale = ticker.scale();
        Self {
            histograms: std::array::from_fn(|_| tally::empty()),
            per_read: Completed::default(),
            per_record: Completed::default(),
            ticker,
            nanos_per_tick: scale.nanos_per_tick,
            scale_error: scale.error,
            stamp,
            every,
            arrival_error: 0,
            tls: true,
            sends: None,
        }
    }

    /// No record is opened.
    pub(super) const fn without_tls(&mut self) {
        self.tls = false;
    }

    /// A copy with these histograms.
    pub(super) fn with(&self, histograms: [Histogram<u64>; 8]) -> Self {
        let scale = self.ticker.scale();
        // Asked again, since the scale becomes more exact with time.
        Self { histograms, nanos_per_tick: scale.nanos_per_tick, scale_error: scale.error, ..self.clone() }
    }

    /// The results of a part of the messages, with these histograms. Those of reads and records are not counted apart.
    pub(super) fn of_part(&self, histograms: [Histogram<u64>; 8]) -> Self {
        let messages = Completed { count: histograms[Stage::App as usize].len(), most: 1 };
        Self { per_read: messages, per_record: messages, ..self.with(histograms) }
    }

    /// Adds the results of sends, if there are any.
    pub(crate) fn set_sends(&mut self, sends: SendResults) {
        self.sends = (sends.timed + sends.untimed > 0).then(|| Box::new(sends));
    }

    /// A message was completed, the `in_read`-th of its read and the `in_record`-th of its record.
    #[inline]
    pub(super) fn add_completed(&mut self, in_read: u64, in_record: u64) {
        self.per_read.add(in_read);
        self.per_record.add(in_record);
    }

    /// The times of arrival may be off by `error` ticks.
    pub(super) fn add_arrival_error(&mut self, error: u64) {
        self.arrival_error = self.arrival_error.max(error);
    }

    /// Adds the results of another shard of this process.
    pub fn merge(&mut self, other: &Self) {
        for (mine, other) in self.histograms.iter_mut().zip(&other.histograms) {
            // Cannot fail, since all histograms have the same bounds.
            let _ = mine.add(other);
        }
        for (mine, other) in [(&mut self.per_read, other.per_read), (&mut self.per_record, other.per_record)] {
            *mine = Completed { count: mine.count + other.count, most: mine.most.max(other.most) };
        }
        self.arrival_error = self.arrival_error.max(other.arrival_error);
        self.every = self.every.max(other.every);
        self.tls |= other.tls;
        match (&mut self.sends, &other.sends) {
            (Some(mine), Some(other)) => mine.merge(other),
            (mine, other) => *mine = mine.take().or_else(|| other.clone()),
        }
    }

    /// The results since `earlier`, which are results of the same loops: those of an interval.
    ///
    /// Shortest and longest times are then exact to 0.5 %, like percentiles. Numbers of messages per read and record keep
    /// the largest of all time.
    ///
    /// ```no_run
    /// # mod tautline { pub use {tautline_engine::ShardHandle, tautline_engine::probe::{Stage, Stages}}; }
    /// use tautline::{ShardHandle, Stage, Stages};
    ///
    /// /// Prints the tail of the last interval, and returns the results for the next one.
    /// fn report(shard: &ShardHandle, last: Option<&Stages>) -> Option<Box<Stages>> {
    ///     let now = shard.stages().ok().flatten()?;
    ///     let interval = last.map_or_else(|| (*now).clone(), |last| now.since(last));
    ///     println!("p99.9 {:.1} us", interval.spread(Stage::App).p999);
    ///     Some(now)
    /// }
    /// ```
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for (mine, earlier) in since.histograms.iter_mut().zip(&earlier.histograms) {
            // Counts that the earlier results have beyond these are of a loop that is gone.
            if mine.subtract(earlier).is_err() {
                mine.reset();
            }
        }
        for (mine, earlier) in [(&mut since.per_read, earlier.per_read), (&mut since.per_record, earlier.per_record)] {
            mine.count = mine.count.saturating_sub(earlier.count);
        }
        if let (Some(mine), Some(earlier)) = (&mut since.sends, &earlier.sends) {
            mine.since(earlier);
        }
        since
    }

    /// Converts ticks as the first results did on which this process called it.
    ///
    /// The length of a tick becomes more exact with time. Sums that a monitoring system reads again and again must not become
    /// smaller for that reason.
    pub fn keep_scale(&mut self) {
        static FIRST: OnceLock<(f64, f64)> = OnceLock::new();
        (self.nanos_per_tick, self.scale_error) = *FIRST.get_or_init(|| (self.nanos_per_tick, self.scale_error));
    }

    /// The number of messages that were timed.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.of(Stage::App).len()
    }

    /// The number of messages whose time of arrival is known, of those that were timed. [`Nic`](Stage::Nic) and
    /// [`Total`](Stage::Total) are of these alone.
    #[must_use]
    pub fn stamped(&self) -> u64 {
        self.of(Stage::Total).len()
    }

    /// The distribution of a stage's times.
    #[must_use]
    pub fn spread(&self, stage: Stage) -> Spread {
        self.spread_of(self.of(stage))
    }

    /// The distribution of a stage's times of [timed sends](crate::Conn::send_timed).
    #[must_use]
    pub fn send_spread(&self, stage: SendStage) -> Spread {
        self.sends.as_ref().map_or_else(Spread::default, |sends| self.spread_of(sends.of(stage)))
    }

    /// The number of timed sends, and of those among them for which no stamp came.
    #[must_use]
    pub fn sends(&self) -> (u64, u64) {
        self.sends.as_ref().map_or((0, 0), |sends| (sends.timed, sends.unstamped))
    }

    fn spread_of(&self, times: &Histogram<u64>) -> Spread {
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
            p999: quantile(0.999),
            max: us(times.max() as f64),
        }
    }

    /// The histogram of a stage, for programs: the upper end of each bucket in microseconds, and its number of messages.
    ///
    /// The ends are exact to 0.5 %. Empty buckets are left out.
    pub fn histogram(&self, stage: Stage) -> impl Iterator<Item = (f64, u64)> {
        let us = self.nanos_per_tick / 1e3;
        self.of(stage).iter_recorded().map(move |step| (step.value_iterated_to() as f64 * us, step.count_at_value()))
    }

    /// Mean and largest number of messages that one read completed.
    #[must_use]
    pub fn per_read(&self) -> (f64, u64) {
        self.mean_and_most(self.per_read)
    }

    /// Mean and largest number of messages that one TLS record completed.
    #[must_use]
    pub fn per_record(&self) -> (f64, u64) {
        self.mean_and_most(self.per_record)
    }

    /// The share of TLS in the time after the wait, from 0 to 1.
    #[must_use]
    pub fn tls_share(&self) -> f64 {
        let app = self.of(Stage::App).mean();
        if app > 0.0 { self.of(Stage::Tls).mean() / app } else { 0.0 }
    }

    /// The cost of one stamp, in microseconds. Each stage includes one.
    #[must_use]
    pub fn stamp(&self) -> f64 {
        self.stamp * self.nanos_per_tick / 1e3
    }

    /// A line about the clock of the stamps, and how exact they are.
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

    fn mean_and_most(&self, completed: Completed) -> (f64, u64) {
        (self.messages() as f64 / completed.count.max(1) as f64, completed.most)
    }

    fn of(&self, stage: Stage) -> &Histogram<u64> {
        &self.histograms[stage as usize]
    }
}

impl fmt::Display for Stages {
    /// A table of at most 110 columns, then lines about sends, reads, arrivals, sampling and the clock. Without TLS it has no row
    /// `tls`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<9}{:>10}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}",
            "stage, us", "messages", "min", "mean", "stddev", "p50", "p90", "p95", "p99", "p99.9", "max"
        )?;
        for stage in Stage::ALL.into_iter().filter(|&stage| self.tls || stage != Stage::Tls) {
            write_row(f, stage.name(), &self.spread(stage))?;
        }
        if let Some(sends) = &self.sends {
            for stage in SendStage::ALL {
                write_row(f, stage.name(), &self.send_spread(stage))?;
            }
            writeln!(
                f,
                "sends: {} timed, {} of them without the kernel's stamp, {} not timed; write and kernel add up to sent",
                sends.timed, sends.unstamped, sends.untimed
            )?;
        }
        let ((read, most_read), (record, most_record)) = (self.per_read(), self.per_record());
        write!(f, "a read completed {read:.2} messages, at most {most_read}")?;
        if self.tls {
            write!(f, "; a record {record:.2}, at most {most_record}; TLS is {:.0} % of app", self.tls_share() * 1e2)?;
        }
        writeln!(f)?;
        let (messages, stamped) = (self.messages(), self.stamped());
        if stamped > 0 && stamped < messages {
            writeln!(f, "arrivals: stamped {stamped} of {messages} messages; nic and total are of these alone")?;
        }
        if self.every > 1 {
            writeln!(f, "timed: one read in {}", self.every)?;
        }
        writeln!(f, "clock: {}", self.clock())
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, name: &str, spread: &Spread) -> fmt::Result {
    let Spread { count, min, mean, stddev, p50, p90, p95, p99, p999, max } = *spread;
    if count == 0 {
        return writeln!(f, "{name:<9}{:>10}{:>9}", 0, "-");
    }
    write!(f, "{name:<9}{count:>10}")?;
    for time in [min, mean, stddev, p50, p90, p95, p99, p999] {
        write!(f, " {}", figure(time))?;
    }
    writeln!(f, "  {}", figure(max))
}

/// A time in microseconds, eight columns wide up to a minute and a half, with at least six digits.
fn figure(time: f64) -> String {
    let decimals = match time {
        ..9_999.999_5 => 3,
        ..99_999.995 => 2,
        ..999_999.95 => 1,
        _ => 0,
    };
    format!("{time:>8.decimals$}")
}

impl fmt::Debug for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stages").field("messages", &self.messages()).finish_non_exhaustive()
    }
}
