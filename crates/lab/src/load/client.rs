use super::errors::Errors;
use super::progress::{Progress, Watch};
use super::resolve::resolved;
use super::server::{PATIENCE, Server, not_connected};
use crate::Error;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::layers::engine::probe::{Probe, Stages};
use tautline::{
    Cause, CloseCode, Closed, Config, Conn, ConnId, ConnectError, Delivery, DialId, Handler, Message, Opening,
    Outgoing, Target,
};
use tautline_measure::turned::Turned;

/// Longest wait for events, which bounds how late a phase ends.
pub(super) const WAIT: Duration = Duration::from_millis(20);

/// Connections being opened at a time: enough to keep the server busy, and too few to overflow a listen queue.
const AT_ONCE: usize = 256;

/// Called with every message. An error of it ends the run.
pub(super) type OnMessage = Box<dyn FnMut(&mut Conn<'_, ()>, &Message<'_>) -> Result<(), Error>>;

/// A client whose connections are opened at the start and last until the end of the run.
pub(super) struct Client {
    shard: Turned,
    target: Arc<Target>,
    state: Rc<RefCell<State>>,
}

/// State that the client shares with its handler.
#[derive(Default)]
struct State {
    open: Vec<ConnId>,
    error: Option<Error>,
    /// Whether the run has ended, so that connections may end.
    is_ending: bool,
    /// Connections that the server has closed since then because it goes away.
    closed: usize,
    /// Connections that resumed a session.
    resumed: usize,
    /// The errors so far, if the run goes on in spite of them.
    errors: Option<Errors>,
    /// Connections that did not open, and those that ended, while the run goes on.
    failed: usize,
    ended: Vec<usize>,
    ended_in_all: usize,
    /// Whether connections that open now are too late: they were counted as errors.
    is_late: bool,
    /// The first failure to connect, while errors are counted.
    first_failure: Option<Error>,
}

impl State {
    /// Keeps the first error; later ones are often only its consequences. A run that goes on counts it.
    fn fail(&mut self, error: Error) {
        match &mut self.errors {
            Some(errors) => errors.add_error(&error),
            None => _ = self.error.get_or_insert(error),
        }
    }

    /// Waits no longer for connections to open. Without any open one the run fails.
    fn give_up(&mut self, missing: usize, what: String) -> Result<(), Error> {
        let Some(errors) = self.errors.as_mut().filter(|_| !self.open.is_empty()) else {
            return Err(Error::Network(what));
        };
        errors.add("not opened", missing as u64, || what);
        self.failed += missing;
        self.is_late = true;
        Ok(())
    }
}

impl Client {
    /// A client without connections.
    pub(super) fn new(
        server: &Server,
        config: Config,
        probe: Option<Box<dyn Probe>>,
        on_message: OnMessage,
    ) -> Result<Self, Error> {
        let target = Arc::new(resolved(server)?);
        let state = Rc::new(RefCell::new(State::default()));
        let app = Box::new(Held { state: Rc::clone(&state), on_message });
        let shard = server.make_loop(&server.tls, config, app, probe)?;
        Ok(Self { shard, target, state })
    }

    /// Opens further connections to this server.
    pub(super) fn aim(&mut self, server: &Server) -> Result<(), Error> {
        self.target = Arc::new(resolved(server)?);
        Ok(())
    }

    /// Counts errors of connections and messages from now on. Without this the first one ends the run.
    pub(super) fn count_errors(&self) {
        self.state.borrow_mut().errors = Some(Errors::default());
    }

    /// Whether errors are counted.
    pub(super) fn counts_errors(&self) -> bool {
        self.state.borrow().errors.is_some()
    }

    /// Counts an error of a kind that only the run knows.
    pub(super) fn add_error(&self, kind: &str, count: u64, text: impl FnOnce() -> String) {
        if let Some(errors) = &mut self.state.borrow_mut().errors {
            errors.add(kind, count, text);
        }
    }

    /// The errors so far, and none from then on.
    pub(super) fn take_errors(&self) -> Errors {
        self.state.borrow_mut().errors.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether no connection is left, while errors are counted.
    pub(super) fn is_deserted(&self) -> bool {
        let state = self.state.borrow();
        state.errors.is_some() && state.ended_in_all >= state.open.len()
    }

    /// Fails if no connection has opened at all.
    pub(super) fn check_any_open(&self) -> Result<(), Error> {
        let mut state = self.state.borrow_mut();
        match state.first_failure.take().filter(|_| state.open.is_empty()) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Number of connections that have opened, without those that have ended while errors were counted.
    pub(super) fn held(&self) -> usize {
        let state = self.state.borrow();
        state.open.len().saturating_sub(state.ended_in_all)
    }

    /// The numbers of connections that have ended since the last call, while errors are counted.
    pub(super) fn take_ended(&self) -> Vec<usize> {
        std::mem::take(&mut self.state.borrow_mut().ended)
    }

    /// Opens connections until there are `count`, evenly over this time.
    pub(super) fn ramp(&mut self, count: usize, time: Duration, watch: Watch<'_>) -> Result<(), Error> {
        if time.is_zero() {
            return self.open(count, watch);
        }
        let began = Instant::now();
        loop {
            let due = count as u128 * began.elapsed().as_nanos() / time.as_nanos();
            let due = usize::try_from(due).unwrap_or(count).clamp(1, count);
            self.open(due, watch)?;
            if due == count {
                return Ok(());
            }
            self.turn(WAIT)?;
        }
    }

    /// Opens connections until there are `count`.
    pub(super) fn open(&mut self, count: usize, watch: Watch<'_>) -> Result<(), Error> {
        self.open_some(count, AT_ONCE, PATIENCE, watch)
    }

    /// Opens connections until there are `count`, `at_once` at a time, and fails if none opens for `patience`.
    pub(super) fn open_some(
        &mut self,
        count: usize,
        at_once: usize,
        patience: Duration,
        watch: Watch<'_>,
    ) -> Result<(), Error> {
        let mut started = self.tried();
        let mut last = (started, Instant::now());
        loop {
            let open = self.tried();
            self.check()?;
            if open > last.0 {
                last = (open, Instant::now());
                watch(Progress::Connecting(open, count));
            }
            if open >= count {
                return Ok(());
            }
            if last.1.elapsed() > patience {
                let patience = patience.as_secs();
                let what = format!("{open} of {count} connections opened, then none for {patience} s");
                return self.state.borrow_mut().give_up(count - open, what);
            }
            while started < count && started < open + at_once {
                self.shard.connect(Arc::clone(&self.target));
                started += 1;
            }
            self.shard.turn(WAIT)?;
        }
    }

    /// Number of connections that have opened or failed.
    fn tried(&self) -> usize {
        let state = self.state.borrow();
        state.open.len() + state.failed
    }

    /// Calls `act` with a connection, unless it has ended.
    pub(super) fn with_conn(
        &mut self,
        conn: ConnId,
        mut act: impl FnMut(&mut Conn<'_, ()>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        self.shard.with_conn(conn, &mut |conn| result = act(conn));
        result
    }

    /// Number of connections that were opened.
    pub(super) fn connections(&self) -> usize {
        self.state.borrow().open.len()
    }

    /// Calls `act` with a connection, by its place in the order of opening. It sends at the next turn or [`flush`].
    ///
    /// [`flush`]: Self::flush
    pub(super) fn with(
        &mut self,
        connection: usize,
        mut act: impl FnMut(&mut Conn<'_, ()>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let conn = self.state.borrow().open[connection];
        self.with_conn(conn, &mut act)
    }

    /// Sends everything made outside a turn.
    pub(super) fn flush(&mut self) {
        self.shard.flush();
    }

    /// Waits for events at most `longest` and handles them.
    ///
    /// # Errors
    /// The driver or a connection failed, or a message was wrong.
    pub(super) fn turn(&mut self, longest: Duration) -> Result<(), Error> {
        self.shard.turn(longest)?;
        self.check()
    }

    fn check(&self) -> Result<(), Error> {
        self.state.borrow_mut().error.take().map_or(Ok(()), Err)
    }

    /// Lets the server close connections from now on.
    pub(super) fn expect_end(&self) {
        self.state.borrow_mut().is_ending = true;
    }

    /// Number of connections that the server has closed since [`expect_end`](Self::expect_end) because it goes away.
    pub(super) fn closed(&self) -> usize {
        self.state.borrow().closed
    }

    /// Number of connections that resumed a session.
    pub(super) fn resumed(&self) -> usize {
        self.state.borrow().resumed
    }

    /// Turns for this time, unless no connection is left.
    pub(super) fn hold(&mut self, time: Duration, watch: Watch<'_>) -> Result<(), Error> {
        let began = Instant::now();
        while began.elapsed() < time && !self.is_deserted() {
            watch(Progress::Running(began.elapsed().as_secs_f64() / time.as_secs_f64()));
            self.turn(WAIT.min(time.saturating_sub(began.elapsed())))?;
        }
        Ok(())
    }

    /// Bytes received so far on all connections, records and frames included.
    pub(super) fn received(&self) -> u64 {
        self.shard.counters().bytes_in
    }

    pub(super) fn stages(&self) -> Option<Box<Stages>> {
        self.shard.stages()
    }

    /// Closes all connections normally, and waits at most 4 s for them, and 2 ms for each.
    pub(super) fn close(mut self) -> Result<(), Error> {
        let deadline = Duration::from_secs(2) + Duration::from_millis(self.connections() as u64);
        self.state.borrow_mut().is_ending = true;
        self.shard.drain(deadline);
        let end = Instant::now() + 2 * deadline;
        while !self.shard.is_drained() && Instant::now() < end {
            self.shard.turn(WAIT)?;
        }
        Ok(())
    }
}

/// Number of a connection in the order of dialing, from 0.
pub(super) fn number(conn: &Conn<'_, ()>) -> usize {
    conn.dial().map_or(0, DialId::index)
}

/// The handler of a [`Client`].
struct Held {
    state: Rc<RefCell<State>>,
    on_message: OnMessage,
}

impl Handler for Held {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, opening: &Opening<'_>) {
        let mut state = self.state.borrow_mut();
        if state.is_late {
            return conn.close(CloseCode::NORMAL, "");
        }
        state.open.push(conn.id());
        state.resumed += usize::from(opening.tls.resumed);
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        if !self.state.borrow().is_ending
            && let Err(error) = (self.on_message)(conn, &message)
        {
            self.state.borrow_mut().fail(error);
        }
    }

    fn on_close(&mut self, conn: &mut Conn<'_, ()>, closed: &Closed) {
        let mut state = self.state.borrow_mut();
        // Only a connection that opened too late was closed by this end while the run goes on.
        if state.is_late && !state.is_ending && matches!(closed.cause, Cause::Local) {
            return;
        }
        let is_counted = !state.is_ending && state.errors.is_some();
        if is_counted {
            state.errors.iter_mut().for_each(|errors| errors.add_closed(closed));
            state.ended.push(number(conn));
            state.ended_in_all += 1;
        } else if !state.is_ending {
            state.fail(Error::Failed(format!("a connection ended ({}): {:#}", closed.code.get(), closed.cause)));
        } else if closed.code == CloseCode::GOING_AWAY {
            state.closed += 1;
        }
    }

    fn on_connect_failed(&mut self, _dial: DialId, error: &ConnectError, _retry: Option<Duration>) {
        let state = &mut *self.state.borrow_mut();
        match &mut state.errors {
            Some(_) if state.is_late => {}
            // Arguments that no attempt can use are no matter of counting.
            Some(errors) if !error.is_permanent() => {
                errors.add_failed(error);
                state.failed += 1;
                state.first_failure.get_or_insert_with(|| not_connected(error));
            }
            _ => _ = state.error.get_or_insert_with(|| not_connected(error)),
        }
    }
}

/// Sends a message. Fails if the connection takes no more.
pub(super) fn send(conn: &mut Conn<'_, ()>, message: Outgoing<'_>) -> Result<(), Error> {
    match conn.send(message) {
        Delivery::Dropped | Delivery::Closed => Err(Error::Failed("a connection takes no more messages".to_owned())),
        _ => Ok(()),
    }
}
