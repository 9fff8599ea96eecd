//! An application that calls a test's closures, and records its events.

use super::PATIENCE;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tautline::{
    Chunk, Closed, Conn, ConnId, ConnectError, DialId, Handler, Message, Opening, Outgoing, Reply, Request,
};

/// A recorded event of an application.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Open(ConnId, Seen),
    Pong(Vec<u8>),
    Drain(ConnId),
    Dropped(u32),
    Close(ConnId, Closed),
    Failed(DialId, String, Option<Duration>),
    /// The status and the body of a server's refusal.
    Refused(u16, String),
    DialEnd(DialId),
    /// A text that the test's own code recorded.
    Note(String),
}

/// The values of an opening.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) subprotocol: Option<String>,
    pub(crate) deflate: bool,
    pub(crate) tls: tautline::TlsInfo,
    pub(crate) path: Option<String>,
    pub(crate) response: Option<Vec<(String, String)>>,
}

/// Events of all loops of one server or client, in the order in which they were recorded.
#[derive(Clone, Default)]
pub(crate) struct Events(Arc<(Mutex<Vec<Event>>, Condvar)>);

impl Events {
    pub(crate) fn push(&self, event: Event) {
        self.0.0.lock().unwrap().push(event);
        self.0.1.notify_all();
    }

    pub(crate) fn note(&self, note: impl Into<String>) {
        self.push(Event::Note(note.into()));
    }

    pub(crate) fn all(&self) -> Vec<Event> {
        self.0.0.lock().unwrap().clone()
    }

    /// Waits until `find` returns a value for the events so far.
    pub(crate) fn wait<R>(&self, what: &str, find: impl Fn(&[Event]) -> Option<R>) -> R {
        let end = Instant::now() + PATIENCE;
        let mut events = self.0.0.lock().unwrap();
        loop {
            if let Some(found) = find(&events) {
                return found;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "timed out: {what}; got {events:?}");
            events = self.0.1.wait_timeout(events, left).unwrap().0;
        }
    }

    /// Waits for the `n`th event (from 0) for which `find` returns a value.
    pub(crate) fn nth<R>(&self, what: &str, n: usize, find: impl Fn(&Event) -> Option<R>) -> R {
        self.wait(what, |events| events.iter().filter_map(&find).nth(n))
    }

    /// Waits for the `n`th opening.
    pub(crate) fn open(&self, n: usize) -> (ConnId, Seen) {
        self.nth("an opening", n, |event| match event {
            Event::Open(conn, seen) => Some((*conn, seen.clone())),
            _ => None,
        })
    }

    /// Waits for the end of a connection.
    pub(crate) fn close(&self, conn: ConnId) -> Closed {
        self.nth("an end", 0, |event| match event {
            Event::Close(closed, how) if *closed == conn => Some(how.clone()),
            _ => None,
        })
    }

    /// Waits for the `n`th failure to connect, and returns its message and the wait before the next attempt.
    pub(crate) fn failure(&self, n: usize) -> (String, Option<Duration>) {
        self.nth("a failure", n, |event| match event {
            Event::Failed(_, error, retry) => Some((error.clone(), *retry)),
            _ => None,
        })
    }

    /// Waits for the end of a dial, and returns the number of its failures.
    pub(crate) fn dial_end(&self, dial: DialId) -> usize {
        self.nth("the end of a dial", 0, |event| {
            matches!(event, Event::DialEnd(ended) if *ended == dial).then_some(())
        });
        self.all().iter().filter(|event| matches!(event, Event::Failed(failed, ..) if *failed == dial)).count()
    }

    /// Waits for the `n`th note.
    pub(crate) fn noted(&self, n: usize) -> String {
        self.nth("a note", n, |event| match event {
            Event::Note(note) => Some(note.clone()),
            _ => None,
        })
    }

    /// The number of recorded ends of `conn`.
    pub(crate) fn closes(&self, conn: ConnId) -> usize {
        self.all().iter().filter(|event| matches!(event, Event::Close(closed, _) if *closed == conn)).count()
    }
}

type Open = dyn Fn(&Events, &mut Conn<'_, u64>) + Send + Sync;
type OnMessage = dyn Fn(&Events, &mut Conn<'_, u64>, Message<'_>) + Send + Sync;
type OnChunk = dyn Fn(&Events, &mut Conn<'_, u64>, Chunk<'_>) + Send + Sync;
type OnRequest = dyn Fn(&Request<'_>) -> Reply<u64> + Send + Sync;

/// An application that echoes, unless a test sets other closures.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) events: Events,
    open: Arc<Open>,
    message: Arc<OnMessage>,
    chunk: Arc<OnChunk>,
    drain: Arc<Open>,
    dropped: Arc<Open>,
    request: Option<Arc<OnRequest>>,
}

impl Default for App {
    fn default() -> Self {
        Self {
            events: Events::default(),
            open: Arc::new(|_, _| {}),
            message: Arc::new(|_, conn, message| {
                conn.send(Outgoing::from(&message));
            }),
            chunk: Arc::new(|_, _, _| {}),
            drain: Arc::new(|_, _| {}),
            dropped: Arc::new(|_, _| {}),
            request: None,
        }
    }
}

impl App {
    pub(crate) fn on_open(mut self, act: impl Fn(&Events, &mut Conn<'_, u64>) + Send + Sync + 'static) -> Self {
        self.open = Arc::new(act);
        self
    }

    /// Sends `text` on every new connection.
    pub(crate) fn greets(self, text: &'static str) -> Self {
        self.on_open(move |_, conn| {
            conn.text(text);
        })
    }

    pub(crate) fn on_message(
        mut self,
        act: impl Fn(&Events, &mut Conn<'_, u64>, Message<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.message = Arc::new(act);
        self
    }

    pub(crate) fn on_chunk(
        mut self,
        act: impl Fn(&Events, &mut Conn<'_, u64>, Chunk<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.chunk = Arc::new(act);
        self
    }

    pub(crate) fn on_drain(mut self, act: impl Fn(&Events, &mut Conn<'_, u64>) + Send + Sync + 'static) -> Self {
        self.drain = Arc::new(act);
        self
    }

    pub(crate) fn on_dropped(mut self, act: impl Fn(&Events, &mut Conn<'_, u64>) + Send + Sync + 'static) -> Self {
        self.dropped = Arc::new(act);
        self
    }

    pub(crate) fn on_request(mut self, act: impl Fn(&Request<'_>) -> Reply<u64> + Send + Sync + 'static) -> Self {
        self.request = Some(Arc::new(act));
        self
    }
}

impl Handler for App {
    type State = u64;

    fn on_request(&mut self, request: &Request<'_>) -> Reply<u64> {
        match &self.request {
            Some(request_of_test) => request_of_test(request),
            None if request.is_upgrade => Reply::upgrade(),
            None => Reply::status(http::StatusCode::NOT_FOUND),
        }
    }

    fn on_open(&mut self, conn: &mut Conn<'_, u64>, opening: &Opening<'_>) {
        let headers = |response: &http::Response<()>| {
            let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
            response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect()
        };
        let seen = Seen {
            subprotocol: opening.subprotocol.map(str::to_owned),
            deflate: opening.deflate,
            tls: opening.tls.clone(),
            path: opening.request.map(|request| request.uri().to_string()),
            response: opening.response.map(headers),
        };
        assert_eq!(conn.subprotocol(), opening.subprotocol);
        self.events.push(Event::Open(conn.id(), seen));
        (self.open)(&self.events, conn);
    }

    fn on_message(&mut self, conn: &mut Conn<'_, u64>, message: Message<'_>) {
        (self.message)(&self.events, conn, message);
    }

    fn on_chunk(&mut self, conn: &mut Conn<'_, u64>, chunk: Chunk<'_>) {
        (self.chunk)(&self.events, conn, chunk);
    }

    fn on_pong(&mut self, _conn: &mut Conn<'_, u64>, payload: &[u8]) {
        self.events.push(Event::Pong(payload.to_vec()));
    }

    fn on_drain(&mut self, conn: &mut Conn<'_, u64>) {
        self.events.push(Event::Drain(conn.id()));
        (self.drain)(&self.events, conn);
    }

    fn on_dropped(&mut self, conn: &mut Conn<'_, u64>, count: u32) {
        self.events.push(Event::Dropped(count));
        (self.dropped)(&self.events, conn);
    }

    fn on_close(&mut self, conn: &mut Conn<'_, u64>, closed: &Closed) {
        self.events.push(Event::Close(conn.id(), closed.clone()));
    }

    fn on_connect_failed(&mut self, dial: DialId, error: &ConnectError, retry: Option<Duration>) {
        self.events.push(Event::Failed(dial, format!("{error:#}"), retry));
        if let Some(response) = error.refusal() {
            let body = String::from_utf8_lossy(response.body()).into_owned();
            self.events.push(Event::Refused(response.status().as_u16(), body));
        }
    }

    fn on_dial_end(&mut self, dial: DialId) {
        self.events.push(Event::DialEnd(dial));
    }
}
