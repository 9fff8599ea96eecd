//! `--broker` in a build without the feature `nats`: it says so.

use crate::failure::Failure;
use tautline::Bridge;
use tautline::layers::metrics::prometheus_client::registry::Registry;
use tautline_hub::Hub;

/// The broker between hosts, which this build has not.
#[derive(Debug, clap::Args)]
pub(super) struct BrokerArguments {
    #[arg(long, hide = true)]
    broker: Option<String>,
    #[arg(long, hide = true)]
    broker_file: Option<String>,
    #[arg(long, hide = true)]
    broker_ca: Option<String>,
    #[arg(long, hide = true)]
    broker_size: Option<String>,
    #[arg(long, hide = true)]
    broker_age: Option<String>,
    #[arg(long, hide = true)]
    broker_replicas: Option<String>,
}

/// The health of a broker that there is not.
#[derive(Clone)]
pub(super) struct BrokerHealth;

impl BrokerHealth {
    #[expect(clippy::unused_self, reason = "as with the feature nats")]
    pub(super) const fn unreadiness(&self) -> Option<String> {
        None
    }

    #[expect(clippy::unused_self, reason = "as with the feature nats")]
    pub(super) const fn register(&self, _: &mut Registry) {}
}

impl BrokerArguments {
    /// The hub of one host.
    pub(super) fn open(&self, _is_hub: bool) -> Result<(Hub, Option<Bridge>), Failure> {
        self.check().map(|()| (Hub::default(), None))
    }

    #[expect(clippy::unused_self, reason = "as with the feature nats")]
    pub(super) const fn health(&self) -> BrokerHealth {
        BrokerHealth
    }

    pub(super) fn check(&self) -> Result<(), Failure> {
        let Self { broker, broker_file, broker_ca, broker_size, broker_age, broker_replicas } = self;
        let all = [broker, broker_file, broker_ca, broker_size, broker_age, broker_replicas];
        if all.iter().all(|option| option.is_none()) {
            return Ok(());
        }
        Err(Failure::usage("--broker: this build has no brokers: build taut with the feature `nats`"))
    }
}
