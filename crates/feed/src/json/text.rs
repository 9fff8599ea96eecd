use std::borrow::Cow;

use super::error::{Expected, JsonError, wrong};
use crate::number::word;

/// A string of a message, without its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    raw: &'a [u8],
    /// Offset of the first byte in the message.
    start: usize,
    has_escapes: bool,
}

impl<'a> Text<'a> {
    /// The bytes as they stand in the message, escape sequences included.
    #[must_use]
    #[inline]
    pub const fn raw(self) -> &'a [u8] {
        self.raw
    }

    /// Whether escape sequences stand for other characters.
    #[must_use]
    #[inline]
    pub const fn has_escapes(self) -> bool {
        self.has_escapes
    }

    /// The string where it lies in the message.
    ///
    /// # Errors
    /// If it has escape sequences, or is not UTF-8.
    #[inline]
    pub fn as_str(self) -> Result<&'a str, JsonError> {
        if self.has_escapes {
            return wrong(self.start, Expected::String);
        }
        utf8(self.raw, self.start)
    }

    /// The string, with the characters that its escape sequences stand for. It is copied only if it has some.
    ///
    /// # Errors
    /// If it is not UTF-8, or an escape sequence is one half of a surrogate pair.
    pub fn unescape(self) -> Result<Cow<'a, str>, JsonError> {
        let text = utf8(self.raw, self.start)?;
        if !self.has_escapes {
            return Ok(Cow::Borrowed(text));
        }
        let mut plain = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, escape)) = rest.split_once('\\') {
            plain.push_str(before);
            let at = self.start + (text.len() - escape.len() - 1);
            let (character, len) = escaped(escape.as_bytes(), at)?;
            plain.push(character);
            rest = escape.get(len..).unwrap_or_default();
        }
        plain.push_str(rest);
        Ok(Cow::Owned(plain))
    }
}

/// Reads a string whose first quote stands before the offset. Returns the offset behind its last quote, too.
#[inline]
pub(super) fn string(text: &[u8], start: usize) -> Result<(Text<'_>, usize), JsonError> {
    let mut at = start;
    // Beyond the end come zeros, which are special, too.
    loop {
        let special = specials(word(text, at));
        at += (special.trailing_zeros() / 8) as usize;
        if special != 0 {
            break;
        }
    }
    if text.get(at) == Some(&b'"') {
        let raw = text.get(start..at).unwrap_or_default();
        return Ok((Text { raw, start, has_escapes: false }, at + 1));
    }
    unusual(text, start, at)
}

/// Goes on with a string at an escape sequence, at a byte that may not stand in it, or near the end of the message.
#[cold]
fn unusual(text: &[u8], start: usize, mut at: usize) -> Result<(Text<'_>, usize), JsonError> {
    let mut has_escapes = false;
    loop {
        match text.get(at) {
            Some(b'"') => {
                let raw = text.get(start..at).unwrap_or_default();
                return Ok((Text { raw, start, has_escapes }, at + 1));
            }
            Some(b'\\') => {
                has_escapes = true;
                at += 1 + escape_len(text.get(at + 1..).unwrap_or_default(), at)?;
            }
            Some(0x20..) => at += 1,
            _ => return wrong(at, Expected::EndOfString),
        }
    }
}

/// The highest bit of the first byte that is a quote, a backslash or below 0x20. Bytes above it may have theirs by mistake.
#[inline]
const fn specials(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    // A byte below the subtrahend borrows, which sets its highest bit unless it was set before.
    let quote = quote.wrapping_sub(ONES) & !quote;
    let backslash = backslash.wrapping_sub(ONES) & !backslash;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (quote | backslash | control) & (ONES * 0x80)
}

/// Bytes of an escape sequence behind its backslash.
fn escape_len(escape: &[u8], at: usize) -> Result<usize, JsonError> {
    match escape.first() {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(1),
        Some(b'u') if unit(escape).is_some() => Ok(5),
        _ => wrong(at, Expected::Escape),
    }
}

/// The code unit of `uXXXX`.
fn unit(escape: &[u8]) -> Option<u16> {
    let digits = escape.get(1..5)?;
    digits.iter().try_fold(0, |unit, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(unit << 4 | u16::try_from(digit).ok()?)
    })
}

/// The character of an escape sequence, and the bytes that it takes behind its backslash.
fn escaped(escape: &[u8], at: usize) -> Result<(char, usize), JsonError> {
    let character = match escape.first() {
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => {
            let units = [
                unit(escape),
                escape.get(5..).filter(|next| next.starts_with(b"\\u")).and_then(|next| unit(&next[1..])),
            ];
            let mut decoded = char::decode_utf16(units.into_iter().flatten());
            return match decoded.next() {
                Some(Ok(character)) => Ok((character, if character.len_utf16() == 2 { 11 } else { 5 })),
                _ => wrong(at, Expected::Surrogate),
            };
        }
        Some(other) => char::from(*other),
        None => return wrong(at, Expected::Escape),
    };
    Ok((character, 1))
}

fn utf8(raw: &[u8], start: usize) -> Result<&str, JsonError> {
    core::str::from_utf8(raw).map_err(|error| JsonError { at: start + error.valid_up_to(), expected: Expected::Utf8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_bytes_are_found_at_every_place() {
        for byte in 0..=255_u8 {
            for place in 0..8 {
                let mut word = *b"aZ~ \x7f\xc3\xbc0";
                word[place] = byte;
                let is_special = byte < 0x20 || byte == b'"' || byte == b'\\';
                let found = specials(u64::from_le_bytes(word));
                assert_eq!(found != 0, is_special, "{byte} at {place}");
                assert!(!is_special || found.trailing_zeros() as usize / 8 == place, "{byte} at {place}");
            }
        }
    }
}
