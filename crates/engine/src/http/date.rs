use crate::turn::clock::Clock;
use crate::turn::timer::Tick;
use http::HeaderValue;
use std::time::{Duration, UNIX_EPOCH};

/// The value of `Date` (RFC 9110, section 6.6.1), which is formatted at most once a second.
#[derive(Debug, Default)]
pub(crate) struct DateCache {
    second: u64,
    value: Option<HeaderValue>,
    /// The turn that last asked, and its time.
    turn: Option<(Tick, Duration)>,
}

impl DateCache {
    /// The first second whose year has five digits, which the format lacks.
    const END: u64 = 253_402_300_800;

    /// The value in the turn of a shard that began at `turn`. The clock is read once for each.
    pub(crate) fn of_turn(&mut self, turn: Tick, clock: &Clock) -> HeaderValue {
        let time = match self.turn {
            Some((of, time)) if of == turn => time,
            _ => clock.since_epoch(),
        };
        self.turn = Some((turn, time));
        self.at(time)
    }

    /// The value at this time since the Unix epoch.
    pub(crate) fn at(&mut self, time: Duration) -> HeaderValue {
        let second = time.as_secs().min(Self::END - 1);
        match &self.value {
            Some(value) if self.second == second => value.clone(),
            _ => {
                let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
                let value = HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""));
                (self.second, self.value) = (second, Some(value.clone()));
                value
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_changes_with_the_second_and_never_fails() {
        let mut dates = DateCache::default();
        let mut at = |seconds: u64, millis| {
            let value = dates.at(Duration::from_secs(seconds) + Duration::from_millis(millis));
            value.to_str().unwrap().to_owned()
        };
        assert_eq!(at(784_111_777, 0), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(at(784_111_777, 999), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(at(784_111_778, 0), "Sun, 06 Nov 1994 08:49:38 GMT");
        // The system's clock may be set back.
        assert_eq!(at(0, 0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(at(u64::MAX, 0), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn a_date_is_formatted_once_a_second() {
        let mut dates = DateCache::default();
        let first = dates.at(Duration::from_millis(5_000));
        assert_eq!(first.as_bytes().as_ptr(), dates.at(Duration::from_millis(5_999)).as_bytes().as_ptr());
    }
}
