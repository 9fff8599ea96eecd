use super::{Echo, Handshakes};
use crate::{Error, Measured};
use std::time::Duration;
use tautline::layers::io::machine::run_when_idle;

/// Messages over connections that stand, while others shake hands in full: what newcomers do to those who are there.
///
/// The messages are an open loop, so a loop that is busy with signatures counts against every message that was due. The
/// newcomers are made on a thread of their own that runs only while the messages' thread has nothing to do, so that their
/// clients' work, which is more than the server's, is not counted as the server's latency. The server may refuse newcomers:
/// that is one way to weather a storm.
#[derive(Clone)]
pub struct Storm {
    /// The messages.
    pub echo: Echo,
    /// Connections being made at a time; 0 is the quiet before.
    pub newcomers: usize,
}

/// What a storm gave.
#[derive(Clone, Debug)]
pub struct Stormed {
    /// The messages.
    pub messages: Measured,
    /// The newcomers' handshakes per second.
    pub handshakes: f64,
    /// Newcomers per second that the server refused.
    pub refused: f64,
}

impl Storm {
    /// Connects, raises the storm, measures.
    ///
    /// # Errors
    /// Those of [`Echo::run`] and of [`Handshakes::run`].
    pub fn run(&self) -> Result<Stormed, Error> {
        if self.newcomers == 0 {
            return Ok(Stormed { messages: self.echo.run(&mut |_| {})?, handshakes: 0.0, refused: 0.0 });
        }
        // It begins while the connections of the echo are made and has settled when that measures.
        let settle = self.echo.warmup / 2;
        let newcomers = Handshakes {
            server: self.echo.server.clone(),
            at_once: self.newcomers,
            resumed: false,
            may_refuse: true,
            warmup: settle,
            duration: self.echo.warmup + self.echo.duration - settle + Duration::from_millis(100),
        };
        let storm = std::thread::spawn(move || {
            if let Err(error) = run_when_idle() {
                log::warn!("newcomers run at the priority of messages: {error}");
            }
            newcomers.run(&mut |_| {})
        });
        let messages = self.echo.run(&mut |_| {});
        let shaken = storm.join().map_err(|_| Error::Failed("the thread of the newcomers panicked".to_owned()))?;
        let (messages, shaken) = (messages?, shaken?);
        Ok(Stormed { messages, handshakes: shaken.measured.rate(), refused: shaken.refused_rate() })
    }
}
