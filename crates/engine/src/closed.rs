use std::fmt;
use std::io;
use std::sync::Arc;
use tautline_ws::CloseCode;

/// How an open connection ended.
#[derive(Clone, Debug)]
pub struct Closed {
    /// The close code that the peer sent; 1005 where its close frame had none, 1006 where it sent no close frame.
    pub code: CloseCode,
    /// The reason that the peer gave.
    pub reason: String,
    /// What ended it.
    pub cause: Cause,
}

/// What ended a connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The peer closed by a close frame.
    Peer,
    /// We closed by a close frame, and the peer answered.
    Local,
    /// The peer ended the connection without a close frame.
    Finished,
    /// The stream ended without close_notify: what came last may be missing (RFC 8446, section 6.1).
    Truncated,
    /// The connection broke.
    Io(Arc<io::Error>),
    /// The peer broke the WebSocket protocol or a limit; it was told by the close code.
    WebSocket(tautline_ws::Error),
    /// TLS failed; the peer was told by an alert.
    Tls(tautline_tls::Error),
    /// The peer was too slow for a deadline.
    Timeout(Deadline),
    /// The peer did not read what was queued for it (1008).
    SlowConsumer,
    /// Too many handshakes waited; the connection was reset.
    Overloaded,
    /// The shard stopped before the peer answered our close frame.
    Stopped,
}

/// Which deadline a peer missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deadline {
    /// To connect.
    Connect,
    /// To finish the opening handshake.
    Handshake,
    /// To say anything.
    Idle,
    /// To answer our close frame.
    Close,
    /// To take what waits for it.
    Send,
}

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::Handshake => "handshake",
            Self::Idle => "idle",
            Self::Close => "close",
            Self::Send => "send",
        })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer => f.write_str("closed by the peer"),
            Self::Local => f.write_str("closed by us"),
            Self::Finished => f.write_str("the peer hung up without a close frame"),
            Self::Truncated => f.write_str("the peer hung up without close_notify"),
            Self::Io(error) => write!(f, "connection lost: {error}"),
            Self::WebSocket(error) => write!(f, "{error}"),
            Self::Tls(error) => write!(f, "{error}"),
            Self::Timeout(deadline) => write!(f, "the peer missed the {deadline} deadline"),
            Self::SlowConsumer => f.write_str("the peer does not read what is sent to it"),
            Self::Overloaded => f.write_str("too many handshakes wait"),
            Self::Stopped => f.write_str("we stopped"),
        }
    }
}

/// Why a client could not connect.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The target cannot be used: which part, and what to do.
    Target(String),
    /// The host has no address.
    Resolve(String),
    /// No address could be reached: the last one, and why.
    Io(Arc<io::Error>),
    /// The proxy refused or broke its protocol.
    Proxy(String),
    /// The server refused the upgrade or answered wrongly.
    Handshake(Arc<tautline_ws::handshake::HandshakeError>),
    /// The connection ended before it was open.
    Ended(Cause),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(what) | Self::Resolve(what) | Self::Proxy(what) => f.write_str(what),
            Self::Io(error) => write!(f, "cannot connect to {error}"),
            Self::Handshake(error) => write!(f, "{error}"),
            Self::Ended(cause) => write!(f, "{cause}"),
        }
    }
}

impl std::error::Error for ConnectError {}
