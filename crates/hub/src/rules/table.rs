//! The rules of a hub: keys, conditions on tokens, and what they and the names of topics allow.

use super::api_key::ApiKey;
use super::events::EventRules;
use super::hooks::{About, Hooks};
use super::keys::Keys;
use super::pattern::Pattern;
use super::rights::Rights;
use super::token::{self, Conditions, Identity, TokenError};
use crate::config::{Config, Kind};
use crate::figures::Counts;
use crate::pusher::app::App;
use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tautline::{Origins, SlowConsumer};

/// The rights of all clients of a hub. Read from a file by [`Rules::load`].
///
/// ```
/// use tautline_hub::{Config, Hub, Rules};
///
/// let folder = std::env::temp_dir().join(format!("hub-rules-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// let file = folder.join("hub.toml");
/// std::fs::write(&file, "[[namespace]]\ntopics = \"news:*\"\nanyone = [\"subscribe\"]\n")?;
/// let hub = Hub::new(Config::default()).with_rules(Rules::load(&file)?);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Rules {
    /// Everybody may do everything.
    pub(crate) is_open: bool,
    pub(crate) tokens: Tokens,
    /// Users whose tokens are not accepted.
    pub(crate) revoked: HashSet<String>,
    /// Most connections of one user on this host.
    pub(crate) max_sessions: usize,
    pub(crate) limits: Limits,
    pub(crate) namespaces: Vec<Namespace>,
    /// Keys of the HTTP interface.
    pub(crate) api_keys: Vec<ApiKey>,
    /// The application that is asked.
    pub(crate) hooks: Option<Arc<Hooks>>,
    /// Apps of the Pusher protocol.
    pub(crate) apps: Vec<Arc<App>>,
    /// Server-sent events.
    pub(crate) events: EventRules,
    /// The files that were read.
    pub(crate) files: Vec<PathBuf>,
    /// The figures of namespaces by their numbers, and those of topics without one at last. A hub has them counted.
    pub(crate) counts: Vec<Arc<Counts>>,
}

/// How tokens come, and which are accepted.
pub(crate) struct Tokens {
    pub(crate) keys: Keys,
    pub(crate) conditions: Conditions,
    /// Whether a connection needs one.
    pub(crate) is_required: bool,
    /// Names of the cookie and of the query's parameter.
    pub(crate) cookie: Option<String>,
    pub(crate) query: Option<String>,
    /// Web pages whose requests may bring the cookie.
    pub(crate) origins: Origins,
    /// The time in which a first message has to bring the token.
    pub(crate) login: Duration,
    /// The time before the end of a token at which the client is asked for another one.
    pub(crate) refresh: Duration,
}

impl Default for Tokens {
    fn default() -> Self {
        Self {
            keys: Keys::default(),
            conditions: Conditions::default(),
            is_required: false,
            cookie: None,
            query: None,
            origins: Origins::SameHost,
            login: Duration::from_secs(10),
            refresh: Duration::from_secs(30),
        }
    }
}

/// Bounds over all connections of a host, in a second unless they say otherwise. `None` is no bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Requests to the HTTP interface of one address in a minute, without a key that is known.
    pub(crate) bad_keys: u32,
    pub(crate) publishes_per_user: Option<u32>,
    pub(crate) publishes_per_topic: Option<u32>,
    pub(crate) publishes_per_address: Option<u32>,
    pub(crate) subscriptions_per_user: Option<u32>,
    pub(crate) subscriptions_per_address: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bad_keys: 30,
            publishes_per_user: None,
            publishes_per_topic: None,
            publishes_per_address: None,
            subscriptions_per_user: None,
            subscriptions_per_address: None,
        }
    }
}

/// Topics for which the same holds.
#[derive(Clone)]
pub(crate) struct Namespace {
    pub(crate) topics: Pattern,
    /// Rights of all, and further ones of those with a token.
    pub(crate) anyone: Rights,
    pub(crate) users: Rights,
    pub(crate) terms: Terms,
}

/// The limits for the messages and members of a topic, for all clients.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Terms {
    /// `None`: by the prefix of the topic's name.
    pub(crate) kind: Option<Kind>,
    pub(crate) max_members: Option<usize>,
    /// Whether members are counted and not listed.
    pub(crate) is_counted: bool,
    /// Bytes of a message's data.
    pub(crate) max_message: Option<usize>,
    /// Messages of one connection in a second.
    pub(crate) publish_rate: Option<u32>,
    /// For slow readers of a plain topic.
    pub(crate) slow: Option<SlowConsumer>,
    /// Events that the application is asked and told.
    pub(crate) about: About,
}

impl Terms {
    pub(crate) fn kind(&self, config: &Config, topic: &str) -> Kind {
        self.kind.unwrap_or_else(|| config.kind(topic))
    }
}

/// The rights of a connection in a topic, and their terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Grant {
    pub(crate) rights: Rights,
    pub(crate) terms: Terms,
    /// The number of the topic's namespace.
    pub(crate) namespace: Option<usize>,
}

impl Rules {
    /// Everybody who connects may do everything.
    #[must_use]
    pub fn open() -> Self {
        Self { is_open: true, ..Self::closed() }
    }

    /// Nobody may do anything.
    pub(crate) fn closed() -> Self {
        Self {
            is_open: false,
            tokens: Tokens::default(),
            revoked: HashSet::new(),
            max_sessions: usize::MAX,
            limits: Limits::default(),
            namespaces: Vec::new(),
            api_keys: Vec::new(),
            hooks: None,
            apps: Vec::new(),
            events: EventRules::default(),
            files: Vec::new(),
            counts: Vec::new(),
        }
    }

    /// The file of the rules, and those that it names.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Whether the hub connects to an application (`[hooks]`).
    #[must_use]
    pub const fn has_hooks(&self) -> bool {
        self.hooks.is_some()
    }

    /// The rights of a connection in a topic.
    pub(crate) fn grant(&self, identity: Option<&Identity>, topic: &str) -> Grant {
        if self.is_open {
            return Grant { rights: Rights::ALL, terms: Terms::default(), namespace: None };
        }
        let namespace = self.namespaces.iter().position(|space| space.topics.matches(topic));
        let space = namespace.and_then(|number| self.namespaces.get(number));
        let (anyone, users, terms) = space.map_or_else(Default::default, |s| (s.anyone, s.users, s.terms));
        let rights = identity.map_or(anyone, |identity| anyone | users | identity.rights(topic));
        Grant { rights, terms, namespace }
    }

    /// The figures of a topic's namespace, by its number.
    pub(crate) fn counts(&self, namespace: Option<usize>) -> Option<&Arc<Counts>> {
        self.counts.get(namespace.unwrap_or(self.namespaces.len()))
    }

    /// The figures of a topic's namespace.
    pub(crate) fn counts_of(&self, topic: &str) -> Option<&Arc<Counts>> {
        self.counts(self.namespaces.iter().position(|space| space.topics.matches(topic)))
    }

    /// Counts messages of history that are sent to a subscriber.
    pub(crate) fn send_history(&self, topic: &str, messages: usize) {
        if let Some(counts) = self.counts_of(topic).filter(|_| messages > 0) {
            counts.send_history(messages as u64);
        }
    }

    /// Counts a message that was taken.
    pub(crate) fn publish(&self, namespace: Option<usize>) {
        if let Some(counts) = self.counts(namespace) {
            counts.publish(1);
        }
    }

    /// Whether topics are in the same namespaces by both.
    pub(crate) fn has_namespaces_of(&self, other: &Self) -> bool {
        let same = |(one, other): (&Arc<Counts>, &Arc<Counts>)| Arc::ptr_eq(one, other);
        self.counts.len() == other.counts.len()
            && self.counts.iter().zip(&other.counts).all(same)
            && self.namespaces.iter().map(|space| &space.topics).eq(other.namespaces.iter().map(|space| &space.topics))
    }

    /// The kind of a topic.
    pub(crate) fn kind(&self, config: &Config, topic: &str) -> Kind {
        self.grant(None, topic).terms.kind(config, topic)
    }

    /// The user that a token names, at a time since 1970.
    pub(crate) fn identify(&self, token: &str, now: Duration) -> Result<Arc<Identity>, TokenError> {
        let identity = token::read(token, &self.tokens.keys, &self.tokens.conditions, now)?;
        if self.is_revoked(&identity) {
            return Err(TokenError::Revoked);
        }
        Ok(Arc::new(identity))
    }

    /// Whether the application is asked or told about this, and whom to call.
    pub(crate) fn hooks_about(&self, about: About) -> Option<&Arc<Hooks>> {
        self.hooks.as_ref().filter(|hooks| hooks.about.has(about))
    }

    /// Whether the tokens of this user are not accepted any more.
    pub(crate) fn is_revoked(&self, identity: &Identity) -> bool {
        identity.user.as_deref().is_some_and(|user| self.revoked.contains(user))
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rules = f.debug_struct("Rules");
        rules.field("is_open", &self.is_open).field("namespaces", &self.namespaces.len()).finish_non_exhaustive()
    }
}
