use crate::{Close, Error, Kind, utf8};
use core::fmt;

/// An event of a [`Decoder`](crate::Decoder): a message, a chunk of one, or a control frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'b> {
    /// A whole message.
    Message(Message<'b>),
    /// A piece of a message, if the decoder [streams](crate::Decoder::set_streaming).
    ///
    /// Text is valid so far, but a chunk may begin and end inside a character.
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
    /// A pong, solicited or not.
    Pong(&'b [u8]),
    /// The peer's close frame, `None` if it is empty. No event follows.
    ///
    /// Answer with a close frame, unless one was sent before (section 5.5.1).
    Close(Option<Close<'b>>),
}

/// A whole message; text is valid UTF-8.
///
/// INVARIANT: if `kind` is [`Kind::Text`], `data` is UTF-8.
///
/// ```
/// # mod tautline { pub use tautline_ws::Kind; pub mod layers { pub use {tautline_buf as buf, tautline_ws as ws}; } }
/// use tautline::layers::buf::{Buf, Pool};
/// use tautline::layers::ws::{Decoder, Encoder, Event, Role};
/// use tautline::Kind;
///
/// let (mut wire, mut pool) = (Buf::new(), Pool::new(1 << 20));
/// Encoder::new(Role::Server).message(Kind::Text, b"hello", false, || [0; 4], &mut wire, &mut pool)?;
/// let mut decoder = Decoder::new(Role::Client, 1 << 20);
/// let Some(Event::Message(message)) = decoder.decode(wire.filled_mut(), &mut pool)?.event else { panic!() };
/// assert_eq!((message.kind(), message.text(), message.data()), (Kind::Text, Some("hello"), &b"hello"[..]));
/// # Ok::<(), tautline_ws::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Message<'b> {
    kind: Kind,
    data: &'b [u8],
}

impl<'b> Message<'b> {
    /// Makes a message that arrived in one piece, and validates its text.
    ///
    /// # Errors
    /// The text is not UTF-8.
    #[inline]
    pub(crate) fn validate(kind: Kind, data: &'b [u8]) -> Result<Self, Error> {
        if kind == Kind::Text {
            utf8::validate(data)?;
        }
        Ok(Self { kind, data })
    }

    /// Makes a message whose text was validated as it arrived.
    ///
    /// # Safety
    /// If `kind` is [`Kind::Text`], `data` must be UTF-8.
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

    /// The payload as text; `None` for a binary message.
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
