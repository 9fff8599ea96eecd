//! Kinds of topics, and limits.

use std::time::Duration;

/// The kind of a topic, which its name decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Messages go to the subscribers of now.
    Plain,
    /// Messages have offsets and are kept for those who return.
    History,
    /// The latest message of each key is kept for those who come.
    Latest,
}

/// The settings of a [`Hub`](crate::Hub).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Prefix of the names of topics with history. Default: `log:`.
    pub history: String,
    /// Prefix of the names of conflating topics. Default: `latest:`.
    pub latest: String,
    /// Most bytes of a name, key, identifier or epoch. Default: 256.
    pub max_name: usize,
    /// Most topics with history or conflation that subscribers of one loop follow. Default: 100,000.
    pub max_topics: usize,
    /// Most topics that one connection may be subscribed to. Default: 128.
    pub max_subscriptions: usize,
    /// Most messages that one connection may have on their way to the log. Default: 256.
    pub max_unanswered: usize,
    /// Most bytes of them, beside one message. Default: 4 MiB.
    pub max_unanswered_bytes: usize,
    /// Bytes that may wait for a slow subscriber of a topic with history before it is disconnected. It then returns with its last
    /// offset. History that it catches up with counts one page at a time, of all its topics: up to 256 KiB and one message.
    /// Default: 4 MiB.
    pub max_lag: usize,
    /// Most members of a topic's presence on one host. Default: 1,000.
    ///
    /// They are a sorted list. A join or leave moves at most all of them in memory: 0.8 us for 1,000 members, and 0.17 ms for
    /// 100,000 (AMD EPYC, 2026-11-28).
    pub max_members: usize,
    /// The time after which members of a host that says nothing have left. Default: 15 seconds.
    pub lease: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            history: "log:".into(),
            latest: "latest:".into(),
            max_name: 256,
            max_topics: 100_000,
            max_subscriptions: 128,
            max_unanswered: 256,
            max_unanswered_bytes: 4 << 20,
            max_lag: 4 << 20,
            max_members: 1_000,
            lease: Duration::from_secs(15),
        }
    }
}

impl Config {
    /// The kind of the topic with this name.
    #[must_use]
    pub fn kind(&self, topic: &str) -> Kind {
        if topic.starts_with(&self.history) {
            Kind::History
        } else if topic.starts_with(&self.latest) {
            Kind::Latest
        } else {
            Kind::Plain
        }
    }

    /// Whether a client may use this name. Names that begin with `$` are the hub's own.
    pub(crate) fn allows(&self, name: &str) -> bool {
        !name.is_empty() && !name.starts_with('$') && self.fits(name)
    }

    /// Whether a client may use this text as a key, an identifier, an epoch or the name of a member.
    pub(crate) fn fits(&self, text: &str) -> bool {
        text.len() <= self.max_name && !text.contains(char::is_control)
    }
}
