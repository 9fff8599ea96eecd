//! A message that is sent or recorded.

use crate::failure::Failure;
use data_encoding::HEXLOWER_PERMISSIVE;
use tautline::Outgoing;

/// A message to send.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Text(String),
    Binary(Vec<u8>),
}

impl Line {
    pub(super) fn new(text: String, number: usize, binary: bool) -> Result<Self, Failure> {
        if !binary {
            return Ok(Self::Text(text));
        }
        let bytes = HEXLOWER_PERMISSIVE.decode(text.trim().as_bytes());
        bytes.map(Self::Binary).map_err(|_| {
            Failure::usage(format!("line {number} of the input is not pairs of hexadecimal digits, as --binary needs"))
        })
    }

    pub(super) fn message(&self) -> Outgoing<'_> {
        match self {
            Self::Text(text) => Outgoing::text(text),
            Self::Binary(bytes) => Outgoing::binary(bytes),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
        }
    }
}
