//! The end of a connection as its peer sees it.

use crate::closed::{Cause, ConnectError, Deadline};
use crate::proxy_header::ProxyHeaderError;
use http::{HeaderValue, StatusCode};
use std::borrow::Cow;
use std::sync::Arc;
use tautline_buf::Buf;
use tautline_ws::handshake::{self, HandshakeError};
use tautline_ws::{CloseCode, Role};

/// The part of its life in which a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A tunnel or TLS is negotiated.
    Secures,
    /// A server reads requests.
    Request {
        /// Whether a part of one has arrived.
        begun: bool,
        /// Whether an earlier one was answered.
        answered: bool,
    },
    /// The application has a request.
    Waiting,
    /// A response is made while it is sent, or the application makes all bytes.
    Streaming,
    /// A client reads the response.
    Answer,
    /// The opening handshake is complete.
    Open,
}

/// The effects of an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The message to the peer.
    pub notice: Notice,
    /// The end of our direction.
    pub end: End,
}

/// The message by which the peer learns the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// There is none, or an alert that the TLS session has appended.
    Nothing,
    /// A close frame in place of the messages that wait. It has no effect if a close frame was sent.
    Close(CloseCode, Cow<'static, str>),
    /// A response.
    Status(StatusCode),
}

/// The end of our direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// close_notify and FIN follow behind everything.
    Finish,
    /// FIN follows without close_notify: the TLS session has failed, so nothing more is sealed.
    Abandon,
    /// Bytes that wait are dropped.
    Gone,
    /// As `Gone`, with a reset that shows the peer that a response is not whole.
    Reset,
}

impl Verdict {
    /// Nobody is told anything.
    pub const GONE: Self = Self::silent(End::Gone);

    const fn silent(end: End) -> Self {
        Self { notice: Notice::Nothing, end }
    }

    const fn close(code: CloseCode, reason: Cow<'static, str>) -> Self {
        Self { notice: Notice::Close(code, reason), end: End::Finish }
    }

    const fn status(status: StatusCode) -> Self {
        Self { notice: Notice::Status(status), end: End::Finish }
    }

    /// The end of a connection whose input cannot be processed further.
    #[must_use]
    pub fn of(stop: &Stop, stage: Stage, role: Role) -> Self {
        match stop {
            Stop::Failed(cause) => Self::of_failure(stage, cause),
            Stop::Refused(error) => Self::of_refusal(role, error),
            Stop::Proxy(_) => Self::GONE,
            Stop::Header(_) => Self::silent(End::Reset),
        }
    }

    /// The end of a connection that failed.
    #[must_use]
    pub fn of_failure(stage: Stage, cause: &Cause) -> Self {
        match stage {
            Stage::Open => Self::of_open(cause),
            Stage::Streaming => Self::silent(End::Reset),
            _ if matches!(cause, Cause::Tls(_)) => Self::silent(End::Abandon),
            Stage::Secures | Stage::Answer => Self::GONE,
            Stage::Request { .. } | Stage::Waiting => Self::of_request(stage, cause),
        }
    }

    fn of_open(cause: &Cause) -> Self {
        match cause {
            Cause::WebSocket(error) => Self::close(error.close_code(), Cow::Owned(error.to_string())),
            Cause::SlowConsumer => Self::close(CloseCode::POLICY, Cow::Borrowed("too slow a reader")),
            Cause::Timeout(Deadline::Idle) => Self::close(CloseCode::GOING_AWAY, Cow::Borrowed("idle for too long")),
            Cause::Timeout(Deadline::Silence) => {
                Self::close(CloseCode::GOING_AWAY, Cow::Borrowed("no message for too long"))
            }
            Cause::Panicked => Self::close(CloseCode::INTERNAL_ERROR, Cow::Borrowed("")),
            Cause::Finished | Cause::Truncated => Self::silent(End::Finish),
            Cause::Tls(_) => Self::silent(End::Abandon),
            _ => Self::GONE,
        }
    }

    fn of_request(stage: Stage, cause: &Cause) -> Self {
        match (stage, cause) {
            (_, Cause::Panicked) => Self::status(StatusCode::INTERNAL_SERVER_ERROR),
            // The end of a connection between two requests is no failure.
            (Stage::Request { begun: false, answered: true }, _) => Self::silent(End::Finish),
            (Stage::Waiting, Cause::Timeout(_)) => Self::status(StatusCode::REQUEST_TIMEOUT),
            // Browsers open connections before they need them, and would take a 408 for the answer to their next request.
            (Stage::Request { begun: true, .. }, Cause::Timeout(_)) => Self::status(StatusCode::REQUEST_TIMEOUT),
            // Answers to earlier requests may still be in flight.
            (_, Cause::Finished | Cause::Truncated | Cause::Timeout(_)) => Self::silent(End::Finish),
            _ => Self::GONE,
        }
    }

    /// The end of an opening handshake that broke a rule of HTTP or WebSocket.
    fn of_refusal(role: Role, error: &HandshakeError) -> Self {
        match role {
            Role::Server => Self::status(error.status().unwrap_or(StatusCode::BAD_REQUEST)),
            Role::Client => Self::GONE,
        }
    }
}

/// A response whose text is the status code and its standard reason.
#[must_use]
pub fn status_response(status: StatusCode) -> http::Response<Vec<u8>> {
    let reason = status.canonical_reason().unwrap_or("");
    let mut response = http::Response::new(format!("{} {reason}\n", status.as_u16()).into_bytes());
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, plain);
    response
}

/// Writes [such a response](status_response) to `out`. None follows.
pub fn write_status(status: StatusCode, date: &HeaderValue, out: &mut Buf) {
    handshake::write_response(&status_response(status), handshake::Reply::LAST, Some(date), out);
}

/// The reason why a connection's input cannot be processed further.
pub enum Stop {
    /// The connection failed.
    Failed(Cause),
    /// A client's opening handshake failed.
    Refused(HandshakeError),
    /// The proxy refused the tunnel.
    Proxy(String),
    /// The proxy before a server sent no header of the PROXY protocol, or a wrong one.
    Header(ProxyHeaderError),
}

impl From<tautline_tls::Error> for Stop {
    fn from(error: tautline_tls::Error) -> Self {
        Self::Failed(Cause::Tls(error))
    }
}

impl From<tautline_ws::Error> for Stop {
    fn from(error: tautline_ws::Error) -> Self {
        Self::Failed(Cause::WebSocket(error))
    }
}

impl From<Stop> for ConnectError {
    /// The error of a connection that stopped before it was open.
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Failed(cause) => Self::Ended(cause),
            Stop::Refused(error) => Self::Handshake(Arc::new(error)),
            Stop::Proxy(error) => Self::Proxy(error),
            Stop::Header(error) => Self::Proxy(format!("the proxy sent {error}")),
        }
    }
}
