use tautline::{Cause, Closed, Deadline};

/// How an open connection ended, in the terms of the package `websockets`.
pub(crate) struct Ended {
    /// The peer's close frame.
    pub(crate) received: Option<(u16, String)>,
    /// Our close frame, if the application did not send it.
    pub(crate) sent: Option<(u16, String)>,
    /// Whether the peer's close frame came first.
    pub(crate) received_first: bool,
    /// The event that broke the connection; `None` after a closing handshake.
    pub(crate) error: Option<String>,
}

impl From<&Closed> for Ended {
    fn from(closed: &Closed) -> Self {
        let code = closed.code.get();
        let received = (code != 1006).then(|| (code, closed.reason.clone()));
        let sent = match &closed.cause {
            Cause::Peer => received.clone(),
            Cause::WebSocket(error) => Some((error.close_code().get(), error.to_string())),
            Cause::SlowConsumer => Some((1008, "too slow a reader".to_owned())),
            Cause::Timeout(Deadline::Idle) => Some((1001, "idle for too long".to_owned())),
            Cause::Panicked => Some((1011, String::new())),
            _ => None,
        };
        let handshake = matches!(closed.cause, Cause::Peer | Cause::Local);
        let error = (!handshake).then(|| format!("{:#}", closed.cause));
        Self { received, sent, received_first: matches!(closed.cause, Cause::Peer), error }
    }
}
