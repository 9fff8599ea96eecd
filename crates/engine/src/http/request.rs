use crate::http::reply::{Later, Reply};
use crate::http::ticket::{Source, Ticket};
use crate::ids::ConnId;
use http::StatusCode;
use tautline_conn::front::Via;
use tautline_io::Address;

/// An HTTP request to a server.
///
/// ```
/// # mod tautline { pub use tautline_engine::{Reply, Request}; }
/// use http::StatusCode;
/// use tautline::{Reply, Request};
///
/// fn route(request: &Request<'_>) -> Reply {
///     match request.http.uri().path() {
///         "/feed" if request.is_upgrade => Reply::upgrade(),
///         _ => Reply::status(StatusCode::NOT_FOUND),
///     }
/// }
///
/// let (head, peer) = (http::Request::get("/").body(())?, "127.0.0.1:1".parse()?);
/// let Reply::Respond(response) = route(&Request::new(&head, &peer, &Default::default())) else { panic!() };
/// assert_eq!(response.status(), StatusCode::NOT_FOUND);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Request<'a> {
    /// Method, target and headers.
    pub http: &'a http::Request<()>,
    /// The client's address.
    pub peer: &'a Address,
    /// The client's way through the proxies before the server, if [`Config::front`](crate::Config) knows of some.
    pub via: Option<&'a Via>,
    /// Whether the client asks for a WebSocket.
    pub is_upgrade: bool,
    /// The negotiated TLS values: SNI, ALPN, the client's certificates. Empty without TLS.
    pub tls: &'a tautline_tls::TlsInfo,
    /// The body, if it has one of at most [`max_body`](crate::Limits::max_body) bytes. A longer one is answered with status 413.
    pub body: &'a [u8],
    /// Where tickets come from; `None` in tests of applications.
    pub(crate) source: Option<&'a Source<'a>>,
}

impl<'a> Request<'a> {
    /// A request with this head and peer, for tests of [`Handler::on_request`](crate::Handler::on_request).
    #[must_use]
    pub fn new(http: &'a http::Request<()>, peer: &'a Address, tls: &'a tautline_tls::TlsInfo) -> Self {
        let is_upgrade = tautline_ws::handshake::is_upgrade(http);
        Self { http, peer, via: None, is_upgrade, tls, body: &[], source: None }
    }

    /// Sets the body, for tests.
    #[must_use]
    pub const fn with_body(mut self, body: &'a [u8]) -> Self {
        self.body = body;
        self
    }

    /// The identifier of the request's connection, which a WebSocket keeps. `None` in tests of applications.
    ///
    /// An application that answers [later](Self::later) finds by it in [`on_open`](crate::Handler::on_open) what it has learned
    /// meanwhile.
    #[must_use]
    pub fn conn(&self) -> Option<ConnId> {
        self.source.map(Source::conn)
    }

    /// The peer of the socket: the client, or the proxy next to the server.
    #[must_use]
    pub fn direct_peer(&self) -> &'a Address {
        self.via.map_or(self.peer, |via| &via.direct)
    }

    /// Answers the request later: calls `start` with a [`Ticket`], which any thread or task can complete.
    ///
    /// Meanwhile nothing more is read from the client. If [`max_unanswered`](crate::Limits::max_unanswered) requests wait
    /// already, `start` is not called, and the client gets status 503. After [`Deadlines::answer`](crate::Deadlines::answer) it
    /// gets 408.
    pub fn later<T>(&self, start: impl FnOnce(Ticket<T>)) -> Reply<T> {
        let Some(source) = self.source else {
            start(Ticket::unconnected());
            return Reply::Later(Later(0));
        };
        if !source.has_room {
            return Reply::status(StatusCode::SERVICE_UNAVAILABLE);
        }
        start(source.ticket());
        Reply::Later(Later(source.number))
    }
}
