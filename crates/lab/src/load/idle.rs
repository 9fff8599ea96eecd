use super::client::{Client, OnMessage, WAIT};
use super::errors::Errors;
use super::make::config;
use super::progress::Watch;
use super::server::{PATIENCE, Server};
use crate::Error;
use crate::cpu;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tautline::Outgoing;
use tautline::layers::io::machine::raise_nofile_limit;

/// Descriptors that a process needs beside its connections.
const SPARE_DESCRIPTORS: u64 = 64;

/// Time between the last connection and reading the memory, after which the buffers of handshakes are free.
const SETTLE: Duration = Duration::from_millis(500);

/// Echoes in flight.
const ECHOES: usize = 256;

/// Message to be echoed.
const MESSAGE: [u8; 64] = [b'.'; 64];

/// Load by connections that do nothing.
#[derive(Clone)]
pub struct Idle {
    /// The server; its memory is measured if its process id is set.
    pub server: Server,
    /// Connections to hold.
    pub connections: usize,
    /// Time to hold them.
    pub duration: Duration,
    /// Whether each connection first echoes one message, after which the memory is read again.
    ///
    /// This shows buffers that a server keeps for a connection once it was used.
    pub echo: bool,
}

/// Memory of a server that held connections.
#[derive(Clone, Debug)]
pub struct IdleMemory {
    /// Connections held, all open to the end unless errors are counted. Then they were open when the memory was read.
    pub connections: usize,
    /// Time it took to open them.
    pub opening: Duration,
    /// Resident memory of the server before and while they were held, in bytes.
    pub resident: Option<(u64, u64)>,
    /// Resident memory of the server after one echo on each, if echoes were wanted.
    pub echoed: Option<u64>,
}

impl IdleMemory {
    /// Growth of the server's resident memory per connection, in bytes, without the kernel's socket buffers.
    #[must_use]
    pub fn rss_per_connection(&self) -> Option<f64> {
        let (before, after) = self.resident.filter(|_| self.connections > 0)?;
        Some(self.each(before, after))
    }

    /// As [`rss_per_connection`](Self::rss_per_connection), after one echo on each.
    #[must_use]
    pub fn rss_per_used_connection(&self) -> Option<f64> {
        Some(self.each(self.resident?.0, self.echoed?))
    }

    fn each(&self, before: u64, after: u64) -> f64 {
        (after as f64 - before as f64) / self.connections as f64
    }
}

impl Idle {
    /// Opens the connections, holds them and closes them.
    ///
    /// # Errors
    /// A connection failed or ended, the limit of open files is too low, or the arguments make no sense.
    pub fn run(&self, watch: Watch<'_>) -> Result<IdleMemory, Error> {
        Ok(self.measure(false, watch)?.0)
    }

    /// As [`run`](Self::run), but goes on in spite of errors, and counts them.
    ///
    /// # Errors
    /// No connection opened at all, the limit of open files is too low, or the arguments make no sense.
    pub fn run_counting(&self, watch: Watch<'_>) -> Result<(IdleMemory, Errors), Error> {
        self.measure(true, watch)
    }

    fn measure(&self, counts_errors: bool, watch: Watch<'_>) -> Result<(IdleMemory, Errors), Error> {
        self.check()?;
        let echoes = Rc::new(Cell::new(0_usize));
        let due = Rc::clone(&echoes);
        let on_message: OnMessage = Box::new(move |_, message| {
            if due.get() > 0 && message.data() != MESSAGE {
                return Err(Error::WrongReply("an echo has other bytes than were sent".to_owned()));
            }
            due.set(due.get().saturating_sub(1));
            Ok(())
        });
        let mut client = Client::new(&self.server, config(0, 1), None, on_message)?;
        // The first connection makes the server touch code and tables that all connections share; it is not counted.
        if counts_errors {
            client.count_errors();
        }
        client.open(1, &mut |_| {})?;
        client.hold(SETTLE, &mut |_| {})?;
        let first = client.held();
        let before = self.resident()?;
        let began = Instant::now();
        client.open(self.connections + 1, watch)?;
        let opening = began.elapsed();
        client.check_any_open()?;
        client.hold(SETTLE, &mut |_| {})?;
        let (after, connections) = (self.resident()?, client.held().saturating_sub(first));
        let mut echoed = None;
        if self.echo {
            echo_on_each(&mut client, &echoes)?;
            client.hold(SETTLE, &mut |_| {})?;
            echoed = self.resident()?;
        }
        client.hold(self.duration, watch)?;
        let errors = client.take_errors();
        client.close()?;
        Ok((IdleMemory { connections, opening, resident: before.zip(after), echoed }, errors))
    }

    fn check(&self) -> Result<(), Error> {
        if self.connections == 0 {
            return Err(Error::Usage("connections must be at least 1".into()));
        }
        check_descriptors(self.connections)
    }

    fn resident(&self) -> Result<Option<u64>, Error> {
        self.server.pid.map(cpu::resident_memory).transpose()
    }
}

/// Raises the limit of open files, and checks that it is enough for these connections.
pub(super) fn check_descriptors(connections: usize) -> Result<(), Error> {
    let limit = raise_nofile_limit();
    let limit = limit.map_err(|error| Error::Usage(format!("cannot read the file limit: {error}")))?;
    let needed = connections as u64 + SPARE_DESCRIPTORS;
    if needed > limit {
        return Err(Error::Usage(format!(
            "{connections} connections need {needed} open files, the limit is {limit}; raise it (ulimit -Hn {needed})"
        )));
    }
    Ok(())
}

/// Echoes one message on every connection, [`ECHOES`] at a time.
fn echo_on_each(client: &mut Client, due: &Cell<usize>) -> Result<(), Error> {
    let all: Vec<usize> = (0..client.connections()).collect();
    for some in all.chunks(ECHOES) {
        due.set(some.len());
        for &connection in some {
            client.with(connection, |conn| {
                conn.send(Outgoing::binary(&MESSAGE));
                Ok(())
            })?;
        }
        client.flush();
        let end = Instant::now() + PATIENCE;
        while due.get() > 0 {
            if Instant::now() > end {
                let (due, patience) = (due.get(), PATIENCE.as_secs());
                return Err(Error::Failed(format!("{due} of {} echoes did not come in {patience} s", some.len())));
            }
            client.turn(WAIT)?;
        }
    }
    Ok(())
}
