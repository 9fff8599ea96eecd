use super::echo::{Echo, Shape};
use super::errors::Errors;
use super::open_loop::RateStage;
use super::progress::Watch;
use super::template::Template;
use crate::{Error, Measured};
use std::time::Duration;

/// Load like that of a service's clients, on a server that answers each message. It goes on in spite of errors, and counts them.
pub struct Traffic {
    /// Server, connections, messages and length. With [`stages`](Self::stages) its span does not count.
    pub echo: Echo,
    /// Time over which connections are opened evenly; zero opens them as fast as the server accepts them.
    pub ramp: Duration,
    /// Open loop by stages, in place of the rate and the length.
    pub stages: Vec<RateStage>,
    /// Closed loop: the wait of a connection between a reply and its next message, from and to.
    pub think: Option<(Duration, Duration)>,
    /// Messages in place of bytes.
    pub template: Option<Template>,
    /// Whether any message is a reply. Otherwise a reply has to be its message itself.
    pub takes_any_reply: bool,
}

impl Traffic {
    /// Connects, runs and measures. Only right replies have latencies.
    ///
    /// # Errors
    /// Only if the load itself cannot run, or the arguments make no sense.
    pub fn run(&self, watch: Watch<'_>) -> Result<(Measured, Errors), Error> {
        let shape = Shape {
            ramp: self.ramp,
            stages: self.stages.clone(),
            think: self.think,
            template: self.template.clone(),
            takes_any_reply: self.takes_any_reply,
            counts_errors: true,
        };
        let run = self.echo.measure(watch, None, shape)?;
        Ok((run.measured, run.errors))
    }
}
