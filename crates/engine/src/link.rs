use crate::config::Deadlines;
use crate::conn::{Conn, Info};
use crate::outbound::{Nowhere, Outbound, Path};
use crate::proxy;
use crate::shared::Shared;
use crate::timer::Tick;
use crate::{Deadline, closed::Cause};
use std::sync::Arc;
use std::time::Duration;
use tautline_io::{Driver, Token};
use tautline_tls::Session;
use tautline_window::Buf;
use tautline_ws::handshake::{HeadReader, Opening};
use tautline_ws::{CloseCode, Decoder};

/// Where a connection stands.
///
/// ```text
///  client: Proxy ─► Tls ─► Answer ─► Open ─► CloseSent ─► Linger ─► (gone)
///  server:          Tls ─► Request ─► Open ─► CloseSent ─► Linger
///                    ▲        └─ plain HTTP ─┘ (again, or Linger)
///                    ▼
///                   Away
/// ```
pub(crate) enum Phase {
    /// A proxy is asked for a tunnel.
    Proxy(Box<proxy::Tunnel>),
    /// TLS handshake.
    Tls,
    /// The session is with the [pool](crate::HandshakePool), which knows it by this number; another one keeps its place. No
    /// number: it was not let in.
    Away(Option<u64>),
    /// A server reads an HTTP request.
    Request(Box<Head>),
    /// A client reads the HTTP response.
    Answer(Box<Answer>),
    /// Messages flow.
    Open,
    /// Our close frame is sent or waits to be sent; the peer's is awaited.
    CloseSent,
    /// Nothing more is read; what is left to send leaves, then the peer's end of stream is awaited.
    Linger,
}

/// An HTTP head that arrives in pieces.
pub(crate) struct Head {
    pub(crate) bytes: Buf,
    pub(crate) reader: HeadReader,
    /// A request was answered on this connection before.
    pub(crate) answered: bool,
}

/// What a client waits for.
pub(crate) struct Answer {
    pub(crate) bytes: Buf,
    pub(crate) opening: Opening,
}

/// What is known of a client's handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hello {
    /// Nothing, or that it is cheap.
    Plain,
    /// The client has a ticket, so it is cheap unless that is no good.
    Resumes,
    /// It is expensive; so many bytes did not suffice last time.
    Heavy(u32),
    /// It was answered, so nothing is left to sign.
    Answered,
}

/// One connection.
pub(crate) struct Link<S, T> {
    pub(crate) token: Token,
    pub(crate) phase: Phase,
    pub(crate) session: S,
    pub(crate) hello: Hello,
    pub(crate) decoder: Decoder,
    /// Wire bytes that no record is complete with; without memory most of the time.
    pub(crate) carry: Buf,
    pub(crate) out: Outbound,
    pub(crate) info: Info,
    pub(crate) rare: Option<Box<Rare>>,
    pub(crate) state: T,
    /// The application wants nothing to be read.
    pub(crate) paused: bool,
    pub(crate) driver_paused: bool,
    /// It is in the list of those with output from outside their own turn.
    pub(crate) dirty: bool,
    /// Some of `carry` was held back although it is whole.
    pub(crate) held: bool,
    /// How many messages had been sent when the peer's last input was answered, see [`Outbound::taken`].
    pub(crate) answered: u64,
    /// The handler knows of this connection and is owed `on_close`.
    pub(crate) reported: bool,
    pub(crate) gone: bool,
    /// The peer ended its direction, by FIN or by close_notify.
    pub(crate) peer_finished: bool,
    pub(crate) ping_sent: bool,
    pub(crate) clock: Clock,
}

/// What many connections have nothing of, so that idle ones are small.
#[derive(Default)]
pub(crate) struct Rare {
    /// The subprotocol that both sides speak.
    pub(crate) subprotocol: Option<Box<str>>,
    /// Topics, as often as they are subscribed to.
    pub(crate) subscriptions: Vec<Arc<str>>,
    /// What the peer's close frame said.
    pub(crate) peer_close: Option<(CloseCode, String)>,
}

/// When things happened, in ticks.
#[derive(Clone, Copy, Default)]
pub(crate) struct Clock {
    pub(crate) heard: Tick,
    /// End of the current phase, where it has one.
    pub(crate) phase_end: Tick,
    /// When this connection's entry in the wheel comes up.
    pub(crate) scheduled: Tick,
}

/// What is due for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Ping,
    Miss(Deadline),
}

impl<S, T> Link<S, T> {
    /// What happens next if nothing else does, and when.
    pub(crate) fn next_due(&self, deadlines: &Deadlines) -> (Tick, Due) {
        let mut first = match self.phase {
            Phase::Open => (Tick::MAX, Due::Miss(Deadline::Idle)),
            // What is on its way comes first: the deadline for sending watches over that.
            Phase::CloseSent | Phase::Linger if self.out.is_in_flight() => (Tick::MAX, Due::Miss(Deadline::Close)),
            Phase::CloseSent | Phase::Linger => (self.clock.phase_end, Due::Miss(Deadline::Close)),
            _ => (self.clock.phase_end, Due::Miss(Deadline::Handshake)),
        };
        let mut consider = |at: Tick, due| {
            if at < first.0 {
                first = (at, due);
            }
        };
        if matches!(self.phase, Phase::Open) {
            // A peer that nothing is read from cannot be heard, nor its end; but a ping to one that is gone fails.
            if let Some(idle) = deadlines.idle
                && !self.driver_paused
            {
                consider(self.clock.heard + millis(idle), Due::Miss(Deadline::Idle));
            }
            if let Some(ping) = deadlines.ping
                && !self.ping_sent
            {
                consider(self.clock.heard + millis(ping), Due::Ping);
            }
        }
        if self.out.is_in_flight() {
            consider(self.out.stuck_since() + millis(deadlines.send), Due::Miss(Deadline::Send));
        }
        first
    }

    /// Whether nothing of the peer's is to be taken for now: the application wants that, or too many answers to the peer
    /// wait for it to read them. What others make us send to it does not count, because a slow reader of that must still
    /// be heard. A client takes everything, for two ends that wait for each other to read would wait for ever. And while the
    /// session is away, what comes has to wait for it.
    pub(crate) fn holds_back(&self, pause_above: usize) -> bool {
        match self.phase {
            Phase::Open => {
                !self.out.is_closing()
                    && (self.paused
                        || self.info.dial.is_none()
                            && !self.out.is_gone(self.answered)
                            && self.out.is_blocked()
                            && self.out.buffered() > pause_above)
            }
            Phase::Away(_) => !self.carry.is_empty(),
            _ => false,
        }
    }

    /// Lends this connection to the handler.
    pub(crate) fn lend<D: Driver, R>(
        &mut self,
        driver: &mut D,
        shared: &mut Shared,
        act: impl FnOnce(&mut Conn<'_, T>) -> R,
    ) -> R
    where
        S: Session,
    {
        let mut way = Path { driver, token: self.token, session: &mut self.session };
        act(&mut Conn {
            token: self.token,
            out: &mut self.out,
            way: &mut way,
            rare: &mut self.rare,
            info: &self.info,
            state: &mut self.state,
            paused: &mut self.paused,
            shared,
        })
    }

    /// Lends this connection, which has ended, for the last time.
    pub(crate) fn lend_ended(&mut self, shared: &mut Shared, act: impl FnOnce(&mut Conn<'_, T>))
    where
        S: Session,
    {
        let mut way = Nowhere(&self.session);
        act(&mut Conn {
            token: self.token,
            out: &mut self.out,
            way: &mut way,
            rare: &mut self.rare,
            info: &self.info,
            state: &mut self.state,
            paused: &mut self.paused,
            shared,
        });
    }

    pub(crate) const fn is_handshaking(&self) -> bool {
        matches!(self.phase, Phase::Proxy(_) | Phase::Tls | Phase::Away(_) | Phase::Request(_) | Phase::Answer(_))
    }
}

pub(crate) fn millis(duration: Duration) -> Tick {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}

/// Why processing a connection's input stopped.
pub(crate) enum Stop {
    /// The connection failed.
    Failed(Cause),
    /// A client's opening handshake failed.
    Refused(tautline_ws::handshake::HandshakeError),
    /// The proxy refused.
    Proxy(String),
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

#[cfg(test)]
mod tests {
    use super::Link;
    use tautline_tls_rustls::fused::Session;

    /// Ten thousand idle connections are to cost ten megabytes, of which the driver and the allocator want their share.
    #[test]
    fn is_small() {
        let size = size_of::<Link<Session, ()>>();
        assert!(size <= 736, "{size}");
    }
}
