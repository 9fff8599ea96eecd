use super::client::{Client, OnMessage};
use super::errors::Errors;
use super::make::config;
use super::progress::Watch;
use super::server::Server;
use super::template::Template;
use crate::{Error, Latencies, Measured, Meter, Span};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tautline::{Delivery, Outgoing};

/// Longest message that a listener takes.
const LARGEST: usize = 16 << 20;

/// Load by connections that subscribe, and then only receive.
pub struct Listeners {
    /// The server.
    pub server: Server,
    /// Concurrent connections.
    pub connections: usize,
    /// Time over which they are opened evenly.
    pub ramp: Duration,
    /// The messages that each connection sends first: one for each of its subscriptions.
    pub subscriptions: Vec<Template>,
    /// Length of the measurement.
    pub span: Span,
}

/// The messages that listeners received.
pub struct Received {
    /// Messages, without latencies.
    pub measured: Measured,
    /// Payload bytes of these messages.
    pub payload: u64,
    /// The errors.
    pub errors: Errors,
}

impl Listeners {
    /// Connects, subscribes and counts messages.
    ///
    /// # Errors
    /// Only if the load itself cannot run, or the arguments make no sense.
    pub fn run(&self, watch: Watch<'_>) -> Result<Received, Error> {
        if self.connections == 0 {
            return Err(Error::Usage("connections must be at least 1".into()));
        }
        let (messages, payload) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0_u64)));
        let (counted, bytes) = (messages.clone(), payload.clone());
        let on_message: OnMessage = Box::new(move |_, message| {
            counted.set(counted.get() + 1);
            bytes.set(bytes.get() + message.data().len() as u64);
            Ok(())
        });
        let mut client = Client::new(&self.server, config(LARGEST, 1), None, on_message)?;
        client.count_errors();
        client.ramp(self.connections, self.ramp, watch)?;
        client.check_any_open()?;
        self.subscribe(&mut client)?;
        client.hold(self.span.warmup, watch)?;
        let meter = Meter::start(self.server.pid)?;
        let before = (messages.get(), payload.get());
        client.hold(self.span.duration, watch)?;
        let measured = meter.stop(messages.get() - before.0, Latencies::new())?;
        let errors = client.take_errors();
        client.close()?;
        Ok(Received { measured, payload: payload.get() - before.1, errors })
    }

    fn subscribe(&self, client: &mut Client) -> Result<(), Error> {
        let mut text = Vec::new();
        for connection in 0..client.connections() {
            client.with(connection, |conn| {
                for (number, template) in (0..).zip(&self.subscriptions) {
                    template.write(super::client::number(conn), number, &mut text);
                    let message = std::str::from_utf8(&text).map_or_else(|_| Outgoing::binary(&text), Outgoing::text);
                    if matches!(conn.send(message), Delivery::Dropped | Delivery::Closed) {
                        return Err(Error::Failed("a connection takes no subscription".to_owned()));
                    }
                }
                Ok(())
            })?;
        }
        client.flush();
        Ok(())
    }
}
