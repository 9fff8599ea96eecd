//! DER (X.690) as far as certificates and their statuses need it.

/// The tag of a sequence.
pub const SEQUENCE: u8 = 0x30;
/// The tag of an integer.
pub const INTEGER: u8 = 0x02;
/// The tag of a string of bits.
pub const BITS: u8 = 0x03;
/// The tag of a string of bytes.
pub const OCTETS: u8 = 0x04;
/// The tag of an object identifier.
pub const OBJECT: u8 = 0x06;
/// The tag of a time with two digits for the year.
pub const UTC_TIME: u8 = 0x17;
/// The tag of a time with four digits for the year.
pub const TIME: u8 = 0x18;
/// The context-specific, constructed tag `[0]`.
pub const EXPLICIT_0: u8 = 0xa0;

/// The unread rest of a DER sequence.
#[derive(Clone, Copy, Debug)]
pub struct Der<'a>(pub &'a [u8]);

impl<'a> Der<'a> {
    /// Takes the next element: its tag and value. `None` at the end, or if the rest is not DER.
    #[expect(clippy::should_implement_trait, reason = "the rest of malformed DER is no end")]
    pub fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |len, &byte| len << 8 | usize::from(byte)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, value))
    }

    /// Takes the next element whole, with its header. `None` at the end, or if the rest is not DER.
    pub fn element(&mut self) -> Option<&'a [u8]> {
        let before = self.0;
        self.next()?;
        before.get(..before.len() - self.0.len())
    }

    /// Takes the next element if it has this tag, and drops it if it has another.
    pub fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|&(found, _)| found == tag).map(|(_, value)| value)
    }

    /// Takes the next element if it is a string of bits that are whole bytes.
    pub fn bytes_of_bits(&mut self) -> Option<&'a [u8]> {
        match self.take(BITS)? {
            // The first byte is the number of unused bits.
            [0, bytes @ ..] => Some(bytes),
            _ => None,
        }
    }
}

/// Strips leading zeros from a number.
#[must_use]
pub fn trimmed(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|&&byte| byte == 0).count();
    &number[zeros..]
}

/// Converts `YYYYMMDDHHMMSSZ` (RFC 5280, section 4.1.2.5.2) to seconds since 1970.
#[must_use]
pub fn seconds(time: &[u8]) -> Option<u64> {
    let [digits @ .., b'Z'] = time else { return None };
    if digits.len() != 14 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |range: core::ops::Range<usize>| {
        digits[range].iter().fold(0, |number, &digit| number * 10 + u64::from(digit - b'0'))
    };
    let (year, month, day) = (number(0..4), number(4..6), number(6..8));
    if year < 1970 || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    // Years begin in March here, so that the leap day comes last.
    let (years, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * years + years / 4 - years / 100 + years / 400 + (153 * month + 2) / 5 + day - 1;
    let since_1970 = days - (365 * 1969 + 1969 / 4 - 1969 / 100 + 1969 / 400 + 306);
    Some(since_1970 * 86_400 + number(8..10) * 3600 + number(10..12) * 60 + number(12..14))
}

/// Formats seconds since 1970 as day and time in UTC (proleptic Gregorian calendar).
///
/// ```
/// assert_eq!(tautline_tls::der::date(1_735_689_599), "2024-12-31 23:59 UTC");
/// ```
#[must_use]
pub fn date(seconds: u64) -> String {
    let (mut year, mut day) = (1970, seconds / 86_400);
    let leap = |year: u64| (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let months = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for days in months {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02} UTC", day + 1)
}

#[cfg(test)]
mod tests {
    use super::{date, seconds};

    #[test]
    fn dates_follow_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (951_868_800, "2000-03-01 00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }

    #[test]
    fn times_follow_the_calendar() {
        for (time, expected) in [
            (&b"19700101000000Z"[..], Some(0)),
            (b"20000228235959Z", Some(951_782_399)),
            (b"20000229000000Z", Some(951_782_400)),
            (b"20000301000000Z", Some(951_868_800)),
            (b"20241231235959Z", Some(1_735_689_599)),
            (b"21000301000000Z", Some(4_107_542_400)),
            (b"19691231235959Z", None),
            (b"20001301000000Z", None),
            (b"20000301000000", None),
            (b"2000030100000xZ", None),
            (b"", None),
        ] {
            assert_eq!(seconds(time), expected, "{:?}", String::from_utf8_lossy(time));
        }
    }
}
