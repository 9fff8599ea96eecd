use super::{Job, PATIENCE, Server, Stage, WAIT, Watch, config, explain, new_loop, turn};
use crate::{Error, Latencies, Measured, Meter};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::layers::io::Driver;
use tautline::layers::tls::Engine;
use tautline::{Cause, CloseCode, Closed, Conn, ConnectError, DialId, Handler, Message, Opening};

/// Tickets that the client's TLS library keeps for one server. With more connections at a time than this, some would
/// find none.
const TICKETS: usize = 8;

/// Load by connections: connect, upgrade, close, again.
#[derive(Clone)]
pub struct Handshakes {
    /// The server.
    pub server: Server,
    /// Connections being made at a time; 8 at most where sessions are resumed, for a client keeps no more tickets.
    pub at_once: usize,
    /// Whether TLS sessions are resumed; otherwise each handshake is full.
    pub resumed: bool,
    /// Whether a server that has too much to do may say so: connections that it resets, or that wait for too long, are
    /// counted and made anew, and it is no error if none comes about.
    pub may_refuse: bool,
    /// How long to run before measuring begins.
    pub warmup: Duration,
    /// How long to measure.
    pub duration: Duration,
}

/// What a run of handshakes gave.
#[derive(Clone, Debug)]
pub struct Shaken {
    /// Rate, latency (from connecting to open) and CPU times.
    pub measured: Measured,
    /// How many of them resumed a session.
    pub resumed: u64,
    /// How many more the server refused.
    pub refused: u64,
}

impl Shaken {
    /// Refused connections per second.
    #[must_use]
    pub fn refused_rate(&self) -> f64 {
        self.refused as f64 / self.measured.elapsed.as_secs_f64()
    }
}

impl Handshakes {
    /// Connects, upgrades, closes; measures.
    ///
    /// # Errors
    /// A connection failed or ended early, none came about for 5 s, or the arguments make no sense.
    pub fn run(&self, watch: Watch<'_>) -> Result<Shaken, Error> {
        if self.at_once == 0 {
            return Err(Error::Usage("connections must be at least 1".into()));
        }
        let mut tls = self.server.tls.clone();
        tls.no_resumption = !self.resumed;
        self.server.with_engine(&tls, Run { handshakes: self, watch })
    }
}

/// A run, before its engine is known.
struct Run<'a, 'w> {
    handshakes: &'a Handshakes,
    watch: Watch<'w>,
}

impl Job for Run<'_, '_> {
    type Output = Shaken;

    fn run<E: Engine, D: Driver>(self, engine: E, driver: D) -> Result<Shaken, Error> {
        let Self { handshakes, watch } = self;
        let target = Arc::new(handshakes.server.resolved()?);
        let client = Client { may_refuse: handshakes.may_refuse, ..Client::default() };
        let mut shard = new_loop(engine, driver, config(0, 1), client)?;
        let most = if handshakes.resumed { TICKETS } else { usize::MAX };
        let at_once = handshakes.at_once.min(most);
        let total = (handshakes.warmup + handshakes.duration).as_secs_f64();
        let began = Instant::now();
        let mut running = 0;
        let mut meter: Option<Meter> = None;
        let mut last = (0, began);
        loop {
            let now = Instant::now();
            let client = shard.handler();
            if let Some(error) = client.error.take() {
                return Err(error);
            }
            if client.opened > last.0 {
                last = (client.opened, now);
                watch(Stage::Running((now - began).as_secs_f64() / total));
            } else if now - last.1 > PATIENCE && !handshakes.may_refuse {
                return Err(Error::Network(format!("no connection came about for {} s", PATIENCE.as_secs())));
            }
            running -= std::mem::take(&mut client.ended);
            match meter.take() {
                Some(meter) if now - meter.began() >= handshakes.duration => {
                    let Client { measured, resumed, refused, .. } = *client;
                    let latencies = std::mem::take(&mut client.latencies);
                    return Ok(Shaken { measured: meter.stop(measured, latencies)?, resumed, refused });
                }
                Some(running) => meter = Some(running),
                None if now - began >= handshakes.warmup => {
                    (client.measured, client.resumed, client.refused) = (0, 0, 0);
                    client.latencies.clear();
                    meter = Some(Meter::start(handshakes.server.pid)?);
                }
                None => {}
            }
            while running < at_once {
                let dial = shard.connect(Arc::clone(&target));
                shard.handler().began.insert(dial, Instant::now());
                running += 1;
            }
            turn(&mut shard, WAIT)?;
        }
    }
}

/// The application on the client's side: closes what opens.
#[derive(Default)]
struct Client {
    began: HashMap<DialId, Instant>,
    error: Option<Error>,
    opened: u64,
    /// Ended since the loop last looked.
    ended: usize,
    /// Opened since measuring began.
    measured: u64,
    resumed: u64,
    may_refuse: bool,
    refused: u64,
    latencies: Latencies,
}

impl Handler for Client {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, opening: &Opening<'_>) {
        if let Some(began) = conn.dial().and_then(|dial| self.began.remove(&dial)) {
            self.latencies.record(began.elapsed());
        }
        self.opened += 1;
        self.measured += 1;
        self.resumed += u64::from(opening.tls.resumed);
        conn.close(CloseCode::NORMAL, "");
    }

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, _message: Message<'_>) {}

    fn on_close(&mut self, _conn: &mut Conn<'_, ()>, closed: &Closed) {
        self.ended += 1;
        if !matches!(closed.cause, Cause::Local) {
            let what = format!("a connection ended without the server's close frame: {}", closed.cause);
            self.error.get_or_insert(Error::Failed(what));
        }
    }

    fn on_connect_failed(&mut self, dial: DialId, error: &ConnectError, _retry: Option<Duration>) {
        if self.may_refuse && is_refusal(error) {
            self.began.remove(&dial);
            self.ended += 1;
            self.refused += 1;
            return;
        }
        self.error.get_or_insert_with(|| Error::Network(explain(error)));
    }
}

/// Whether a server said that it has too much to do: by a reset, or by not answering in time.
fn is_refusal(error: &ConnectError) -> bool {
    match error {
        ConnectError::Io(error) | ConnectError::Ended(Cause::Io(error)) => {
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
    fn a_reset_is_a_refusal_and_a_bad_certificate_is_none() {
        let broke = |kind: io::ErrorKind| ConnectError::Ended(Cause::Io(Arc::new(kind.into())));
        assert!(is_refusal(&broke(io::ErrorKind::ConnectionReset)));
        assert!(!is_refusal(&broke(io::ErrorKind::PermissionDenied)));
        assert!(!is_refusal(&ConnectError::Ended(Cause::Truncated)));
    }
}
