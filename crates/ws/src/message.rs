use crate::{Close, Error, Kind, utf8};
use core::fmt;

/// What a [`Decoder`](crate::Decoder) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'b> {
    /// A whole message.
    Message(Message<'b>),
    /// A piece of a message, where the decoder [streams](crate::Decoder::set_streaming). Text is valid so far, but a
    /// chunk may begin and end inside a character.
    Chunk {
        /// Kind of the whole message.
        kind: Kind,
        /// The next bytes; empty only in the last chunk.
        data: &'b [u8],
        /// The message begins with this chunk.
        first: bool,
        /// The message ends with this chunk.
        last: bool,
    },
    /// A ping: answer with a pong that has the same payload (RFC 6455, section 5.5.2).
    Ping(&'b [u8]),
    /// A pong, asked for or not.
    Pong(&'b [u8]),
    /// The peer's close frame, `None` where it is empty: answer with a close frame, unless one was sent before (section
    /// 5.5.1). Nothing follows.
    Close(Option<Close<'b>>),
}

/// A whole message. Text is valid UTF-8.
///
/// INVARIANT: where `kind` is [`Kind::Text`], `data` is UTF-8.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Message<'b> {
    kind: Kind,
    data: &'b [u8],
}

impl<'b> Message<'b> {
    /// A message that came in one piece; text is validated here.
    ///
    /// # Errors
    /// Text that is not UTF-8.
    #[inline]
    pub(crate) fn validate(kind: Kind, data: &'b [u8]) -> Result<Self, Error> {
        if kind == Kind::Text {
            utf8::validate(data)?;
        }
        Ok(Self { kind, data })
    }

    /// A message whose text was validated as it arrived.
    ///
    /// # Safety
    /// Where `kind` is [`Kind::Text`], `data` must be UTF-8.
    #[expect(unsafe_code, reason = "validating text that arrived in pieces a second time would double its cost")]
    pub(crate) const unsafe fn new_unchecked(kind: Kind, data: &'b [u8]) -> Self {
        Self { kind, data }
    }

    /// Text or binary.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The payload, of either kind.
    #[must_use]
    pub const fn data(&self) -> &'b [u8] {
        self.data
    }

    /// The payload of a text message.
    #[must_use]
    #[inline]
    #[expect(unsafe_code, reason = "the decoder has validated the text")]
    pub const fn text(&self) -> Option<&'b str> {
        match self.kind {
            // SAFETY: the type's invariant.
            Kind::Text => Some(unsafe { str::from_utf8_unchecked(self.data) }),
            Kind::Binary => None,
        }
    }
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => f.debug_tuple("Text").field(&text).finish(),
            None => f.debug_tuple("Binary").field(&self.data).finish(),
        }
    }
}
