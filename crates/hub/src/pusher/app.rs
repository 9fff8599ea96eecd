//! Apps of the Pusher protocol, as the rules have them.

use super::name::Channel;
use super::signature::Secret;
use std::fmt;
use std::sync::Arc;

/// An app: its keys, channels and limits.
#[derive(Clone, PartialEq)]
pub(crate) struct App {
    /// Names it in paths of the HTTP interface.
    pub(crate) id: String,
    /// Names it in paths of connections, and in signatures.
    pub(crate) key: String,
    pub(crate) secret: Secret,
    /// Stands before its channels' names, and makes topics of them.
    pub(crate) prefix: String,
    pub(crate) is_enabled: bool,
    pub(crate) client_events: bool,
    /// Whether subscribers are told their number, but for those of presence channels.
    pub(crate) counts: bool,
    pub(crate) limits: AppLimits,
}

/// The limits of an app.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AppLimits {
    /// Connections to one host.
    pub(crate) connections: usize,
    /// Bytes of an event's data.
    pub(crate) data: usize,
    /// Members of a presence channel.
    pub(crate) members: usize,
    /// Requests to the HTTP interface of one host in a second.
    pub(crate) rate: u32,
}

impl App {
    /// The topic of a channel.
    pub(crate) fn topic(&self, channel: &str) -> Arc<str> {
        format!("{}{channel}", self.prefix).into()
    }

    /// The channel of a topic, if it is one of this app.
    pub(crate) fn channel<'t>(&self, topic: &'t str) -> Option<&'t str> {
        topic.strip_prefix(&*self.prefix).filter(|name| Channel::read(name).is_some())
    }

    /// Whether connections may go on with `other` in its place.
    pub(crate) fn continues_as(&self, other: &Self) -> bool {
        let same =
            |app: &Self| (app.id.clone(), app.key.clone(), app.secret.clone(), app.prefix.clone(), app.is_enabled);
        same(self) == same(other)
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("id", &self.id).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
