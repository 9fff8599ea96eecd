use crate::{
    Chunk, Closed, Conn, ConnId, ConnectError, DialId, Handler, Message, Opening, Reply, Request, SendTimes, Target,
};
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;
use tautline_engine::{Others, Raw, RawEvent, ShardContext};
use tracing::field::{Empty, display};
use tracing::{Span, info_span};

/// A handler whose connections are spans of the crate `tracing`.
///
/// A span begins with `on_open` and ends with `on_close`. All calls for the connection happen in it, so events and spans of the
/// application belong to it. Its fields have the names of OpenTelemetry where there are any: `network.peer.address`,
/// `url.path`, `network.protocol.name`, and `websocket.close_code` and `websocket.cause` at the end.
///
/// Every message looks its span up and enters it. That costs nothing while the subscriber does not want the span: it has the
/// level info and the target `tautline`.
///
/// ```
/// use tautline::{Conn, Handler, Message, Outgoing, Server, Traced};
///
/// struct Echo;
///
/// impl Handler for Echo {
///     type State = ();
///     fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
///         tracing::info!(bytes = message.data().len(), "echo"); // in the connection's span
///         conn.send(Outgoing::from(&message));
///     }
/// }
///
/// let server = Server::plain().listen("127.0.0.1:0".parse()?).start(|_shard| Traced::new(Echo))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Traced<H> {
    app: H,
    spans: HashMap<ConnId, Span>,
    on_span: OnSpan,
}

/// Gets each new span, with the request that opened its connection.
type OnSpan = Box<dyn Fn(&Span, &http::Request<()>) + Send>;

impl<H> Traced<H> {
    /// Makes spans of this handler's connections.
    #[must_use]
    pub fn new(app: H) -> Self {
        Self { app, spans: HashMap::new(), on_span: Box::new(|_, _| {}) }
    }

    /// Sets a function that gets each span of a server with the client's request, to take its parent from there.
    ///
    /// `examples/opentelemetry.rs` does so with the header `traceparent`.
    #[must_use]
    pub fn on_span(mut self, act: impl Fn(&Span, &http::Request<()>) + Send + 'static) -> Self {
        self.on_span = Box::new(act);
        self
    }

    /// The handler itself.
    pub const fn app(&mut self) -> &mut H {
        &mut self.app
    }

    /// Calls the handler in the span of a connection.
    #[inline]
    fn within<R>(&mut self, conn: ConnId, act: impl FnOnce(&mut H) -> R) -> R {
        let _entered = self.spans.get(&conn).map(Span::enter);
        act(&mut self.app)
    }

    fn begin<T>(&mut self, conn: &Conn<'_, T>, kind: &'static str) -> Option<&Span> {
        let span = info_span!(
            target: "tautline",
            "websocket",
            otel.kind = kind,
            network.peer.address = %conn.peer(),
            network.protocol.name = "websocket",
            tautline.conn = %conn.id(),
            url.path = Empty,
            tls.protocol.version = Empty,
            tls.resumed = Empty,
            websocket.subprotocol = Empty,
            websocket.close_code = Empty,
            websocket.cause = Empty,
        );
        if span.is_disabled() {
            return None;
        }
        Some(self.spans.entry(conn.id()).insert_entry(span).into_mut())
    }
}

impl<H: Handler> Handler for Traced<H> {
    type State = H::State;

    fn on_start(&mut self, shard: &mut ShardContext<'_>) {
        self.app.on_start(shard);
    }

    fn on_request(&mut self, request: &Request<'_>) -> Reply<H::State> {
        self.app.on_request(request)
    }

    fn on_raw_request(&mut self, raw: &mut Raw<'_, H::State>, request: &Request<'_>) -> bool {
        self.app.on_raw_request(raw, request)
    }

    fn on_bytes(&mut self, raw: &mut Raw<'_, H::State>, bytes: &mut [u8]) -> usize {
        self.app.on_bytes(raw, bytes)
    }

    fn on_raw(&mut self, raw: &mut Raw<'_, H::State>, event: RawEvent<'_>) {
        self.app.on_raw(raw, event);
    }

    fn on_raw_failed(&mut self, others: &mut Others<'_, H::State>, dial: DialId, error: &ConnectError) {
        self.app.on_raw_failed(others, dial, error);
    }

    fn on_open(&mut self, conn: &mut Conn<'_, H::State>, opening: &Opening<'_>) {
        let kind = if opening.request.is_some() { "server" } else { "client" };
        if let Some(span) = self.begin(conn, kind).cloned() {
            if let Some(version) = opening.tls.version {
                span.record("tls.protocol.version", display(version));
                span.record("tls.resumed", opening.tls.resumed);
            }
            if let Some(subprotocol) = opening.subprotocol {
                span.record("websocket.subprotocol", subprotocol);
            }
            if let Some(request) = opening.request {
                span.record("url.path", request.uri().path());
                (self.on_span)(&span, request);
            }
        }
        self.within(conn.id(), |app| app.on_open(conn, opening));
    }

    fn on_message(&mut self, conn: &mut Conn<'_, H::State>, message: Message<'_>) {
        self.within(conn.id(), |app| app.on_message(conn, message));
    }

    fn on_chunk(&mut self, conn: &mut Conn<'_, H::State>, chunk: Chunk<'_>) {
        self.within(conn.id(), |app| app.on_chunk(conn, chunk));
    }

    fn on_pong(&mut self, conn: &mut Conn<'_, H::State>, payload: &[u8]) {
        self.within(conn.id(), |app| app.on_pong(conn, payload));
    }

    fn on_timer(&mut self, conn: &mut Conn<'_, H::State>, id: u64) {
        self.within(conn.id(), |app| app.on_timer(conn, id));
    }

    fn on_shard_timer(&mut self, shard: &mut ShardContext<'_>, id: u64) {
        self.app.on_shard_timer(shard, id);
    }

    fn on_sent(&mut self, shard: &mut ShardContext<'_>, times: &SendTimes) {
        self.app.on_sent(shard, times);
    }

    fn on_drain(&mut self, conn: &mut Conn<'_, H::State>) {
        self.within(conn.id(), |app| app.on_drain(conn));
    }

    fn on_dropped(&mut self, conn: &mut Conn<'_, H::State>, count: u32) {
        self.within(conn.id(), |app| app.on_dropped(conn, count));
    }

    fn on_close(&mut self, conn: &mut Conn<'_, H::State>, closed: &Closed) {
        if let Some(span) = self.spans.get(&conn.id()) {
            span.record("websocket.close_code", closed.code.get());
            span.record("websocket.cause", display(&closed.cause));
        }
        self.within(conn.id(), |app| app.on_close(conn, closed));
        self.spans.remove(&conn.id());
    }

    fn save_state(&mut self, state: &mut H::State, out: &mut Vec<u8>) -> bool {
        self.app.save_state(state, out)
    }

    fn restore_state(&mut self, saved: &[u8]) -> Option<H::State> {
        self.app.restore_state(saved)
    }

    fn moves_with(&self, state: &H::State) -> Option<ConnId> {
        self.app.moves_with(state)
    }

    fn on_moved_with(&mut self, state: &mut H::State, partner: ConnId) {
        self.app.on_moved_with(state, partner);
    }

    fn restored_max_message(&self, state: &H::State) -> Option<usize> {
        self.app.restored_max_message(state)
    }

    fn restore_target(&mut self, state: &H::State) -> Option<Target> {
        self.app.restore_target(state)
    }

    /// The span of the process before ended there, so that another one begins.
    fn on_restored(&mut self, conn: &mut Conn<'_, H::State>) {
        let _ = self.begin(conn, if conn.dial().is_some() { "client" } else { "server" });
        self.within(conn.id(), |app| app.on_restored(conn));
    }

    fn on_redial(&mut self, dial: DialId, target: &mut Target) {
        self.app.on_redial(dial, target);
    }

    fn on_connect_failed(&mut self, dial: DialId, error: &ConnectError, retry: Option<Duration>) {
        self.app.on_connect_failed(dial, error, retry);
    }

    fn on_dial_end(&mut self, dial: DialId) {
        self.app.on_dial_end(dial);
    }
}

impl<H> fmt::Debug for Traced<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traced").field("spans", &self.spans.len()).finish_non_exhaustive()
    }
}
