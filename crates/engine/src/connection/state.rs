use super::context::Context;
use super::event::{Event, Payload, Unsent};
use crate::config::Config;
use crate::dial::target::Target;
use core::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;
use tautline_conn::closed::ConnectError;
use tautline_conn::due::Clock;
use tautline_conn::front::{Begins, Client, REFUSED, Via};
use tautline_conn::message::Outgoing;
use tautline_conn::window::Window;
use tautline_io::Address;
use tautline_tls::{Session, TlsInfo};
use tautline_ws::Role;
use tautline_ws::deflate::{DeflateConfig, DeflateParams};
use tautline_ws::handshake::{self, BodyReader};

/// Bytes of a [`window`](Connection::window) at least.
const WINDOW: usize = 16 << 10;

/// One connection without I/O. The [module](super) says how its parts play together.
///
/// A client and a server in memory, each with the bytes of the other:
/// ```
/// # mod tautline {
/// #     pub use tautline_engine::{Config, Outgoing, Target};
/// #     pub mod layers { pub use {tautline_engine as engine, tautline_tls as tls}; }
/// # }
/// use std::{sync::Arc, time::Instant};
/// use tautline::layers::engine::connection::{Connection, Context, Event};
/// use tautline::layers::tls::plain;
/// use tautline::{Config, Outgoing, Target};
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
    /// The request of a client, until it is sent.
    pub(super) opening: Option<Box<handshake::Opening>>,
    /// Our terms of compression.
    pub(super) deflate: Option<DeflateConfig>,
    pub(super) input: Window,
    pub(super) output: Output<S>,
    pub(super) clock: Clock,
    /// An event to report before all others.
    pub(super) pending: Option<Event>,
    /// The client of a connection whose peer is known (server).
    pub(super) client: Option<Box<Client>>,
}

/// The sending half of a [`Connection`]: messages, and the sealed bytes for the caller to write.
pub type Output<S> = tautline_conn::held::Output<S, Option<BodyReader>, Infallible>;

/// The state of a connection without I/O. A request keeps its body while it waits, and no response is made while it is sent.
pub(super) type Phase = tautline_conn::phase::Phase<Option<BodyReader>, Infallible>;

impl<S: Session> Connection<S> {
    /// A server's end of a connection that a client has opened.
    #[must_use]
    pub fn server(session: S, config: Arc<Config>, now: Instant) -> Self {
        let phase = Phase::first(session.is_plain(), config.limits.head);
        Self::new(session, Role::Server, phase, config, now)
    }

    /// As [`server`](Self::server), for a connection whose socket has this peer: [`Config::front`] tells what is believed of it.
    ///
    /// The first event of a peer that may not connect is [`Event::Failed`], and so is that of a wrong header.
    #[must_use]
    pub fn server_from(session: S, peer: Address, config: Arc<Config>, now: Instant) -> Self {
        let begins = config.front.begins(&peer);
        let mut connection = Self::server(session, config, now);
        match begins {
            Begins::Plainly => {}
            Begins::WithHeader => connection.output.phase = Phase::ProxyHeader,
            Begins::Refused => {
                connection.output.phase = Phase::GONE;
                connection.pending = Some(Event::Failed(Box::new(ConnectError::Proxy(REFUSED.to_owned()))));
            }
        }
        connection.client = Some(Box::new(Client::new(peer)));
        connection
    }

    /// A client's end of a connection that was opened to `target`, or to its proxy.
    ///
    /// # Errors
    /// [`ConnectError`] if the target or its proxy cannot be used.
    pub fn client(
        session: S,
        target: Arc<Target>,
        mut config: Arc<Config>,
        context: &mut Context,
        now: Instant,
    ) -> Result<Self, ConnectError> {
        let options = target.options(config.limits.head);
        let opening = handshake::Opening::new(&target.uri, context.keys.nonce(), &options)
            .map_err(|error| ConnectError::Handshake(Arc::new(error)))?;
        if target.silence.is_some() {
            Arc::make_mut(&mut config).deadlines.silence = target.silence;
        }
        let mut connection = Self::new(session, Role::Client, Phase::Tls, config, now);
        connection.deflate = target.deflate;
        connection.opening = Some(Box::new(opening));
        match target.proxy.clone() {
            Some(proxy) => {
                let wire = connection.output.wire.buf(&mut context.pool);
                connection.output.phase = Phase::Proxy(Box::new(target.tunnel(proxy, wire)?));
            }
            None => {
                if !target.preface.is_empty() {
                    connection.output.wire.buf(&mut context.pool).put(&target.preface);
                }
                connection.secure(context)?;
            }
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
        deflate: Option<(DeflateParams, DeflateConfig)>,
        config: Arc<Config>,
        now: Instant,
    ) -> Self {
        let mut connection = Self::new(session, role, Phase::Tls, config, now);
        connection.open_with(deflate);
        connection
    }

    pub(super) fn new(session: S, role: Role, phase: Phase, config: Arc<Config>, now: Instant) -> Self {
        Self {
            opening: None,
            deflate: config.upgrade.deflate,
            input: Window::new(role, config.limits.max_message),
            output: Output::new(session, role, phase, config.slow_consumer),
            clock: Clock::new(now, &config.deadlines),
            pending: None,
            client: None,
            config,
        }
    }

    /// The free bytes into which the peer's next bytes are to be read: at least 16 KiB.
    pub fn window(&mut self, context: &mut Context) -> &mut [u8] {
        self.window_of(WINDOW, context)
    }

    /// As [`window`](Self::window), with `least` bytes if no received bytes are kept.
    pub fn window_of(&mut self, least: usize, context: &mut Context) -> &mut [u8] {
        self.input.room(least, WINDOW, context)
    }

    /// As [`window`](Self::window), with `least` bytes also if received bytes are kept, which may move them.
    pub fn window_with(&mut self, least: usize, context: &mut Context) -> &mut [u8] {
        self.input.room(least, least.max(WINDOW), context)
    }

    /// The caller has read `n` bytes into the front of the [`window`](Self::window).
    ///
    /// # Panics
    /// If the window has fewer bytes.
    pub fn filled(&mut self, n: usize, now: Instant) {
        self.input.wire.commit(n);
        if n > 0 {
            (self.clock.times.heard, self.clock.times.ping_sent) = (self.clock.tick(now), false);
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
        self.output.bytes(context)
    }

    /// The caller has written the first `n` bytes of [`output`](Self::output).
    pub fn written(&mut self, n: usize, context: &mut Context) {
        self.output.written(n, context);
        if n > 0 {
            self.clock.times.stuck_since = None;
        }
    }

    /// The caller's socket takes no more bytes now. The deadline to send runs, and messages wait by the policy for slow
    /// consumers, until some bytes are written.
    pub fn blocked(&mut self, now: Instant) {
        let now = self.clock.tick(now);
        self.clock.times.stuck_since.get_or_insert(now);
        self.output.block();
    }

    /// Whether bytes wait for the caller to write them.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Gives memory back: the caller is going to wait for the peer.
    pub fn rest(&mut self, context: &mut Context) {
        self.input.rest(context);
        self.output.fit(&mut context.pool);
    }

    /// Whether the connection is open: messages can be sent and received.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.output.phase.takes_messages()
    }

    /// Whether nothing is read any more. Once no output waits either, the caller ends its direction of the stream.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.output.phase.is_ending() && self.pending.is_none()
    }

    /// Whether the caller has nothing more to write, and ends its direction of the stream.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.output.phase.is_ending() && self.output.is_empty()
    }

    /// The request that waits for its answer (server).
    #[must_use]
    pub fn request(&self) -> Option<&http::Request<()>> {
        self.output.phase.waiting().map(|wait| &wait.request)
    }

    /// The client of a connection [from a known peer](Self::server_from): that of the last request, or of the header of the PROXY
    /// protocol, or that peer.
    #[must_use]
    pub fn peer(&self) -> Option<&Address> {
        self.client.as_ref().map(|client| &client.peer)
    }

    /// The client's way through the proxies before the server. `None` if the client is the peer of the socket.
    #[must_use]
    pub fn via(&self) -> Option<&Via> {
        self.client.as_ref()?.via.as_ref()
    }

    /// The body of the [request](Self::request) that waits for its answer (server).
    /// It has at most [`Limits::max_body`](crate::Limits) bytes.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.output.phase.waiting().and_then(|wait| wait.with.as_ref()).map_or(&[], BodyReader::content)
    }

    /// Messages that the policy for slow consumers has dropped so far ([`SlowConsumer`](crate::SlowConsumer)).
    #[must_use]
    pub const fn messages_dropped(&self) -> u64 {
        self.output.dropped()
    }

    /// The negotiated parameters of TLS. Empty without TLS.
    #[must_use]
    pub fn tls_info(&self) -> TlsInfo {
        self.output.session.tls_info()
    }

    /// The TLS session, to export keying material or to update its keys.
    pub const fn session(&mut self) -> &mut S {
        &mut self.output.session
    }

    /// Changes our TLS keys, and asks the peer for new ones if `ask` is set (RFC 8446, section 4.6.3).
    ///
    /// # Errors
    /// [`Session::update_keys`] says when it is not possible.
    pub fn update_keys(&mut self, ask: bool) -> Result<(), tautline_tls::Error> {
        let Output { session, wire, .. } = &mut self.output;
        session.update_keys(ask, wire.sealed_mut())
    }
}

impl<S> std::fmt::Debug for Connection<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("role", &self.output.out.role())
            .field("output", &self.output)
            .finish_non_exhaustive()
    }
}
