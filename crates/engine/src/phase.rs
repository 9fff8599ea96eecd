//! The phases of a connection, from its first byte to its last.

use crate::content::ContentSource;
use crate::proxy::Tunnel;
use crate::timer::Tick;
use crate::wanted::Wanted;
use std::num::NonZeroU64;
use tautline_buf::Buf;
use tautline_ws::handshake::{BodyReader, HeadReader, Opening};

/// The state of a connection. Every event moves it downwards in this diagram, except that a server answers several plain HTTP
/// requests.
///
/// ```text
///  client: Proxy ─► Tls ──────────► Answer ─┐
///  server:          Tls ─► Request ─────────┤      on_open
///                    ▲▼      ▲▼ └► (again)  ▼
///             Offloaded   Waiting, Streaming Open ──────────┐
///                                           │ close()       │ slow-consumer policy
///                                           ▼               ▼
///                                      CloseQueued       Overrun
///                                           │ end of turn   │
///                                           ▼               │
///                                       CloseSent           │
///                                           │               │
///      failures, refusals, deadlines ──┬────┴───────────────┘  on_close, if on_open was called
///                                      ▼
///                                   Linger ── all is sent and the peer has ended its direction, or a deadline ─► Gone
/// ```
pub(crate) enum Phase {
    /// A client negotiates a tunnel with a proxy.
    Proxy(Box<Tunnel>),
    /// TLS handshake.
    Tls,
    /// The session is in the [pool](crate::HandshakePool) under this number, and a placeholder has its place. `None` if the
    /// pool rejected it.
    Offloaded(Option<NonZeroU64>),
    /// A server reads an HTTP request.
    Request(Box<Head>),
    /// A server's application has a request and answers it later.
    Waiting(Box<Wait>),
    /// A server sends a response that is made meanwhile.
    Streaming(Box<Streaming>),
    /// A client reads the HTTP response.
    Answer(Box<Answer>),
    /// Messages are sent and delivered.
    Open,
    /// The slow-consumer policy gave up on the peer; the next flush reports it to the handler.
    Overrun,
    /// Our close frame waits behind the messages of this turn.
    CloseQueued,
    /// Our close frame is sent, or waits behind bytes in flight. The peer's close frame is awaited.
    CloseSent,
    /// No message is read any more. The remaining bytes are sent, and then the peer's end of stream is awaited.
    Linger(Linger),
    /// The connection is over, and is reset if `reset`.
    Gone { reset: bool },
}

/// The two directions of a connection that lingers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Linger {
    pub(crate) ours: Finish,
    /// Whether the peer ended its direction, by FIN or by close_notify.
    pub(crate) peer_finished: bool,
}

/// The state of our direction's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// Our direction stays open until the peer has ended its own.
    AfterPeer,
    /// close_notify and FIN follow when everything is sent.
    Wanted,
    /// FIN follows without close_notify, since the TLS session failed.
    Abandoned,
    /// Our direction has ended.
    Done,
}

impl Finish {
    /// Whether our direction ends as soon as everything is sent.
    pub(crate) const fn is_due(self) -> bool {
        matches!(self, Self::Wanted | Self::Abandoned)
    }
}

/// The HTTP request that a server reads.
pub(crate) struct Head {
    /// The bytes of a partial head.
    pub(crate) bytes: Buf,
    pub(crate) reader: HeadReader,
    /// Whether a request was answered on this connection before.
    pub(crate) answered: bool,
    /// The end of the time for plain HTTP, once a request was answered and another may follow.
    pub(crate) http_end: Option<Tick>,
    /// A request whose body is being read.
    pub(crate) body: Option<Box<Body>>,
}

/// A request whose body is not whole.
pub(crate) struct Body {
    pub(crate) request: http::Request<()>,
    pub(crate) reader: BodyReader,
}

impl Head {
    /// Whether a part of a request has arrived.
    pub(crate) const fn has_begun(&self) -> bool {
        !self.bytes.is_empty() || self.body.is_some()
    }

    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + self.body.as_ref().map_or(0, |body| body.reader.memory())
    }
}

/// A response that is made while it is sent.
pub(crate) struct Streaming {
    pub(crate) head: Box<Head>,
    pub(crate) source: ContentSource,
    /// Bytes of content that are left, if their number is known.
    pub(crate) left: u64,
    pub(crate) is_measured: bool,
    pub(crate) chunked: bool,
    pub(crate) keep_alive: bool,
    pub(crate) peer_finished: bool,
    /// Opened bytes behind the request: the rest of one record.
    pub(crate) rest: Buf,
}

/// An HTTP request that waits for the application's answer.
pub(crate) struct Wait {
    pub(crate) head: Box<Head>,
    pub(crate) request: http::Request<()>,
    /// The number of its ticket.
    pub(crate) number: u64,
    /// Opened bytes behind the request: the rest of one record.
    pub(crate) rest: Buf,
    #[expect(dead_code, reason = "its end tells the holder of the ticket")]
    pub(crate) wanted: Wanted,
}

/// The HTTP response that a client reads.
pub(crate) struct Answer {
    pub(crate) bytes: Buf,
    pub(crate) opening: Opening,
}

impl Phase {
    /// The phase in which our direction ends once everything is sent, and the peer's end is awaited.
    pub(crate) const fn finishing(peer_finished: bool) -> Self {
        Self::Linger(Linger { ours: Finish::Wanted, peer_finished })
    }

    /// The phase in which our direction ends without close_notify, since the TLS session failed.
    pub(crate) const ABANDONED: Self = Self::Linger(Linger { ours: Finish::Abandoned, peer_finished: false });

    /// The phase of a connection that is over, without a reset.
    pub(crate) const GONE: Self = Self::Gone { reset: false };

    pub(crate) const fn is_handshaking(&self) -> bool {
        matches!(
            self,
            Self::Proxy(_)
                | Self::Tls
                | Self::Offloaded(_)
                | Self::Request(_)
                | Self::Waiting(_)
                | Self::Streaming(_)
                | Self::Answer(_)
        )
    }

    /// Whether `on_open` was called, so that `on_close` must follow.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self, Self::Open | Self::Overrun | Self::CloseQueued | Self::CloseSent)
    }

    /// Whether messages are sent and delivered.
    pub(crate) const fn takes_messages(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Whether no message is read any more.
    pub(crate) const fn is_ending(&self) -> bool {
        matches!(self, Self::Linger(_) | Self::Gone { .. })
    }

    /// Whether nothing but the peer's end is awaited, which may be a close_notify among the next records.
    pub(crate) const fn awaits_peer(&self) -> bool {
        matches!(self, Self::Linger(Linger { ours: Finish::AfterPeer, .. }))
    }

    pub(crate) const fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }

    /// A close frame is queued. False if the connection closes already, or is not open.
    pub(crate) fn close(&mut self) -> bool {
        let open = self.takes_messages();
        if open {
            *self = Self::CloseQueued;
        }
        open
    }

    /// The slow-consumer policy gave up on the peer.
    pub(crate) fn overrun(&mut self) {
        if self.takes_messages() {
            *self = Self::Overrun;
        }
    }

    /// The turn in which a close frame was queued is over. False if none was.
    pub(crate) fn close_sent(&mut self) -> bool {
        let queued = matches!(self, Self::CloseQueued);
        if queued {
            *self = Self::CloseSent;
        }
        queued
    }

    /// The peer ended its direction while nothing is read any more. Ours ends too.
    pub(crate) fn peer_finished(&mut self) {
        if let Self::Linger(linger) = self {
            linger.peer_finished = true;
            if linger.ours == Finish::AfterPeer {
                linger.ours = Finish::Wanted;
            }
        }
    }

    /// Moves on to `end`, which is [`Linger`](Self::Linger) or [`Gone`](Self::Gone), and returns the phase before.
    ///
    /// A connection that lingers already keeps the ends of both directions, and one that is gone stays gone.
    pub(crate) fn end(&mut self, end: Self) -> Self {
        let end = match (&*self, end) {
            (Self::Gone { reset }, _) => Self::Gone { reset: *reset },
            (Self::Offloaded(_), Self::Gone { .. }) => Self::Gone { reset: true },
            (Self::Linger(before), Self::Linger(after)) => Self::Linger(Linger {
                ours: if before.ours == Finish::Done { Finish::Done } else { after.ours },
                peer_finished: before.peer_finished || after.peer_finished,
            }),
            (_, end) => end,
        };
        std::mem::replace(self, end)
    }

    /// The state of our direction's end, if the connection lingers.
    pub(crate) const fn finish_mut(&mut self) -> Option<&mut Finish> {
        match self {
            Self::Linger(linger) => Some(&mut linger.ours),
            _ => None,
        }
    }

    /// Whether both directions have ended, if everything is sent.
    pub(crate) const fn is_finished(&self) -> bool {
        matches!(self, Self::Linger(Linger { ours: Finish::AfterPeer | Finish::Done, peer_finished: true }))
    }
}

#[cfg(test)]
#[path = "phase/tests.rs"]
mod tests;
