use tautline_conn::closed::{Closed, ConnectError};
pub use tautline_conn::held::Unsent;
pub use tautline_conn::window::Payload;
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

impl Event {
    /// The event of a message, a piece of one, or a pong.
    pub(super) fn of(event: &tautline_ws::Event<'_>) -> Self {
        match event {
            tautline_ws::Event::Message(message) => Self::Message(message.kind()),
            &tautline_ws::Event::Chunk { kind, first, last, .. } => Self::Chunk { kind, first, last },
            _ => Self::Pong,
        }
    }
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
