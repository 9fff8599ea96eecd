//! `--broker`: topics that several hosts share, and their history in JetStream.

use crate::failure::Failure;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tautline::Bridge;
use tautline::layers::metrics::prometheus_client::collector::Collector;
use tautline::layers::metrics::prometheus_client::encoding::DescriptorEncoder;
use tautline::layers::metrics::prometheus_client::metrics::MetricType;
use tautline::layers::metrics::prometheus_client::registry::Registry;
use tautline_hub::Hub;
use tautline_nats::{NatsBroker, NatsConfig, NatsLog, Refusal};
use tautline_probe::amount;

/// The NATS servers by which hosts share their topics.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Broker")]
pub(super) struct BrokerArguments {
    /// NATS servers by which `--app hub` shares its topics with other hosts, with commas between them. History is in JetStream.
    #[arg(long, value_name = "nats://HOST:PORT")]
    broker: Option<String>,
    /// File with the value of --broker. Other users of the machine can read a command line, but not a password in such a file.
    #[arg(long, value_name = "FILE", conflicts_with = "broker")]
    broker_file: Option<PathBuf>,
    /// Authorities of the NATS servers' certificates in PEM, beside those of the system.
    #[arg(long, value_name = "FILE")]
    broker_ca: Option<PathBuf>,
    /// Most bytes of a stream of JetStream that this server makes: one has all topics with history, another all latest values.
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = amount::some_bytes)]
    broker_size: usize,
    /// Longest time that topics with history are kept, as 1h or 7d.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = age)]
    broker_age: Duration,
    /// Copies of each stream in a cluster of NATS servers.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    broker_replicas: u8,
    #[arg(skip)]
    health: BrokerHealth,
}

/// Whether the broker refuses the log of topics. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct BrokerHealth(Arc<OnceLock<Refusal>>);

impl BrokerHealth {
    /// Why the server should get no new connections.
    pub(super) fn unreadiness(&self) -> Option<String> {
        let reason = self.0.get()?.reason()?;
        Some(format!("the broker refuses the log of topics: {reason}"))
    }

    /// Adds the metric of a server with a broker.
    pub(super) fn register(&self, metrics: &mut Registry) {
        if self.0.get().is_some() {
            metrics.register_collector(Box::new(self.clone()));
        }
    }
}

impl Collector for BrokerHealth {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Whether the broker refuses the log of topics until an operator changes something";
        let mut family = encoder.encode_descriptor("taut_broker_refused", help, None, MetricType::Gauge)?;
        family.encode_gauge(&u64::from(self.unreadiness().is_some()))
    }
}

/// A time of minutes to years.
fn age(text: &str) -> Result<Duration, String> {
    let whole = |unit| text.strip_suffix(unit).and_then(|number| number.parse::<u64>().ok());
    let units = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)];
    let seconds = units.into_iter().find_map(|(unit, seconds)| whole(unit)?.checked_mul(seconds));
    let age = seconds.filter(|seconds| (1..=10 * 365 * 86_400).contains(seconds));
    age.map(Duration::from_secs).ok_or_else(|| "write a time up to ten years, as 90m, 1h or 7d".to_owned())
}

impl BrokerArguments {
    /// The hub, and the bridge to other hosts.
    pub(super) fn open(&self, is_hub: bool) -> Result<(Hub, Option<Bridge>), Failure> {
        let Some(config) = self.config()? else { return Ok((Hub::default(), None)) };
        if !is_hub {
            return Err(Failure::usage("--broker needs --app hub"));
        }
        let failed = |error: std::io::Error| Failure::failed(format!("--broker: cannot start a thread: {error}"));
        let bridge = Bridge::start(NatsBroker::new(config.clone())).map_err(failed)?;
        let log = NatsLog::start(config).map_err(failed)?;
        // A server opens its broker once.
        let _ = self.health.0.set(log.refusal());
        let hub = Hub::with_log(tautline_hub::Config::default(), Arc::new(log), Some(bridge.clone()));
        Ok((hub, Some(bridge)))
    }

    /// Whether the opened broker refuses.
    pub(super) fn health(&self) -> BrokerHealth {
        self.health.clone()
    }

    /// Checks the files and options.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.config().map(drop)
    }

    fn config(&self) -> Result<Option<NatsConfig>, Failure> {
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
        let mut config = NatsConfig::new(servers);
        if let Some(file) = &self.broker_ca {
            // Read here, so that a file that cannot be read is told at once.
            crate::files::read(file, "authorities of --broker-ca")?;
            config.authorities = Some(file.clone());
        }
        config.retention.bytes = self.broker_size as u64;
        config.retention.age = self.broker_age;
        config.retention.replicas = usize::from(self.broker_replicas);
        Ok(Some(config))
    }
}

#[cfg(test)]
mod tests {
    use super::age;
    use std::time::Duration;

    #[test]
    fn ages_have_a_unit_and_an_end() {
        assert_eq!(age("90m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(age("7d"), Ok(Duration::from_secs(604_800)));
        for bad in ["", "1", "0h", "-1h", "1.5h", "4000d", "99999999999999999999d", "1w"] {
            assert!(age(bad).is_err(), "{bad}");
        }
    }
}
