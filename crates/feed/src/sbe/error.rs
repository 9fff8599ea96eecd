use crate::plain_error::plain_error;
use core::fmt;

/// A binary message that does not fit its schema. Its sender is at fault, or the schema is not the sender's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SbeError {
    /// The message's name in the schema. The header has the name of its composite.
    pub message: &'static str,
    /// The name of the field, group or data that could not be read.
    pub field: &'static str,
    /// Offset from the first byte of the header.
    pub at: usize,
    /// The rule that does not hold.
    pub fault: SbeFault,
}

/// The rule that a binary message breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SbeFault {
    /// The message ends before the field does.
    Short,
    /// The message gives its block this length, in which the field of its version has no room.
    BlockLength(u32),
    /// The message is of the schema with this number.
    Schema(u32),
    /// The message is of the template with this number.
    Template(u32),
    /// The message has entries without any byte.
    EmptyEntries,
}

impl fmt::Display for SbeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, field, at, .. } = self;
        write!(formatter, "`{field}` of the binary message `{message}`, byte {at}: ")?;
        match self.fault {
            SbeFault::Short => formatter.write_str("the message ends before it"),
            SbeFault::BlockLength(len) => write!(formatter, "it has no room in a block of {len} bytes"),
            SbeFault::Schema(id) => write!(formatter, "the message is of schema {id}; use the sender's schema"),
            SbeFault::Template(id) => write!(formatter, "the message is of template {id}"),
            SbeFault::EmptyEntries => formatter.write_str("its entries have no bytes"),
        }
    }
}

plain_error!(SbeError);
