use super::dial::{Dialed, Holds, close_all, open_all};
use super::{Job, Loop, Server, Stage, WAIT, Watch, config, new_loop, turn};
use crate::{Error, cpu};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::layers::io::machine::raise_nofile_limit;
use tautline::layers::tls::Engine;
use tautline::{Closed, Conn, ConnectError, DialId, Handler, Message, Opening};

/// Descriptors that a process needs beside its connections.
const SPARE_DESCRIPTORS: u64 = 64;

/// How long after the last connection memory is read: handshakes' buffers are free by then.
const SETTLE: Duration = Duration::from_millis(500);

/// Load by connections that do nothing.
#[derive(Clone)]
pub struct Idle {
    /// The server; with its process id its memory is measured.
    pub server: Server,
    /// Connections to hold.
    pub connections: usize,
    /// How long to hold them.
    pub duration: Duration,
}

/// What holding connections showed.
#[derive(Clone, Debug)]
pub struct Held {
    /// Connections held, all open to the end.
    pub connections: usize,
    /// How long it took to open them.
    pub opening: Duration,
    /// The server's resident memory before and while they were held, in bytes.
    pub resident: Option<(u64, u64)>,
}

impl Held {
    /// What the server's resident memory grew by for each connection, in bytes. The kernel's socket buffers are not in
    /// it.
    #[must_use]
    pub fn rss_per_connection(&self) -> Option<f64> {
        let (before, after) = self.resident?;
        Some((after as f64 - before as f64) / self.connections as f64)
    }
}

impl Idle {
    /// Opens the connections, holds them, closes them.
    ///
    /// # Errors
    /// A connection failed or ended, the limit of open files is too low, or the arguments make no sense.
    pub fn run(&self, watch: Watch<'_>) -> Result<Held, Error> {
        if self.connections == 0 {
            return Err(Error::Usage("connections must be at least 1".into()));
        }
        let limit =
            raise_nofile_limit().map_err(|error| Error::Usage(format!("cannot read the file limit: {error}")))?;
        if self.connections as u64 + SPARE_DESCRIPTORS > limit {
            let (count, needed) = (self.connections, self.connections as u64 + SPARE_DESCRIPTORS);
            return Err(Error::Usage(format!(
                "{count} connections need {needed} open files, the limit is {limit}; raise it (ulimit -Hn {needed})"
            )));
        }
        self.server.with_engine(&self.server.tls, Run { idle: self, watch })
    }
}

/// A run, before its engine is known.
struct Run<'a, 'w> {
    idle: &'a Idle,
    watch: Watch<'w>,
}

impl Job for Run<'_, '_> {
    type Output = Held;

    fn run<E: Engine>(self, engine: E) -> Result<Held, Error> {
        let Self { idle, watch } = self;
        let target = Arc::new(idle.server.resolved()?);
        let mut shard = new_loop(engine, config(0, 1), Client::default())?;
        // The first connection makes the server touch code and tables that all share; it is not counted.
        open_all(&mut shard, &target, 1, &mut |_| {})?;
        rest(&mut shard, SETTLE)?;
        let before = idle.resident()?;
        let began = Instant::now();
        open_all(&mut shard, &target, idle.connections + 1, watch)?;
        let opening = began.elapsed();
        rest(&mut shard, SETTLE)?;
        let after = idle.resident()?;
        hold(&mut shard, idle.duration, watch)?;
        close_all(&mut shard)?;
        Ok(Held { connections: idle.connections, opening, resident: before.zip(after) })
    }
}

impl Idle {
    fn resident(&self) -> Result<Option<u64>, Error> {
        self.server
            .pid
            .map(|pid| {
                cpu::resident(pid).map_err(|error| {
                    Error::Failed(format!("cannot read the memory of the server, process {pid}: {error}"))
                })
            })
            .transpose()
    }
}

fn rest<E: Engine>(shard: &mut Loop<E, Client>, duration: Duration) -> Result<(), Error> {
    hold(shard, duration, &mut |_| {})
}

fn hold<E: Engine>(shard: &mut Loop<E, Client>, duration: Duration, watch: Watch<'_>) -> Result<(), Error> {
    let began = Instant::now();
    while began.elapsed() < duration {
        watch(Stage::Running(began.elapsed().as_secs_f64() / duration.as_secs_f64()));
        turn(shard, WAIT)?;
        shard.handler().dialed.check()?;
    }
    Ok(())
}

/// The application on the client's side: does nothing, and minds that connections stay.
#[derive(Default)]
struct Client {
    dialed: Dialed,
}

impl Holds for Client {
    fn dialed(&mut self) -> &mut Dialed {
        &mut self.dialed
    }
}

impl Handler for Client {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _opening: &Opening<'_>) {
        self.dialed.open.push(conn.id());
    }

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, _message: Message<'_>) {}

    fn on_close(&mut self, _conn: &mut Conn<'_, ()>, closed: &Closed) {
        self.dialed.closed(closed);
    }

    fn on_connect_failed(&mut self, _dial: DialId, error: &ConnectError, _retry: Option<Duration>) {
        self.dialed.failed(error);
    }
}
