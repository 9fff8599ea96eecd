use super::client::{Client, OnMessage, WAIT};
use super::make::config;
use super::progress::{Progress, Watch};
use super::server::{PATIENCE, Server};
use crate::Error;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;
use tautline::Stages;
use tautline::layers::engine::probe::Stamps;

/// Longest message of a feed.
const LONGEST: usize = 1 << 20;

/// A client that receives a feed (`taut serve --app market`) on one connection and times the stages of its messages.
#[derive(Clone)]
pub(crate) struct Feed {
    /// The server.
    pub(crate) server: Server,
    /// Messages before the first counted one.
    pub(crate) warm_up: u64,
    /// Least number of counted messages.
    pub(crate) messages: u64,
}

impl Feed {
    /// Connects, receives and measures.
    pub(crate) fn run(&self, watch: Watch<'_>) -> Result<Box<Stages>, Error> {
        let heard = Rc::new(Cell::new(0_u64));
        let counter = Rc::clone(&heard);
        let on_message: OnMessage = Box::new(move |_, _| {
            counter.set(counter.get() + 1);
            Ok(())
        });
        let stamps = Box::new(Stamps::after(self.warm_up));
        let mut client = Client::new(&self.server, config(LONGEST, 1), Some(stamps), on_message)?;
        client.open(1, watch)?;
        let wanted = self.warm_up + self.messages;
        let mut last = (0, Instant::now());
        while heard.get() < wanted {
            client.turn(WAIT)?;
            if heard.get() > last.0 {
                last = (heard.get(), Instant::now());
                watch(Progress::Running(last.0 as f64 / wanted as f64));
            } else if last.1.elapsed() > PATIENCE {
                return Err(Error::Failed(format!("no message for {} s", PATIENCE.as_secs())));
            }
        }
        let stages = client.stages();
        client.close()?;
        stages.ok_or_else(|| Error::Failed("the loop has no probe".into()))
    }
}
