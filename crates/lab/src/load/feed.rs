use super::Stage as Phase;
use super::dial::{Dialed, Holds, close_all, open_all};
use super::{Job, PATIENCE, Server, WAIT, Watch, config, turn};
use crate::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::layers::engine::probe::Stamps;
use tautline::layers::io::Driver;
use tautline::layers::tls::Engine;
use tautline::{Closed, Conn, ConnectError, DialId, Handler, Message, Opening, Shard, Stages};

/// Longest message of a feed.
const LONGEST: usize = 1 << 20;

/// A client that listens to a feed (`taut serve --app market`) over one connection, and takes the time of each message.
#[derive(Clone)]
pub struct Feed {
    /// The server.
    pub server: Server,
    /// Messages that are not counted.
    pub warm_up: u64,
    /// Messages that are counted, at least.
    pub messages: u64,
}

impl Feed {
    /// Connects, listens, measures.
    ///
    /// # Errors
    /// The connection failed or ended, or nothing came for 5 s.
    pub fn run(&self, watch: Watch<'_>) -> Result<Box<Stages>, Error> {
        self.server.with_engine(&self.server.tls, Run { feed: self, watch })
    }
}

/// A run, before its engine is known.
struct Run<'a, 'w> {
    feed: &'a Feed,
    watch: Watch<'w>,
}

impl Job for Run<'_, '_> {
    type Output = Box<Stages>;

    fn run<E: Engine, D: Driver>(self, engine: E, driver: D) -> Result<Box<Stages>, Error> {
        let Self { feed, watch } = self;
        if feed.server.target.is_secure() && engine.name() != feed.server.engine.name() {
            let (is, wanted) = (engine.name(), feed.server.engine);
            return Err(Error::Usage(format!("load is not made by {wanted}, but would be by {is}")));
        }
        let (listener, probe) = (Listener { dialed: Dialed::default(), heard: 0 }, Stamps::after(feed.warm_up));
        let made = Shard::with_probe(0, config(LONGEST, 1).into(), engine, driver, listener, probe);
        let mut shard = made.map_err(|error| Error::Failed(format!("cannot make a loop: {error}")))?;
        open_all(&mut shard, &Arc::new(feed.server.resolved()?), 1, watch)?;
        let wanted = feed.warm_up + feed.messages;
        let mut last = (0, Instant::now());
        while shard.handler().heard < wanted {
            turn(&mut shard, WAIT)?;
            let listener = shard.handler();
            listener.dialed.check()?;
            if listener.heard > last.0 {
                last = (listener.heard, Instant::now());
                watch(Phase::Running(listener.heard as f64 / wanted as f64));
            } else if last.1.elapsed() > PATIENCE {
                return Err(Error::Failed(format!("no message for {} s", PATIENCE.as_secs())));
            }
        }
        let stages = shard.stages();
        close_all(&mut shard)?;
        stages.ok_or_else(|| Error::Failed("the loop has no probe".into()))
    }
}

/// The application: takes messages, and does nothing with them.
struct Listener {
    dialed: Dialed,
    heard: u64,
}

impl Holds for Listener {
    fn dialed(&mut self) -> &mut Dialed {
        &mut self.dialed
    }
}

impl Handler for Listener {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _opening: &Opening<'_>) {
        self.dialed.open.push(conn.id());
    }

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, _message: Message<'_>) {
        self.heard += 1;
    }

    fn on_close(&mut self, _conn: &mut Conn<'_, ()>, closed: &Closed) {
        self.dialed.closed(closed);
    }

    fn on_connect_failed(&mut self, _dial: DialId, error: &ConnectError, _retry: Option<Duration>) {
        self.dialed.failed(error);
    }
}
