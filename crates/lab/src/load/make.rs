//! The configuration of loads' loops.

use tautline::{Config, SlowConsumer};

/// Limits and deadlines of a client that must neither end a connection nor hold messages back.
///
/// Above all it reads while it cannot send: two echoing ends that both stop reading would wait for ever.
pub(super) fn config(size: usize, in_flight: usize) -> Config {
    let mut config = Config::low_latency();
    config.limits.max_message = size.max(1 << 10);
    config.limits.max_connections = usize::MAX;
    config.limits.max_handshakes = usize::MAX;
    config.limits.memory = usize::MAX;
    config.limits.pause_receive_above = usize::MAX;
    config.deadlines.ping = None;
    config.deadlines.idle = None;
    let most = (size + 1024).saturating_mul(in_flight + 1).saturating_add(1 << 20);
    config.slow_consumer = SlowConsumer::Disconnect(most);
    config
}
