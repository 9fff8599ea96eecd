//! A client on a thread of its own: it connects again, and goes on from its offsets.

use crate::error::ClientError;
use crate::session::{Event, Session, Subscribe};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tautline::{
    ClientConfig, CloseCode, Closed, Conn, ConnHandle, ConnectError, DialId, Handler, Message, Opening, Outgoing,
    Reconnect, ServerHandle, ShardContext, ShardHandleError, Target,
};

/// Events that wait for the application. Above it, the client stops reading.
const MOST_WAITING: usize = 4_096;
const RETRY: Duration = Duration::from_millis(500);
const PING_AFTER: Duration = Duration::from_secs(20);
const PONG_WITHIN: Duration = Duration::from_secs(10);

/// The source of tokens of a client.
type Tokens = Box<dyn FnMut() -> Result<String, Box<dyn std::error::Error + Send + Sync>> + Send>;

/// Options of a [`Client`].
pub struct ClientOptions {
    token: Option<Tokens>,
    ping_after: Duration,
    pong_within: Duration,
    max_unanswered: Option<usize>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { token: None, ping_after: PING_AFTER, pong_within: PONG_WITHIN, max_unanswered: None }
    }
}

impl ClientOptions {
    /// Has a function get a fresh token for each connection, and whenever the hub asks for one.
    ///
    /// It runs on the client's thread, and may wait. After an error the client connects again, and asks it again.
    #[must_use]
    pub fn token(
        mut self,
        fresh: impl FnMut() -> Result<String, Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    ) -> Self {
        self.token = Some(Box::new(fresh));
        self
    }

    /// Sets the time of silence after which the hub is asked for a message. Default: 20 s.
    #[must_use]
    pub const fn ping_after(mut self, silence: Duration) -> Self {
        self.ping_after = silence;
        self
    }

    /// Sets the time in which that message has to come, before the client connects again. Default: 10 s.
    #[must_use]
    pub const fn pong_within(mut self, longest: Duration) -> Self {
        self.pong_within = longest;
        self
    }

    /// Sets the number of messages that may wait for the hub's answer, also without a connection. Default: 128.
    #[must_use]
    pub const fn max_unanswered(mut self, most: usize) -> Self {
        self.max_unanswered = Some(most);
        self
    }
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions")
            .field("has_token", &self.token.is_some())
            .field("ping_after", &self.ping_after)
            .field("pong_within", &self.pong_within)
            .field("max_unanswered", &self.max_unanswered)
            .finish()
    }
}

/// A client of a hub. It keeps one connection, on a thread of its own, and ends when it is dropped.
pub struct Client {
    shared: Arc<Shared>,
    handle: ServerHandle,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    session: Session,
    events: VecDeque<Event>,
    conn: Option<ConnHandle>,
    is_paused: bool,
    has_ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, state: &mut State, event: Event) {
        state.events.push_back(event);
        self.news.notify_one();
    }
}

impl Client {
    /// Begins to connect. Without [`Target::reconnect`](tautline::Target), it reconnects after waits from 100 ms to 5 s.
    ///
    /// # Errors
    /// If [no attempt can use](Target::check) the target, or the loop cannot start.
    // Optimised, a loop is compiled again by each crate that starts it: so only programs with a client compile this one.
    #[cfg_attr(not(debug_assertions), inline)]
    pub fn connect(target: Target, tls: ClientConfig) -> Result<Self, tautline::Error> {
        Self::connect_with(target, tls, ClientOptions::default())
    }

    /// Begins to connect likewise, with options.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    #[cfg_attr(not(debug_assertions), inline)]
    pub fn connect_with(
        mut target: Target,
        tls: ClientConfig,
        options: ClientOptions,
    ) -> Result<Self, tautline::Error> {
        target.check()?;
        let reconnect = Reconnect::new(Duration::from_millis(100), Duration::from_secs(5));
        target.reconnect.get_or_insert(reconnect);
        let shared = Arc::<Shared>::default();
        let session = Session::new().with_arrays();
        shared.lock().session = match options.max_unanswered {
            Some(most) => session.with_max_unanswered(most),
            None => session,
        };
        let handler = Loop { shared: shared.clone(), options, heard: Instant::now(), asked: None };
        let handle = tautline::Client::new(tls).target(target).start(move |_| handler)?;
        Ok(Self { shared, handle })
    }

    /// Subscribes to a topic, now and after each reconnection.
    ///
    /// # Errors
    /// If the client has ended.
    pub fn subscribe(&self, topic: &str, subscribe: Subscribe) -> Result<(), ClientError> {
        self.running()?.session.subscribe(topic, subscribe);
        self.flush()
    }

    /// Sends a token now, and first after each reconnection: at the begin, and after [`Event::TokenWanted`](crate::Event).
    /// [`ClientOptions::token`] does that by itself.
    ///
    /// # Errors
    /// If the client has ended.
    pub fn set_token(&self, token: impl Into<String>) -> Result<(), ClientError> {
        self.running()?.session.set_token(token);
        self.flush()
    }

    /// Ends the subscription to a topic.
    ///
    /// # Errors
    /// If the client has ended.
    pub fn unsubscribe(&self, topic: &str) -> Result<(), ClientError> {
        self.running()?.session.unsubscribe(topic);
        self.flush()
    }

    /// Publishes a JSON text, like [`Session::publish`]. Returns its identifier, which an event names later.
    ///
    /// # Errors
    /// If `data` is no JSON text, too many messages have no answer, or the client has ended.
    pub fn publish(&self, topic: &str, key: Option<&str>, data: &str) -> Result<String, ClientError> {
        let id = self.running()?.session.publish(topic, key, data)?;
        self.flush()?;
        Ok(id)
    }

    /// Publishes a JSON text with an identifier of your own, like [`Session::publish_with_id`].
    ///
    /// # Errors
    /// As [`publish`](Self::publish), and if a message with this identifier has no answer yet.
    pub fn publish_with_id(&self, id: &str, topic: &str, key: Option<&str>, data: &str) -> Result<(), ClientError> {
        self.running()?.session.publish_with_id(id, topic, key, data)?;
        self.flush()
    }

    /// Publishes a JSON text at most once: nothing repeats or answers it.
    ///
    /// # Errors
    /// If `data` is no JSON text, there is no connection, or the client has ended.
    pub fn publish_once(&self, topic: &str, key: Option<&str>, data: &str) -> Result<(), ClientError> {
        self.running()?.session.publish_once(topic, key, data)?;
        self.flush()
    }

    /// The last offset of a topic with history, and its epoch: what [`Subscribe::after`] takes in a later life of the program.
    #[must_use]
    pub fn position(&self, topic: &str) -> Option<(u64, Option<String>)> {
        let state = self.shared.lock();
        state.session.position(topic).map(|(offset, epoch)| (offset, epoch.map(str::to_owned)))
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// If the client has ended.
    pub fn next(&self) -> Result<Event, ClientError> {
        self.next_within(Duration::MAX)
    }

    /// Waits for the next event, at most for `longest`.
    ///
    /// # Errors
    /// If none came, or the client has ended.
    pub fn next_within(&self, longest: Duration) -> Result<Event, ClientError> {
        let end = Instant::now().checked_add(longest);
        let mut state = self.shared.lock();
        loop {
            if let Some(event) = state.events.pop_front() {
                if state.is_paused && state.events.len() <= MOST_WAITING / 2 {
                    state.is_paused = false;
                    if let Some(conn) = &state.conn {
                        // If the connection has ended, there is nothing to resume.
                        let _ = conn.with_conn(|_: &mut Loop, conn| conn.pause(false));
                    }
                }
                return Ok(event);
            }
            if state.has_ended {
                return Err(ClientError::Ended);
            }
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Err(ClientError::Timeout);
            }
            let waited = self.shared.news.wait_timeout(state, left.min(Duration::from_secs(3600)));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The state of a client that has not ended.
    fn running(&self) -> Result<MutexGuard<'_, State>, ClientError> {
        let state = self.shared.lock();
        if state.has_ended { Err(ClientError::Ended) } else { Ok(state) }
    }

    /// Has the loop send the session's frames.
    fn flush(&self) -> Result<(), ClientError> {
        let conn = self.shared.lock().conn.clone();
        let Some(conn) = conn else { return Ok(()) };
        match conn.with_conn(|client: &mut Loop, conn| client.send(conn)) {
            // The next connection begins with all of them.
            Ok(()) | Err(ShardHandleError::Ended) => Ok(()),
            Err(ShardHandleError::Stopped) => Err(ClientError::Ended),
            Err(_) => Err(ClientError::Busy),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.handle.drain(CloseCode::NORMAL, "", Duration::from_secs(1));
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

/// The client's part in its loop.
struct Loop {
    shared: Arc<Shared>,
    options: ClientOptions,
    /// The time of the hub's last message, and that at which it was asked for one since.
    heard: Instant,
    asked: Option<Instant>,
}

impl Loop {
    fn send(&self, conn: &mut Conn<'_, ()>) {
        let mut state = self.shared.lock();
        while let Some(frame) = state.session.next_frame() {
            conn.send(Outgoing::text(&frame));
        }
    }

    fn hear(&mut self) {
        (self.heard, self.asked) = (Instant::now(), None);
    }

    /// Gives the session a fresh token, if there is a function for it. False if that failed.
    fn renew_token(&mut self) -> bool {
        match self.options.token.as_mut().map(|fresh| fresh()) {
            Some(Ok(token)) => self.shared.lock().session.set_token(token),
            Some(Err(error)) => {
                log::warn!("the client of a hub gets no token: {error}");
                return false;
            }
            None => {}
        }
        true
    }

    /// Asks a silent hub for a message, and gives up a connection on which none comes: one whose network is gone can stay open
    /// for many minutes.
    fn watch(&mut self, conn: &mut Conn<'_, ()>) {
        if self.shared.lock().is_paused {
            // Messages wait in the socket.
            return self.hear();
        }
        match self.asked {
            Some(asked) if asked.elapsed() >= self.options.pong_within => {
                log::debug!("the hub has not answered a ping in {:?}", self.options.pong_within);
                conn.reconnect();
            }
            None if self.heard.elapsed() >= self.options.ping_after => {
                self.asked = Some(Instant::now());
                self.shared.lock().session.ping();
            }
            _ => {}
        }
    }
}

impl Handler for Loop {
    type State = ();

    fn on_start(&mut self, shard: &mut ShardContext<'_>) {
        shard.set_timer(RETRY, 0);
    }

    fn on_shard_timer(&mut self, shard: &mut ShardContext<'_>, id: u64) {
        let mut state = self.shared.lock();
        state.session.retry();
        let conn = state.conn.clone();
        drop(state);
        let act = |client: &mut Self, conn: &mut Conn<'_, ()>| {
            client.watch(conn);
            client.send(conn);
        };
        // A connection that has ended has nothing to repeat.
        let _ = conn.map(|conn| conn.with_conn(act));
        shard.set_timer(RETRY, id);
    }

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
        if !self.renew_token() {
            return conn.reconnect();
        }
        self.hear();
        let mut state = self.shared.lock();
        state.conn = Some(conn.handle());
        state.session.opened();
        self.shared.push(&mut state, Event::Connected);
        if state.is_paused {
            conn.pause(true);
        }
        drop(state);
        self.send(conn);
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        self.hear();
        let mut state = self.shared.lock();
        let mut wants_token = false;
        for event in message.text().map(|text| state.session.received_all(text)).unwrap_or_default() {
            if matches!(event, Event::TokenWanted(_)) && self.options.token.is_some() {
                wants_token = true;
            } else {
                self.shared.push(&mut state, event);
            }
        }
        if state.events.len() > MOST_WAITING && !state.is_paused {
            state.is_paused = true;
            conn.pause(true);
        }
        drop(state);
        if wants_token {
            // Without one the hub closes the connection, and the next one has another try.
            self.renew_token();
        }
        self.send(conn);
    }

    fn on_close(&mut self, _: &mut Conn<'_, ()>, closed: &Closed) {
        let mut state = self.shared.lock();
        state.conn = None;
        state.session.closed();
        let (code, reason) = (closed.code.get(), format!("{:#}", closed.cause));
        self.shared.push(&mut state, Event::Disconnected(code, reason));
        if self.options.token.is_none() && [4001, 4004].contains(&code) {
            self.shared.push(&mut state, Event::TokenWanted(0));
        }
    }

    fn on_connect_failed(&mut self, _: DialId, error: &ConnectError, retry: Option<Duration>) {
        match retry {
            Some(_) => log::debug!("the hub was not reached: {error:#}"),
            None => log::warn!("the hub was not reached, and is given up: {error:#}"),
        }
    }

    fn on_dial_end(&mut self, _: DialId) {
        self.shared.lock().has_ended = true;
        self.shared.news.notify_all();
    }
}
