use super::client::{Client, OnMessage, WAIT};
use super::exchange::{Exchange, Run};
use super::make::config;
use super::server::{PATIENCE, Server};
use crate::Error;
use crate::cpu;
use crate::payload::Content;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Memory of a server's connections after some echoes on each.
///
/// Unlike [`Idle`](super::Idle), it shows windows and buffers that a server fills message by message.
pub(crate) struct Used {
    /// The server, whose process id must be set.
    pub(crate) server: Server,
    /// Connections.
    pub(crate) connections: usize,
    /// Echoes on each, on average.
    pub(crate) messages: usize,
    /// Payload bytes of a message.
    pub(crate) size: usize,
    /// Their contents.
    pub(crate) content: Content,
}

impl Used {
    /// Opens the connections and uses them; returns the growth of the server's resident memory for each, in bytes.
    ///
    /// # Errors
    /// A connection failed, a reply was wrong, none came for 5 s, or the memory cannot be read.
    pub(crate) fn run(&self) -> Result<f64, Error> {
        let exchange = Exchange::new((self.content, self.size), self.connections + 1, false, None);
        let exchange = Rc::new(RefCell::new(exchange));
        let replies = Rc::clone(&exchange);
        let on_message: OnMessage = Box::new(move |conn, reply| replies.borrow_mut().on_reply(conn, reply));
        let client = Client::new(&self.server, config(self.size, 1), None, on_message)?;
        let mut watch = |_| {};
        let mut run = Run::new(client, exchange, Duration::from_secs(1), &mut watch);
        // The first connection makes the server touch what all connections share; it is not counted.
        run.client.open(1, &mut |_| {})?;
        run.begin(None)?;
        run.fill(1)?;
        self.until(&mut run, self.messages)?;
        let before = self.resident()?;
        run.client.open(self.connections + 1, &mut |_| {})?;
        for connection in 1..=self.connections {
            run.send(connection, 1, Instant::now())?;
        }
        run.client.flush();
        run.begin(None)?;
        self.until(&mut run, self.messages * (self.connections + 1))?;
        let after = self.resident()?;
        run.client.close()?;
        Ok((after as f64 - before as f64) / self.connections as f64)
    }

    /// Runs until `count` replies have come since the beginning.
    fn until(&self, run: &mut Run<'_>, count: usize) -> Result<(), Error> {
        let end = Instant::now() + 4 * PATIENCE;
        while run.exchange.borrow().answered < count as u64 {
            if Instant::now() > end {
                return Err(Error::Failed(format!("{count} echoes took longer than {} s", 4 * PATIENCE.as_secs())));
            }
            run.turn(WAIT)?;
        }
        Ok(())
    }

    fn resident(&self) -> Result<u64, Error> {
        let pid = self.server.pid.ok_or_else(|| Error::Usage("the server's process is not known".to_owned()))?;
        cpu::resident(pid).map_err(|error| Error::Failed(format!("cannot read the memory of process {pid}: {error}")))
    }
}
