use super::client::WAIT;
use super::exchange::Run;
use super::server::PATIENCE;
use crate::Error;
use std::time::{Duration, Instant};

/// Payload bytes in flight from which on the server counts as overloaded.
const MOST_BYTES: usize = 64 << 20;

/// Messages of `size` bytes that may be in flight. With more, the server does not keep up.
pub(super) fn most_in_flight(size: usize) -> usize {
    (MOST_BYTES / size.max(1)).clamp(1_000, 1_000_000)
}

/// A part of a schedule: the rate in messages per second at its end, to which it goes evenly, and its length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateStage {
    /// Messages per second at the end of the stage.
    pub rate: f64,
    /// Length of the stage.
    pub time: Duration,
}

/// Schedule of messages, over all connections in turn. It does not wait for replies.
pub(super) struct Schedule {
    began: Instant,
    pace: Pace,
    sent: u64,
    most_in_flight: usize,
}

enum Pace {
    /// At this interval in seconds.
    Steady(f64),
    /// By stages, from a rate of 0 on.
    Staged(Vec<RateStage>),
}

impl Pace {
    /// Seconds from the beginning until a message is due; `None` if it is behind the last stage.
    fn due(&self, message: u64) -> Option<f64> {
        let stages = match self {
            Self::Steady(interval) => return Some(message as f64 * interval),
            Self::Staged(stages) => stages,
        };
        let (mut left, mut before, mut rate) = (message as f64, 0.0, 0.0);
        for stage in stages {
            let time = stage.time.as_secs_f64();
            let count = f64::midpoint(rate, stage.rate) * time;
            if left < count {
                // The number of messages after x seconds is rate x + slope x^2 / 2.
                let slope = (stage.rate - rate) / time;
                let within = if slope.abs() < 1e-9 {
                    left / rate
                } else {
                    ((rate * rate + 2.0 * slope * left).max(0.0).sqrt() - rate) / slope
                };
                return Some(before + within);
            }
            (left, before, rate) = (left - count, before + time, stage.rate);
        }
        None
    }

    /// The greatest rate, for messages about overload.
    fn most(&self) -> f64 {
        match self {
            Self::Steady(interval) => 1.0 / interval,
            Self::Staged(stages) => stages.iter().map(|stage| stage.rate).fold(0.0, f64::max),
        }
    }
}

impl Schedule {
    pub(super) fn new(rate: f64, size: usize) -> Self {
        Self { began: Instant::now(), pace: Pace::Steady(1.0 / rate), sent: 0, most_in_flight: most_in_flight(size) }
    }

    pub(super) fn staged(stages: Vec<RateStage>, size: usize) -> Self {
        Self { began: Instant::now(), pace: Pace::Staged(stages), sent: 0, most_in_flight: most_in_flight(size) }
    }

    /// Time at which the next message is due; `None` after the last one.
    fn due(&self) -> Option<Instant> {
        Some(self.began + Duration::from_secs_f64(self.pace.due(self.sent)?))
    }

    /// Sends messages when they are due, until `end`.
    pub(super) fn until(&mut self, run: &mut Run<'_>, end: Instant) -> Result<(), Error> {
        loop {
            let now = Instant::now();
            run.report(now);
            // Messages due before the end are sent even if this thread runs late.
            let mut due = self.due().unwrap_or(end);
            while due <= now && due < end {
                self.send(run, due)?;
                due = self.due().unwrap_or(end);
            }
            if now >= end || run.client.is_deserted() {
                return Ok(());
            }
            run.turn(WAIT.min(due.saturating_duration_since(now)).min(end - now))?;
        }
    }

    fn send(&mut self, run: &mut Run<'_>, due: Instant) -> Result<(), Error> {
        let (in_flight, is_stamped) = {
            let exchange = run.exchange.borrow();
            (exchange.in_flight, exchange.is_stamped())
        };
        if in_flight >= self.most_in_flight {
            let (rate, most) = (self.pace.most(), self.most_in_flight);
            let what =
                format!("the server does not keep up with {rate:.0} messages/s: {most} are in flight; lower --rate");
            if !run.counts_errors {
                return Err(Error::Failed(what));
            }
            run.client.add_error("not sent", 1, || what);
            self.sent += 1;
            return Ok(());
        }
        let connection = usize::try_from(self.sent % run.client.connections() as u64).unwrap_or(0);
        self.sent += 1;
        run.send(connection, 1, due)?;
        if is_stamped {
            run.client.flush();
        }
        Ok(())
    }

    /// Waits for the missing replies.
    pub(super) fn finish(run: &mut Run<'_>) -> Result<(), Error> {
        let end = Instant::now() + PATIENCE;
        loop {
            let missing = run.exchange.borrow().in_flight;
            if missing == 0 {
                return Ok(());
            }
            if Instant::now() > end {
                let patience = PATIENCE.as_secs();
                let what = format!("{missing} replies were missing {patience} s after the end");
                if run.counts_errors {
                    run.client.add_error("no reply", missing as u64, || what);
                    return Ok(());
                }
                return Err(Error::Failed(what));
            }
            run.turn(WAIT)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_due_at_even_distances() {
        let mut schedule = Schedule::new(1000.0, 64);
        schedule.sent = 2_500;
        assert_eq!(schedule.due().unwrap() - schedule.began, Duration::from_millis(2_500));
    }

    #[test]
    fn stages_go_evenly_from_rate_to_rate_and_end() {
        let stage = |rate, seconds| RateStage { rate, time: Duration::from_secs(seconds) };
        // 50 messages in the first stage, 100 in the second, 50 in the third.
        let pace = Pace::Staged(vec![stage(100.0, 1), stage(100.0, 1), stage(0.0, 1)]);
        let due = |message| pace.due(message).map(|seconds| (seconds * 1e6).round() / 1e6);
        assert_eq!(due(0), Some(0.0));
        assert_eq!(due(50), Some(1.0));
        assert_eq!(due(100), Some(1.5));
        assert_eq!(due(150), Some(2.0));
        assert_eq!(due(12), Some((2.0_f64 * 12.0 / 100.0).sqrt()).map(|seconds| (seconds * 1e6).round() / 1e6));
        assert_eq!(due(200), None);
        let times: Vec<f64> = (0..200).map(|message| pace.due(message).unwrap()).collect();
        assert!(times.is_sorted() && times[199] < 3.0, "{times:?}");
        // A quiet stage sends nothing.
        let quiet = Pace::Staged(vec![stage(0.0, 1), stage(10.0, 2)]);
        assert!(quiet.due(0).unwrap() >= 1.0);
    }

    #[test]
    fn messages_in_flight_are_bounded_in_bytes_and_number() {
        assert_eq!(most_in_flight(0), 1_000_000);
        assert_eq!(most_in_flight(64), 1_000_000);
        assert_eq!(most_in_flight(64 << 10), 1_024);
        assert_eq!(most_in_flight(1 << 30), 1_000);
    }
}
