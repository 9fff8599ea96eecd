use crate::{Closed, Conn, DialId};
use http::HeaderMap;
use std::fmt;
use std::time::Duration;
use tautline_io::Address;
use tautline_ws::{Kind, Message};

/// What an application does with its connections. One value per shard; nothing in it is shared with other shards.
///
/// Every method gets a [`Conn`], valid for the call. What it sends is corked: all output of one turn leaves in one
/// system call.
pub trait Handler: Sized + 'static {
    /// What the application keeps per connection, reached by [`Conn::state`].
    type State: Default + 'static;

    /// A server got an HTTP request: upgrade it, or answer it as plain HTTP. Authentication belongs here.
    ///
    /// The default upgrades WebSocket requests and answers 404 to everything else.
    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        if request.is_upgrade { Reply::upgrade() } else { Reply::status(http::StatusCode::NOT_FOUND) }
    }

    /// The opening handshake is complete.
    fn on_open(&mut self, conn: &mut Conn<'_, Self::State>, opening: &Opening<'_>) {
        let _ = (conn, opening);
    }

    /// A whole message arrived; it is a slice of the receive buffer wherever it came in one piece.
    fn on_message(&mut self, conn: &mut Conn<'_, Self::State>, message: Message<'_>);

    /// A piece of a message arrived; only where [`Config::streaming`](crate::Config::streaming) is set. A text piece
    /// may end inside a character; the message as a whole is valid UTF-8 once `last` is true.
    fn on_chunk(&mut self, conn: &mut Conn<'_, Self::State>, chunk: Chunk<'_>) {
        let _ = (conn, chunk);
    }

    /// A pong arrived, asked for or not.
    fn on_pong(&mut self, conn: &mut Conn<'_, Self::State>, payload: &[u8]) {
        let _ = (conn, payload);
    }

    /// Everything that was queued for a slow peer is with the kernel.
    fn on_drain(&mut self, conn: &mut Conn<'_, Self::State>) {
        let _ = conn;
    }

    /// An open connection ended. Called once for each [`on_open`](Self::on_open); what is sent here goes nowhere.
    fn on_close(&mut self, conn: &mut Conn<'_, Self::State>, closed: &Closed) {
        let _ = (conn, closed);
    }

    /// An attempt to connect failed; it is tried again after `retry`, where that is not `None`. The loss of an open
    /// connection is told by [`on_close`](Self::on_close) instead.
    fn on_connect_failed(&mut self, dial: DialId, error: &crate::ConnectError, retry: Option<Duration>) {
        let _ = (dial, error, retry);
    }
}

/// An HTTP request to a server.
#[derive(Debug)]
pub struct Request<'a> {
    /// Method, target and headers.
    pub http: &'a http::Request<()>,
    /// The client's address.
    pub peer: &'a Address,
    /// Whether the client asks for a WebSocket.
    pub is_upgrade: bool,
    /// What TLS agreed on: SNI, ALPN, the client's certificates. Empty without TLS.
    pub tls: &'a tautline_tls::Facts,
}

/// The answer to a [`Request`].
#[derive(Debug)]
pub enum Reply {
    /// Go on with the WebSocket handshake; these headers go into the 101 response.
    Upgrade(HeaderMap),
    /// Answer as plain HTTP. The connection stays for further requests where the client wants that.
    Respond(http::Response<Vec<u8>>),
}

impl Reply {
    /// Go on with the WebSocket handshake.
    #[must_use]
    pub fn upgrade() -> Self {
        Self::Upgrade(HeaderMap::new())
    }

    /// A response without more words than the status has.
    #[must_use]
    pub fn status(status: http::StatusCode) -> Self {
        let reason = status.canonical_reason().unwrap_or("");
        let mut response = http::Response::new(format!("{} {reason}\n", status.as_u16()).into_bytes());
        *response.status_mut() = status;
        response
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
        Self::Respond(response)
    }
}

/// How a connection came to be.
#[derive(Debug)]
pub struct Opening<'a> {
    /// The client's request; on a server.
    pub request: Option<&'a http::Request<()>>,
    /// The server's response; on a client.
    pub response: Option<&'a http::Response<()>>,
    /// The subprotocol that both sides speak.
    pub subprotocol: Option<&'a str>,
    /// Whether permessage-deflate was negotiated.
    pub deflate: bool,
    /// What TLS agreed on. Empty without TLS.
    pub tls: &'a tautline_tls::Facts,
}

/// A piece of a message.
pub struct Chunk<'a> {
    /// Text or binary.
    pub kind: Kind,
    /// The piece.
    pub data: &'a [u8],
    /// Whether it is the first of its message.
    pub first: bool,
    /// Whether it is the last of its message.
    pub last: bool,
}

impl fmt::Debug for Chunk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({:?}, {} B, first {}, last {})", self.kind, self.data.len(), self.first, self.last)
    }
}
