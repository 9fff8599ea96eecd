//! `--app hub`: topics with history, latest values and presence.

use crate::failure::Failure;
#[cfg(feature = "nats")]
use std::path::PathBuf;
use tautline::Bridge;
use tautline_hub::Hub;

/// The NATS servers by which hosts share their topics.
#[derive(Debug, clap::Args)]
pub(super) struct BrokerArguments {
    /// NATS servers by which `--app hub` shares its topics with other hosts, with commas between them. History is in JetStream.
    #[cfg(feature = "nats")]
    #[arg(long, value_name = "nats://HOST:PORT")]
    broker: Option<String>,
    /// File with the value of --broker. Other users of the machine can read a command line, but not a password in such a file.
    #[cfg(feature = "nats")]
    #[arg(long, value_name = "FILE", conflicts_with = "broker")]
    broker_file: Option<PathBuf>,
    /// Authorities of the NATS servers' certificates in PEM, beside those of the system.
    #[cfg(feature = "nats")]
    #[arg(long, value_name = "FILE")]
    broker_ca: Option<PathBuf>,
}

#[cfg(feature = "nats")]
impl BrokerArguments {
    /// The hub, and the bridge to other hosts.
    pub(super) fn open(&self, is_hub: bool) -> Result<(Hub, Option<Bridge>), Failure> {
        use std::sync::Arc;
        use tautline_nats::{NatsBroker, NatsLog};

        let Some(config) = self.config()? else { return Ok((Hub::default(), None)) };
        if !is_hub {
            return Err(Failure::usage("--broker needs --app hub"));
        }
        let failed = |error: std::io::Error| Failure::failed(format!("--broker: cannot start a thread: {error}"));
        let bridge = Bridge::start(NatsBroker::new(config.clone())).map_err(failed)?;
        let log = NatsLog::start(config).map_err(failed)?;
        let hub = Hub::with_log(tautline_hub::Config::default(), Arc::new(log), Some(bridge.clone()));
        Ok((hub, Some(bridge)))
    }

    fn config(&self) -> Result<Option<tautline_nats::NatsConfig>, Failure> {
        let servers = match (&self.broker, &self.broker_file) {
            (Some(servers), _) => servers.clone(),
            (None, Some(file)) => {
                let servers = crate::files::read(file, "file of --broker-file")?;
                let servers = String::from_utf8(servers).unwrap_or_default().trim().to_owned();
                if servers.is_empty() || servers.contains(['\n', '\r']) {
                    let what = format!("--broker-file: {} does not have one line of URLs", file.display());
                    return Err(Failure::usage(what));
                }
                servers
            }
            (None, None) if self.broker_ca.is_some() => return Err(Failure::usage("--broker-ca needs --broker")),
            (None, None) => return Ok(None),
        };
        let mut config = tautline_nats::NatsConfig::new(servers);
        if let Some(file) = &self.broker_ca {
            // Read here, so that a file that cannot be read is told at once.
            crate::files::read(file, "authorities of --broker-ca")?;
            config.authorities = Some(file.clone());
        }
        Ok(Some(config))
    }
}

#[cfg(not(feature = "nats"))]
impl BrokerArguments {
    /// The hub of one host.
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with the feature nats")]
    pub(super) fn open(&self, _is_hub: bool) -> Result<(Hub, Option<Bridge>), Failure> {
        Ok((Hub::default(), None))
    }
}
