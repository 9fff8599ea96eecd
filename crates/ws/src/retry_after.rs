//! The time after which a client is to come back, in the reason of a close frame.

use crate::CloseCode;
use core::fmt;
use core::time::Duration;

/// The time after which a client is to come back, as a close frame says it.
///
/// It begins the reason of a close frame with the code 1012 (service restart) or 1013 (try again later):
///
/// ```text
/// reason  = hint [ " " text ]
/// hint    = "retry-after=" seconds "s"
/// seconds = 1*7DIGIT [ "." 1*3DIGIT ]
/// ```
///
/// A server gives each client a time of its own, so clients that obey do not come back all at once. A client that does not
/// know the hint sees a reason in words.
///
/// ```
/// # mod tautline { pub use tautline_ws::{CloseCode, RetryAfter}; }
/// use std::time::Duration;
/// use tautline::{CloseCode, RetryAfter};
///
/// let reason = format!("{} the server restarts", RetryAfter(Duration::from_millis(12_500)));
/// assert_eq!(reason, "retry-after=12.5s the server restarts");
/// let read = RetryAfter::read(CloseCode::SERVICE_RESTART, &reason);
/// assert_eq!(read, Some(RetryAfter(Duration::from_millis(12_500))));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetryAfter(pub Duration);

impl RetryAfter {
    /// Longest time that can be written, about 115 days. Longer ones are written as this.
    pub const MAX: Duration = Duration::from_millis(9_999_999_999);

    const NAME: &str = "retry-after=";

    /// The time in a close frame; `None` if it has none, or one of another form.
    #[must_use]
    pub fn read(code: CloseCode, reason: &str) -> Option<Self> {
        if !matches!(code, CloseCode::SERVICE_RESTART | CloseCode::TRY_AGAIN_LATER) {
            return None;
        }
        let hint = reason.split(' ').next()?.strip_prefix(Self::NAME)?.strip_suffix('s')?;
        let (seconds, fraction) = hint.split_once('.').unwrap_or((hint, "0"));
        let thousandths = number(fraction, 3)? * 10_u64.pow(3 - u32::try_from(fraction.len()).ok()?);
        Some(Self(Duration::from_millis(number(seconds, 7)? * 1000 + thousandths)))
    }
}

/// A number of at most `most` digits.
fn number(digits: &str, most: usize) -> Option<u64> {
    let is_number = (1..=most).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

impl fmt::Display for RetryAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.0.min(Self::MAX);
        write!(f, "{}{}", Self::NAME, time.as_secs())?;
        match time.subsec_millis() {
            0 => f.write_str("s"),
            millis if millis % 100 == 0 => write!(f, ".{}s", millis / 100),
            millis => write!(f, ".{millis:03}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RetryAfter;
    use crate::CloseCode;
    use core::time::Duration;

    fn read(reason: &str) -> Option<u128> {
        RetryAfter::read(CloseCode::SERVICE_RESTART, reason).map(|time| time.0.as_millis())
    }

    #[test]
    fn every_written_time_is_read() {
        for millis in [0, 1, 10, 99, 100, 999, 1000, 1001, 12_500, 60_000, 9_999_999_999] {
            let written = RetryAfter(Duration::from_millis(millis)).to_string();
            assert_eq!(read(&written), Some(u128::from(millis)), "{written}");
        }
        assert_eq!(RetryAfter(Duration::MAX).to_string(), "retry-after=9999999.999s");
    }

    #[test]
    fn only_the_documented_form_is_read() {
        assert_eq!(read("retry-after=2s"), Some(2_000));
        assert_eq!(read("retry-after=2.05s back soon"), Some(2_050));
        for reason in [
            "",
            "retry-after=",
            "retry-after=s",
            "retry-after=2",
            "retry-after=2m",
            "retry-after=-2s",
            "retry-after=+2s",
            "retry-after=2.s",
            "retry-after=.5s",
            "retry-after=1.2345s",
            "retry-after=12345678s",
            "retry-after=1e3s",
            "retry-after=2s, please",
            "Retry-After=2s",
            " retry-after=2s",
            "please retry-after=2s",
            "retry-after=١s",
        ] {
            assert_eq!(read(reason), None, "{reason:?}");
        }
    }

    #[test]
    fn codes_of_a_server_that_comes_back_alone_have_it() {
        for (code, has) in [(1000, false), (1001, false), (1011, false), (1012, true), (1013, true), (4000, false)] {
            assert_eq!(RetryAfter::read(CloseCode::new(code), "retry-after=1s").is_some(), has, "{code}");
        }
    }
}
