use http::{HeaderValue, Response, header};
use std::fmt;
use tautline_conn::pieces::{AsTheyAre, PieceWriter};

/// A response whose pieces the application sends: [`Reply::Push`](crate::Reply::Push).
///
/// [`on_open`](crate::Handler::on_open) follows, and from then on each message to the connection is a piece of the response:
/// by [`Conn::send`](crate::Conn::send) or [`ConnHandle::send`](crate::ConnHandle), to a topic that it is subscribed to, and so on.
/// [`Delivery::Queued`](crate::Delivery::Queued) says that the client reads slowly, [`on_drain`](crate::Handler::on_drain) that it has
/// caught up, and [`SlowConsumer`](crate::SlowConsumer) bounds what waits. [`Conn::close`](crate::Conn::close) ends the response,
/// and [`on_close`](crate::Handler::on_close) tells any end. [`Conn::is_push`](crate::Conn::is_push) tells such a connection from one
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

impl<T> fmt::Debug for Push<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push").field("response", &self.response).finish_non_exhaustive()
    }
}
