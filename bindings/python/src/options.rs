use crate::crossing::Marks;
use crate::keepalive::Keepalive;
use crate::windows::Windows;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use tautline::{CloseCode, Config, DeflateConfig, Front, Origins, Prefixes, SlowConsumer};

/// The time that stands for none.
const NEVER: Duration = Duration::from_secs(365 * 86_400);

/// Bytes of a decompressor that keeps its window.
const INFLATER: usize = 48 << 10;
/// Bytes of a compressor of levels 1 to 3, beside its window.
const FAST: usize = 40 << 10;
/// Bytes of zlib's, beside four times its window.
const ZLIB: usize = 244 << 10;

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
    /// Whether windows are kept between messages, their memory in all, the base-2 logarithm of a window, and the level.
    compression: Option<(bool, usize, u8, u32)>,
    subprotocols: Vec<String>,
    /// Networks of the proxies that send headers of the PROXY protocol, and of those that name clients in X-Forwarded-For.
    proxies: (Vec<String>, Vec<String>),
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
        let (context_takeover, _, window_bits, level) = self.compression?;
        let mut config =
            if context_takeover { DeflateConfig::with_context_takeover() } else { DeflateConfig::default() };
        (config.server_max_window_bits, config.client_max_window_bits) = (window_bits, window_bits);
        config.level = level;
        Some(config)
    }

    /// The connections that may keep windows between messages.
    pub(crate) fn windows(&self) -> Arc<Windows> {
        let (context_takeover, memory, window_bits, level) = self.compression.unwrap_or_default();
        let window = 1 << window_bits.clamp(9, 15);
        let each = INFLATER + if level <= 3 { FAST + window } else { ZLIB + 4 * window };
        Windows::new(if context_takeover { memory } else { 0 }, each)
    }

    /// The proxies before a server.
    ///
    /// # Errors
    /// One of the networks is none.
    pub(crate) fn front(&self) -> PyResult<Front> {
        let networks = |names: &[String]| Prefixes::list(names).map_err(PyValueError::new_err);
        let mut front = Front::default();
        front.proxy_protocol_from = networks(&self.proxies.0)?;
        front.forwarded_from = networks(&self.proxies.1)?;
        Ok(front)
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
