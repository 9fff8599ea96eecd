//! `--app hub`: topics with history, latest values and presence.

use crate::failure::Failure;
use tautline::Bridge;
use tautline_hub::Hub;

/// The hub, and the bridge to other hosts.
#[cfg(feature = "nats")]
pub(super) fn open(broker: Option<&str>) -> Result<(Hub, Option<Bridge>), Failure> {
    use std::sync::Arc;
    use tautline_nats::{NatsBroker, NatsConfig, NatsLog};

    let Some(servers) = broker else { return Ok((Hub::default(), None)) };
    let config = NatsConfig::new(servers);
    let failed = |error: std::io::Error| Failure::failed(format!("--broker: cannot start a thread: {error}"));
    let bridge = Bridge::start(NatsBroker::new(config.clone())).map_err(failed)?;
    let log = NatsLog::start(config).map_err(failed)?;
    let hub = Hub::with_log(tautline_hub::Config::default(), Arc::new(log), Some(bridge.clone()));
    Ok((hub, Some(bridge)))
}

/// The hub of one host.
#[cfg(not(feature = "nats"))]
pub(super) fn open(_: Option<&str>) -> Result<(Hub, Option<Bridge>), Failure> {
    Ok((Hub::default(), None))
}
