//! The limit that a peer met: its name in the configuration, for the log, and its counter.

use crate::counts::counters::{Counter, LiveCounters};
use crate::link::phase::Phase;
use std::fmt;
use tautline_conn::closed::{Cause, Deadline};
use tautline_ws::handshake::HandshakeError;

/// A limit of [`Config`](crate::Config), printed as ` (limits.max_message)` behind the error that it caused.
pub(crate) struct Limit(Option<&'static str>);

impl Limit {
    /// Counts and names the limit that ends a connection in `phase`, if one does.
    pub(crate) fn met(cause: &Cause, phase: &Phase, counters: &LiveCounters) -> Self {
        let (name, counter) = match cause {
            Cause::WebSocket(tautline_ws::Error::MessageTooBig { .. }) => {
                ("limits.max_message", &counters.messages_too_big)
            }
            Cause::WebSocket(tautline_ws::Error::InflateRatio { .. }) => {
                ("upgrade.deflate.max_ratio", &counters.messages_too_big)
            }
            Cause::SlowConsumer => ("slow_consumer", &counters.slow_consumers),
            Cause::Timeout(Deadline::Handshake) if matches!(phase, Phase::Request(head) if head.http_end.is_some()) => {
                ("deadlines.http", &counters.missed_handshake)
            }
            Cause::Timeout(Deadline::Handshake) => ("deadlines.handshake", &counters.missed_handshake),
            Cause::Timeout(Deadline::Idle) => ("deadlines.idle", &counters.missed_idle),
            Cause::Timeout(Deadline::Silence) => ("deadlines.silence", &counters.missed_silence),
            Cause::Timeout(Deadline::Close) => ("deadlines.close", &counters.missed_close),
            Cause::Timeout(Deadline::Send) => ("deadlines.send", &counters.missed_send),
            _ => return Self(None),
        };
        counted(name, counter)
    }

    /// Counts and names the limit that an HTTP head exceeds, if it does.
    pub(crate) fn of_head(error: &HandshakeError, counters: &LiveCounters) -> Self {
        match error {
            HandshakeError::HeadTooLarge(_) | HandshakeError::TooManyHeaders(_) => {
                counted("limits.head", &counters.heads_too_big)
            }
            HandshakeError::BodyTooLarge(_) => counted("limits.max_body", &counters.heads_too_big),
            _ => Self(None),
        }
    }
}

fn counted(name: &'static str, counter: &Counter) -> Limit {
    counter.add(1);
    Limit(Some(name))
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |name| write!(f, " ({name})"))
    }
}
