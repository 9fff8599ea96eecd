use crate::context;
use crate::counters::Tally;
use crate::error::Error;
use crate::session::Session;
use bytes::Bytes;
use tautline_engine::Outgoing;
use tautline_engine::connection::{Output, Payload};
use tautline_ws::Kind;

/// A message with its own memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A text message.
    Text(String),
    /// A binary message.
    Binary(Bytes),
}

impl Message {
    /// Text or binary.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Text(_) => Kind::Text,
            Self::Binary(_) => Kind::Binary,
        }
    }

    /// The message's bytes.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }

    /// The message as text; `None` if it is binary.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Binary(_) => None,
        }
    }
}

impl From<Payload<'_>> for Message {
    fn from(payload: Payload<'_>) -> Self {
        match payload.text() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Binary(Bytes::copy_from_slice(payload.data())),
        }
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Bytes> for Message {
    fn from(bytes: Bytes) -> Self {
        Self::Binary(bytes)
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Binary(bytes.into())
    }
}

impl<'a> From<&'a Message> for Outgoing<'a> {
    fn from(message: &'a Message) -> Self {
        match message {
            Message::Text(text) => Outgoing::text(text),
            Message::Binary(bytes) => Outgoing::binary(bytes),
        }
    }
}

/// A received message, which lies where it was decrypted.
///
/// It borrows its socket. Answer it by [`feed`](Self::feed), or keep a copy by [`to_message`](Self::to_message).
pub struct Received<'a> {
    payload: Payload<'a>,
    output: &'a mut Output<Session>,
    tally: &'a mut Tally,
}

impl<'a> Received<'a> {
    pub(crate) const fn new((payload, output): (Payload<'a>, &'a mut Output<Session>), tally: &'a mut Tally) -> Self {
        Self { payload, output, tally }
    }

    /// Text or binary.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.payload.kind()
    }

    /// The message's bytes, of either kind.
    #[must_use]
    pub const fn data(&self) -> &'a [u8] {
        self.payload.data()
    }

    /// The message as text; `None` if it is binary.
    #[must_use]
    pub fn text(&self) -> Option<&'a str> {
        self.payload.text()
    }

    /// A copy of the message.
    #[must_use]
    pub fn to_message(&self) -> Message {
        self.payload.into()
    }

    /// Takes an answer. It leaves when the socket next waits for a message, together with all other answers.
    ///
    /// # Errors
    /// [`Error::Unsent`] if the message was not taken.
    pub fn feed<'m>(&mut self, message: impl Into<Outgoing<'m>>) -> Result<(), Error> {
        let message = message.into();
        context::with(|context| self.output.send(message, context))??;
        self.tally.sent(message.payload.len());
        Ok(())
    }

    /// Takes this message as an answer to itself, from where it lies. [`feed`](Self::feed) says when it leaves.
    ///
    /// # Errors
    /// [`Error::Unsent`] if the message was not taken.
    pub fn echo(&mut self) -> Result<(), Error> {
        let payload = self.payload;
        self.feed(&payload)
    }
}

impl std::fmt::Debug for Received<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.payload.fmt(f)
    }
}
