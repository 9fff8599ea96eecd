use crate::http::content::Content;
use crate::http::push::Push;
use http::{HeaderMap, StatusCode};
pub(crate) use tautline_conn::verdict::status_response;

/// The answer to a [`Request`](crate::Request). `T` is the [`State`](crate::Handler::State) of a connection.
///
/// ```
/// # mod tautline { pub use tautline_engine::{Reply, Upgrade}; }
/// use http::{HeaderValue, Response, StatusCode, header};
/// use tautline::{Reply, Upgrade};
///
/// let with_a_cookie = Upgrade::new().with_header(header::SET_COOKIE, HeaderValue::from_static("seen=1"));
/// let with_a_user: Reply<String> = Upgrade::new().with_state("Ada".to_owned()).into();
/// let page: Reply = Reply::Respond(Response::new(b"hello".to_vec()));
/// let refusal: Reply = Reply::status(StatusCode::FORBIDDEN);
/// # let _: (Reply, _, _, _) = (with_a_cookie.into(), with_a_user, page, refusal);
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Reply<T = ()> {
    /// Accept the WebSocket.
    Upgrade(Upgrade<T>),
    /// Answer as plain HTTP. The connection stays open for further requests if the client wants that.
    Respond(http::Response<Vec<u8>>),
    /// Answer as plain HTTP with content that is made while it is sent, such as a file or a long list.
    Stream(http::Response<Content>),
    /// Answer as plain HTTP with a response whose pieces the application sends, from now on and for as long as it likes.
    Push(Push<T>),
    /// A ticket has the answer: the result of [`Request::later`](crate::Request::later).
    Later(Later),
}

/// The mark of a request that is answered [later](crate::Request::later).
///
/// ```
/// # mod tautline { pub use tautline_engine::{Reply, Request}; }
/// use tautline::{Reply, Request};
///
/// let (head, peer) = (http::Request::get("/").body(())?, "127.0.0.1:1".parse()?);
/// let reply: Reply = Request::new(&head, &peer, &Default::default()).later(drop);
/// assert!(matches!(reply, Reply::Later(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Later(pub(crate) u64);

impl<T> Reply<T> {
    /// Accepts the WebSocket, without further headers.
    #[must_use]
    pub fn upgrade() -> Self {
        Self::Upgrade(Upgrade::new())
    }

    /// A plain HTTP response whose text is the status code and its standard reason.
    #[must_use]
    pub fn status(status: StatusCode) -> Self {
        Self::Respond(status_response(status))
    }
}

/// The terms on which a WebSocket is accepted.
///
/// ```
/// # mod tautline { pub use {tautline_engine::{Conn, Handler, Opening, Reply, Request, Upgrade}, tautline_ws::Message}; }
/// use tautline::{Conn, Handler, Message, Opening, Reply, Request, Upgrade};
///
/// struct Members;
///
/// impl Handler for Members {
///     /// The member's name.
///     type State = String;
///     fn on_request(&mut self, request: &Request<'_>) -> Reply<String> {
///         match request.http.uri().query() {
///             Some(name) => Upgrade::new().with_state(name.to_owned()).into(),
///             None => Reply::status(http::StatusCode::UNAUTHORIZED),
///         }
///     }
///     fn on_open(&mut self, conn: &mut Conn<'_, String>, _: &Opening<'_>) {
///         let welcome = format!("welcome, {}", conn.state());
///         conn.text(&welcome);
///     }
///     fn on_message(&mut self, _: &mut Conn<'_, String>, _: Message<'_>) {}
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Upgrade<T = ()> {
    /// Headers that are added to the 101 response.
    pub headers: HeaderMap,
    /// A subprotocol that the client offered, instead of the configuration's choice. Another one is answered with status 500.
    pub subprotocol: Option<String>,
    /// Whether compression may keep windows between messages, if the configuration has context takeover. Default true.
    ///
    /// A server that has too little memory for more windows sets it to false.
    pub context_takeover: bool,
    /// The first state of the connection, which `on_open` finds; by default `T::default()`.
    pub state: Option<T>,
}

impl<T> Upgrade<T> {
    /// Terms without further headers.
    #[must_use]
    pub fn new() -> Self {
        Self { headers: HeaderMap::new(), subprotocol: None, context_takeover: true, state: None }
    }

    /// Adds a header to the 101 response.
    #[must_use]
    pub fn with_header(mut self, name: http::HeaderName, value: http::HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// Sets the subprotocol.
    #[must_use]
    pub fn with_subprotocol(mut self, name: impl Into<String>) -> Self {
        self.subprotocol = Some(name.into());
        self
    }

    /// Sets the first state of the connection, for example the user that a cookie names.
    #[must_use]
    pub fn with_state(mut self, state: T) -> Self {
        self.state = Some(state);
        self
    }
}

impl<T> Default for Upgrade<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<Upgrade<T>> for Reply<T> {
    fn from(upgrade: Upgrade<T>) -> Self {
        Self::Upgrade(upgrade)
    }
}

impl<T> From<Push<T>> for Reply<T> {
    fn from(push: Push<T>) -> Self {
        Self::Push(push)
    }
}
