//! The handler of every loop: it calls the program's callbacks.

use super::callbacks::{Callbacks, Conn, Request};
use super::heads::{HeadView, Held, opening};
use super::lent::{Lent, lend};
use super::owner::{Loop, State};
use super::shapes::{Closed, Message};
use crate::codes::{Code, TAUT_CAUSE_CALLBACK, TAUT_FIRST, TAUT_LAST, TAUT_NEVER, TAUT_OK, TAUT_TEXT};
use core::ffi::c_void;
use core::ptr::{from_mut, from_ref};
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tautline::http::StatusCode;
use tautline::{Chunk, CloseCode, ConnectError, DialId, Handler, Kind, Opening, Reply, ShardContext, Target};

/// The callbacks, and the means to wait for the end of the loops that call them.
pub(super) struct Program {
    callbacks: Callbacks,
    running: Mutex<usize>,
    ended: Condvar,
}

// SAFETY: the interface demands callbacks that any thread may call with the user pointer.
unsafe impl Send for Program {}
// SAFETY: as above, several threads at once included.
unsafe impl Sync for Program {}

impl Program {
    pub(super) fn new(callbacks: Callbacks) -> Arc<Self> {
        Arc::new(Self { callbacks, running: Mutex::default(), ended: Condvar::new() })
    }

    /// Waits until no loop calls callbacks any more; false if the time is over first.
    pub(super) fn wait(&self, most: Option<Duration>) -> bool {
        let end = most.and_then(|most| Instant::now().checked_add(most));
        let mut running = self.running();
        while *running > 0 {
            let wait = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            if wait.is_zero() {
                return false;
            }
            // A year is as good as for ever, and no clock overflows.
            let wait = wait.min(Duration::from_secs(31_536_000));
            running = self.ended.wait_timeout(running, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn running(&self) -> MutexGuard<'_, usize> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(destroy) = self.callbacks.destroy {
            // SAFETY: the program gave a function that fits the user pointer, and this is the last use of both.
            lend(&mut Lent::Nothing, || unsafe { destroy(self.callbacks.user) });
        }
    }
}

/// A handler that calls the program.
pub(super) struct Calls {
    program: Arc<Program>,
    owner: Arc<Loop>,
    /// Keeps the count of running loops.
    _running: Running,
}

/// One loop that runs.
struct Running(Arc<Program>);

impl Drop for Running {
    fn drop(&mut self) {
        *self.0.running() -= 1;
        self.0.ended.notify_all();
    }
}

impl Calls {
    pub(super) fn new(program: Arc<Program>, owner: Arc<Loop>) -> Self {
        *program.running() += 1;
        let running = Running(program.clone());
        Self { program, owner, _running: running }
    }

    /// Calls the program about a connection. A code that is no success closes it.
    #[inline]
    fn call(&self, conn: &mut tautline::Conn<'_, State>, callback: impl FnOnce(*mut c_void, Conn) -> Code) {
        let shown = Conn { owner: Arc::as_ptr(&self.owner), id: conn.state().id };
        let mut lent = Lent::Conn { conn: shown, at: from_mut(conn).cast() };
        let code = lend(&mut lent, || callback(self.program.callbacks.user, shown));
        if code != TAUT_OK {
            self.count_failure();
            conn.state().failed = true;
            conn.close(CloseCode::INTERNAL_ERROR, "");
        }
    }

    /// Calls the program about something else. A code that is no success is counted.
    fn call_apart(&self, mut lent: Lent, callback: impl FnOnce(*mut c_void) -> Code) -> Lent {
        if lend(&mut lent, || callback(self.program.callbacks.user)) != TAUT_OK {
            self.count_failure();
        }
        lent
    }

    #[cold]
    fn count_failure(&self) {
        self.owner.failed.fetch_add(1, Ordering::Relaxed);
    }
}

const fn kind_flag(kind: Kind) -> u32 {
    if matches!(kind, Kind::Text) { TAUT_TEXT } else { 0 }
}

const fn shown(flags: u32, data: &[u8]) -> Message {
    Message { size: size_of::<Message>(), flags, data: data.as_ptr(), len: data.len(), key: 0 }
}

impl Handler for Calls {
    type State = State;

    fn on_start(&mut self, shard: &mut ShardContext<'_>) {
        // A loop starts once.
        let _ = self.owner.handle.set(shard.handle());
        if let Some(start) = self.program.callbacks.start {
            let owner = Arc::as_ptr(&self.owner);
            let lent = Lent::Loop { owner, at: from_mut(shard).cast() };
            // SAFETY: the program gave a function of this type, to be called with this pointer.
            self.call_apart(lent, |user| unsafe { start(user, owner, self.owner.number) });
        }
    }

    fn on_request(&mut self, request: &tautline::Request<'_>) -> Reply<State> {
        let default = || if request.is_upgrade { Reply::upgrade() } else { Reply::status(StatusCode::NOT_FOUND) };
        let Some(callback) = self.program.callbacks.request else { return default() };
        let head = HeadView::of_request(request.http);
        let peer = request.peer.to_string();
        let shown = Request {
            size: size_of::<Request>(),
            head: from_ref(&head.head),
            body: request.body.into(),
            peer: peer.as_str().into(),
            is_upgrade: request.is_upgrade.into(),
        };
        let shown = from_ref(&shown);
        let mut lent = Lent::Request { shown, at: from_ref(request).cast(), reply: None };
        // SAFETY: the program gave a function of this type, to be called with this pointer.
        let code = lend(&mut lent, || unsafe { callback(self.program.callbacks.user, shown) });
        if code != TAUT_OK {
            self.count_failure();
            return Reply::status(StatusCode::INTERNAL_SERVER_ERROR);
        }
        match lent {
            Lent::Request { reply: Some(reply), .. } => reply,
            _ => default(),
        }
    }

    fn on_open(&mut self, conn: &mut tautline::Conn<'_, State>, terms: &Opening<'_>) {
        let id = self.owner.slots().insert(conn.id());
        conn.state().id = id;
        if let Some(open) = self.program.callbacks.open {
            let request = terms.request.map(HeadView::of_request);
            let response = terms.response.map(HeadView::of_response);
            let heads = [request.as_ref(), response.as_ref()];
            let terms = opening(heads, terms.subprotocol.unwrap_or_default(), terms.deflate);
            // SAFETY: the program gave a function of this type, to be called with this pointer.
            self.call(conn, |user, conn| unsafe { open(user, conn, from_ref(&terms)) });
        }
    }

    fn on_message(&mut self, conn: &mut tautline::Conn<'_, State>, message: tautline::Message<'_>) {
        if let Some(callback) = self.program.callbacks.message {
            let shown = shown(kind_flag(message.kind()), message.data());
            // SAFETY: the program gave a function of this type, to be called with this pointer.
            self.call(conn, |user, conn| unsafe { callback(user, conn, from_ref(&shown)) });
        }
    }

    fn on_chunk(&mut self, conn: &mut tautline::Conn<'_, State>, chunk: Chunk<'_>) {
        if let Some(callback) = self.program.callbacks.chunk {
            let flags = if chunk.first { TAUT_FIRST } else { 0 } | if chunk.last { TAUT_LAST } else { 0 };
            let shown = shown(flags | kind_flag(chunk.kind), chunk.data);
            // SAFETY: the program gave a function of this type, to be called with this pointer.
            self.call(conn, |user, conn| unsafe { callback(user, conn, from_ref(&shown)) });
        }
    }

    fn on_pong(&mut self, conn: &mut tautline::Conn<'_, State>, payload: &[u8]) {
        if let Some(pong) = self.program.callbacks.pong {
            // SAFETY: the program gave a function of this type, to be called with this pointer.
            self.call(conn, |user, conn| unsafe { pong(user, conn, payload.as_ptr(), payload.len()) });
        }
    }

    fn on_drain(&mut self, conn: &mut tautline::Conn<'_, State>) {
        if let Some(drain) = self.program.callbacks.drain {
            // SAFETY: the program gave a function of this type, to be called with this pointer.
            self.call(conn, |user, conn| unsafe { drain(user, conn) });
        }
    }

    fn on_dropped(&mut self, conn: &mut tautline::Conn<'_, State>, count: u32) {
        if let Some(dropped) = self.program.callbacks.dropped {
            // SAFETY: the program gave a function of this type, to be called with this pointer.
            self.call(conn, |user, conn| unsafe { dropped(user, conn, count) });
        }
    }

    fn on_timer(&mut self, conn: &mut tautline::Conn<'_, State>, id: u64) {
        if let Some(timer) = self.program.callbacks.timer {
            // SAFETY: the program gave a function of this type, to be called with this pointer.
            self.call(conn, |user, conn| unsafe { timer(user, conn, id) });
        }
    }

    fn on_close(&mut self, conn: &mut tautline::Conn<'_, State>, closed: &tautline::Closed) {
        // From here on, other threads get TAUT_ERR_CLOSED.
        self.owner.slots().remove(conn.state().id);
        if let Some(close) = self.program.callbacks.close {
            let mut held = Held::<Closed>::closed(closed);
            if conn.state().failed {
                held.shape.cause = TAUT_CAUSE_CALLBACK;
            }
            // SAFETY: the program gave a function of this type, to be called with this pointer.
            self.call(conn, |user, conn| unsafe { close(user, conn, from_ref(&held.shape)) });
        }
    }

    fn on_shard_timer(&mut self, shard: &mut ShardContext<'_>, id: u64) {
        if let Some(timer) = self.program.callbacks.loop_timer {
            let owner = Arc::as_ptr(&self.owner);
            let lent = Lent::Loop { owner, at: from_mut(shard).cast() };
            // SAFETY: the program gave a function of this type, to be called with this pointer.
            self.call_apart(lent, |user| unsafe { timer(user, owner, id) });
        }
    }

    fn on_redial(&mut self, dial: DialId, target: &mut Target) {
        if let Some(redial) = self.program.callbacks.redial {
            let lent = Lent::Redial { at: from_mut(target) };
            let shown = from_mut(target).cast();
            // SAFETY: the program gave a function of this type, to be called with this pointer.
            self.call_apart(lent, |user| unsafe { redial(user, dial.index() as u64, shown) });
        }
    }

    fn on_connect_failed(&mut self, dial: DialId, error: &ConnectError, retry: Option<Duration>) {
        if let Some(failed) = self.program.callbacks.connect_failed {
            let held = Held::failed(error);
            let retry = retry.map_or(TAUT_NEVER, |wait| u64::try_from(wait.as_millis()).unwrap_or(TAUT_NEVER));
            let shown = from_ref(&held.shape);
            // SAFETY: the program gave a function of this type, to be called with this pointer.
            self.call_apart(Lent::Nothing, |user| unsafe { failed(user, dial.index() as u64, shown, retry) });
        }
    }

    fn on_dial_end(&mut self, dial: DialId) {
        self.owner.dials().remove(&(dial.index() as u64));
        if let Some(end) = self.program.callbacks.dial_end {
            // SAFETY: the program gave a function of this type, to be called with this pointer.
            self.call_apart(Lent::Nothing, |user| unsafe { end(user, dial.index() as u64) });
        }
    }
}
