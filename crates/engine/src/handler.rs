use crate::conn::Conn;
use crate::context::ShardContext;
use crate::dial::target::Target;
use crate::dial::times::DialTimes;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::ids::{ConnId, DialId};
use crate::probe::SendTimes;
use crate::raw::event::RawEvent;
use crate::raw::lent::{Others, Raw};
use std::fmt;
use std::time::Duration;
use tautline_conn::closed::Closed;
use tautline_ws::{Kind, Message};

/// The application: callbacks for the events of its connections. Each shard has its own value.
///
/// Most methods get a [`Conn`], valid for the call. Their output is corked, and leaves each connection together.
///
/// ```
/// # mod tautline { pub use {tautline_engine::{Closed, Conn, Handler, Opening, Reply, Request}, tautline_ws::Message}; }
/// use tautline::{Closed, Conn, Handler, Message, Opening, Reply, Request};
///
/// struct Chat;
///
/// impl Handler for Chat {
///     type State = ();
///     fn on_request(&mut self, request: &Request<'_>) -> Reply {
///         if request.is_upgrade { Reply::upgrade() } else { Reply::status(http::StatusCode::NOT_FOUND) }
///     }
///     fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
///         conn.subscribe("room");
///     }
///     fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
///         conn.publish("room", (&message).into());
///     }
///     fn on_close(&mut self, conn: &mut Conn<'_, ()>, closed: &Closed) {
///         println!("{}: {:#}", conn.id(), closed.cause);
///     }
/// }
/// ```
pub trait Handler: 'static {
    /// The application's state per connection, reached by [`Conn::state`].
    type State: Default + 'static;

    /// The shard begins, and accepts no connection before this returns. Its handle can be given to other threads.
    fn on_start(&mut self, shard: &mut ShardContext<'_>) {
        let _ = shard;
    }

    /// An HTTP request arrived at a server: upgrade it, or answer it as plain HTTP. Authentication belongs here.
    ///
    /// An answer that takes time is given [later](Request::later), since this call must not block.
    ///
    /// The default upgrades WebSocket requests and answers 404 to all others.
    fn on_request(&mut self, request: &Request<'_>) -> Reply<Self::State> {
        if request.is_upgrade { Reply::upgrade() } else { Reply::status(http::StatusCode::NOT_FOUND) }
    }

    /// A request's head arrived at a server, and its body was not read. True takes the connection: its bytes are this
    /// handler's from now on, those of the body first, until [`Raw::resume_http`].
    ///
    /// Called only if [`Config::raw`](crate::Config::raw) is set. The default leaves requests to `on_request`.
    fn on_raw_request(&mut self, raw: &mut Raw<'_, Self::State>, request: &Request<'_>) -> bool {
        let _ = (raw, request);
        false
    }

    /// Bytes of a raw connection arrived, lent where they lie. Returns how many of them were used.
    ///
    /// The others come again once the connection is not [paused](Conn::pause) any more. It pauses by itself if bytes are left.
    fn on_bytes(&mut self, raw: &mut Raw<'_, Self::State>, bytes: &mut [u8]) -> usize {
        let _ = raw;
        bytes.len()
    }

    /// Another event of a raw connection.
    fn on_raw(&mut self, raw: &mut Raw<'_, Self::State>, event: RawEvent<'_>) {
        let _ = (raw, event);
    }

    /// A [raw](Target::raw) connection could not be made.
    fn on_raw_failed(&mut self, others: &mut Others<'_, Self::State>, dial: DialId, error: &crate::ConnectError) {
        let _ = (others, dial, error);
    }

    /// The opening handshake is complete.
    fn on_open(&mut self, conn: &mut Conn<'_, Self::State>, opening: &Opening<'_>) {
        let _ = (conn, opening);
    }

    /// A whole message arrived. It is a slice of the receive buffer if it came in one piece.
    fn on_message(&mut self, conn: &mut Conn<'_, Self::State>, message: Message<'_>);

    /// A piece of a message arrived. Called instead of `on_message` if [`Config::streaming`](crate::Config::streaming) is set.
    ///
    /// A piece of text may end inside a character. All pieces together are valid UTF-8.
    fn on_chunk(&mut self, conn: &mut Conn<'_, Self::State>, chunk: Chunk<'_>) {
        let _ = (conn, chunk);
    }

    /// A pong arrived, also one without a ping.
    fn on_pong(&mut self, conn: &mut Conn<'_, Self::State>, payload: &[u8]) {
        let _ = (conn, payload);
    }

    /// A timer that [`Conn::set_timer`] has set is due.
    fn on_timer(&mut self, conn: &mut Conn<'_, Self::State>, id: u64) {
        let _ = (conn, id);
    }

    /// A timer that [`ShardContext::set_timer`] has set is due.
    fn on_shard_timer(&mut self, shard: &mut ShardContext<'_>, id: u64) {
        let _ = (shard, id);
    }

    /// The queue for a slow peer is empty again: the kernel has taken everything.
    fn on_drain(&mut self, conn: &mut Conn<'_, Self::State>) {
        let _ = conn;
    }

    /// Messages to this connection were dropped: `count` of them, since the last call. 65,535 stands for that number or more.
    ///
    /// They are those that made way for others in the queue, under [`DropOldest`](crate::SlowConsumer::DropOldest) and
    /// [`KeepLatest`](crate::SlowConsumer::KeepLatest), and those that were [`Delivery::Dropped`](crate::Delivery::Dropped),
    /// published ones included. It follows the event that dropped them. Messages that are dropped by sends within this call are
    /// reported after the connection's next event. It is not called once the connection has begun to close.
    fn on_dropped(&mut self, conn: &mut Conn<'_, Self::State>, count: u32) {
        let _ = (conn, count);
    }

    /// A message that was sent by [`Conn::send_timed`], or for [`ShardContext::send_timed`], has left, or its time is not known.
    ///
    /// Called once for each, also if its connection has ended, but not for those beyond the 1,024 that are timed at once.
    fn on_sent(&mut self, shard: &mut ShardContext<'_>, times: &SendTimes) {
        let _ = (shard, times);
    }

    /// An open connection ended. Called once for each [`on_open`](Self::on_open), and for each connection that was [opened](Raw::open)
    /// without it. Messages sent here are discarded.
    fn on_close(&mut self, conn: &mut Conn<'_, Self::State>, closed: &Closed) {
        let _ = (conn, closed);
    }

    /// Saves the state of a connection that is about to move to another process, for [`restore_state`](Self::restore_state)
    /// there. The connection goes on here if the move fails, and until all others are saved: this is called several times, and
    /// the last state counts.
    ///
    /// False, the default, if connections of this handler cannot move. They are then closed with 1012 (service restart).
    ///
    /// ```
    /// # mod tautline { pub use {tautline_engine::{Conn, Handler}, tautline_ws::Message}; }
    /// use tautline::{Conn, Handler, Message};
    ///
    /// struct Counting;
    ///
    /// impl Handler for Counting {
    ///     /// Messages so far.
    ///     type State = u64;
    ///     fn on_message(&mut self, conn: &mut Conn<'_, u64>, _: Message<'_>) {
    ///         *conn.state() += 1;
    ///     }
    ///     fn save_state(&mut self, state: &mut u64, out: &mut Vec<u8>) -> bool {
    ///         out.extend(state.to_be_bytes());
    ///         true
    ///     }
    ///     fn restore_state(&mut self, saved: &[u8]) -> Option<u64> {
    ///         saved.try_into().ok().map(u64::from_be_bytes)
    ///     }
    /// }
    /// ```
    fn save_state(&mut self, state: &mut Self::State, out: &mut Vec<u8>) -> bool {
        let _ = (state, out);
        false
    }

    /// Restores a state that [`save_state`](Self::save_state) saved, usually that of an older build. A later state of the same
    /// connection may follow, or the connection may not come after all: register it in [`on_restored`](Self::on_restored).
    ///
    /// `None` if it cannot. The connection then stays with the old process, which closes it with 1012.
    fn restore_state(&mut self, saved: &[u8]) -> Option<Self::State> {
        let _ = saved;
        None
    }

    /// The connection of this loop without which this one must not move to another process, as the two sides of a proxy. Each of
    /// both has to name the other. They move together, into one loop, or both stay.
    fn moves_with(&self, state: &Self::State) -> Option<ConnId> {
        let _ = state;
        None
    }

    /// A connection has arrived with the one that it [moves with](Self::moves_with), which has the identifier `partner` here.
    /// Called for both before [`on_restored`](Self::on_restored) of either.
    fn on_moved_with(&mut self, state: &mut Self::State, partner: ConnId) {
        let _ = (state, partner);
    }

    /// Longest message that a WebSocket which has arrived accepts, if it is not [`Limits::max_message`](crate::Limits): the
    /// application opened it by [`Terms`](crate::Terms) of its own. Called for the state that was just restored.
    fn restored_max_message(&self, state: &Self::State) -> Option<usize> {
        let _ = state;
        None
    }

    /// The target of an outgoing connection that has arrived, for further connections after its loss: a target does not go
    /// along. Asked only if the connection had a [`reconnect`](Target::reconnect). `None` if nothing is known of it: the
    /// connection then stays with the old process, which closes it.
    fn restore_target(&mut self, state: &Self::State) -> Option<Target> {
        let _ = state;
        None
    }

    /// A connection has arrived from another process, with its state, subscriptions and timers. Called instead of
    /// [`on_open`](Self::on_open). The connection has another [`ConnId`] here, and an outgoing one another
    /// [`DialId`]. For a raw one, there is [`RawEvent::Restored`] instead.
    fn on_restored(&mut self, conn: &mut Conn<'_, Self::State>) {
        let _ = conn;
    }

    /// A client is about to connect again, also after an attempt that failed. Changes of `target` are kept: a new token in a
    /// header, another URI.
    ///
    /// ```
    /// # mod tautline { pub use {tautline_engine::{Conn, DialId, Handler, Target}, tautline_ws::Message}; }
    /// use tautline::{Conn, DialId, Handler, Message, Target};
    ///
    /// struct Feed;
    ///
    /// impl Handler for Feed {
    ///     type State = ();
    ///     fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}
    ///     fn on_redial(&mut self, _: DialId, target: &mut Target) {
    ///         target.headers.insert("authorization", http::HeaderValue::from_static("Bearer fresh"));
    ///     }
    /// }
    /// ```
    fn on_redial(&mut self, dial: DialId, target: &mut Target) {
        let _ = (dial, target);
    }

    /// An attempt to connect failed. The next one follows after `retry`, or never if that is `None`.
    ///
    /// The end of an open connection is reported by [`on_close`](Self::on_close) instead.
    fn on_connect_failed(&mut self, dial: DialId, error: &crate::ConnectError, retry: Option<Duration>) {
        let _ = (dial, error, retry);
    }

    /// A client has given up a target for ever, and forgets it. Called once for each, after [`on_close`](Self::on_close) or
    /// [`on_connect_failed`](Self::on_connect_failed).
    fn on_dial_end(&mut self, dial: DialId) {
        let _ = dial;
    }
}

/// Lets a program with several handlers, none of them on a hot path, compile one loop for all of them.
impl<T: Default + 'static> Handler for Box<dyn Handler<State = T>> {
    type State = T;

    fn on_request(&mut self, request: &Request<'_>) -> Reply<T> {
        (**self).on_request(request)
    }

    fn on_raw_request(&mut self, raw: &mut Raw<'_, T>, request: &Request<'_>) -> bool {
        (**self).on_raw_request(raw, request)
    }

    fn on_bytes(&mut self, raw: &mut Raw<'_, T>, bytes: &mut [u8]) -> usize {
        (**self).on_bytes(raw, bytes)
    }

    fn on_raw(&mut self, raw: &mut Raw<'_, T>, event: RawEvent<'_>) {
        (**self).on_raw(raw, event);
    }

    fn on_raw_failed(&mut self, others: &mut Others<'_, T>, dial: DialId, error: &crate::ConnectError) {
        (**self).on_raw_failed(others, dial, error);
    }

    fn on_open(&mut self, conn: &mut Conn<'_, T>, opening: &Opening<'_>) {
        (**self).on_open(conn, opening);
    }

    fn on_message(&mut self, conn: &mut Conn<'_, T>, message: Message<'_>) {
        (**self).on_message(conn, message);
    }

    fn on_chunk(&mut self, conn: &mut Conn<'_, T>, chunk: Chunk<'_>) {
        (**self).on_chunk(conn, chunk);
    }

    fn on_pong(&mut self, conn: &mut Conn<'_, T>, payload: &[u8]) {
        (**self).on_pong(conn, payload);
    }

    fn on_start(&mut self, shard: &mut ShardContext<'_>) {
        (**self).on_start(shard);
    }

    fn on_timer(&mut self, conn: &mut Conn<'_, T>, id: u64) {
        (**self).on_timer(conn, id);
    }

    fn on_shard_timer(&mut self, shard: &mut ShardContext<'_>, id: u64) {
        (**self).on_shard_timer(shard, id);
    }

    fn on_drain(&mut self, conn: &mut Conn<'_, T>) {
        (**self).on_drain(conn);
    }

    fn on_dropped(&mut self, conn: &mut Conn<'_, T>, count: u32) {
        (**self).on_dropped(conn, count);
    }

    fn on_sent(&mut self, shard: &mut ShardContext<'_>, times: &SendTimes) {
        (**self).on_sent(shard, times);
    }

    fn on_close(&mut self, conn: &mut Conn<'_, T>, closed: &Closed) {
        (**self).on_close(conn, closed);
    }

    fn save_state(&mut self, state: &mut T, out: &mut Vec<u8>) -> bool {
        (**self).save_state(state, out)
    }

    fn restore_state(&mut self, saved: &[u8]) -> Option<T> {
        (**self).restore_state(saved)
    }

    fn moves_with(&self, state: &T) -> Option<ConnId> {
        (**self).moves_with(state)
    }

    fn on_moved_with(&mut self, state: &mut T, partner: ConnId) {
        (**self).on_moved_with(state, partner);
    }

    fn restored_max_message(&self, state: &T) -> Option<usize> {
        (**self).restored_max_message(state)
    }

    fn restore_target(&mut self, state: &T) -> Option<Target> {
        (**self).restore_target(state)
    }

    fn on_restored(&mut self, conn: &mut Conn<'_, T>) {
        (**self).on_restored(conn);
    }

    fn on_redial(&mut self, dial: DialId, target: &mut Target) {
        (**self).on_redial(dial, target);
    }

    fn on_connect_failed(&mut self, dial: DialId, error: &crate::ConnectError, retry: Option<Duration>) {
        (**self).on_connect_failed(dial, error, retry);
    }

    fn on_dial_end(&mut self, dial: DialId) {
        (**self).on_dial_end(dial);
    }
}

/// The result of an opening handshake.
///
/// ```
/// # mod tautline { pub use tautline_engine::Opening; }
/// use tautline::Opening;
///
/// fn describe(opening: &Opening<'_>) -> String {
///     let path = opening.request.map_or("", |request| request.uri().path());
///     format!("{path} as {}", opening.subprotocol.unwrap_or("anything"))
/// }
/// # assert_eq!(describe(&Opening::new(&Default::default())), " as anything");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Opening<'a> {
    /// The client's request; `None` on a client.
    pub request: Option<&'a http::Request<()>>,
    /// The server's response; `None` on a server.
    pub response: Option<&'a http::Response<()>>,
    /// The subprotocol that both sides speak.
    pub subprotocol: Option<&'a str>,
    /// Whether permessage-deflate was negotiated.
    pub deflate: bool,
    /// The negotiated TLS values. Empty without TLS.
    pub tls: &'a tautline_tls::TlsInfo,
    /// The durations of the steps until now; `None` on a server.
    pub times: Option<DialTimes>,
}

impl<'a> Opening<'a> {
    /// An opening that negotiated only `tls`, for tests of [`Handler::on_open`].
    #[must_use]
    pub const fn new(tls: &'a tautline_tls::TlsInfo) -> Self {
        Self { request: None, response: None, subprotocol: None, deflate: false, tls, times: None }
    }
}

/// A piece of a message.
///
/// ```
/// # mod tautline { pub use {tautline_engine::{Chunk, Conn, Handler}, tautline_ws::Message}; }
/// use tautline::{Chunk, Conn, Handler, Message};
///
/// /// Counts the bytes of messages of any length. `Config::streaming` must be set.
/// struct Sink;
///
/// impl Handler for Sink {
///     type State = usize;
///     fn on_message(&mut self, _: &mut Conn<'_, usize>, _: Message<'_>) {}
///     fn on_chunk(&mut self, conn: &mut Conn<'_, usize>, chunk: Chunk<'_>) {
///         let so_far = if chunk.first { 0 } else { *conn.state() };
///         *conn.state() = so_far + chunk.data.len();
///         if chunk.last {
///             println!("{} bytes", so_far + chunk.data.len());
///         }
///     }
/// }
/// ```
#[non_exhaustive]
pub struct Chunk<'a> {
    /// Text or binary.
    pub kind: Kind,
    /// The piece's bytes.
    pub data: &'a [u8],
    /// Whether the message begins with this piece.
    pub first: bool,
    /// Whether the message ends with this piece.
    pub last: bool,
}

impl fmt::Debug for Chunk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({:?}, {} B, first {}, last {})", self.kind, self.data.len(), self.first, self.last)
    }
}
