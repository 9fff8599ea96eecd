use crate::crossing::{Inbox, LARGE, Marks, News, Outbox, Peer, Shared};
use crate::ended::Ended;
use crate::failure::Failure;
use crate::head::Head;
use crate::keepalive::{Keepalive, TIMED_OUT};
use crate::request::{Question, upgrade_of};
use crate::windows::{Window, Windows};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tautline::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use tautline::{Closed, Conn, ConnectError, DialId, Handler, Message, Opening, Reply, Request, TlsInfo};

/// The handler of every loop: it hands events over to Python.
pub(crate) struct Relay {
    role: Role,
    keepalive: Option<Keepalive>,
    /// Inboxes that got their first event in this turn.
    unwoken: Vec<Arc<Inbox>>,
}

pub(crate) enum Role {
    Server(ServerSide),
    Client(HashMap<DialId, (Arc<Shared>, Option<Window>)>),
}

/// The side of a server.
pub(crate) struct ServerSide {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) queue: Marks,
    pub(crate) windows: Arc<Windows>,
    /// Whether Python decides about requests.
    pub(crate) asks: bool,
    /// Headers of each answer to an upgrade.
    pub(crate) headers: HeaderMap,
    /// Whether the server is about to close.
    pub(crate) refuses: Arc<AtomicBool>,
}

/// An opening handshake that is complete.
pub(crate) struct Opened {
    pub(crate) shared: Arc<Shared>,
    pub(crate) request: Option<Head>,
    pub(crate) response: Option<Head>,
    pub(crate) subprotocol: Option<String>,
    pub(crate) deflate: bool,
    pub(crate) tls: TlsInfo,
    pub(crate) peer: String,
    /// The peer of the socket.
    pub(crate) direct: String,
}

impl Relay {
    pub(crate) const fn new(role: Role, keepalive: Option<Keepalive>) -> Self {
        Self { role, keepalive, unwoken: Vec::new() }
    }

    /// Wakes every event loop that has events of this turn.
    pub(crate) fn wake(&mut self) {
        for inbox in self.unwoken.drain(..) {
            inbox.wake();
        }
    }

    /// Wakes nobody: the caller that turned the loop takes the events now.
    pub(crate) fn skip_wake(&mut self) {
        self.unwoken.clear();
    }

    /// An attempt to connect has begun.
    pub(crate) fn dialing(&mut self, dial: DialId, shared: Arc<Shared>, window: Option<Window>) {
        if let Role::Client(dials) = &mut self.role {
            dials.insert(dial, (shared, window));
        }
    }

    /// Notes what waits for a connection's peer, and reports room if Python waits for it.
    pub(crate) fn look(&mut self, conn: &mut Conn<'_, Peer>) {
        let buffered = conn.buffered();
        let Peer { shared: Some(shared), room_below, .. } = conn.state() else { return };
        shared.buffered.store(buffered, Ordering::Relaxed);
        if room_below.is_some_and(|low| buffered <= low) {
            *room_below = None;
            tell(&mut self.unwoken, shared, News::Room, &[]);
        }
    }

    /// Python waits until at most `low` bytes wait for the peer.
    pub(crate) fn wants_room(&mut self, conn: &mut Conn<'_, Peer>, low: usize) {
        conn.state().room_below = Some(low);
        self.look(conn);
        if conn.state().room_below.is_some() {
            conn.notify_drain();
        }
    }

    /// The loop of a server has ended.
    pub(crate) fn stopped(&mut self) {
        if let Role::Server(side) = &self.role {
            side.inbox.push(0, News::Stopped, &[]);
            side.inbox.wake();
        }
        self.wake();
    }
}

/// Appends an event, and notes that its inbox must be woken.
fn tell(unwoken: &mut Vec<Arc<Inbox>>, shared: &Shared, news: News, payload: &[u8]) {
    if shared.inbox.push(shared.key, news, payload) {
        unwoken.push(shared.inbox.clone());
    }
}

impl Handler for Relay {
    type State = Peer;

    fn on_request(&mut self, request: &Request<'_>) -> Reply<Peer> {
        let Role::Server(side) = &self.role else { return Reply::status(StatusCode::NOT_FOUND) };
        if side.refuses.load(Ordering::Relaxed) {
            return Reply::status(StatusCode::SERVICE_UNAVAILABLE);
        }
        if side.asks {
            let shared = Shared::new(side.inbox.clone(), side.outbox.clone(), side.queue);
            let (unwoken, windows) = (&mut self.unwoken, side.windows.clone());
            return request.later(|ticket| {
                let question = Question::new(request, shared.clone(), windows, ticket);
                tell(unwoken, &shared, News::Request(Box::new(question)), &[]);
            });
        }
        if request.is_upgrade {
            let mut upgrade = upgrade_of(None, &side.windows);
            upgrade.headers = side.headers.clone();
            return upgrade.into();
        }
        Reply::Respond(upgrade_required())
    }

    fn on_open(&mut self, conn: &mut Conn<'_, Peer>, opening: &Opening<'_>) {
        if conn.state().shared.is_none() {
            let dial = conn.dial();
            let state = conn.state();
            match &mut self.role {
                Role::Server(side) => {
                    state.shared = Some(Shared::new(side.inbox.clone(), side.outbox.clone(), side.queue));
                }
                Role::Client(dials) => {
                    if let Some((shared, window)) = dial.and_then(|dial| dials.remove(&dial)) {
                        (state.shared, state.window) = (Some(shared), window);
                    }
                }
            }
        }
        if !opening.deflate {
            conn.state().window = None;
        }
        let (id, peer, direct) = (conn.id(), conn.peer().to_string(), conn.direct_peer().to_string());
        let Some(shared) = conn.state().shared.clone() else { return };
        // A connection opens once.
        let _ = shared.id.set(id);
        let opened = Opened {
            shared: shared.clone(),
            request: opening.request.map(Head::of_request),
            response: opening.response.map(Head::of_response),
            subprotocol: opening.subprotocol.map(str::to_owned),
            deflate: opening.deflate,
            tls: opening.tls.clone(),
            peer,
            direct,
        };
        tell(&mut self.unwoken, &shared, News::Open(Box::new(opened)), &[]);
        if let Some(keepalive) = &self.keepalive {
            keepalive.begin(conn);
        }
    }

    fn on_message(&mut self, conn: &mut Conn<'_, Peer>, message: Message<'_>) {
        let Some(shared) = &conn.state().shared else { return };
        let pause = shared.add_waiting();
        let (kind, data) = (message.kind(), message.data());
        let whole = (data.len() >= LARGE && shared.outbox.is_local())
            // The thread of an event loop turns this loop, and it has the interpreter.
            .then(|| Python::try_attach(|py| News::Whole(PyBytes::new(py, data).unbind(), kind)))
            .flatten();
        match whole {
            Some(whole) => tell(&mut self.unwoken, shared, whole, &[]),
            None => tell(&mut self.unwoken, shared, News::Message { kind, len: data.len() }, data),
        }
        if pause {
            conn.pause(true);
        }
    }

    fn on_pong(&mut self, conn: &mut Conn<'_, Peer>, payload: &[u8]) {
        let latency = self.keepalive.as_ref().and_then(|keepalive| keepalive.answered(conn, payload));
        let Some(shared) = &conn.state().shared else { return };
        match latency {
            Some(latency) => tell(&mut self.unwoken, shared, News::Latency(latency.as_secs_f64()), &[]),
            None => tell(&mut self.unwoken, shared, News::Pong { len: payload.len() }, payload),
        }
    }

    fn on_timer(&mut self, conn: &mut Conn<'_, Peer>, _: u64) {
        if let Some(keepalive) = &self.keepalive {
            keepalive.due(conn);
        }
    }

    fn on_drain(&mut self, conn: &mut Conn<'_, Peer>) {
        self.look(conn);
    }

    fn on_close(&mut self, conn: &mut Conn<'_, Peer>, closed: &Closed) {
        conn.state().window = None;
        if let Some(shared) = conn.state().shared.take() {
            let mut ended = Ended::from(closed);
            if conn.state().timed_out && !ended.received_first {
                let (code, reason) = TIMED_OUT;
                ended.sent = Some((code, reason.to_owned()));
            }
            tell(&mut self.unwoken, &shared, News::Closed(Box::new(ended)), &[]);
        }
    }

    fn on_connect_failed(&mut self, dial: DialId, error: &ConnectError, _: Option<Duration>) {
        let Role::Client(dials) = &mut self.role else { return };
        if let Some((shared, _)) = dials.remove(&dial) {
            tell(&mut self.unwoken, &shared, News::Failed(Box::new(Failure::from(error))), &[]);
        }
    }
}

/// The answer to a request that is no upgrade.
fn upgrade_required() -> Response<Vec<u8>> {
    let text = "Failed to open a WebSocket connection: missing Upgrade header.\n\n\
                You cannot access a WebSocket server directly with a browser. You need a WebSocket client.\n";
    let mut response = Response::new(text.as_bytes().to_vec());
    *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
    for (name, value) in [
        (header::UPGRADE, "websocket"),
        (header::CONNECTION, "close"),
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
