use std::fmt;
use tautline_conn::closed::{Closed, ConnectError};
use tautline_conn::message::Outgoing;
use tautline_tls::TlsInfo;
use tautline_ws::Kind;

/// The next thing that happened on a [`Connection`](super::Connection).
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A client sent a request (server). No other event follows before the answer, for which the application has the time
    /// [`Deadlines::answer`](crate::Deadlines).
    ///
    /// [`request`](super::Connection::request) returns its head, and [`body`](super::Connection::body) its body. Answer by [`upgrade`](super::Connection::upgrade) or
    /// [`respond`](super::Connection::respond).
    Request,
    /// The opening handshake is complete: messages can be sent.
    Open(Box<Opened>),
    /// A whole message arrived; [`payload`](super::Connection::payload) returns its bytes.
    Message(Kind),
    /// A piece of a message arrived, since [`Config::streaming`](crate::Config) is set.
    /// [`payload`](super::Connection::payload) returns its bytes.
    Chunk {
        /// Text or binary. A piece of a text may end inside a character, and all pieces together are valid UTF-8.
        kind: Kind,
        /// Whether it is the message's first piece.
        first: bool,
        /// Whether it is the message's last piece.
        last: bool,
    },
    /// A pong arrived; [`payload`](super::Connection::payload) returns its bytes.
    Pong,
    /// The open connection ended. No event follows. Output may remain.
    Closed(Box<Closed>),
    /// The connection ended before it was open. No event follows. Output may remain.
    Failed(Box<ConnectError>),
}

/// The result of an opening handshake.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Opened {
    /// The server's response; `None` on a server.
    pub response: Option<http::Response<()>>,
    /// The client's request; `None` on a client.
    pub request: Option<http::Request<()>>,
    /// The subprotocol that both sides speak.
    pub subprotocol: Option<String>,
    /// Whether permessage-deflate was negotiated.
    pub deflate: bool,
    /// The negotiated TLS values. Empty without TLS.
    pub tls: TlsInfo,
}

/// The bytes of a message or a pong, where they were decrypted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Payload<'a> {
    pub(super) kind: Kind,
    pub(super) data: &'a [u8],
}

impl<'a> Payload<'a> {
    /// Text or binary; a pong is binary.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The bytes, of either kind. Those of a text are UTF-8.
    #[must_use]
    pub const fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The payload as text; `None` for a binary message, and for a piece of a text that begins or ends inside a character.
    #[must_use]
    pub fn text(&self) -> Option<&'a str> {
        match self.kind {
            // The decoder has validated it. This call pays again, so that no unsafe code is needed here.
            Kind::Text => std::str::from_utf8(self.data).ok(),
            Kind::Binary => None,
        }
    }
}

impl<'a> From<&Payload<'a>> for Outgoing<'a> {
    /// Takes kind and bytes of a received message, to echo or relay it.
    fn from(payload: &Payload<'a>) -> Self {
        let mut outgoing = Self::binary(payload.data);
        outgoing.kind = payload.kind;
        outgoing
    }
}

impl fmt::Debug for Payload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({:?}, {} B)", self.kind, self.data.len())
    }
}

/// The reason why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsent {
    /// The connection is not open, or it is closing.
    Closed,
    /// More bytes than [`SlowConsumer::limit`](crate::SlowConsumer::limit) wait for the peer.
    Full,
    /// The peer takes no bytes, and the policy for slow consumers has dropped the message.
    Dropped,
    /// The message cannot be sent in any connection: the text says why.
    Invalid(&'static str),
}

impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the connection is not open",
            Self::Full => "too many bytes wait for the peer",
            Self::Dropped => "the peer is slow, and its policy drops messages that exceed the limit",
            Self::Invalid(why) => why,
        })
    }
}

impl std::error::Error for Unsent {}
