use tautline::{Cause, CloseCode, Closed};

/// A side of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// The close frame for one side, after the other side has ended like this. This is the whole table:
///
/// | end of one side | other side: client | other side: server |
/// |---|---|---|
/// | a close frame, with a code or without | the same code and reason | the same code and reason |
/// | no close frame: end of stream, reset, TLS failure, deadline | 1014 | 1001 |
/// | a broken protocol, or a message that is too large | 1014 | 1001 |
/// | too many messages, or too slow a reader | – | 1001 |
/// | memory was short | 1013 | 1001 |
/// | the proxy ends | 1001 | 1001 |
/// | a fault of the proxy | 1011 | 1011 |
///
/// 1006 and 1015 stand for ends without a close frame, so they are never sent (RFC 6455, section 7.4.1). 1013 and 1014 are for
/// servers to send, and the proxy is a client to its servers (IANA, WebSocket Close Code Number Registry).
#[must_use]
pub fn told(closed: &Closed, from: Party) -> (CloseCode, &str) {
    if closed.code.is_sendable() || closed.code == CloseCode::NO_STATUS {
        return (closed.code, &closed.reason);
    }
    match (from, &closed.cause) {
        (_, Cause::Panicked) => (CloseCode::INTERNAL_ERROR, ""),
        (_, Cause::Stopped) => (CloseCode::GOING_AWAY, ""),
        (Party::Server, Cause::OutOfMemory) => (CloseCode::TRY_AGAIN_LATER, ""),
        (Party::Server, Cause::WebSocket(_)) => (CloseCode::BAD_GATEWAY, "the server broke the protocol or a limit"),
        (Party::Server, _) => (CloseCode::BAD_GATEWAY, "the connection to the server was lost"),
        (Party::Client, Cause::WebSocket(_)) => (CloseCode::GOING_AWAY, "the client broke the protocol or a limit"),
        (Party::Client, Cause::SlowConsumer) => (CloseCode::GOING_AWAY, "the client is too slow a reader"),
        (Party::Client, _) => (CloseCode::GOING_AWAY, "the client is gone"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::Arc;
    use tautline::Deadline;
    use tautline::layers::ws::Error;

    #[test]
    fn a_close_frame_is_passed_on() {
        for code in [1000, 1001, 1003, 1008, 1012, 3000, 4999] {
            for from in [Party::Client, Party::Server] {
                let mut closed = Closed::new(CloseCode::new(code), Cause::Peer);
                closed.reason = "why".to_owned();
                assert_eq!(told(&closed, from), (CloseCode::new(code), "why"));
            }
        }
        assert_eq!(told(&Closed::new(CloseCode::NO_STATUS, Cause::Peer), Party::Client).0, CloseCode::NO_STATUS);
    }

    #[test]
    fn no_end_without_a_close_frame_is_told_by_a_code_that_may_not_be_sent() {
        let io = || Cause::Io(Arc::new(io::ErrorKind::ConnectionReset.into()));
        let causes = [
            (Cause::Finished, 1001, 1014),
            (Cause::Truncated, 1001, 1014),
            (io(), 1001, 1014),
            (Cause::WebSocket(Error::InvalidUtf8), 1001, 1014),
            (Cause::Timeout(Deadline::Idle), 1001, 1014),
            (Cause::Timeout(Deadline::Send), 1001, 1014),
            (Cause::Timeout(Deadline::Close), 1001, 1014),
            (Cause::SlowConsumer, 1001, 1014),
            (Cause::OutOfMemory, 1001, 1013),
            (Cause::Panicked, 1011, 1011),
            (Cause::Stopped, 1001, 1001),
            (Cause::Local, 1001, 1014),
        ];
        for (cause, of_client, of_server) in causes {
            let closed = Closed::new(CloseCode::ABNORMAL, cause);
            for (from, code) in [(Party::Client, of_client), (Party::Server, of_server)] {
                let (told, reason) = told(&closed, from);
                assert_eq!(told.get(), code, "{}: {from:?}", closed.cause);
                assert!(told.is_sendable() && reason.len() <= 123);
            }
        }
    }
}
