//! Responses whose pieces the application sends, when it has them.
//!
//! The connection is then open like one with a WebSocket that goes out only: the same calls send, publish, tell the application
//! that all is sent or that the connection has ended, and bound what waits for a slow reader. [`PieceWriter`] has the place of
//! frames. Nothing is read from the client, and no other request follows.

use crate::handler::{Handler, Opening};
use crate::link::phase::Phase;
use crate::link::state::Link;
use crate::turn::core::Core;
use crate::turn::visit::REQUEST;
use http::{HeaderValue, Request, Response, Version, header};
use std::fmt;
use tautline_conn::closed::Cause;
use tautline_conn::pieces::{AsTheyAre, PieceWriter, Pieces};
use tautline_io::Driver;
use tautline_tls::{Engine, Session};
use tautline_ws::handshake::{self, Framing};

/// A response whose pieces the application sends: [`Reply::Push`](crate::Reply::Push).
///
/// [`on_open`](Handler::on_open) follows, and from then on each message to the connection is a piece of the response:
/// by [`Conn::send`](crate::Conn::send) or [`ConnHandle::send`](crate::ConnHandle), to a topic that it is subscribed to, and so on.
/// [`Delivery::Queued`](crate::Delivery::Queued) says that the client reads slowly, [`on_drain`](Handler::on_drain) that it has
/// caught up, and [`SlowConsumer`](crate::SlowConsumer) bounds what waits. [`Conn::close`](crate::Conn::close) ends the response,
/// and [`on_close`](Handler::on_close) tells any end. [`Conn::is_push`](crate::Conn::is_push) tells such a connection from one
/// with a WebSocket.
///
/// The time of idle connections does not count, since a client says nothing while it reads. Every
/// [`ping`](crate::Deadlines::ping) the writer may append something that keeps the connection alive. At an upgrade of the server
/// such connections are closed.
///
/// ```
/// # mod tautline { pub use {tautline_engine::{Conn, Handler, Opening, Outgoing, PieceWriter, Push, Reply, Request}, tautline_ws::{Kind, Message}}; }
/// use tautline::{Conn, Handler, Kind, Message, Opening, Outgoing, PieceWriter, Push, Reply, Request};
///
/// /// Server-sent events.
/// struct Events;
///
/// impl PieceWriter for Events {
///     fn message(&mut self, _: Kind, payload: &[u8], out: &mut Vec<u8>) {
///         for line in payload.split(|byte| *byte == b'\n') {
///             out.extend_from_slice(b"data: ");
///             out.extend_from_slice(line);
///             out.push(b'\n');
///         }
///         out.push(b'\n');
///     }
///     fn keepalive(&mut self, out: &mut Vec<u8>) {
///         out.extend_from_slice(b":\n\n");
///     }
/// }
///
/// struct News;
///
/// impl Handler for News {
///     type State = ();
///     fn on_request(&mut self, request: &Request<'_>) -> Reply {
///         if request.is_upgrade { Reply::upgrade() } else { Push::new(Events).with_type("text/event-stream").into() }
///     }
///     fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
///         conn.subscribe("news");
///     }
///     /// Of WebSockets only.
///     fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
///         if let Some(text) = message.text() {
///             conn.publish("news", Outgoing::text(text));
///         }
///     }
/// }
/// ```
#[non_exhaustive]
pub struct Push<T = ()> {
    /// The head of the response.
    pub response: Response<()>,
    /// Writes the pieces.
    pub writer: Box<dyn PieceWriter>,
    /// The first state of the connection, which `on_open` finds; by default `T::default()`.
    pub state: Option<T>,
}

impl<T> Push<T> {
    /// A response with status 200 whose pieces `writer` writes.
    #[must_use]
    pub fn new(writer: impl PieceWriter + 'static) -> Self {
        Self { response: Response::new(()), writer: Box::new(writer), state: None }
    }

    /// A response whose pieces are the payloads of messages as they are.
    #[must_use]
    pub fn bytes() -> Self {
        Self::new(AsTheyAre)
    }

    /// Sets the type of the content.
    #[must_use]
    pub fn with_type(self, value: &'static str) -> Self {
        self.with_header(header::CONTENT_TYPE, HeaderValue::from_static(value))
    }

    /// Adds a header to the response.
    #[must_use]
    pub fn with_header(mut self, name: http::HeaderName, value: HeaderValue) -> Self {
        self.response.headers_mut().append(name, value);
        self
    }

    /// Sets the first state of the connection.
    #[must_use]
    pub fn with_state(mut self, state: T) -> Self {
        self.state = Some(state);
        self
    }
}

impl<T> From<Push<T>> for crate::Reply<T> {
    fn from(push: Push<T>) -> Self {
        Self::Push(push)
    }
}

impl<T> fmt::Debug for Push<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push").field("response", &self.response).finish_non_exhaustive()
    }
}

impl<E: Engine, H: Handler> Core<E, H> {
    /// Answers a request with a response whose pieces the application sends, and opens the connection for it.
    pub(crate) fn push(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        request: &Request<()>,
        push: Push<H::State>,
    ) {
        let Push { response, writer, state } = push;
        self.access.note_answer(link, response.status(), &self.shared);
        let is_chunked = request.version() == Version::HTTP_11;
        let framing = if is_chunked { Framing::Chunked } else { Framing::UntilEnd };
        let reply = handshake::Reply { keep_alive: false, ..handshake::Reply::to(request) };
        let date = self.date();
        self.shared.visit.spend(REQUEST);
        let out = link.out.raw(&mut self.shared.pool);
        let (has_body, _) = handshake::write_response_head(&response, framing, reply, Some(&date), out);
        if !has_body {
            return self.end(link, Phase::finishing(false), Cause::Local);
        }
        if let Some(state) = state {
            link.state = state;
        }
        link.out.set_pieces(Pieces::new(writer, is_chunked));
        let before = std::mem::replace(&mut link.phase, Phase::Open);
        (link.clock.phase_end, link.clock.heard) = (self.shared.now, self.shared.now);
        self.admission.end_handshake(link, &before, &self.shared);
        self.shared.counters.open.add(1);
        self.shared.counters.opened.add(1);
        self.schedule(link);
        let tls = link.session.tls_info();
        let opening = Opening {
            request: Some(request),
            response: None,
            subprotocol: None,
            deflate: false,
            tls: &tls,
            times: None,
        };
        link.lend(Some(driver), &mut self.shared, &mut self.slots, |conn| self.handler.on_open(conn, &opening));
    }
}
