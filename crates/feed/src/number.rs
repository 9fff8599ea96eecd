//! Decimal numbers as venues write them, without rounding.

use crate::plain_error::plain_error;
use core::fmt;

/// Digits that always fit a mantissa.
const SAFE_DIGITS: usize = 18;

/// A decimal number, exact and as written: `0.00120` is 120 with the exponent -5.
///
/// Two numbers are equal here if they are written with the same digits: `1.0` differs from `1.00`. A checksum over prices needs
/// the digits. To compare values, bring both to one scale by [`at`](Self::at).
///
/// ```
/// use tautline_feed::number::Fixed;
///
/// let price = Fixed::parse(b"\"0.00120\"")?;
/// assert_eq!(price, Fixed { mantissa: 120, exponent: -5 });
/// assert_eq!(price.at(8), Some(120_000));
/// assert_eq!(price.at(2), None); // 0.0012 has more than two decimals
/// # Ok::<(), tautline_feed::number::NumberError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fixed {
    /// The digits as an integer, with the sign.
    pub mantissa: i64,
    /// The power of ten that the mantissa is multiplied by.
    pub exponent: i8,
}

/// The reason why bytes are no number that a [`Fixed`] can hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NumberError {
    /// Offset of the byte at fault in the bytes that were read.
    pub at: usize,
    /// The rule that does not hold there.
    pub fault: NumberFault,
}

/// The rule of numbers that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NumberFault {
    /// Something else stands where a digit must be.
    Digit,
    /// A number with further digits begins with a zero, which JSON does not allow.
    LeadingZero,
    /// The mantissa takes more than 63 bits, or the exponent more than 7.
    TooLarge,
    /// Something follows the number.
    Trailing,
    /// A number in quotes does not end with a quote.
    Quote,
}

impl Fixed {
    /// Reads a number of JSON, which may stand in quotes. Nothing may follow it.
    ///
    /// Zeros at the end of the fraction are dropped only where the mantissa has no room for them. The sign of a zero is lost.
    ///
    /// # Errors
    /// If the bytes are not a number, or a mantissa of 64 bits or an exponent of 8 bits cannot hold it.
    pub fn parse(text: &[u8]) -> Result<Self, NumberError> {
        let (number, end) = Self::scan(text, 0)?;
        if end == text.len() { Ok(number) } else { Err(NumberError { at: end, fault: NumberFault::Trailing }) }
    }

    /// Reads a number that begins at an offset, in quotes or not. Returns the offset behind it, too.
    #[inline]
    pub(crate) fn scan(text: &[u8], at: usize) -> Result<(Self, usize), NumberError> {
        if text.get(at) != Some(&b'"') {
            return bare(text, at);
        }
        let (number, end) = bare(text, at + 1)?;
        if text.get(end) == Some(&b'"') {
            Ok((number, end + 1))
        } else {
            Err(NumberError { at: end, fault: NumberFault::Quote })
        }
    }

    /// The value as a whole number of units of 10^-scale: `0.0012` at a scale of 8 is 120,000.
    ///
    /// Returns nothing if the value has more decimals than that, or does not fit.
    #[must_use]
    #[inline]
    pub fn at(self, scale: u8) -> Option<i64> {
        let shift = i16::from(self.exponent) + i16::from(scale);
        if shift == 0 || self.mantissa == 0 {
            return Some(self.mantissa);
        }
        let factor = POWERS.get(usize::from(shift.unsigned_abs()))?.cast_signed();
        if shift > 0 {
            self.mantissa.checked_mul(factor)
        } else {
            (self.mantissa % factor == 0).then(|| self.mantissa / factor)
        }
    }
}

impl fmt::Display for Fixed {
    /// Writes the digits as they were read, without an exponent where one was.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.mantissa < 0 { "-" } else { "" };
        let digits = self.mantissa.unsigned_abs();
        if self.exponent >= 0 {
            let zeros = if digits == 0 { 0 } else { usize::from(self.exponent.unsigned_abs()) };
            return write!(formatter, "{sign}{digits}{:0<zeros$}", "");
        }
        let decimals = usize::from(self.exponent.unsigned_abs());
        // The least number of digits has one before the point.
        let width = decimals + 1;
        let text = format_args!("{digits:0width$}").to_string();
        let (whole, fraction) = text.split_at(text.len() - decimals);
        write!(formatter, "{sign}{whole}.{fraction}")
    }
}

impl fmt::Display for NumberError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = match self.fault {
            NumberFault::Digit => "expected a digit",
            NumberFault::LeadingZero => "a number may not begin with a needless zero",
            NumberFault::TooLarge => "a number needs more than 63 bits of mantissa or 7 bits of exponent",
            NumberFault::Trailing => "expected the end of the number",
            NumberFault::Quote => "expected `\"` at the end of the number",
        };
        write!(formatter, "{rule} (byte {})", self.at)
    }
}

plain_error!(NumberError);

/// Powers of ten that an `i64` can hold.
const POWERS: [u64; 19] = powers();

/// Powers of ten for the digits of a word, in a table whose index needs no check.
const WEIGHTS: [u64; 16] = powers();

const fn powers<const N: usize>() -> [u64; N] {
    let mut powers = [1; N];
    let mut index = 1;
    while index < N {
        powers[index] = powers[index - 1] * 10;
        index += 1;
    }
    powers
}

/// Digits of the largest integer of 64 bits.
const MOST_DIGITS: usize = 20;

/// The least number of 20 digits. Numbers that begin with 1 and do not fit 64 bits wrap to less.
const TEN_TO_19: u64 = 10_000_000_000_000_000_000;

/// Digits of a number while it is read.
struct Digits {
    /// The value of all digits, which has wrapped if there are too many.
    value: u64,
    /// Offset of the first byte that was not read.
    at: usize,
}

impl Digits {
    /// Reads all digits that follow, up to eight in one step: numbers of different lengths then take the same path.
    #[inline]
    fn run(&mut self, text: &[u8]) {
        loop {
            let (count, value) = leading_digits(word(text, self.at));
            let weight = WEIGHTS[count & 15];
            self.value = self.value.wrapping_mul(weight).wrapping_add(value);
            self.at += count;
            if count < 8 || !matches!(text.get(self.at), Some(b'0'..=b'9')) {
                return;
            }
        }
    }
}

/// The next eight bytes, the first of them lowest. Zeros stand for bytes behind the end.
#[inline]
pub(crate) fn word(text: &[u8], at: usize) -> u64 {
    match text.get(at..).and_then(<[u8]>::first_chunk) {
        Some(eight) => u64::from_le_bytes(*eight),
        None => last_word(text, at),
    }
}

#[cold]
fn last_word(text: &[u8], at: usize) -> u64 {
    let rest = text.get(at..).unwrap_or_default();
    rest.iter().take(8).rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// The number and the value of the digits that a word begins with. Its lowest byte is the first. Without any digit, the value
/// means nothing.
#[inline]
const fn leading_digits(word: u64) -> (usize, u64) {
    let digits = word ^ 0x3030_3030_3030_3030;
    // The highest bit of each byte that is above 9. No byte carries into the next one.
    let above = (((digits & 0x7F7F_7F7F_7F7F_7F7F) + 0x7676_7676_7676_7676) | digits) & 0x8080_8080_8080_8080;
    let bits = above.trailing_zeros() & !7;
    // Digits move to the end, and zeros come before them.
    let digits = digits.wrapping_shl(64 - bits);
    // Digits become pairs, pairs become fours: each step multiplies the lower neighbour by its weight and adds.
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00FF_00FF_00FF_00FF;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_FFFF_0000_FFFF;
    ((bits / 8) as usize, fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xFFFF_FFFF)
}

/// A number as it was read, small enough for registers.
struct Read {
    mantissa: i64,
    /// Bytes of the number. Zero stands for a number that takes another path.
    len: u32,
    exponent: i8,
}

/// Reads a number without quotes.
#[inline]
fn bare(text: &[u8], start: usize) -> Result<(Fixed, usize), NumberError> {
    let read = usual(text, start);
    if read.len == 0 {
        return unusual(text, start);
    }
    Ok((Fixed { mantissa: read.mantissa, exponent: read.exponent }, start + read.len as usize))
}

/// Reads a number of 18 digits at most without an exponent.
fn usual(text: &[u8], start: usize) -> Read {
    const OTHER: Read = Read { mantissa: 0, len: 0, exponent: 0 };
    let is_negative = text.get(start) == Some(&b'-');
    let first = start + usize::from(is_negative);
    let mut digits = Digits { value: 0, at: first };
    digits.run(text);
    let whole = digits.at - first;
    if whole == 0 || whole > 1 && text.get(first) == Some(&b'0') {
        return OTHER;
    }
    let mut decimals = 0;
    if text.get(digits.at) == Some(&b'.') {
        digits.at += 1;
        let fraction = digits.at;
        digits.run(text);
        decimals = digits.at - fraction;
        if decimals == 0 {
            return OTHER;
        }
    }
    if matches!(text.get(digits.at), Some(b'e' | b'E')) || whole + decimals > SAFE_DIGITS {
        return OTHER;
    }
    let magnitude = digits.value.cast_signed();
    // There are at most 18 decimals, and a sign and a point beside them.
    #[expect(clippy::cast_possible_truncation, reason = "both are less than 21")]
    let (len, exponent) = ((digits.at - start) as u32, -(decimals as i8));
    Read { mantissa: if is_negative { -magnitude } else { magnitude }, len, exponent }
}

/// Reads a number with an exponent or many digits, or says what is wrong.
#[cold]
fn unusual(text: &[u8], start: usize) -> Result<(Fixed, usize), NumberError> {
    let end = number_end(text, start)?;
    let too_large = NumberError { at: start, fault: NumberFault::TooLarge };
    let is_negative = text.get(start) == Some(&b'-');
    let mut at = start + usize::from(is_negative);
    let mut mantissa: Option<i64> = Some(0);
    let mut exponent: i64 = 0;
    let mut in_fraction = false;
    // Zeros that count only if another digit follows.
    let mut held: u32 = 0;
    let push = |mantissa: Option<i64>, zeros: u32, digit: u8| {
        let shifted = if mantissa == Some(0) {
            Some(0)
        } else {
            mantissa?.checked_mul(10_i64.checked_pow(zeros.checked_add(1)?)?)
        };
        let digit = i64::from(digit);
        shifted?.checked_add(if is_negative { -digit } else { digit })
    };
    while let Some(byte) = text.get(at).copied()
        && (byte.is_ascii_digit() || byte == b'.')
    {
        at += 1;
        if byte == b'.' {
            in_fraction = true;
            // Zeros before the point count always.
            mantissa = (0..held).fold(mantissa, |mantissa, _| push(mantissa, 0, 0));
            held = 0;
            continue;
        }
        exponent -= i64::from(in_fraction);
        if byte == b'0' {
            held = held.saturating_add(1);
        } else {
            mantissa = push(mantissa, held, byte - b'0');
            held = 0;
        }
    }
    let written = (0..held).try_fold(mantissa.ok_or(too_large)?, |mantissa, _| push(Some(mantissa), 0, 0));
    let mantissa = match written {
        Some(written) => written,
        None => {
            exponent += i64::from(held);
            mantissa.ok_or(too_large)?
        }
    };
    if at < end {
        exponent = exponent.saturating_add(power(text.get(at + 1..end).unwrap_or_default()));
    }
    // The exponent of a zero means nothing, but its decimals are kept where they fit.
    let exponent = i8::try_from(exponent).or(if mantissa == 0 { Ok(0) } else { Err(too_large) })?;
    Ok((Fixed { mantissa, exponent }, end))
}

/// Passes a number of JSON, whatever its size. Returns the offset behind it.
pub(crate) fn number_end(text: &[u8], start: usize) -> Result<usize, NumberError> {
    let first = start + usize::from(text.get(start) == Some(&b'-'));
    let digits = |at| {
        let mut digits = Digits { value: 0, at };
        digits.run(text);
        if digits.at == at { Err(NumberError { at, fault: NumberFault::Digit }) } else { Ok(digits.at) }
    };
    let mut at = digits(first)?;
    if at - first > 1 && text.get(first) == Some(&b'0') {
        return Err(NumberError { at: first, fault: NumberFault::LeadingZero });
    }
    if text.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        at = digits(at + 1 + usize::from(matches!(text.get(at + 1), Some(b'-' | b'+'))))?;
    }
    Ok(at)
}

/// An integer of 64 bits without a fraction, as its magnitude and sign, and the offset behind it.
#[inline]
pub(crate) fn integer(text: &[u8], start: usize) -> Option<(u64, bool, usize)> {
    let is_negative = text.get(start) == Some(&b'-');
    let first = start + usize::from(is_negative);
    let mut digits = Digits { value: 0, at: first };
    digits.run(text);
    let count = digits.at - first;
    let is_right = count > 0
        && (count == 1 || text.get(first) != Some(&b'0'))
        && !matches!(text.get(digits.at), Some(b'.' | b'e' | b'E'))
        // Numbers of twenty digits wrap unless they fit, and then they are less than the least of them.
        && (count < MOST_DIGITS || count == MOST_DIGITS && text.get(first) == Some(&b'1') && digits.value >= TEN_TO_19);
    is_right.then_some((digits.value, is_negative, digits.at))
}

/// The value of an exponent whose digits are known to be right.
fn power(text: &[u8]) -> i64 {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    let value = digits
        .iter()
        .fold(0_i64, |value, digit| value.saturating_mul(10).saturating_add(i64::from(digit.wrapping_sub(b'0'))));
    if is_negative { -value } else { value }
}

#[cfg(test)]
mod tests;
