use super::MAX_DEPTH;
use super::error::{Expected, JsonError, wrong};
use super::skip::{self, blank, literal};
use super::text::{self, Text};
use crate::number::{Fixed, integer};

/// A walk over a message of JSON, value by value.
///
/// Each method that reads moves on behind what it has read. After an error the scanner is of no further use. Reading goes by the
/// order of the message: a field's key, then its value. A value that is not wanted is passed with [`skip`](Self::skip).
///
/// A copy of the scanner looks ahead, for example for the field that tells the kind of the message.
#[derive(Clone, Copy, Debug)]
pub struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// Objects and arrays that are open.
    depth: u32,
    /// The innermost one has just begun, so no comma stands before its next part.
    is_fresh: bool,
}

/// The kind of a value, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// An object.
    Object,
    /// An array.
    Array,
    /// A string.
    String,
    /// A number.
    Number,
    /// `true` or `false`.
    Bool,
    /// `null`.
    Null,
}

impl<'a> Scanner<'a> {
    /// Begins at the first value of a message.
    #[must_use]
    #[inline]
    pub const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, depth: 0, is_fresh: false }
    }

    /// Offset in the message of what is read next, white space included.
    #[must_use]
    #[inline]
    pub const fn offset(&self) -> usize {
        self.at
    }

    /// The kind of the next value, which is not read yet. A value of this kind may still be malformed.
    ///
    /// # Errors
    /// If no value follows.
    #[inline]
    pub fn kind(&mut self) -> Result<Kind, JsonError> {
        match self.peek() {
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::Array),
            Some(b'"') => Ok(Kind::String),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'n') => Ok(Kind::Null),
            _ => wrong(self.at, Expected::Value),
        }
    }

    /// Enters an object. Its fields follow by [`next_key`](Self::next_key).
    ///
    /// # Errors
    /// If the next value is not an object, or too many are within each other.
    #[inline]
    pub fn begin_object(&mut self) -> Result<(), JsonError> {
        self.begin(b'{', Expected::Object)
    }

    /// Enters an array. Its elements follow by [`next_element`](Self::next_element).
    ///
    /// # Errors
    /// If the next value is not an array, or too many are within each other.
    #[inline]
    pub fn begin_array(&mut self) -> Result<(), JsonError> {
        self.begin(b'[', Expected::Array)
    }

    /// Reads the key of the next field, or leaves the object at its end. The value has to be read before the next key.
    ///
    /// The key is given as it is written. One with escape sequences differs from the name that it stands for.
    ///
    /// # Errors
    /// If neither a key nor the end of the object follows.
    #[inline]
    pub fn next_key(&mut self) -> Result<Option<&'a [u8]>, JsonError> {
        if !self.continues(b'}', Expected::CommaOrBrace)? {
            return Ok(None);
        }
        let key = self.string()?;
        match self.peek() {
            Some(b':') => self.at += 1,
            _ => return wrong(self.at, Expected::Colon),
        }
        Ok(Some(key.raw()))
    }

    /// Whether another element follows, which has to be read next. Leaves the array at its end.
    ///
    /// # Errors
    /// If neither an element nor the end of the array follows.
    #[inline]
    pub fn next_element(&mut self) -> Result<bool, JsonError> {
        self.continues(b']', Expected::CommaOrBracket)
    }

    /// Reads a string.
    ///
    /// # Errors
    /// If the next value is not a string.
    #[inline]
    pub fn string(&mut self) -> Result<Text<'a>, JsonError> {
        if self.peek() != Some(b'"') {
            return wrong(self.at, Expected::String);
        }
        let (text, end) = text::string(self.text, self.at + 1)?;
        self.at = end;
        Ok(text)
    }

    /// Reads a number, which may stand in quotes.
    ///
    /// # Errors
    /// If the next value is not a number, or a [`Fixed`] cannot hold it.
    #[inline]
    pub fn fixed(&mut self) -> Result<Fixed, JsonError> {
        self.peek();
        let (number, end) = Fixed::scan(self.text, self.at)?;
        self.at = end;
        Ok(number)
    }

    /// Reads an integer without a sign, fraction or exponent, which may stand in quotes.
    ///
    /// # Errors
    /// If the next value is something else, or has more than 64 bits.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, JsonError> {
        let (at, magnitude, is_negative) = self.integer()?;
        if is_negative { wrong(at, Expected::Integer) } else { Ok(magnitude) }
    }

    /// Reads an integer without a fraction or exponent, which may stand in quotes.
    ///
    /// # Errors
    /// If the next value is something else, or has more than 64 bits.
    #[inline]
    pub fn i64(&mut self) -> Result<i64, JsonError> {
        let (at, magnitude, is_negative) = self.integer()?;
        let value = if is_negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() };
        value.ok_or(JsonError { at, expected: Expected::Integer })
    }

    /// Reads `true` or `false`.
    ///
    /// # Errors
    /// If the next value is neither.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, JsonError> {
        let (value, word): (_, &[u8]) = match self.peek() {
            Some(b't') => (true, b"true"),
            Some(b'f') => (false, b"false"),
            _ => return wrong(self.at, Expected::Bool),
        };
        self.at = literal(self.text, self.at, word)?;
        Ok(value)
    }

    /// Reads `null` if it is the next value, and nothing otherwise.
    ///
    /// # Errors
    /// If another word begins like `null`.
    #[inline]
    pub fn null(&mut self) -> Result<bool, JsonError> {
        let is_null = self.peek() == Some(b'n');
        if is_null {
            self.at = literal(self.text, self.at, b"null")?;
        }
        Ok(is_null)
    }

    /// Passes the next value, whatever it is.
    ///
    /// # Errors
    /// If it is malformed, or too many objects and arrays are within each other.
    #[inline]
    pub fn skip(&mut self) -> Result<(), JsonError> {
        self.at = skip::value(self.text, self.at, self.depth)?;
        Ok(())
    }

    /// Passes the next value, and returns its bytes as they stand in the message.
    ///
    /// # Errors
    /// If it is malformed, or too many objects and arrays are within each other.
    pub fn raw(&mut self) -> Result<&'a [u8], JsonError> {
        self.peek();
        let start = self.at;
        self.skip()?;
        Ok(self.text.get(start..self.at).unwrap_or_default())
    }

    /// Checks that nothing but white space is left, and that every object and array has ended.
    ///
    /// # Errors
    /// If something is left.
    #[inline]
    pub fn end(&mut self) -> Result<(), JsonError> {
        if self.peek().is_none() && self.depth == 0 { Ok(()) } else { wrong(self.at, Expected::End) }
    }

    /// The next byte that is not white space. It is not read yet.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        self.at = blank(self.text, self.at);
        self.text.get(self.at).copied()
    }

    #[inline]
    fn begin(&mut self, first: u8, expected: Expected) -> Result<(), JsonError> {
        if self.peek() != Some(first) {
            return wrong(self.at, expected);
        }
        if self.depth >= MAX_DEPTH {
            return wrong(self.at, Expected::LessDepth);
        }
        self.at += 1;
        self.depth += 1;
        self.is_fresh = true;
        Ok(())
    }

    /// Whether another part of the innermost object or array follows. Reads the comma before it, or the end.
    #[inline]
    fn continues(&mut self, last: u8, expected: Expected) -> Result<bool, JsonError> {
        let is_first = core::mem::replace(&mut self.is_fresh, false);
        match self.peek() {
            Some(byte) if byte == last => {
                self.at += 1;
                self.depth = self.depth.saturating_sub(1);
                Ok(false)
            }
            _ if is_first => Ok(true),
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            _ => wrong(self.at, expected),
        }
    }

    /// The offset, magnitude and sign of an integer.
    #[inline]
    fn integer(&mut self) -> Result<(usize, u64, bool), JsonError> {
        let is_quoted = self.peek() == Some(b'"');
        let at = self.at + usize::from(is_quoted);
        let Some((magnitude, is_negative, end)) = integer(self.text, at) else {
            return wrong(at, Expected::Integer);
        };
        if is_quoted && self.text.get(end) != Some(&b'"') {
            return wrong(end, Expected::EndOfString);
        }
        self.at = end + usize::from(is_quoted);
        Ok((at, magnitude, is_negative))
    }
}

#[cfg(test)]
mod tests;
