//! Where Redis is, and what is kept there.

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError, TlsCertificates};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A Redis server or cluster, and the part of it that is used.
///
/// Neither `Debug` nor the log shows passwords.
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisConfig {
    /// URLs of servers, with commas between them: `redis://user:password@host:6379/DATABASE`, `rediss://host` with TLS. They are
    /// the nodes of a cluster, or servers of which the first is used that is reached and no replica.
    pub servers: String,
    /// A file in PEM with the authorities that a server's certificate may come from, in the stead of those of the system.
    pub authorities: Option<PathBuf>,
    /// The first part of all keys and channels, so that programs can share a server. Default: `taut`.
    pub prefix: String,
    /// Whether plain topics take sharded channels in a cluster of Redis 7. They do not reach subscribers of prefixes, so an
    /// application that has those sets this to false, on all hosts. Default: true.
    pub sharded: bool,
    /// The bounds of what is kept.
    pub retention: Retention,
}

/// How much a [`RedisLog`](crate::RedisLog) keeps. All hosts have the same bounds.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Retention {
    /// Most messages of a topic with history, and most keys of a conflating topic. Redis trims whole nodes of a stream, so up to
    /// some hundred messages more are kept. Default: 10,000.
    pub entries: u64,
    /// The longest time that a message of a topic with history is kept. Default: one hour.
    pub age: Duration,
    /// The time after its last message in which a conflating topic is kept. Default: seven days.
    pub latest: Duration,
    /// The time in which a message with a known identifier is not stored again. Default: five minutes.
    pub ids: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        let (age, ids) = (Duration::from_secs(3_600), Duration::from_secs(300));
        Self { entries: 10_000, age, latest: Duration::from_secs(7 * 86_400), ids }
    }
}

impl RedisConfig {
    /// These servers, with the defaults.
    #[must_use]
    pub fn new(servers: impl Into<String>) -> Self {
        let retention = Retention::default();
        Self { servers: servers.into(), authorities: None, prefix: "taut".into(), sharded: true, retention }
    }

    pub(crate) fn servers(&self) -> impl Iterator<Item = &str> {
        self.servers.split(',').map(str::trim)
    }

    /// The servers' addresses, users and databases, to be used in RESP3.
    pub(crate) fn infos(&self) -> Result<Vec<ConnectionInfo>, RedisError> {
        let info = |server: &str| {
            let info = server.into_connection_info()?;
            let settings = info.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
            Ok(info.set_redis_settings(settings))
        };
        self.servers().map(info).collect()
    }

    pub(crate) fn client(&self, info: ConnectionInfo) -> Result<Client, RedisError> {
        match (self.certificates()?, info.addr()) {
            (Some(certificates), ConnectionAddr::TcpTls { .. }) => Client::build_with_tls(info, certificates),
            _ => Client::open(info),
        }
    }

    /// The certificates of the authorities, read anew.
    pub(crate) fn certificates(&self) -> Result<Option<TlsCertificates>, RedisError> {
        let Some(file) = &self.authorities else { return Ok(None) };
        Ok(Some(TlsCertificates { client_tls: None, root_cert: Some(std::fs::read(file)?) }))
    }

    /// The servers without users and passwords.
    pub(crate) fn addresses(&self) -> String {
        let shown = |server: &str| match server.into_connection_info() {
            Ok(info) => info.addr().to_string(),
            Err(_) => "(no URL of a Redis server)".to_owned(),
        };
        self.servers().map(shown).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("servers", &self.addresses())
            .field("authorities", &self.authorities)
            .field("prefix", &self.prefix)
            .field("sharded", &self.sharded)
            .field("retention", &self.retention)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::RedisConfig;

    #[test]
    fn passwords_are_not_shown() {
        let config = RedisConfig::new("redis://user:secret@one.example/3, rediss://:secret@[::1]:7, secret@");
        let shown = format!("{config:?}");
        assert!(!shown.contains("secret"), "{shown}");
        assert_eq!(config.addresses(), "one.example:6379, ::1:7, (no URL of a Redis server)");
    }
}
