//! Where NATS is, and what JetStream keeps.

use async_nats::ConnectOptions;
use std::time::Duration;

/// A NATS server or cluster, and the part of it that is used.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NatsConfig {
    /// URLs of servers, with commas between them: `nats://user:password@host:4222`, `tls://host:4222`.
    pub servers: String,
    /// The first part of all subjects and the names of streams, so that programs can share a server. Default: `taut`.
    pub prefix: String,
    /// The bounds of JetStream's memory of topics with history.
    pub retention: Retention,
}

/// How much a [`NatsLog`](crate::NatsLog) keeps in topics with history. It is set when the stream is made; later changes are made
/// with NATS' own tools.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Retention {
    /// The longest time. Default: one hour.
    pub age: Duration,
    /// Most bytes of all topics. Default: 1 GiB.
    pub bytes: u64,
    /// Copies in a cluster. Default: 1.
    pub replicas: usize,
    /// Whether messages are in files, and so outlive the server. Default: true.
    pub in_files: bool,
    /// The time in which a message with a known identifier is not stored again. Default: five minutes.
    pub ids: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        let (age, ids) = (Duration::from_secs(3_600), Duration::from_secs(300));
        Self { age, bytes: 1 << 30, replicas: 1, in_files: true, ids }
    }
}

impl NatsConfig {
    /// These servers, with the defaults.
    #[must_use]
    pub fn new(servers: impl Into<String>) -> Self {
        Self { servers: servers.into(), prefix: "taut".into(), retention: Retention::default() }
    }

    pub(crate) fn options(&self) -> ConnectOptions {
        ConnectOptions::new().name("tautline").connection_timeout(Duration::from_secs(5))
    }

    pub(crate) fn servers(&self) -> Vec<String> {
        self.servers.split(',').map(|server| server.trim().to_owned()).collect()
    }
}
