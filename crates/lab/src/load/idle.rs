use super::dial::{Dialed, Holds, close_all, open_all};
use super::{Job, PATIENCE, Server, Stage, WAIT, Watch, config, new_loop, turn};
use crate::{Error, cpu};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::layers::io::Driver;
use tautline::layers::io::machine::raise_nofile_limit;
use tautline::layers::tls::Engine;
use tautline::{Closed, Conn, ConnectError, DialId, Handler, Message, Opening, Outgoing, Shard};

/// Descriptors that a process needs beside its connections.
const SPARE_DESCRIPTORS: u64 = 64;

/// How long after the last connection memory is read: handshakes' buffers are free by then.
const SETTLE: Duration = Duration::from_millis(500);

/// Echoes under way at a time.
const ECHOES: usize = 256;

/// What is echoed.
const MESSAGE: [u8; 64] = [b'.'; 64];

/// Load by connections that do nothing.
#[derive(Clone)]
pub struct Idle {
    /// The server; with its process id its memory is measured.
    pub server: Server,
    /// Connections to hold.
    pub connections: usize,
    /// How long to hold them.
    pub duration: Duration,
    /// Whether each sends one message before that and awaits its echo, after which memory is read once more: buffers
    /// that a server keeps for a connection once it was used show so.
    pub echo: bool,
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
    /// The same after one echo on each, where that was wanted.
    pub echoed: Option<u64>,
}

impl Held {
    /// What the server's resident memory grew by for each connection, in bytes. The kernel's socket buffers are not in
    /// it.
    #[must_use]
    pub fn rss_per_connection(&self) -> Option<f64> {
        let (before, after) = self.resident?;
        Some(self.each(before, after))
    }

    /// The same after one echo on each.
    #[must_use]
    pub fn rss_per_used_connection(&self) -> Option<f64> {
        Some(self.each(self.resident?.0, self.echoed?))
    }

    fn each(&self, before: u64, after: u64) -> f64 {
        (after as f64 - before as f64) / self.connections as f64
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

    fn run<E: Engine, D: Driver>(self, engine: E, driver: D) -> Result<Held, Error> {
        let Self { idle, watch } = self;
        let target = Arc::new(idle.server.resolved()?);
        let mut shard = new_loop(engine, driver, config(0, 1), Client::default())?;
        // The first connection makes the server touch code and tables that all share; it is not counted.
        open_all(&mut shard, &target, 1, &mut |_| {})?;
        rest(&mut shard, SETTLE)?;
        let before = idle.resident()?;
        let began = Instant::now();
        open_all(&mut shard, &target, idle.connections + 1, watch)?;
        let opening = began.elapsed();
        rest(&mut shard, SETTLE)?;
        let after = idle.resident()?;
        let echoed = if idle.echo {
            echo_on_each(&mut shard)?;
            rest(&mut shard, SETTLE)?;
            idle.resident()?
        } else {
            None
        };
        hold(&mut shard, idle.duration, watch)?;
        close_all(&mut shard)?;
        Ok(Held { connections: idle.connections, opening, resident: before.zip(after), echoed })
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

/// One message to and fro on every connection, some at a time.
fn echo_on_each<E: Engine, D: Driver>(shard: &mut Shard<E, D, Client>) -> Result<(), Error> {
    let open = shard.handler().dialed.open.clone();
    for some in open.chunks(ECHOES) {
        shard.handler().due = some.len();
        for &conn in some {
            shard.with_conn(conn, |_, conn| {
                conn.send(Outgoing::binary(&MESSAGE));
            });
        }
        shard.flush();
        let end = Instant::now() + PATIENCE;
        while shard.handler().due > 0 {
            if Instant::now() > end {
                let (due, patience) = (shard.handler().due, PATIENCE.as_secs());
                return Err(Error::Failed(format!("{due} of {} echoes did not come in {patience} s", some.len())));
            }
            turn(shard, WAIT)?;
            shard.handler().dialed.check()?;
        }
    }
    Ok(())
}

fn rest<E: Engine, D: Driver>(shard: &mut Shard<E, D, Client>, duration: Duration) -> Result<(), Error> {
    hold(shard, duration, &mut |_| {})
}

fn hold<E: Engine, D: Driver>(
    shard: &mut Shard<E, D, Client>,
    duration: Duration,
    watch: Watch<'_>,
) -> Result<(), Error> {
    let began = Instant::now();
    while began.elapsed() < duration {
        watch(Stage::Running(began.elapsed().as_secs_f64() / duration.as_secs_f64()));
        turn(shard, WAIT)?;
        shard.handler().dialed.check()?;
    }
    Ok(())
}

/// The application on the client's side: minds that connections stay, and counts echoes.
#[derive(Default)]
struct Client {
    dialed: Dialed,
    /// Echoes that are to come.
    due: usize,
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

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, message: Message<'_>) {
        if self.due > 0 && message.data() != MESSAGE {
            self.dialed.fail(Error::WrongReply("an echo has other bytes than were sent".to_owned()));
        }
        self.due = self.due.saturating_sub(1);
    }

    fn on_close(&mut self, _conn: &mut Conn<'_, ()>, closed: &Closed) {
        self.dialed.closed(closed);
    }

    fn on_connect_failed(&mut self, _dial: DialId, error: &ConnectError, _retry: Option<Duration>) {
        self.dialed.failed(error);
    }
}
