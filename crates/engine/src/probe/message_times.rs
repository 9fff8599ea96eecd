use super::stages::Stage;
use super::tally::{Times, UNKNOWN};
use std::time::{Duration, SystemTime};
use tautline_io::Ticker;

/// The times of the message that a handler is called with.
///
/// ```
/// # mod tautline { pub use {tautline_engine::{Conn, Handler}, tautline_engine::probe::Stage, tautline_ws::Message}; }
/// use std::time::Duration;
/// use tautline::{Conn, Handler, Message, Stage};
///
/// struct Feed;
///
/// impl Handler for Feed {
///     type State = ();
///     fn on_message(&mut self, conn: &mut Conn<'_, ()>, _price: Message<'_>) {
///         let Some(times) = conn.times() else { return }; // without stages, or of a read that is not timed
///         if times.stage(Stage::App) > Some(Duration::from_millis(1)) {
///             println!("arrived at {:?}, and waited {:?} in the loop", times.arrived(), times.stage(Stage::Loop));
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MessageTimes {
    ticker: Ticker,
    nanos_per_tick: f64,
    /// In ticks, in the order of [`Stage::ALL`].
    times: Times,
    /// When the handler was called, in ticks.
    called: u64,
}

impl MessageTimes {
    pub(super) const fn new(ticker: Ticker, nanos_per_tick: f64, times: Times, called: u64) -> Self {
        Self { ticker, nanos_per_tick, times, called }
    }

    /// The time that the message spent in a stage; `None` if it is not known.
    #[must_use]
    pub fn stage(&self, stage: Stage) -> Option<Duration> {
        self.ticks(stage).map(|ticks| self.duration(ticks))
    }

    /// The time since the message's last segment arrived; `None` if the driver does not know when that was.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        let since_call = self.duration(self.ticker.now().saturating_sub(self.called));
        self.stage(Stage::Total).map(|total| total + since_call)
    }

    /// When the message's last segment arrived, by the system's clock; `None` if the driver does not know.
    #[must_use]
    pub fn arrived(&self) -> Option<SystemTime> {
        SystemTime::now().checked_sub(self.age()?)
    }

    /// The time that the message spent in a stage, in ticks.
    pub(super) fn ticks(&self, stage: Stage) -> Option<u64> {
        Some(self.times[stage as usize]).filter(|ticks| *ticks != UNKNOWN)
    }

    /// When the handler was called, in ticks.
    pub(super) const fn called(&self) -> u64 {
        self.called
    }

    fn duration(&self, ticks: u64) -> Duration {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "less than 2^64 ns is 500 years")]
        let nanos = (ticks as f64 * self.nanos_per_tick) as u64;
        Duration::from_nanos(nanos)
    }
}
