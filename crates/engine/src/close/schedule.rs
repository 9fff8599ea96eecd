//! The end of a server that comes back: when each connection is closed, and when its client is to return.

use crate::close::restart::Restart;
use crate::turn::timer::Tick;
use std::time::Duration;
use tautline_conn::tick::millis;
use tautline_ws::RetryAfter;

/// When the connections of a loop are closed, and their clients return.
#[derive(Debug)]
pub(crate) struct Schedule {
    begun: Tick,
    /// Open connections at the begin, and those closed since.
    count: u64,
    closed: u64,
    /// Time over which they are closed, time until the first returns, and time over which they return.
    closing: Tick,
    pause: Tick,
    returning: Tick,
}

impl Schedule {
    /// The schedule of a drain that begins now with `count` connections. `pace` is the loop's, in connections per second.
    pub(crate) fn new(restart: &Restart, (now, deadline): (Tick, Duration), count: u64, pace: u64) -> Self {
        let pace = restart.pace.map_or(pace, |pace| u64::from(pace.get())).max(1);
        let returning = (count.saturating_mul(1_000) / pace).min(millis(restart.longest));
        let pause = millis(restart.pause);
        // Half of the deadline is left for the last ones to end.
        let closing = if pause == 0 { returning.min(millis(deadline) / 2) } else { 0 };
        Self { begun: now, count: count.max(1), closed: 0, closing, pause, returning }
    }

    /// When the next connection is to be closed.
    pub(crate) fn next_at(&self) -> Tick {
        self.begun + self.part_of(self.closing)
    }

    /// Counts a connection that is closed now. Returns the time after which its client is to return.
    pub(crate) fn close(&mut self, now: Tick) -> RetryAfter {
        let at = self.begun + self.pause + self.part_of(self.returning);
        self.closed += 1;
        RetryAfter(Duration::from_millis(at.saturating_sub(now)))
    }

    /// The time over which clients return.
    pub(crate) const fn returning(&self) -> Duration {
        Duration::from_millis(self.returning)
    }

    /// The next connection's place in a time over which all are spread.
    fn part_of(&self, time: Tick) -> Tick {
        // A thousand hours of a billion connections do not overflow.
        self.closed.min(self.count).saturating_mul(time) / self.count
    }
}

#[cfg(test)]
mod tests {
    use super::Schedule;
    use crate::close::restart::Restart;
    use std::num::NonZeroU32;
    use std::time::Duration;

    const DEADLINE: Duration = Duration::from_secs(10);

    /// When connections are closed and return, if a turn begins when the next one is due.
    fn times(mut schedule: Schedule, count: u64) -> Vec<(u64, u64)> {
        let next = |_| {
            let at = schedule.next_at();
            (at, at + u64::try_from(schedule.close(at).0.as_millis()).unwrap())
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn clients_move_one_by_one_to_a_server_that_is_there() {
        let schedule = Schedule::new(&Restart::default(), (5_000, DEADLINE), 4, 2);
        assert_eq!(times(schedule, 4), [(5_000, 5_000), (5_500, 5_500), (6_000, 6_000), (6_500, 6_500)]);
        // Further connections opened meanwhile.
        let schedule = Schedule::new(&Restart::default(), (0, DEADLINE), 2, 1);
        assert_eq!(times(schedule, 4), [(0, 0), (1_000, 1_000), (2_000, 2_000), (2_000, 2_000)]);
    }

    #[test]
    fn the_deadline_bounds_when_they_are_closed_and_not_when_they_return() {
        let schedule = Schedule::new(&Restart::default(), (0, Duration::from_secs(2)), 4, 1);
        assert_eq!(times(schedule, 4), [(0, 0), (250, 1_000), (500, 2_000), (750, 3_000)]);
        let restart = Restart::default().with_longest(Duration::from_secs(2));
        assert_eq!(times(Schedule::new(&restart, (0, Duration::ZERO), 2, 1), 2), [(0, 0), (0, 1_000)]);
        let restart = restart.with_longest(Duration::from_millis(500));
        assert_eq!(times(Schedule::new(&restart, (0, Duration::ZERO), 2, 1), 2), [(0, 0), (0, 250)]);
    }

    #[test]
    fn all_are_closed_at_once_while_there_is_no_other_server() {
        let restart = Restart::default().with_pause(Duration::from_secs(3));
        let schedule = Schedule::new(&restart, (0, DEADLINE), 3, 1);
        assert_eq!(times(schedule, 3), [(0, 3_000), (0, 4_000), (0, 5_000)]);
        let paced = restart.with_pace(NonZeroU32::new(10).unwrap()).for_each_of(2);
        assert_eq!(times(Schedule::new(&paced, (0, DEADLINE), 2, 1), 2), [(0, 3_000), (0, 3_200)]);
        assert_eq!(paced.for_each_of(1_000).pace, Some(NonZeroU32::MIN));
    }

    #[test]
    fn extremes_do_not_overflow() {
        let restart = Restart::default().with_pause(Duration::MAX).with_longest(Duration::MAX);
        let mut schedule = Schedule::new(&restart, (1_000, Duration::MAX), u64::MAX, 1);
        for _ in 0..3 {
            schedule.close(1_000);
        }
        assert_eq!(schedule.next_at(), 1_000);
    }
}
