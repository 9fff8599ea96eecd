use crate::crossing::Marks;
use crate::keepalive::Keepalive;
use pyo3::prelude::*;
use std::time::Duration;
use tautline::{CloseCode, Config, DeflateConfig, Origins, SlowConsumer};

/// The time that stands for none.
const NEVER: Duration = Duration::from_secs(365 * 86_400);

/// Settings of a server or of outgoing connections, from a dictionary with these keys.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    /// Longest message in bytes.
    max_size: Option<usize>,
    /// Messages that wait for Python between which reading pauses and resumes; none if there is no limit.
    max_queue: Option<(usize, usize)>,
    /// Bytes that may wait for a peer before it is closed with 1008.
    max_backlog: usize,
    open_timeout: Option<f64>,
    ping_interval: Option<f64>,
    ping_timeout: Option<f64>,
    close_timeout: Option<f64>,
    compression: bool,
    subprotocols: Vec<String>,
}

impl Options {
    pub(crate) fn queue(&self) -> Marks {
        let (high, low) = self.max_queue.unwrap_or((usize::MAX, usize::MAX));
        Marks { high: high.max(1), low: low.min(high.saturating_sub(1)) }
    }

    pub(crate) fn keepalive(&self) -> Option<Keepalive> {
        Some(Keepalive { every: time(self.ping_interval)?, patience: time(self.ping_timeout) })
    }

    pub(crate) fn deflate(&self) -> Option<DeflateConfig> {
        self.compression.then(DeflateConfig::default)
    }

    pub(crate) fn config(&self) -> Config {
        let mut config = Config::untrusted_internet();
        config.limits.max_message = self.max_size.unwrap_or(usize::MAX / 4);
        // Python pauses reading by `max_queue`, and `send` waits: the loop need not do both.
        config.limits.pause_receive_above = self.max_backlog;
        config.slow_consumer = SlowConsumer::Disconnect(self.max_backlog);
        let open = time(self.open_timeout).unwrap_or(NEVER);
        config.deadlines.connect = open;
        config.deadlines.handshake = open;
        config.deadlines.answer = open;
        // The relay sends pings, which tell the latency.
        (config.deadlines.ping, config.deadlines.idle) = (None, None);
        let patience = self.ping_interval.zip(self.ping_timeout).map(|(every, most)| every + most);
        config.deadlines.send = time(patience).unwrap_or(NEVER);
        config.deadlines.close = time(self.close_timeout).unwrap_or(NEVER);
        // Python compares origins, whose rules are those of the package `websockets`.
        config.upgrade.origins = Origins::Any;
        config.upgrade.subprotocols = self.subprotocols.clone();
        config.upgrade.deflate = self.deflate();
        config
    }
}

/// Seconds; `None` for no time, and for one that is no number of seconds.
pub(crate) fn time(seconds: Option<f64>) -> Option<Duration> {
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).map(|time| time.min(NEVER))
}

/// The close code of a number that Python has checked.
pub(crate) const fn close_code(code: u16) -> CloseCode {
    CloseCode::new(code)
}
