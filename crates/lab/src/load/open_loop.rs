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

/// Schedule of messages at a fixed rate, over all connections in turn. It does not wait for replies.
pub(super) struct Schedule {
    began: Instant,
    interval: f64,
    sent: u64,
    most_in_flight: usize,
}

impl Schedule {
    pub(super) fn new(rate: f64, size: usize) -> Self {
        Self { began: Instant::now(), interval: 1.0 / rate, sent: 0, most_in_flight: most_in_flight(size) }
    }

    /// Time at which the next message is due.
    fn due(&self) -> Instant {
        self.began + Duration::from_secs_f64(self.sent as f64 * self.interval)
    }

    /// Sends messages when they are due, until `end`.
    pub(super) fn until(&mut self, run: &mut Run<'_>, end: Instant) -> Result<(), Error> {
        loop {
            let now = Instant::now();
            run.report(now);
            // Messages due before the end are sent even if this thread runs late.
            let mut due = self.due();
            while due <= now && due < end {
                self.send(run, due)?;
                due = self.due();
            }
            if now >= end {
                return Ok(());
            }
            run.turn(WAIT.min(due - now).min(end - now))?;
        }
    }

    fn send(&mut self, run: &mut Run<'_>, due: Instant) -> Result<(), Error> {
        let (in_flight, is_stamped) = {
            let exchange = run.exchange.borrow();
            (exchange.in_flight, exchange.is_stamped())
        };
        if in_flight >= self.most_in_flight {
            let (rate, most) = (1.0 / self.interval, self.most_in_flight);
            return Err(Error::Failed(format!(
                "the server does not keep up with {rate:.0} messages/s: {most} are in flight; lower --rate"
            )));
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
                return Err(Error::Failed(format!("{missing} replies were missing {patience} s after the end")));
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
        assert_eq!(schedule.due() - schedule.began, Duration::from_millis(2_500));
    }

    #[test]
    fn messages_in_flight_are_bounded_in_bytes_and_number() {
        assert_eq!(most_in_flight(0), 1_000_000);
        assert_eq!(most_in_flight(64), 1_000_000);
        assert_eq!(most_in_flight(64 << 10), 1_024);
        assert_eq!(most_in_flight(1 << 30), 1_000);
    }
}
