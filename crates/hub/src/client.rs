//! A client on a thread of its own: it connects again, and goes on from its offsets.

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

/// The reason why a client did not do what it was asked for.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The client has ended.
    Ended,
    /// No event came within the time.
    Timeout,
    /// The data is no JSON text.
    NotJson,
    /// Too many messages have no answer yet, or too much waits for the client's loop.
    Busy,
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "the client has ended",
            Self::Timeout => "no event came within the time",
            Self::NotJson => "the data is no JSON text",
            Self::Busy => "too many messages wait for an answer",
        })
    }
}

impl std::error::Error for ClientError {}

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
    pub fn connect(mut target: Target, tls: ClientConfig) -> Result<Self, tautline::Error> {
        target.check()?;
        let reconnect = Reconnect::new(Duration::from_millis(100), Duration::from_secs(5));
        target.reconnect.get_or_insert(reconnect);
        let shared = Arc::<Shared>::default();
        let handler = Loop { shared: shared.clone() };
        let handle = tautline::Client::new(tls).target(target).start(move |_| handler)?;
        Ok(Self { shared, handle })
    }

    /// Subscribes to a topic, now and after each reconnection.
    ///
    /// # Errors
    /// If the client has ended.
    pub fn subscribe(&self, topic: &str, subscribe: Subscribe) -> Result<(), ClientError> {
        self.shared.lock().session.subscribe(topic, subscribe);
        self.flush()
    }

    /// Sends a token now, and first after each reconnection: at the begin, and after [`Event::TokenWanted`](crate::Event).
    ///
    /// # Errors
    /// If the client has ended.
    pub fn set_token(&self, token: impl Into<String>) -> Result<(), ClientError> {
        self.shared.lock().session.set_token(token);
        self.flush()
    }

    /// Ends the subscription to a topic.
    ///
    /// # Errors
    /// If the client has ended.
    pub fn unsubscribe(&self, topic: &str) -> Result<(), ClientError> {
        self.shared.lock().session.unsubscribe(topic);
        self.flush()
    }

    /// Publishes a JSON text, like [`Session::publish_surely`]. Returns its identifier, which an event names later.
    ///
    /// # Errors
    /// If `data` is no JSON text, too many messages have no answer, or the client has ended.
    pub fn publish(&self, topic: &str, key: Option<&str>, data: &str) -> Result<String, ClientError> {
        let mut state = self.shared.lock();
        let unanswered = state.session.unanswered();
        let id = state.session.publish_surely(topic, key, data);
        drop(state);
        let id = id.ok_or(if unanswered > 0 { ClientError::Busy } else { ClientError::NotJson })?;
        self.flush()?;
        Ok(id)
    }

    /// Publishes a JSON text at most once: nothing repeats or answers it. Without a connection it is lost.
    ///
    /// # Errors
    /// If `data` is no JSON text, or the client has ended.
    pub fn publish_once(&self, topic: &str, key: Option<&str>, data: &str) -> Result<(), ClientError> {
        let mut state = self.shared.lock();
        let is_sent = state.session.publish(topic, key, data);
        let is_connected = state.conn.is_some();
        drop(state);
        if !is_sent && is_connected {
            return Err(ClientError::NotJson);
        }
        self.flush()
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
}

impl Loop {
    fn send(&self, conn: &mut Conn<'_, ()>) {
        let mut state = self.shared.lock();
        while let Some(frame) = state.session.next_frame() {
            conn.send(Outgoing::text(&frame));
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
        // A connection that has ended has nothing to repeat.
        let _ = conn.map(|conn| conn.with_conn(|client: &mut Self, conn| client.send(conn)));
        shard.set_timer(RETRY, id);
    }

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
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
        let mut state = self.shared.lock();
        let event = message.text().and_then(|text| state.session.received(text));
        if let Some(event) = event {
            self.shared.push(&mut state, event);
            if state.events.len() > MOST_WAITING && !state.is_paused {
                state.is_paused = true;
                conn.pause(true);
            }
        }
        drop(state);
        self.send(conn);
    }

    fn on_close(&mut self, _: &mut Conn<'_, ()>, closed: &Closed) {
        let mut state = self.shared.lock();
        state.conn = None;
        state.session.closed();
        let reason = format!("{:#}", closed.cause);
        self.shared.push(&mut state, Event::Disconnected(reason));
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
