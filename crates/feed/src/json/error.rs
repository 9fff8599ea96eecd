use core::fmt;

use crate::number::{NumberError, NumberFault};
use crate::plain_error::plain_error;

/// Bytes of a message that an error shows.
const EXCERPT: usize = 32;

/// A message that is not JSON, or does not have the value that a decoder asked for. Its sender is at fault.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JsonError {
    /// Offset in the message.
    pub at: usize,
    /// The thing that should stand there.
    pub expected: Expected,
}

/// The thing that should stand where something else does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expected {
    /// A value of any kind.
    Value,
    /// An object.
    Object,
    /// An array.
    Array,
    /// A string, which may be the key of a field.
    String,
    /// `true` or `false`.
    Bool,
    /// A number, in quotes or not.
    Number(NumberFault),
    /// An integer of 64 bits, in quotes or not.
    Integer,
    /// The quote at the end of a string. The string goes on, or has a byte below 0x20 there.
    EndOfString,
    /// One of the characters that may follow a backslash, or the four digits of `\u`.
    Escape,
    /// The other half of a pair of surrogates.
    Surrogate,
    /// Bytes that are UTF-8.
    Utf8,
    /// `:` behind the key of a field.
    Colon,
    /// `,` or `}`.
    CommaOrBrace,
    /// `,` or `]`.
    CommaOrBracket,
    /// Fewer objects and arrays within each other: [`MAX_DEPTH`](super::MAX_DEPTH) at most.
    LessDepth,
    /// The end of the message.
    End,
}

impl JsonError {
    /// The bytes of the message at which the error was found, 32 at most, to show with it.
    #[must_use]
    pub fn near(self, message: &[u8]) -> &[u8] {
        let rest = message.get(self.at..).unwrap_or_default();
        rest.get(..EXCERPT).unwrap_or(rest)
    }
}

/// An error, for the end of a function on the path of every message.
#[cold]
pub(super) const fn wrong<T>(at: usize, expected: Expected) -> Result<T, JsonError> {
    Err(JsonError { at, expected })
}

impl From<NumberError> for JsonError {
    fn from(error: NumberError) -> Self {
        Self { at: error.at, expected: Expected::Number(error.fault) }
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "byte {} of the JSON message: ", self.at)?;
        formatter.write_str(match self.expected {
            Expected::Number(_) => "expected a number",
            Expected::Value => "expected a value",
            Expected::Object => "expected an object",
            Expected::Array => "expected an array",
            Expected::String => "expected a string",
            Expected::Bool => "expected `true` or `false`",
            Expected::Integer => "expected an integer of 64 bits",
            Expected::EndOfString => "expected the end of the string",
            Expected::Escape => "expected an escape sequence of JSON",
            Expected::Surrogate => "expected the other half of a surrogate pair",
            Expected::Utf8 => "expected UTF-8",
            Expected::Colon => "expected `:`",
            Expected::CommaOrBrace => "expected `,` or `}`",
            Expected::CommaOrBracket => "expected `,` or `]`",
            Expected::LessDepth => "expected at most 64 objects and arrays within each other",
            Expected::End => "expected the end of the message",
        })?;
        match self.expected {
            Expected::Number(NumberFault::TooLarge) => formatter.write_str(" of at most 63 bits with an exponent of 8"),
            Expected::Number(NumberFault::LeadingZero) => formatter.write_str(" without a needless zero before it"),
            _ => Ok(()),
        }
    }
}

plain_error!(JsonError);
