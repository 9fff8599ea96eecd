//! A connection's rights: who it is, and what it may do in the topics that it uses.

use crate::rate::Rate;
use crate::rules::{Grant, Identity, Rights, Rules};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::ConnHandle;
use tautline::layers::engine::sized::{map_memory, name_memory};

/// Topics whose rights a connection that publishes keeps. All are forgotten before one more.
const MOST_TOPICS: usize = 64;

/// The time for which rates count.
const SECOND: Duration = Duration::from_secs(1);

/// Tokens that a connection may send in a second. Each has its signature verified, perhaps by several keys.
const MOST_TOKENS: u32 = 4;

/// A token that a request brought, and whom it names. Kept until the connection opens, which follows at once.
pub(crate) type Arriving = (Box<str>, Arc<Identity>);

/// Codes with which a hub closes connections.
pub(crate) mod code {
    /// The token has expired.
    pub(crate) const EXPIRED: u16 = 4001;
    /// The application has ended the connection, or revoked the user's tokens.
    pub(crate) const DISCONNECTED: u16 = 4002;
    /// No token came in time.
    pub(crate) const NO_TOKEN: u16 = 4003;
    /// The token was not accepted.
    pub(crate) const REFUSED: u16 = 4004;
    /// The user has too many connections.
    pub(crate) const TOO_MANY: u16 = 4005;
    /// The client speaks another version of the protocol.
    pub(crate) const VERSION: u16 = 4006;
}

/// The rights of a connection under rules.
pub(crate) struct Access {
    pub(crate) identity: Option<Arc<Identity>>,
    /// Whether the first message has to bring a token.
    pub(crate) is_waiting: bool,
    /// For the end of subscriptions, when rules change.
    pub(crate) handle: ConnHandle,
    /// Resolved rights to publish. A lookup is all that a message costs.
    publishes: HashMap<Arc<str>, Grant>,
    /// Bytes of names.
    names: usize,
    /// The messages of a second, for each namespace with a rate. They stay when rights are resolved anew, or
    /// clients could begin a second as often as they like.
    rates: HashMap<usize, Rate>,
    /// The tokens of a second.
    tokens: Rate,
}

impl Access {
    pub(crate) fn new(identity: Option<Arc<Identity>>, is_waiting: bool, handle: ConnHandle) -> Self {
        let (publishes, rates, tokens) = (HashMap::new(), HashMap::new(), Rate::begin(Instant::now()));
        Self { identity, is_waiting, handle, publishes, names: 0, rates, tokens }
    }

    /// Counts a token that the connection has sent.
    ///
    /// # Errors
    /// The reason why it is not looked at.
    pub(crate) fn count_token(&mut self, now: Instant) -> Result<(), &'static str> {
        let fits = self.tokens.take(MOST_TOKENS, SECOND, now);
        if fits { Ok(()) } else { Err("more tokens in a second than this hub takes of one connection") }
    }

    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let identity = self.identity.as_ref().map_or(0, |identity| identity.memory());
        size_of::<Self>() + map_memory(&self.publishes) + self.names + map_memory(&self.rates) + identity
    }

    /// Forgets resolved rights, since another token counts now.
    pub(crate) fn forget(&mut self) {
        (self.publishes, self.names) = (HashMap::new(), 0);
    }

    /// Forgets all that it knows of rules, since others hold now.
    pub(crate) fn forget_rules(&mut self) {
        self.forget();
        self.rates = HashMap::new();
    }

    /// The name of a message in the log, by its identifier: another one than those of other users and of applications. A
    /// client that knows an identifier would else have the log leave out a message that somebody else sends.
    pub(crate) fn name(&self, id: &str) -> Box<str> {
        let user = self.identity.as_ref().and_then(|identity| identity.user.as_deref()).unwrap_or_default();
        // Those of applications begin with a name without a colon.
        format!("{}:{user}/{id}", user.len()).into()
    }

    /// The rights and terms of a message of `len` bytes to a topic.
    ///
    /// # Errors
    /// The reason why it may not be published.
    pub(crate) fn publish(&mut self, rules: &Rules, topic: &Arc<str>, len: usize) -> Result<Grant, &'static str> {
        let grant = match self.publishes.get(topic) {
            Some(grant) => *grant,
            None => {
                if self.publishes.len() >= MOST_TOPICS {
                    self.forget();
                }
                let grant = rules.grant(self.identity.as_deref(), topic);
                self.publishes.insert(topic.clone(), grant);
                self.names += name_memory(topic);
                grant
            }
        };
        check_publish(grant, len)?;
        if let (Some(most), Some(namespace)) = (grant.terms.publish_rate, grant.namespace) {
            let now = Instant::now();
            if !self.rates.entry(namespace).or_insert_with(|| Rate::begin(now)).take(most, SECOND, now) {
                return Err("more messages in a second than this namespace takes of one connection");
            }
        }
        Ok(grant)
    }
}

const NO_PUBLISH: &str = "no right to publish in this topic";

/// Whether a message of `len` bytes may be published.
pub(crate) fn check_publish(grant: Grant, len: usize) -> Result<(), &'static str> {
    if !grant.rights.has(Rights::PUBLISH) {
        return Err(NO_PUBLISH);
    }
    if grant.terms.max_message.is_some_and(|most| len > most) {
        return Err("the data is longer than this topic takes");
    }
    Ok(())
}

/// Whether somebody may see a list of the members, or wants none.
pub(crate) fn check_list(grant: Grant, lists: bool) -> Result<(), &'static str> {
    if lists && grant.terms.is_counted {
        return Err("the members of this topic are counted and not listed: write `count` and not `presence`");
    }
    Ok(())
}

/// Whether a subscription may begin or go on.
pub(crate) fn check_subscription(grant: Grant, presence: bool, history: bool) -> Result<(), &'static str> {
    let wanted = [
        (true, Rights::SUBSCRIBE, "no right to subscribe to this topic"),
        (presence, Rights::PRESENCE, "no right to the presence of this topic: leave out `as` and `presence`"),
        (history, Rights::HISTORY, "no right to the history of this topic: leave out `after`"),
    ];
    let missing = wanted.into_iter().find(|(is_wanted, right, _)| *is_wanted && !grant.rights.has(*right));
    missing.map_or(Ok(()), |(.., reason)| Err(reason))
}
