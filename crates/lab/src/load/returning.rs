use super::make::config;
use super::server::{Server, not_connected};
use crate::Error;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::layers::io::machine::run_when_idle;
use tautline::{Address, Closed, Conn, ConnectError, DialId, Handler, Message, Opening, Reconnect, Sessions, Target};
use tautline_measure::turned::Turned;

/// Connections that are opened at a time before the loss.
const AT_ONCE: usize = 64;

/// Time without any progress after which a run has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest wait for events.
const WAIT: Duration = Duration::from_millis(50);

/// Clients that lose their server together, and return to another one.
///
/// They run on a thread of their own, only while other threads of the load are idle. Each knows the server by a name of its
/// own, so that none resumes a session of another one.
#[derive(Clone)]
pub(crate) struct Returning {
    /// The server that they lose.
    pub(crate) lost: Server,
    /// The server to which they return.
    pub(crate) other: Address,
    /// Their number.
    pub(crate) clients: usize,
}

/// How clients returned.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Returned {
    /// Time from the loss until the last one was back.
    pub(crate) after: Duration,
    /// Attempts that failed.
    pub(crate) failed: usize,
    /// Returns that resumed a TLS session. All others were full handshakes.
    pub(crate) resumed: usize,
}

#[derive(Default)]
struct Counts {
    opened: usize,
    failed: usize,
    resumed: usize,
    /// Whether the server is lost.
    is_lost: bool,
    error: Option<Error>,
}

struct App {
    counts: Rc<RefCell<Counts>>,
    other: Address,
}

impl Handler for App {
    type State = ();

    fn on_open(&mut self, _conn: &mut Conn<'_, ()>, opening: &Opening<'_>) {
        let mut counts = self.counts.borrow_mut();
        counts.opened += 1;
        counts.resumed += usize::from(opening.tls.resumed && counts.is_lost);
    }

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, _message: Message<'_>) {}

    fn on_close(&mut self, _conn: &mut Conn<'_, ()>, closed: &Closed) {
        let mut counts = self.counts.borrow_mut();
        if !counts.is_lost {
            counts.error.get_or_insert_with(|| Error::Failed(format!("a connection ended early: {:#}", closed.cause)));
        }
    }

    fn on_connect_failed(&mut self, _dial: DialId, error: &ConnectError, _retry: Option<Duration>) {
        let mut counts = self.counts.borrow_mut();
        counts.failed += 1;
        if !counts.is_lost {
            counts.error.get_or_insert_with(|| not_connected(error));
        }
    }

    fn on_redial(&mut self, _dial: DialId, target: &mut Target) {
        target.address = Some(self.other.clone());
    }
}

impl Returning {
    /// Connects all, calls `lose`, and waits until all are connected to the other server. Drops the result of `lose` then.
    pub(crate) fn run<L>(&self, lose: impl FnOnce() -> L) -> Result<Returned, Error> {
        if let Err(error) = run_when_idle() {
            log::warn!("clients that return run at the priority of messages: {error}");
        }
        let counts = Rc::new(RefCell::new(Counts::default()));
        let app = Box::new(App { counts: Rc::clone(&counts), other: self.other.clone() });
        let mut tls = self.lost.tls.clone();
        tls.sessions = Sessions::for_hosts(self.clients);
        let config = config(64, 1);
        let mut clients = self.lost.make_loop(&tls, config, app, None)?;
        let mut begun = 0;
        until(&mut clients, &counts, self.clients, |clients, opened| {
            while begun < self.clients.min(opened + AT_ONCE) {
                clients.connect(Arc::new(self.target(begun)?));
                begun += 1;
            }
            Ok(())
        })?;
        *counts.borrow_mut() = Counts { is_lost: true, ..Counts::default() };
        let server = lose();
        let lost = Instant::now();
        until(&mut clients, &counts, self.clients, |_, _| Ok(()))?;
        let after = lost.elapsed();
        drop(server);
        let Counts { failed, resumed, .. } = *counts.borrow();
        clients.drain(Duration::from_secs(5));
        while !clients.is_drained() {
            clients.turn(WAIT)?;
        }
        Ok(Returned { after, failed, resumed })
    }

    /// The server that is lost, by the name that the client with this number uses.
    fn target(&self, number: usize) -> Result<Target, Error> {
        let lost = &self.lost.target;
        let uri = format!("wss://{number}.clients.localhost:{}/", lost.port());
        let mut target = Target::new(&uri).map_err(Error::usage)?;
        target.address.clone_from(&lost.address);
        Ok(target.with_reconnect(Reconnect::default()))
    }
}

/// Turns the loop until `count` connections were opened.
fn until(
    clients: &mut Turned,
    counts: &RefCell<Counts>,
    count: usize,
    mut act: impl FnMut(&mut Turned, usize) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut progress = (0, Instant::now());
    loop {
        let opened = counts.borrow().opened;
        if let Some(error) = counts.borrow_mut().error.take() {
            return Err(error);
        }
        if opened >= count {
            return Ok(());
        }
        if opened > progress.0 {
            progress = (opened, Instant::now());
        } else if progress.1.elapsed() > PATIENCE {
            return Err(Error::Failed(format!("{opened} of {count} clients are connected, and no further one")));
        }
        act(clients, opened)?;
        clients.turn(WAIT)?;
    }
}
