//! Keys of the HTTP interface, and what each of them may do.

use super::pattern::Pattern;
use std::fmt;
use subtle::ConstantTimeEq;

/// Least bytes of a key. Shorter ones could be guessed.
const LEAST: usize = 32;

/// A part of the interface that a key may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Publish,
    History,
    Presence,
    Users,
    Statistics,
}

/// Their names in the file of rules.
pub(super) const SCOPES: [(&str, Scope); 5] = [
    ("publish", Scope::Publish),
    ("history", Scope::History),
    ("presence", Scope::Presence),
    ("users", Scope::Users),
    ("statistics", Scope::Statistics),
];

#[cfg(test)]
impl Scope {
    pub(crate) fn name(self) -> &'static str {
        SCOPES.into_iter().find_map(|(name, scope)| (scope == self).then_some(name)).unwrap_or_default()
    }
}

/// A key.
#[derive(Clone)]
pub(crate) struct ApiKey {
    pub(crate) name: String,
    secret: Box<[u8]>,
    pub(crate) scopes: Vec<Scope>,
    /// Topics that it may use.
    pub(crate) topics: Vec<Pattern>,
    /// Requests in a second.
    pub(crate) rate: u32,
}

impl ApiKey {
    /// A key with this secret. White space around it is left out.
    pub(crate) fn new(name: &str, secret: &[u8], rate: u32) -> Result<Self, String> {
        let secret = secret.trim_ascii();
        if secret.len() < LEAST || !secret.iter().all(u8::is_ascii_graphic) {
            return Err(format!("has no key of {LEAST} visible ASCII characters or more: `openssl rand -hex 32`"));
        }
        Ok(Self { name: name.to_owned(), secret: secret.into(), scopes: Vec::new(), topics: Vec::new(), rate })
    }

    pub(crate) fn may_use(&self, topic: &str) -> bool {
        self.topics.iter().any(|pattern| pattern.matches(topic))
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKey").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The key with this secret. All are compared, and the time says nothing about any but its length.
pub(crate) fn find<'k>(keys: &'k [ApiKey], secret: &str) -> Option<&'k ApiKey> {
    keys.iter().fold(None, |found, key| {
        let is_it: bool = key.secret.ct_eq(secret.as_bytes()).into();
        if is_it { Some(key) } else { found }
    })
}
