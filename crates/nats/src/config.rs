//! Where NATS is, and what JetStream keeps.

use async_nats::{ConnectOptions, ServerAddr};
use percent_encoding::percent_decode_str;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A NATS server or cluster, and the part of it that is used.
///
/// Neither `Debug` nor the log shows passwords.
#[derive(Clone)]
#[non_exhaustive]
pub struct NatsConfig {
    /// URLs of servers, with commas between them: `nats://user:password@host:4222`, `tls://token@host:4222`. The first user and
    /// password, or token, is for all of them.
    pub servers: String,
    /// A file in PEM with the authorities that a server's certificate may come from, beside those of the system.
    pub authorities: Option<PathBuf>,
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
        Self { servers: servers.into(), authorities: None, prefix: "taut".into(), retention: Retention::default() }
    }

    pub(crate) fn options(&self) -> ConnectOptions {
        let options = ConnectOptions::new().name("tautline").connection_timeout(Duration::from_secs(5));
        // The library does not look at them.
        let options = match self.user_and_password() {
            Some((user, Some(password))) => options.user_and_password(user, password),
            Some((token, None)) => options.token(token),
            None => options,
        };
        match &self.authorities {
            Some(file) => options.add_root_certificates(file.clone()),
            None => options,
        }
    }

    fn user_and_password(&self) -> Option<(String, Option<String>)> {
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        self.servers().iter().find_map(|server| {
            let address = server.parse::<ServerAddr>().ok()?;
            Some((decode(address.username()?), address.password().map(decode)))
        })
    }

    /// The servers without users and passwords.
    pub(crate) fn addresses(&self) -> String {
        let shown = |server: String| match server.parse::<ServerAddr>() {
            Ok(address) => match address.host() {
                host if host.contains(':') => format!("{}://[{host}]:{}", address.scheme(), address.port()),
                host => format!("{}://{host}:{}", address.scheme(), address.port()),
            },
            Err(_) => "(no URL of a NATS server)".to_owned(),
        };
        self.servers().into_iter().map(shown).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn servers(&self) -> Vec<String> {
        self.servers.split(',').map(|server| server.trim().to_owned()).collect()
    }
}

impl fmt::Debug for NatsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsConfig")
            .field("servers", &self.addresses())
            .field("authorities", &self.authorities)
            .field("prefix", &self.prefix)
            .field("retention", &self.retention)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::NatsConfig;

    #[test]
    fn passwords_are_not_shown() {
        let config =
            NatsConfig::new("nats://user:secret@one.example, tls://token-secret@[::1]:7, secret@, two.example:9");
        let shown = format!("{config:?}");
        assert!(!shown.contains("secret"), "{shown}");
        let addresses = "nats://one.example:4222, tls://[::1]:7, (no URL of a NATS server), nats://two.example:9";
        assert_eq!(config.addresses(), addresses);
    }

    #[test]
    fn the_first_user_counts() {
        let of = |servers: &str| NatsConfig::new(servers).user_and_password();
        let both = |user: &str, password: &str| Some((user.to_owned(), Some(password.to_owned())));
        assert_eq!(of("nats://one, nats://a%40b:p%3Aw@two, nats://c:d@three"), both("a@b", "p:w"));
        assert_eq!(of("tls://token@one"), Some(("token".to_owned(), None)));
        assert_eq!(of("nats://one:4222"), None);
    }
}
