//! The pace of a loop's handshakes with clients, by the time that they took it.

use std::time::Duration;
use tautline_tls::Answer;

/// Cost of a handshake as long as none was measured, in nanoseconds.
const UNKNOWN: u64 = 1_000_000;

/// Each measurement changes a cost by this part of the difference.
const WEIGHT: u64 = 8;

/// Part of a loop's time for clients that return: the rest is for those that are there.
const SHARE: u64 = 2;

/// Costs of handshakes in nanoseconds, as they were recently; 0 if none was measured.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Steps with which the server answers: they agree on keys, and full ones sign.
    full: u64,
    resumed: u64,
    /// Other steps.
    rest: u64,
}

impl Pace {
    /// A step of a handshake took this time in the loop, and gave this answer.
    pub(crate) fn measure(&mut self, answer: Option<Answer>, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX >> 8).clamp(1, u64::MAX >> 8);
        let cost = match answer {
            Some(Answer::Full) => &mut self.full,
            Some(Answer::Resumed) => &mut self.resumed,
            Some(Answer::Retry) | None => &mut self.rest,
        };
        *cost = if *cost == 0 { took } else { (*cost * (WEIGHT - 1) + took) / WEIGHT };
    }

    /// Connections that the loop can take back per second beside its work: at least one.
    ///
    /// A server that has just started may not know their tickets, so their handshakes count as full ones.
    pub(crate) fn returns(&self) -> u64 {
        let answered = if self.full == 0 { UNKNOWN.max(self.resumed) } else { self.full };
        (1_000_000_000 / SHARE / (answered + self.rest)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;
    use std::time::Duration;
    use tautline_tls::Answer;

    #[test]
    fn half_of_the_time_is_for_full_handshakes_as_they_were_recently() {
        let mut pace = Pace::default();
        assert_eq!(pace.returns(), 500, "a millisecond each until one was measured");
        let us = Duration::from_micros;
        pace.measure(Some(Answer::Resumed), us(40));
        assert_eq!(pace.returns(), 500, "resumed ones do not tell the cost of full ones");
        pace.measure(Some(Answer::Full), us(150));
        pace.measure(None, us(50));
        assert_eq!(pace.returns(), 2_500);
        (0..100).for_each(|_| pace.measure(Some(Answer::Full), us(950)));
        assert!((500..=505).contains(&pace.returns()), "{}", pace.returns());
        pace.measure(Some(Answer::Full), Duration::MAX);
        assert_eq!(pace.returns(), 1);
    }
}
