//! The phases of a connection, from its first byte to its last.

use crate::closed::Cause;
use crate::config::Deadlines;
use crate::head::{Head, whole_head};
use crate::proxy::Tunnel;
use crate::tick::Tick;
use crate::verdict::{End, Stage, Stop};
use std::num::NonZeroU64;
use tautline_buf::Buf;
use tautline_ws::handshake::{Established, HandshakeError, HeadLimits, Opening};

/// The state of a connection. Every event moves it downwards in this diagram, except that a server answers several plain HTTP
/// requests.
///
/// ```text
///  client: Proxy ─► Tls ──────────► Answer ─┐
///  server: ProxyHeader ─► Tls ─► Request ───┤      on_open
///                    ▲▼      ▲▼ └► (again)  ▼
///             Offloaded   Waiting, Streaming Open ──────────┐
///                         Raw (again)        │              │
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
/// `W` is what a composition keeps for a request that waits, and `R` is a response that it makes while it is sent. A composition
/// need not enter all phases.
pub enum Phase<W, R> {
    /// A client negotiates a tunnel with a proxy.
    Proxy(Box<Tunnel>),
    /// A server reads the header of the PROXY protocol with which a proxy begins.
    ProxyHeader,
    /// TLS handshake.
    Tls,
    /// The session is in the pool of handshakes under this number, and a placeholder has its place. `None` if the
    /// pool rejected it.
    Offloaded(Option<NonZeroU64>),
    /// A server reads an HTTP request.
    Request(Box<Head>),
    /// A server's application has a request and answers it later.
    Waiting(Box<Wait<W>>),
    /// A server sends a response that is made meanwhile.
    Streaming(Box<R>),
    /// The application takes and makes the bytes, as one that forwards them does. A client's connection begins so behind TLS.
    Raw(Raw),
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
    Gone {
        /// Whether the peer sees a reset.
        reset: bool,
    },
}

/// A connection whose bytes are the application's, or the driver's.
pub struct Raw {
    /// The ends of both directions. [`Finish::AfterPeer`] stands for an open one.
    pub ends: Linger,
    /// The end of the peer's direction, if it waits for bytes that are held back: whether close_notify came before it.
    pub late: Option<bool>,
    /// The application's next step.
    pub wish: Wish,
    /// The status of the response that is to be logged.
    pub status: Option<http::StatusCode>,
    /// The state of reading, if the connection can be given back to HTTP.
    pub head: Option<Box<Head>>,
    /// Where the bytes are the driver's, which carries other connections in them: the memory that it holds for that.
    pub carrier: Option<Pages>,
}

/// Memory in pages of 4 KiB, up to 255 of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages(u8);

impl Pages {
    /// The pages that so many bytes take.
    #[must_use]
    pub fn of(bytes: usize) -> Self {
        Self(u8::try_from(bytes.div_ceil(4096)).unwrap_or(u8::MAX))
    }

    /// Their bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.0 as usize * 4096
    }
}

/// The next step of a connection whose bytes are the application's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It goes on.
    Stay,
    /// The next bytes are a request again.
    Http,
    /// The next bytes are frames of a WebSocket.
    Open,
    /// It ends behind its bytes.
    End,
    /// It is reset.
    Reset,
}

impl Raw {
    /// A connection that begins, with the state of reading if it had one.
    #[must_use]
    pub const fn new(head: Option<Box<Head>>) -> Self {
        let ends = Linger { ours: Finish::AfterPeer, peer_finished: false };
        Self { ends, late: None, wish: Wish::Stay, status: None, head, carrier: None }
    }
}

/// The two directions of a connection that lingers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linger {
    /// The end of our direction.
    pub ours: Finish,
    /// Whether the peer ended its direction, by FIN or by close_notify.
    pub peer_finished: bool,
}

/// The state of our direction's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
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
    #[must_use]
    pub const fn is_due(self) -> bool {
        matches!(self, Self::Wanted | Self::Abandoned)
    }
}

/// An HTTP request that waits for the application's answer.
pub struct Wait<W> {
    /// The state of reading, for the next request.
    pub head: Box<Head>,
    /// The request.
    pub request: http::Request<()>,
    /// The composition's own part.
    pub with: W,
}

impl<W> Wait<W> {
    /// Its memory, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>() + size_of::<Head>() + self.head.memory() + memory_of_request(&self.request)
    }
}

/// The memory of a request that was read: about that of its texts, which were parsed from one buffer each, and of its table.
fn memory_of_request(request: &http::Request<()>) -> usize {
    let headers = request.headers();
    let texts: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let entry = size_of::<(http::HeaderName, http::HeaderValue)>() + 3 * size_of::<usize>();
    texts + headers.capacity() * entry + request.uri().path().len() + request.uri().query().map_or(0, str::len)
}

/// The HTTP response that a client reads.
pub struct Answer {
    /// The bytes of a partial head.
    pub bytes: Buf,
    /// The client's side of the handshake.
    pub opening: Opening,
}

impl Answer {
    /// Writes a client's request to `out`. Its response follows.
    #[must_use]
    pub fn to(opening: Opening, out: &mut Buf) -> Box<Self> {
        opening.write(out);
        Box::new(Self { bytes: Buf::new(), opening })
    }

    /// Reads from the response. Returns the bytes of `plain` that belonged to it, and its result once it is whole.
    ///
    /// # Errors
    /// The server refused the upgrade, or broke a rule.
    pub fn read(&mut self, plain: &[u8]) -> Result<(usize, Option<Established>), Stop> {
        let Self { bytes, opening } = self;
        let parsed = whole_head(bytes, plain, |bytes| opening.read(bytes)).map_err(Stop::Refused)?;
        Ok(parsed.map_or((plain.len(), None), |(established, used)| (used, Some(established))))
    }
}

impl<W, R> Phase<W, R> {
    /// The first phase of a client's connection to a server, behind a header of the PROXY protocol.
    #[must_use]
    pub fn first(is_plain: bool, limits: HeadLimits) -> Self {
        if is_plain { Self::request(limits) } else { Self::Tls }
    }

    /// A server reads a request of which nothing has arrived.
    #[must_use]
    pub fn request(limits: HeadLimits) -> Self {
        Self::Request(Box::new(Head::new(limits)))
    }

    /// The phase in which our direction ends once everything is sent, and the peer's end is awaited.
    #[must_use]
    pub const fn finishing(peer_finished: bool) -> Self {
        Self::Linger(Linger { ours: Finish::Wanted, peer_finished })
    }

    /// The phase in which our direction ends without close_notify, since the TLS session failed.
    pub const ABANDONED: Self = Self::Linger(Linger { ours: Finish::Abandoned, peer_finished: false });

    /// The phase of a connection that is over, without a reset.
    pub const GONE: Self = Self::Gone { reset: false };

    /// Whether the opening handshake is not complete.
    #[must_use]
    pub const fn is_handshaking(&self) -> bool {
        matches!(
            self,
            Self::Proxy(_)
                | Self::ProxyHeader
                | Self::Tls
                | Self::Offloaded(_)
                | Self::Request(_)
                | Self::Waiting(_)
                | Self::Streaming(_)
                | Self::Answer(_)
        )
    }

    /// Whether `on_open` was called, so that `on_close` must follow.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Open | Self::Overrun | Self::CloseQueued | Self::CloseSent)
    }

    /// Whether messages are sent and delivered.
    #[must_use]
    pub const fn takes_messages(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Whether the driver takes and makes the bytes, to carry other connections.
    #[must_use]
    pub const fn carries(&self) -> bool {
        matches!(self, Self::Raw(Raw { carrier: Some(_), .. }))
    }

    /// Whether the application takes and makes the bytes, or the driver does.
    #[must_use]
    pub const fn is_raw(&self) -> bool {
        matches!(self, Self::Raw(_))
    }

    /// Whether no message is read any more.
    #[must_use]
    pub const fn is_ending(&self) -> bool {
        matches!(self, Self::Linger(_) | Self::Gone { .. })
    }

    /// Whether nothing but the peer's end is awaited, which may be a close_notify among the next records.
    #[must_use]
    pub const fn awaits_peer(&self) -> bool {
        matches!(self, Self::Linger(Linger { ours: Finish::AfterPeer, .. }))
    }

    /// Whether records are opened. A client that waits for the server's end opens them too: some servers send close_notify,
    /// and no FIN until the client has sent its own close_notify.
    #[must_use]
    pub const fn reads(&self) -> bool {
        !self.is_ending() || self.awaits_peer()
    }

    /// Whether the connection is over.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }

    /// The application has a whole request from now on, and answers it later. False if none was read.
    pub fn wait(&mut self, request: http::Request<()>, with: W) -> bool {
        let before = std::mem::replace(self, Self::GONE);
        let is_read = matches!(before, Self::Request(_));
        *self = match before {
            Self::Request(head) => Self::Waiting(Box::new(Wait { head, request, with })),
            other => other,
        };
        is_read
    }

    /// The request that waits for its answer.
    #[must_use]
    pub const fn waiting(&self) -> Option<&Wait<W>> {
        match self {
            Self::Waiting(wait) => Some(wait),
            _ => None,
        }
    }

    /// Takes the request that waits, to answer it. Another may follow. `None` if there is none.
    pub fn take_waiting(&mut self) -> Option<(http::Request<()>, W)> {
        match std::mem::replace(self, Self::GONE) {
            Self::Waiting(wait) => {
                let Wait { head, request, with } = *wait;
                *self = Self::Request(head);
                Some((request, with))
            }
            other => {
                *self = other;
                None
            }
        }
    }

    /// A request was answered, and another may follow: [`Head::await_next`]. `None` if no request is read.
    pub fn await_next(&mut self, now: Tick, deadlines: &Deadlines) -> Option<(Tick, bool)> {
        match self {
            Self::Request(head) => Some(head.await_next(now, deadlines)),
            _ => None,
        }
    }

    /// A close frame is queued. False if the connection closes already, or is not open.
    pub fn close(&mut self) -> bool {
        let open = self.takes_messages();
        if open {
            *self = Self::CloseQueued;
        }
        open
    }

    /// The slow-consumer policy gave up on the peer.
    pub fn overrun(&mut self) {
        if self.takes_messages() {
            *self = Self::Overrun;
        }
    }

    /// The turn in which a close frame was queued is over. False if none was.
    pub fn close_sent(&mut self) -> bool {
        let queued = matches!(self, Self::CloseQueued);
        if queued {
            *self = Self::CloseSent;
        }
        queued
    }

    /// The peer ended its direction while nothing is read any more. Ours ends too.
    pub fn peer_finished(&mut self) {
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
    pub fn end(&mut self, end: Self) -> Self {
        let end = match (&*self, end) {
            (Self::Gone { reset }, _) => Self::Gone { reset: *reset },
            (Self::Offloaded(_), Self::Gone { .. }) => Self::Gone { reset: true },
            (Self::Linger(before) | Self::Raw(Raw { ends: before, .. }), Self::Linger(after)) => Self::Linger(Linger {
                ours: if before.ours == Finish::Done { Finish::Done } else { after.ours },
                peer_finished: before.peer_finished || after.peer_finished,
            }),
            (_, end) => end,
        };
        std::mem::replace(self, end)
    }

    /// The phase of an end, which the peer's own end may have caused.
    #[must_use]
    pub const fn of_end(end: End, cause: &Cause) -> Self {
        match end {
            End::Finish => Self::finishing(matches!(cause, Cause::Finished | Cause::Truncated)),
            End::Abandon => Self::ABANDONED,
            End::Gone => Self::GONE,
            End::Reset => Self::Gone { reset: true },
        }
    }

    /// The part of its life, for the [verdict](crate::verdict) of its end.
    #[must_use]
    pub const fn stage(&self) -> Stage {
        match self {
            Self::Proxy(_) | Self::ProxyHeader | Self::Tls | Self::Offloaded(_) => Stage::Secures,
            Self::Request(head) => Stage::Request { begun: head.has_begun(), answered: head.answered },
            Self::Waiting(_) => Stage::Waiting,
            Self::Streaming(_) | Self::Raw(_) => Stage::Streaming,
            Self::Answer(_) => Stage::Answer,
            Self::Open | Self::Overrun | Self::CloseQueued | Self::CloseSent | Self::Linger(_) | Self::Gone { .. } => {
                Stage::Open
            }
        }
    }

    /// Takes the server's refusal, if a part of its response says that much.
    #[must_use]
    pub fn take_rejection(&mut self) -> Option<HandshakeError> {
        match self {
            Self::Answer(answer) => answer.opening.take_rejection(),
            _ => None,
        }
    }

    /// The state of our direction's end, if the connection lingers.
    pub const fn finish_mut(&mut self) -> Option<&mut Finish> {
        match self {
            Self::Linger(linger) => Some(&mut linger.ours),
            Self::Raw(raw) => Some(&mut raw.ends.ours),
            _ => None,
        }
    }

    /// Whether both directions have ended, if everything is sent.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        match self {
            Self::Linger(Linger { ours, peer_finished }) => {
                *peer_finished && matches!(ours, Finish::AfterPeer | Finish::Done)
            }
            Self::Raw(Raw { ends, .. }) => ends.peer_finished && matches!(ends.ours, Finish::Done),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
