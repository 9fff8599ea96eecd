use super::client::WAIT;
use super::errors::Errors;
use super::make::config;
use super::progress::{Intervals, Progress, Watch};
use super::resolve::resolved;
use super::server::{PATIENCE, Server, not_connected};
use crate::{Error, Latencies, Measured, Meter, Span};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::{Cause, CloseCode, Closed, Conn, ConnectError, DialId, Handler, Message, Opening};

/// Tickets that the client's TLS library keeps for one server. More connections at a time would not all find one.
const TICKETS: usize = 8;

/// Load by connections that are opened, upgraded and closed.
#[derive(Clone)]
pub struct Handshakes {
    /// The server.
    pub server: Server,
    /// Connections being opened at a time; at most 8 if sessions are resumed, because a client keeps no more tickets.
    pub at_once: usize,
    /// Whether TLS sessions are resumed; otherwise each handshake is full.
    pub resumed: bool,
    /// Whether an overloaded server may refuse connections.
    ///
    /// Connections that it resets, or that time out, are then counted and opened anew, and a run without any connection
    /// is not an error.
    pub may_refuse: bool,
    /// Connections per second, of which those that are late wait for no others; `None` for as many as there can be.
    pub rate: Option<f64>,
    /// Length of the measurement.
    pub span: Span,
}

/// Result of a run of handshakes.
#[derive(Clone, Debug)]
pub struct HandshakeCounts {
    /// Rate, latency (from connecting to open) and CPU times.
    pub measured: Measured,
    /// Handshakes that resumed a session.
    pub resumed: u64,
    /// Connections that the server refused, beside the measured ones.
    pub refused: u64,
}

impl HandshakeCounts {
    /// Refused connections per second.
    #[must_use]
    pub fn refused_rate(&self) -> f64 {
        self.refused as f64 / self.measured.elapsed.as_secs_f64()
    }
}

impl Handshakes {
    /// Connects, upgrades, closes and measures.
    ///
    /// # Errors
    /// A connection failed or ended early, none opened for 5 s, or the arguments make no sense.
    pub fn run(&self, watch: Watch<'_>) -> Result<HandshakeCounts, Error> {
        Ok(self.measure(None, watch)?.0)
    }

    /// As [`run`](Self::run), but goes on in spite of errors, and counts them.
    ///
    /// # Errors
    /// No connection opened at all, or the arguments make no sense.
    pub fn run_counting(&self, watch: Watch<'_>) -> Result<(HandshakeCounts, Errors), Error> {
        self.measure(Some(Errors::default()), watch)
    }

    fn measure(&self, errors: Option<Errors>, watch: Watch<'_>) -> Result<(HandshakeCounts, Errors), Error> {
        if self.at_once == 0 {
            return Err(Error::Usage("connections must be at least 1".into()));
        }
        let mut tls = self.server.tls.clone();
        tls.no_resumption = !self.resumed;
        let target = Arc::new(resolved(&self.server)?);
        let counts = Rc::new(RefCell::new(Counts { may_refuse: self.may_refuse, errors, ..Counts::default() }));
        let app = Box::new(Newcomers(Rc::clone(&counts)));
        let mut shard = self.server.make_loop(&tls, config(0, 1), app, None)?;
        let at_once = self.at_once.min(if self.resumed { TICKETS } else { usize::MAX });
        let Span { warmup, duration } = self.span;
        let total = (warmup + duration).as_secs_f64();
        let began = Instant::now();
        let (mut running, mut started) = (0, 0_u64);
        let wait = self.rate.map_or(WAIT, |rate| WAIT.min(Duration::from_secs_f64(1.0 / rate.max(1.0))));
        let mut meter: Option<(Meter, Intervals)> = None;
        let mut last = (0, began);
        loop {
            let now = Instant::now();
            let mut counts = counts.borrow_mut();
            counts.check(self.at_once)?;
            if counts.opened > last.0 {
                last = (counts.opened, now);
                watch(Progress::Running((now - began).as_secs_f64() / total));
            } else if now - last.1 > PATIENCE && !self.may_refuse && (counts.errors.is_none() || last.0 == 0) {
                return Err(Error::Network(format!("no connection opened for {} s", PATIENCE.as_secs())));
            }
            running -= std::mem::take(&mut counts.ended);
            match meter.take() {
                Some((meter, _)) if now - meter.began() >= duration => {
                    let latencies = std::mem::take(&mut counts.latencies);
                    let measured = meter.stop(counts.measured, latencies)?;
                    let errors = counts.errors.take().unwrap_or_default();
                    return Ok((
                        HandshakeCounts { measured, resumed: counts.resumed, refused: counts.refused },
                        errors,
                    ));
                }
                Some((running, mut intervals)) => {
                    if let Some(interval) = intervals.next(now, &counts.latencies) {
                        watch(Progress::Interval(interval));
                    }
                    meter = Some((running, intervals));
                }
                None if now - began >= warmup => {
                    (counts.measured, counts.resumed, counts.refused) = (0, 0, 0);
                    counts.latencies.clear();
                    meter = Some((Meter::start(self.server.pid)?, Intervals::begin(now)));
                }
                None => {}
            }
            let due = self.rate.map_or(f64::INFINITY, |rate| (now - began).as_secs_f64() * rate);
            while running < at_once && (started as f64) < due {
                started += 1;
                let dial = shard.connect(Arc::clone(&target));
                counts.began.insert(dial, Instant::now());
                running += 1;
            }
            drop(counts);
            shard.turn(wait)?;
        }
    }
}

/// Counts of a run.
#[derive(Default)]
struct Counts {
    began: HashMap<DialId, Instant>,
    error: Option<Error>,
    /// The errors so far, if the run goes on in spite of them.
    errors: Option<Errors>,
    /// Connections that did not open, while errors are counted, and the first of these failures.
    failed: usize,
    first_failure: Option<Error>,
    opened: u64,
    /// Connections that ended since the run last looked.
    ended: usize,
    /// Connections opened since measuring began.
    measured: u64,
    resumed: u64,
    may_refuse: bool,
    refused: u64,
    latencies: Latencies,
}

impl Counts {
    /// Fails after an error that is not counted, or if `at_once` connections have failed and none has opened.
    fn check(&mut self, at_once: usize) -> Result<(), Error> {
        let useless = self.first_failure.take_if(|_| self.opened == 0 && self.failed >= at_once);
        self.error.take().or(useless).map_or(Ok(()), Err)
    }
}

/// The handler, which closes every connection that opens.
struct Newcomers(Rc<RefCell<Counts>>);

impl Handler for Newcomers {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, opening: &Opening<'_>) {
        let mut counts = self.0.borrow_mut();
        if let Some(began) = conn.dial().and_then(|dial| counts.began.remove(&dial)) {
            counts.latencies.record(began.elapsed());
        }
        counts.opened += 1;
        counts.measured += 1;
        counts.resumed += u64::from(opening.tls.resumed);
        conn.close(CloseCode::NORMAL, "");
    }

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, _message: Message<'_>) {}

    fn on_close(&mut self, _conn: &mut Conn<'_, ()>, closed: &Closed) {
        let mut counts = self.0.borrow_mut();
        counts.ended += 1;
        if matches!(closed.cause, Cause::Local) {
            return;
        }
        if let Some(errors) = &mut counts.errors {
            errors.add_closed(closed);
        } else {
            let what = format!("a connection ended without the server's close frame: {:#}", closed.cause);
            counts.error.get_or_insert(Error::Failed(what));
        }
    }

    fn on_connect_failed(&mut self, dial: DialId, error: &ConnectError, _retry: Option<Duration>) {
        let mut counts = self.0.borrow_mut();
        if counts.may_refuse && is_refusal(error) {
            counts.began.remove(&dial);
            counts.ended += 1;
            counts.refused += 1;
            return;
        }
        match &mut counts.errors {
            // Arguments that no attempt can use are no matter of counting.
            Some(errors) if !error.is_permanent() => {
                errors.add_failed(error);
                counts.began.remove(&dial);
                counts.ended += 1;
                counts.failed += 1;
                counts.first_failure.get_or_insert_with(|| not_connected(error));
            }
            _ => _ = counts.error.get_or_insert_with(|| not_connected(error)),
        }
    }
}

/// Whether an overloaded server refused the connection: by a reset, or by no answer in time.
fn is_refusal(error: &ConnectError) -> bool {
    match error {
        ConnectError::Io { error, .. } | ConnectError::Ended(Cause::Io(error)) => {
            matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
        }
        ConnectError::Ended(Cause::Timeout(_)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_a_refusal_and_other_failures_are_not() {
        let broke = |kind: io::ErrorKind| ConnectError::Ended(Cause::Io(Arc::new(kind.into())));
        assert!(is_refusal(&broke(io::ErrorKind::ConnectionReset)));
        assert!(!is_refusal(&broke(io::ErrorKind::PermissionDenied)));
        assert!(!is_refusal(&ConnectError::Ended(Cause::Truncated)));
    }
}
