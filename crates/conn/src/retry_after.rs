//! The time in the header `Retry-After` of a response (RFC 9110, section 10.2.3).

use http::HeaderMap;
use http::header::RETRY_AFTER;
use std::time::{Duration, SystemTime};

/// The time from `now` after which the server wants its client back: seconds, or a date in any of its three formats.
///
/// A date in the past is no wait. A value of another form is ignored, and so are all fields behind the first.
#[must_use]
pub(crate) fn read(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // Too many digits for a number are more than any bound of the caller.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::read;
    use http::HeaderMap;
    use std::time::{Duration, SystemTime};

    /// The time in a value of the header, 10 s before the date of RFC 9110, section 5.6.7.
    fn told(value: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", value.parse().unwrap());
        read(&headers, SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777 - 10))
    }

    #[test]
    fn reads_seconds_and_the_three_formats_of_dates() {
        for date in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "10", "010"]
        {
            assert_eq!(told(date), Some(Duration::from_secs(10)), "{date}");
        }
        assert_eq!(told("0"), Some(Duration::ZERO));
        assert_eq!(told("Sun, 06 Nov 1994 08:49:00 GMT"), Some(Duration::ZERO), "it has passed");
        assert_eq!(told("99999999999999999999999"), Some(Duration::from_secs(u64::MAX)));
    }

    #[test]
    fn ignores_values_of_another_form() {
        for value in
            ["", "-1", "+1", "1.5", "1s", "soon", "1, 2", "Sun, 06 Nov 1994 08:49:37", "Sun, 31 Feb 1994 08:49:37 GMT"]
        {
            assert_eq!(told(value), None, "{value:?}");
        }
        assert_eq!(read(&HeaderMap::new(), SystemTime::UNIX_EPOCH), None);
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", http::HeaderValue::from_bytes(b"1\xff").unwrap());
        assert_eq!(read(&headers, SystemTime::UNIX_EPOCH), None);
        headers.insert("retry-after", "3".parse().unwrap());
        headers.append("retry-after", "9".parse().unwrap());
        assert_eq!(read(&headers, SystemTime::UNIX_EPOCH), Some(Duration::from_secs(3)));
    }
}
