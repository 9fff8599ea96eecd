//! Times of venues.

/// Nanoseconds since 1970 of an RFC 3339 time in UTC, `2023-09-25T07:49:37.708706Z`. 0 if it is none, or before 1970.
pub(super) fn rfc3339(text: &[u8]) -> u64 {
    parse(text).unwrap_or(0)
}

fn parse(text: &[u8]) -> Option<u64> {
    let field = |from: usize, to: usize| -> Option<u64> {
        text.get(from..to)?
            .iter()
            .try_fold(0_u64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0')))
    };
    let (year, month, day) = (field(0, 4)?, field(5, 7)?, field(8, 10)?);
    let (hour, minute, second) = (field(11, 13)?, field(14, 16)?, field(17, 19)?);
    if !(1..=12).contains(&month) || day == 0 || day > 31 {
        return None;
    }
    // Years begin in March, so that the day of a leap year is the last one.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = years * 365 + years / 4 - years / 100 + years / 400 + (months * 153 + 2) / 5 + day - 1;
    let seconds = days.checked_sub(719_468)? * 86_400 + hour * 3600 + minute * 60 + second;
    let (mut nanos, mut unit) = (0, 100_000_000);
    if text.get(19) == Some(&b'.') {
        for byte in text[20..].iter().take_while(|byte| byte.is_ascii_digit()).take(9) {
            nanos += u64::from(byte - b'0') * unit;
            unit /= 10;
        }
    }
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn reads_times_of_venues() {
        assert_eq!(rfc3339(b"1970-01-01T00:00:00Z"), 0);
        assert_eq!(rfc3339(b"2023-09-25T07:49:37.708706Z"), 1_695_628_177_708_706_000);
        assert_eq!(rfc3339(b"2024-02-29T23:59:59.9Z"), 1_709_251_199_900_000_000);
        assert_eq!(rfc3339(b"2023-02-09T20:32:50.714964855Z"), 1_675_974_770_714_964_855);
        for wrong in ["", "2023", "2023-13-01T00:00:00Z", "0000-01-01T00:00:00Z", "abcd-01-01T00:00:00Z"] {
            assert_eq!(rfc3339(wrong.as_bytes()), 0, "{wrong}");
        }
    }
}
