//! `--broker`: topics that several hosts share, and their history, on NATS or Redis.

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
use tautline_hub::backend::Refusal;
use tautline_hub::{Hub, Log};
use tautline_probe::amount;

/// Whether this build has a client of a broker. Without one, the options are not shown.
const HAS_BROKER: bool = cfg!(any(feature = "nats", feature = "redis"));

/// The servers by which hosts share their topics.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Broker")]
pub(super) struct BrokerArguments {
    /// Servers of NATS or Redis by which `--app hub` shares its topics with other hosts, with commas between them. History is in
    /// JetStream or in streams of Redis. With TLS: tls://HOST, rediss://HOST.
    #[arg(long, value_name = "nats://HOST:PORT|redis://HOST:PORT", hide = !HAS_BROKER)]
    broker: Option<String>,
    /// File with the value of --broker. Other users of the machine can read a command line, but not a password in such a file.
    #[arg(long, value_name = "FILE", conflicts_with = "broker", hide = !HAS_BROKER)]
    broker_file: Option<PathBuf>,
    /// Authorities of the servers' certificates in PEM: with NATS beside those of the system, with Redis in their stead.
    #[arg(long, value_name = "FILE", hide = !HAS_BROKER)]
    broker_ca: Option<PathBuf>,
    /// Most bytes of a stream of JetStream that this server makes: one has all topics with history, another all latest values.
    /// [default: 1GiB]
    #[arg(long, value_name = "BYTES", value_parser = amount::some_bytes, hide = !HAS_BROKER)]
    broker_size: Option<usize>,
    /// Most messages of a topic with history in Redis, and most keys of a topic with latest values. [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), hide = !HAS_BROKER)]
    broker_entries: Option<u64>,
    /// Longest time that topics with history are kept, as 1h or 7d.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = age, hide = !HAS_BROKER)]
    broker_age: Duration,
    /// Copies of each stream in a cluster of NATS servers. [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5), hide = !HAS_BROKER)]
    broker_replicas: Option<u8>,
    /// Whether the opened broker refuses.
    #[arg(skip)]
    pub(super) health: BrokerHealth,
}

/// The kind of a broker, by its URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Nats,
    Redis,
}

/// The connections of a host to its broker, and whether that refuses them.
type Opened = (Bridge, Arc<dyn Log>, Refusal);

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
        let Some((kind, servers)) = self.servers()? else { return Ok((Hub::default(), None)) };
        if !is_hub {
            return Err(Failure::usage("--broker needs --app hub"));
        }
        let opened = match kind {
            Kind::Nats => self.open_nats(servers),
            Kind::Redis => self.open_redis(servers),
        };
        let failed = |error: std::io::Error| Failure::failed(format!("--broker: cannot start a thread: {error}"));
        let (bridge, log, refusal) = opened.map_err(failed)?;
        // A server opens its broker once.
        let _ = self.health.0.set(refusal);
        let hub = Hub::with_log(tautline_hub::Config::default(), log, Some(bridge.clone()));
        Ok((hub, Some(bridge)))
    }

    #[cfg(feature = "nats")]
    fn open_nats(&self, servers: String) -> std::io::Result<Opened> {
        let mut config = tautline_nats::NatsConfig::new(servers);
        config.authorities.clone_from(&self.broker_ca);
        config.retention.bytes = self.broker_size.map_or(config.retention.bytes, |bytes| bytes as u64);
        config.retention.age = self.broker_age;
        config.retention.replicas = self.broker_replicas.map_or(config.retention.replicas, usize::from);
        let bridge = Bridge::start(tautline_nats::NatsBroker::new(config.clone()))?;
        let log = tautline_nats::NatsLog::start(config)?;
        let refusal = log.refusal();
        Ok((bridge, Arc::new(log), refusal))
    }

    #[cfg(feature = "redis")]
    fn open_redis(&self, servers: String) -> std::io::Result<Opened> {
        let mut config = tautline_redis::RedisConfig::new(servers);
        config.authorities.clone_from(&self.broker_ca);
        config.retention.entries = self.broker_entries.unwrap_or(config.retention.entries);
        config.retention.age = self.broker_age;
        let bridge = Bridge::start(tautline_redis::RedisBroker::new(config.clone()))?;
        let log = tautline_redis::RedisLog::start(config)?;
        let refusal = log.refusal();
        Ok((bridge, Arc::new(log), refusal))
    }

    #[cfg(not(feature = "nats"))]
    fn open_nats(&self, _: String) -> std::io::Result<Opened> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    #[cfg(not(feature = "redis"))]
    fn open_redis(&self, _: String) -> std::io::Result<Opened> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    /// Whether the server connects to a broker.
    pub(super) const fn is_on(&self) -> bool {
        self.broker.is_some() || self.broker_file.is_some()
    }

    /// The files that each connection to the broker reads.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.broker_ca.iter().cloned().collect()
    }

    /// Checks the files and options.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.servers().map(drop)
    }

    /// The servers, if this build has a client of theirs, and the options fit.
    fn servers(&self) -> Result<Option<(Kind, String)>, Failure> {
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
            (None, None) => {
                let given = [
                    ("--broker-ca", self.broker_ca.is_some()),
                    ("--broker-size", self.broker_size.is_some()),
                    ("--broker-entries", self.broker_entries.is_some()),
                    ("--broker-replicas", self.broker_replicas.is_some()),
                ];
                let useless = given.into_iter().find(|(_, is_given)| *is_given);
                return useless.map_or(Ok(None), |(option, _)| Err(Failure::usage(format!("{option} needs --broker"))));
            }
        };
        let is_redis = ["redis://", "rediss://"].iter().any(|scheme| servers.starts_with(scheme));
        let kind = if is_redis { Kind::Redis } else { Kind::Nats };
        let (has, feature) = match kind {
            Kind::Nats => (cfg!(feature = "nats"), "nats"),
            Kind::Redis => (cfg!(feature = "redis"), "redis"),
        };
        if !has {
            let what = format!("--broker: this build has no such client: build taut with the feature `{feature}`");
            return Err(Failure::usage(what));
        }
        let foreign = match kind {
            Kind::Nats => [("--broker-entries", self.broker_entries.is_some()), ("", false)],
            Kind::Redis => {
                [("--broker-size", self.broker_size.is_some()), ("--broker-replicas", self.broker_replicas.is_some())]
            }
        };
        if let Some((option, _)) = foreign.into_iter().find(|(_, is_given)| *is_given) {
            let (name, other) = if is_redis { ("Redis", "NATS") } else { ("NATS", "Redis") };
            return Err(Failure::usage(format!("{option} is for {other}, but the broker is {name}")));
        }
        if let Some(file) = &self.broker_ca {
            // Read here, so that a file that cannot be read is told at once.
            crate::files::read(file, "authorities of --broker-ca")?;
        }
        Ok(Some((kind, servers)))
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
