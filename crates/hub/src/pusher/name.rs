//! Names of channels: which are allowed, and what they mean.

use std::sync::Arc;

/// Names of the broker's topics, of the hub's own topics, and of rooms of presence begin with this.
pub(crate) const OWN: &str = "$pusher/";
/// Most bytes of a member's information.
pub(crate) const MOST_INFO: usize = 1024;
/// Most bytes of a channel's name, of an event's, and of a user's identifier.
const MOST: usize = 164;
pub(super) const MOST_EVENT: usize = 200;
pub(super) const MOST_USER: usize = 128;
/// The channel that gets events for one user.
pub(super) const OF_USER: &str = "#server-to-user-";

/// A channel by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Channel {
    pub(super) kind: Kind,
    /// Whether its last event is kept for subscribers that come.
    pub(super) is_cached: bool,
    /// Whether the server cannot read its events.
    pub(super) is_encrypted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Public,
    Private,
    Presence,
}

impl Channel {
    /// Reads a name. `None` if no channel may have it.
    pub(super) fn read(name: &str) -> Option<Self> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-=@,.;".contains(&byte);
        if name.is_empty() || name.len() > MOST || !name.bytes().all(fits) {
            return None;
        }
        let (kind, rest) = match (name.strip_prefix("private-"), name.strip_prefix("presence-")) {
            (Some(rest), _) => (Kind::Private, rest),
            (_, Some(rest)) => (Kind::Presence, rest),
            _ => (Kind::Public, name),
        };
        let is_encrypted = kind == Kind::Private && rest.starts_with("encrypted-");
        let rest = if is_encrypted { rest.trim_start_matches("encrypted-") } else { rest };
        Some(Self { kind, is_cached: rest.starts_with("cache-"), is_encrypted })
    }
}

/// The user of a channel for one user.
pub(super) fn user_of(channel: &str) -> Option<&str> {
    channel.strip_prefix(OF_USER).filter(|user| fits_user(user))
}

/// Whether a text can name a user.
pub(super) fn fits_user(user: &str) -> bool {
    !user.is_empty() && user.len() <= MOST_USER && !user.contains(char::is_control)
}

/// The topic of the hub's presence that has the members of a channel.
pub(crate) fn room_topic(topic: &str) -> Arc<str> {
    format!("{OWN}{topic}").into()
}
