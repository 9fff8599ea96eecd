use crate::{CloseCode, ConnectError, Kind};
use http::StatusCode;
use tautline_engine::connection::{self, Payload};
use tautline_ws::handshake::HandshakeError;

/// An event that a client saw.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The WebSocket is open; the subprotocol, if there is one.
    Open(Option<String>),
    /// The server refused the upgrade.
    Refused(StatusCode),
    /// A text message.
    Text(String),
    /// A binary message.
    Binary(Vec<u8>),
    /// A pong.
    Pong(Vec<u8>),
    /// The server closed the WebSocket, or answered the client's close: 1006 if it sent no close frame.
    Closed(CloseCode, String),
    /// The connection ended before it was open.
    Failed(String),
}

impl Event {
    pub(super) fn new(event: connection::Event, payload: Payload<'_>) -> Option<Self> {
        Some(match event {
            connection::Event::Open(opened) => Self::Open(opened.subprotocol),
            connection::Event::Message(Kind::Text) => Self::Text(payload.text().unwrap_or_default().to_owned()),
            connection::Event::Message(Kind::Binary) => Self::Binary(payload.data().to_vec()),
            connection::Event::Pong => Self::Pong(payload.data().to_vec()),
            connection::Event::Closed(closed) => Self::Closed(closed.code, closed.reason),
            connection::Event::Failed(error) => match &*error {
                ConnectError::Handshake(error) => match &**error {
                    HandshakeError::Rejected { response } => Self::Refused(response.status()),
                    HandshakeError::Redirected { status, .. } => Self::Refused(*status),
                    error => Self::Failed(error.to_string()),
                },
                error => Self::Failed(error.to_string()),
            },
            _ => return None,
        })
    }
}
