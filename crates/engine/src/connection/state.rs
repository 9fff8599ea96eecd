use super::context::Context;
use super::event::{Event, Opened, Payload, Unsent};
use super::output::Output;
use super::times::Times;
use crate::closed::{Cause, ConnectError};
use crate::config::Config;
use crate::dial::Target;
use crate::message::Outgoing;
use crate::proxy::Tunnel;
use core::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use tautline_buf::Buf;
use tautline_tls::{Session, TlsInfo};
use tautline_ws::handshake::{self, HeadReader};
use tautline_ws::{Decoder, Kind, Role};

/// Bytes of a [`window`](Connection::window) at least.
const WINDOW: usize = 16 << 10;

/// One connection without I/O. The [module](super) says how its parts play together.
///
/// A client and a server in memory, each with the bytes of the other:
/// ```
/// use std::{sync::Arc, time::Instant};
/// use tautline_engine::connection::{Connection, Context, Event};
/// use tautline_engine::{Config, Outgoing, Target};
/// use tautline_tls::plain;
///
/// let (mut context, config, now) = (Context::new()?, Arc::new(Config::default()), Instant::now());
/// let target = Arc::new(Target::new("ws://example.org/")?);
/// let mut client = Connection::client(plain::Session, target, config.clone(), &mut context, now)?;
/// let mut server = Connection::server(plain::Session, config, now);
///
/// /// Moves the bytes that one end has for the other, as sockets do.
/// fn carry(from: &mut Connection<plain::Session>, to: &mut Connection<plain::Session>, context: &mut Context) {
///     let bytes = from.output(context).to_vec();
///     from.written(bytes.len(), context);
///     to.window(context)[..bytes.len()].copy_from_slice(&bytes);
///     to.filled(bytes.len(), Instant::now());
/// }
///
/// carry(&mut client, &mut server, &mut context);
/// assert!(matches!(server.next(&mut context), Some(Event::Request)));
/// server.upgrade(Default::default(), &mut context, now)?;
/// carry(&mut server, &mut client, &mut context);
/// assert!(matches!(client.next(&mut context), Some(Event::Open(_))));
/// client.send(Outgoing::text("hello"), &mut context)?;
/// carry(&mut client, &mut server, &mut context);
/// assert!(matches!(server.next(&mut context), Some(Event::Open(_))));
/// assert!(matches!(server.next(&mut context), Some(Event::Message(_))));
/// assert_eq!(server.payload().text(), Some("hello"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Connection<S> {
    pub(super) config: Arc<Config>,
    pub(super) role: Role,
    pub(super) stage: Stage,
    pub(super) input: Input,
    pub(super) output: Output<S>,
    pub(super) times: Times,
    /// An event to report before all others.
    pub(super) pending: Option<Event>,
    /// Whether our direction ends once all output is written.
    pub(super) finishing: bool,
}

/// The part of a connection's life, from its first byte to its last. Every event moves it downwards.
///
/// ```text
///  client: Tunnel ─► Tls ──────────► Answer ──┐
///  server:           Tls ─► Request ─► Asked ─┤
///                             ▲ respond() ┘   ▼
///                                            Open ── close() ──► Closing
///                                             │                    │
///     failures, deadlines, the peer's close ──┴────────────────────┴──► Over
/// ```
pub(super) enum Stage {
    /// A client negotiates a tunnel with a proxy.
    Tunnel(Box<Dialing>, Box<Tunnel>),
    /// TLS handshake, with the target if this is a client.
    Tls(Option<Box<Dialing>>),
    /// A server reads the head of a request.
    Request(Box<Head>),
    /// A request waits for its answer.
    Asked(Box<http::Request<()>>),
    /// A client reads the response.
    Answer(Box<Answer>),
    Open,
    /// Our close frame was sent, and the peer's is awaited.
    Closing,
    /// Nothing is read any more.
    Over,
}

/// A client's request, before it can be sent.
pub(super) struct Dialing {
    pub(super) target: Arc<Target>,
    pub(super) opening: handshake::Opening,
}

/// A head that a server reads, with the plaintext bytes so far.
pub(super) struct Head {
    pub(super) bytes: Buf,
    pub(super) reader: HeadReader,
}

/// A response that a client reads, with the plaintext bytes so far.
pub(super) struct Answer {
    pub(super) bytes: Buf,
    pub(super) dialing: Dialing,
}

/// Received bytes.
pub(super) struct Input {
    /// Bytes of the peer; the front of them may be opened already.
    pub(super) wire: Buf,
    /// Plaintext of a session that does not open records in place.
    pub(super) scratch: Buf,
    /// The opened bytes that are not decoded yet.
    pub(super) plain: Option<Plain>,
    /// The place of the last event's bytes.
    pub(super) found: Found,
    pub(super) decoder: Decoder,
    /// Whether the peer has ended the stream.
    pub(super) ended: bool,
}

/// Plaintext of a record.
#[derive(Clone)]
pub(super) struct Plain {
    /// Whether it lies in `scratch` and not in `wire`.
    pub(super) in_scratch: bool,
    /// Where the rest of it lies.
    pub(super) rest: Range<usize>,
    /// Bytes of `wire` to drop once it is used up.
    pub(super) record: usize,
}

/// The place of the last event's bytes.
#[derive(Clone, Default)]
pub(super) enum Found {
    #[default]
    Nothing,
    Wire(Kind, Range<usize>),
    Scratch(Kind, Range<usize>),
    /// In the decoder's assembly.
    Decoder(Kind),
}

impl<S: Session> Connection<S> {
    /// A server's end of a connection that a client has opened.
    #[must_use]
    pub fn server(session: S, config: Arc<Config>, now: Instant) -> Self {
        let stage = if session.is_plain() { Self::first_request(&config) } else { Stage::Tls(None) };
        Self::new(session, Role::Server, stage, config, now)
    }

    /// A client's end of a connection that was opened to `target`, or to its proxy.
    ///
    /// # Errors
    /// [`ConnectError`] if the target or its proxy cannot be used.
    pub fn client(
        session: S,
        target: Arc<Target>,
        config: Arc<Config>,
        context: &mut Context,
        now: Instant,
    ) -> Result<Self, ConnectError> {
        let mut options = handshake::Options::default();
        options.origin.clone_from(&target.origin);
        options.headers = target.headers.clone();
        options.subprotocols = target.subprotocols.clone();
        options.deflate = target.deflate;
        options.limits = config.limits.head;
        let opening = handshake::Opening::new(&target.uri, context.keys.nonce(), &options);
        let opening = opening.map_err(|error| ConnectError::Handshake(Arc::new(error)))?;
        let mut connection = Self::new(session, Role::Client, Stage::Over, config, now);
        let dialing = Dialing { target: target.clone(), opening };
        if let Some(proxy) = target.proxy.clone() {
            let (_, wire) = connection.output.parts();
            let tunnel = Tunnel::new(proxy, target.host(), target.port(), wire).map_err(ConnectError::Proxy)?;
            connection.stage = Stage::Tunnel(Box::new(dialing), Box::new(tunnel));
        } else {
            connection.secure(dialing, context).map_err(|error| ConnectError::Ended(Cause::Tls(error)))?;
        }
        Ok(connection)
    }

    /// A connection whose opening handshake another library has done, over `session`.
    ///
    /// `deflate` holds the negotiated parameters and our configuration. Bytes that arrived already go into the
    /// [`window`](Self::window).
    #[must_use]
    pub fn upgraded(
        session: S,
        role: Role,
        deflate: Option<(tautline_ws::deflate::DeflateParams, tautline_ws::deflate::DeflateConfig)>,
        config: Arc<Config>,
        now: Instant,
    ) -> Self {
        let mut connection = Self::new(session, role, Stage::Over, config, now);
        connection.enter(deflate);
        connection
    }

    pub(super) fn new(session: S, role: Role, stage: Stage, config: Arc<Config>, now: Instant) -> Self {
        Self {
            role,
            stage,
            input: Input {
                wire: Buf::new(),
                scratch: Buf::new(),
                plain: None,
                found: Found::Nothing,
                decoder: Decoder::new(role, config.limits.max_message),
                ended: false,
            },
            output: Output::new(session, role, config.slow_consumer.limit()),
            times: Times::new(now, &config.deadlines),
            pending: None,
            finishing: false,
            config,
        }
    }

    /// The free bytes into which the peer's next bytes are to be read: at least 16 KiB.
    pub fn window(&mut self, context: &mut Context) -> &mut [u8] {
        self.window_of(WINDOW, context)
    }

    /// As [`window`](Self::window), with `least` bytes if no received bytes are kept.
    pub fn window_of(&mut self, least: usize, context: &mut Context) -> &mut [u8] {
        self.forget(context);
        let wire = &mut self.input.wire;
        if !wire.has_memory() {
            *wire = context.take_window(least);
        } else if wire.room() < WINDOW {
            context.pool.reserve(wire, least);
        }
        wire.reserve(WINDOW)
    }

    /// As [`window`](Self::window), with `least` bytes also if received bytes are kept, which may move them.
    pub fn window_with(&mut self, least: usize, context: &mut Context) -> &mut [u8] {
        self.forget(context);
        let wire = &mut self.input.wire;
        if wire.has_memory() {
            context.pool.reserve(wire, least);
        } else {
            *wire = context.take_window(least);
        }
        wire.reserve(least.max(WINDOW))
    }

    /// The caller has read `n` bytes into the front of the [`window`](Self::window).
    ///
    /// # Panics
    /// If the window has fewer bytes.
    pub fn filled(&mut self, n: usize, now: Instant) {
        self.input.wire.commit(n);
        if n > 0 {
            self.times.heard = now;
            self.times.ping_sent = false;
        }
    }

    /// The peer has ended the stream: no byte follows those in the [`window`](Self::window).
    pub const fn ended(&mut self) {
        self.input.ended = true;
    }

    /// The bytes of the last message or pong, until the next call of [`next`](Self::next). Otherwise empty.
    #[must_use]
    pub fn payload(&self) -> Payload<'_> {
        self.input.payload()
    }

    /// The bytes of the last message or pong, and the half that sends, for an answer to it.
    pub fn payload_and_output(&mut self) -> (Payload<'_>, &mut Output<S>) {
        (self.input.payload(), &mut self.output)
    }

    /// Takes a message. It leaves with the next bytes that the caller writes.
    ///
    /// # Errors
    /// [`Unsent`], if the message was not taken.
    pub fn send(&mut self, message: Outgoing<'_>, context: &mut Context) -> Result<(), Unsent> {
        self.output.send(message, context)
    }

    /// Takes a ping of at most 125 bytes.
    ///
    /// # Errors
    /// [`Unsent`], if it was not taken.
    pub fn ping(&mut self, payload: &[u8], context: &mut Context) -> Result<(), Unsent> {
        self.output.ping(payload, context)
    }

    /// The half that sends.
    pub const fn sending(&mut self) -> &mut Output<S> {
        &mut self.output
    }

    /// The bytes for the peer; empty if none wait. All messages that were taken meanwhile share records.
    pub fn output(&mut self, context: &mut Context) -> &[u8] {
        self.output.bytes(&mut context.pool)
    }

    /// The caller has written the first `n` bytes of [`output`](Self::output).
    pub fn written(&mut self, n: usize, context: &mut Context) {
        self.output.written(n, &mut context.pool);
        if n > 0 {
            self.times.stuck = None;
        }
    }

    /// The caller's socket takes no more bytes now: the deadline to send runs, until some are written.
    pub fn blocked(&mut self, now: Instant) {
        self.times.stuck.get_or_insert(now);
    }

    /// Whether bytes wait for the caller to write them.
    #[must_use]
    pub const fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Gives memory back: the caller is going to wait for the peer.
    pub fn rest(&mut self, context: &mut Context) {
        self.forget(context);
        self.input.rest(context);
        self.output.fit(&mut context.pool);
    }

    /// Whether the connection is open: messages can be sent and received.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Whether nothing is read any more. Once no output waits either, the caller ends its direction of the stream.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over) && self.pending.is_none()
    }

    /// Whether the caller has nothing more to write, and ends its direction of the stream.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.finishing && self.output.is_empty()
    }

    /// The request that waits for its answer (server).
    #[must_use]
    pub const fn request(&self) -> Option<&http::Request<()>> {
        match &self.stage {
            Stage::Asked(request) => Some(request),
            _ => None,
        }
    }

    /// The negotiated parameters of TLS. Empty without TLS.
    #[must_use]
    pub fn tls_info(&self) -> TlsInfo {
        self.output.session.tls_info()
    }

    /// The TLS session, to export keying material or to update its keys.
    pub const fn session(&mut self) -> &mut S {
        self.output.parts().0
    }

    /// Changes our TLS keys, and asks the peer for new ones if `ask` is set (RFC 8446, section 4.6.3).
    ///
    /// # Errors
    /// [`Session::update_keys`] says when it is not possible.
    pub fn update_keys(&mut self, ask: bool) -> Result<(), tautline_tls::Error> {
        let (session, wire) = self.output.parts();
        session.update_keys(ask, wire)
    }

    pub(super) fn opened(&self) -> Opened {
        Opened { tls: self.tls_info(), ..Opened::default() }
    }
}

impl Input {
    /// The bytes of the last event.
    pub(super) fn payload(&self) -> Payload<'_> {
        match &self.found {
            Found::Nothing => Payload { kind: Kind::Binary, data: &[] },
            Found::Wire(kind, range) => Payload { kind: *kind, data: &self.wire.filled()[range.clone()] },
            Found::Scratch(kind, range) => Payload { kind: *kind, data: &self.scratch.filled()[range.clone()] },
            Found::Decoder(kind) => Payload { kind: *kind, data: self.decoder.held().unwrap_or_default() },
        }
    }
}

impl<S> std::fmt::Debug for Connection<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("role", &self.role).field("output", &self.output).finish_non_exhaustive()
    }
}
