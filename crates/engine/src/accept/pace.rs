//! The pace of a loop's handshakes with clients, by the time that they took it.

use std::time::Duration;
use tautline_tls::Answer;

/// Cost of a handshake as long as none was measured, in nanoseconds.
const UNKNOWN: u64 = 1_000_000;

/// Each measurement changes a cost by this part of the difference.
const WEIGHT: u64 = 8;

/// Part of a loop's time for clients that return: the rest is for those that are there.
const SHARE: u64 = 2;

/// Costs of connections that open in nanoseconds, as they were recently; 0 if none was measured.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Steps with the server's answer: it agrees on keys, and signs in a full handshake.
    full: u64,
    resumed: u64,
    /// All other steps of a connection: it is accepted, finishes its handshake and is upgraded.
    rest: u64,
    /// Such steps since the last answer.
    since: u64,
    /// The answer of the present step.
    answer: Option<Answer>,
}

impl Pace {
    /// The present step of a handshake gave this answer.
    pub(crate) const fn answered(&mut self, answer: Option<Answer>) {
        if answer.is_some() {
            self.answer = answer;
        }
    }

    /// The pool gave an answer, at no cost of the loop.
    pub(crate) const fn answered_elsewhere(&mut self) {
        approach(&mut self.rest, self.since);
        self.since = 0;
    }

    /// A step for a connection that opens took this time.
    pub(crate) fn measure(&mut self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX >> 8).clamp(1, u64::MAX >> 8);
        let cost = match self.answer.take() {
            Some(Answer::Full) => &mut self.full,
            Some(Answer::Resumed) => &mut self.resumed,
            Some(Answer::Retry) | None => {
                self.since = self.since.saturating_add(took).min(u64::MAX >> 8);
                return;
            }
        };
        approach(cost, took);
        approach(&mut self.rest, std::mem::take(&mut self.since));
    }

    /// Connections that the loop can take back per second beside its work: at least one.
    ///
    /// A server that has just started may not know their tickets, so their handshakes count as full ones.
    pub(crate) fn returns(&self) -> u64 {
        let answered = if self.full == 0 { UNKNOWN.max(self.resumed) } else { self.full };
        (1_000_000_000 / SHARE / (answered + self.rest)).max(1)
    }
}

/// Changes a cost by a part of the difference to the latest one.
const fn approach(cost: &mut u64, latest: u64) {
    *cost = if *cost == 0 { latest } else { (*cost * (WEIGHT - 1) + latest) / WEIGHT };
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
        let answer = |pace: &mut Pace, answer, took| {
            pace.answered(Some(answer));
            pace.answered(None);
            pace.measure(took);
        };
        answer(&mut pace, Answer::Resumed, us(40));
        assert_eq!(pace.returns(), 500, "resumed ones do not tell the cost of full ones");
        // All steps between two answers are one connection's.
        (0..2).for_each(|_| pace.measure(us(20)));
        answer(&mut pace, Answer::Retry, us(10));
        answer(&mut pace, Answer::Full, us(150));
        assert_eq!(pace.returns(), 2_500);
        (0..100).for_each(|_| answer(&mut pace, Answer::Full, us(1_000)));
        assert!((500..=505).contains(&pace.returns()), "{}", pace.returns());
        // Answers of the pool are not added up until the loop answers again.
        for _ in 0..100 {
            pace.measure(us(50));
            pace.answered_elsewhere();
        }
        answer(&mut pace, Answer::Full, us(1_000));
        assert!((470..=505).contains(&pace.returns()), "{}", pace.returns());
        answer(&mut pace, Answer::Full, Duration::MAX);
        assert_eq!(pace.returns(), 1);
    }
}
