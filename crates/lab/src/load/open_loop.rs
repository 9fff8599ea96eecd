use super::echo::{Client, Clock};
use super::{PATIENCE, WAIT, Watch, turn};
use crate::Error;
use std::time::{Duration, Instant};
use tautline::Shard;
use tautline::layers::engine::probe::Probe;
use tautline::layers::io::Driver;
use tautline::layers::tls::Engine;

/// Payload bytes that may be on their way before the server counts as overwhelmed.
const MOST_BYTES: usize = 64 << 20;

/// Sends on a schedule, connection after connection, however late replies are.
pub(super) struct Pace {
    began: Instant,
    interval: f64,
    sent: u64,
    connections: usize,
}

impl Pace {
    pub(super) fn new(rate: f64, connections: usize) -> Self {
        Self { began: Instant::now(), interval: 1.0 / rate, sent: 0, connections }
    }

    /// Messages that may be on their way; more means that the server cannot keep up.
    pub(super) fn most_in_flight(size: usize) -> usize {
        (MOST_BYTES / size.max(1)).clamp(1_000, 1_000_000)
    }

    /// When the next message is due.
    fn due(&self) -> Instant {
        self.began + Duration::from_secs_f64(self.sent as f64 * self.interval)
    }

    /// Sends what is due until `end`.
    pub(super) fn until<E: Engine, D: Driver, P: Probe>(
        &mut self,
        shard: &mut Shard<E, D, Client, P>,
        end: Instant,
        clock: &mut Clock,
        watch: Watch<'_>,
    ) -> Result<(), Error> {
        loop {
            let now = Instant::now();
            clock.tick(now, watch);
            // What was due before the end is sent however late this thread is let run.
            let mut due = self.due();
            while due <= now && due < end {
                self.send(shard, due)?;
                due = self.due();
            }
            if now >= end {
                return Ok(());
            }
            turn(shard, WAIT.min(due - now).min(end - now))?;
            shard.handler().check()?;
        }
    }

    fn send<E: Engine, D: Driver, P: Probe>(
        &mut self,
        shard: &mut Shard<E, D, Client, P>,
        due: Instant,
    ) -> Result<(), Error> {
        let client = shard.handler();
        let most = Self::most_in_flight(client.size());
        if client.in_flight >= most {
            let rate = 1.0 / self.interval;
            return Err(Error::Failed(format!(
                "the server does not keep up with {rate:.0} messages/s: {most} are on their way; lower --rate"
            )));
        }
        let is_stamped = client.is_stamped();
        let turn = usize::try_from(self.sent % self.connections as u64).unwrap_or(0);
        let conn = client.dialed.open[turn];
        self.sent += 1;
        shard.with_conn(conn, |client, conn| client.send(conn, due));
        if is_stamped {
            shard.flush();
        }
        Ok(())
    }

    /// Waits for the replies that are still due.
    pub(super) fn finish<E: Engine, D: Driver, P: Probe>(
        &self,
        shard: &mut Shard<E, D, Client, P>,
    ) -> Result<(), Error> {
        let end = Instant::now() + PATIENCE;
        while shard.handler().in_flight > 0 {
            if Instant::now() > end {
                let missing = shard.handler().in_flight;
                return Err(Error::Failed(format!(
                    "{missing} replies had not come {} s after the end",
                    PATIENCE.as_secs()
                )));
            }
            turn(shard, WAIT)?;
            shard.handler().check()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_due_at_even_distances() {
        let mut pace = Pace::new(1000.0, 3);
        pace.sent = 2_500;
        assert_eq!(pace.due() - pace.began, Duration::from_millis(2_500));
    }

    #[test]
    fn what_may_be_on_its_way_is_bounded_in_bytes_and_number() {
        assert_eq!(Pace::most_in_flight(0), 1_000_000);
        assert_eq!(Pace::most_in_flight(64), 1_000_000);
        assert_eq!(Pace::most_in_flight(64 << 10), 1_024);
        assert_eq!(Pace::most_in_flight(1 << 30), 1_000);
    }
}
