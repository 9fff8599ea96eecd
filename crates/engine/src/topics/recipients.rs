//! The receivers of a message, named by applications and on the way between shards.

use crate::ids::ConnId;
use std::sync::Arc;

/// The receivers of a message whose deliveries are counted, as in [`Conn::publish_counted`](crate::Conn::publish_counted).
///
/// The name of a topic and a list of connections convert to it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Recipients<'a> {
    /// The subscribers of a topic.
    Topic(&'a str),
    /// All open connections.
    All,
    /// These connections.
    Conns(&'a [ConnId]),
    /// The connections of a list. Those of other shards get nothing.
    List(&'a ConnList),
}

/// Connections of one shard that get many messages. Clones share the list, so a message does not copy it.
///
/// ```
/// # mod tautline { pub use tautline_engine::{ConnList, Outgoing, ShardContext}; }
/// use tautline::{ConnList, Outgoing, ShardContext};
///
/// /// Sends two messages, which are delivered in one walk over the connections.
/// fn send(shard: &mut ShardContext<'_>, members: &ConnList) {
///     shard.send_to_list(members, Outgoing::text("one"));
///     shard.send_to_list(members, Outgoing::text("two"));
/// }
/// ```
#[derive(Clone, Debug)]
pub struct ConnList(Arc<[ConnId]>);

impl ConnList {
    /// The connections.
    #[must_use]
    pub fn conns(&self) -> &[ConnId] {
        &self.0
    }
}

impl Default for ConnList {
    fn default() -> Self {
        Self::from(&[][..])
    }
}

impl From<&[ConnId]> for ConnList {
    fn from(conns: &[ConnId]) -> Self {
        Self(conns.into())
    }
}

impl<'a> From<&'a ConnList> for Recipients<'a> {
    fn from(conns: &'a ConnList) -> Self {
        Self::List(conns)
    }
}

impl<'a> From<&'a str> for Recipients<'a> {
    fn from(topic: &'a str) -> Self {
        Self::Topic(topic)
    }
}

impl<'a> From<&'a String> for Recipients<'a> {
    fn from(topic: &'a String) -> Self {
        Self::Topic(topic)
    }
}

impl<'a> From<&'a [ConnId]> for Recipients<'a> {
    fn from(conns: &'a [ConnId]) -> Self {
        Self::Conns(conns)
    }
}

impl<'a> From<&'a Vec<ConnId>> for Recipients<'a> {
    fn from(conns: &'a Vec<ConnId>) -> Self {
        Self::Conns(conns)
    }
}

/// The receivers of a message on its way.
#[derive(Clone, Debug)]
pub(crate) enum Destination {
    /// The subscribers of a topic.
    Topic(Arc<str>),
    /// All open connections.
    All,
    /// These connections.
    Conns(Vec<ConnId>),
    /// The first connections of a list: those that are not served.
    List(ConnList, usize),
}

impl Destination {
    /// Whether messages to both can be delivered together.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Topic(one), Self::Topic(two)) => one == two,
            (Self::All, Self::All) => true,
            (Self::List(one, of_one), Self::List(two, of_two)) => Arc::ptr_eq(&one.0, &two.0) && of_one == of_two,
            _ => false,
        }
    }

    /// The part that may be on this shard; `None` if there is none.
    pub(crate) fn on(&self, shard: u32) -> Option<Self> {
        match self {
            Self::Topic(topic) => Some(Self::Topic(topic.clone())),
            Self::All => Some(Self::All),
            Self::Conns(conns) => {
                let conns: Vec<_> = conns.iter().copied().filter(|conn| conn.shard == shard).collect();
                (!conns.is_empty()).then_some(Self::Conns(conns))
            }
            Self::List(list, unserved) => {
                let first = list.0.first().filter(|first| first.shard == shard);
                first.map(|_| Self::List(list.clone(), *unserved))
            }
        }
    }
}

impl From<Recipients<'_>> for Destination {
    fn from(recipients: Recipients<'_>) -> Self {
        match recipients {
            Recipients::Topic(topic) => Self::Topic(topic.into()),
            Recipients::All => Self::All,
            Recipients::Conns(conns) => Self::Conns(conns.to_vec()),
            Recipients::List(list) => Self::List(list.clone(), list.0.len()),
        }
    }
}
