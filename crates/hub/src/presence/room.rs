//! A topic with members, or with loops that want to know them.

use super::count::Count;
use super::users::Users;
use crate::mailbox::{Event, Mailbox};
use crate::members::Members;
use crate::pages::Pages;
use crate::protocol::Object;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::Listening;
use tautline::layers::engine::sized::{map_memory, name_memory};
use tautline::layers::ws::Prepared;

/// The shortest time between two lists of all members for hosts that ask. Each client that comes first to a topic has its host ask.
const PER_ANSWER: Duration = Duration::from_secs(1);
/// Memory of what hears other hosts about one topic, beside the topic's name: here and in the bridge.
const EAR: usize = 512;
/// Begin of the names of members that are users.
const USER: &str = "user:";

/// A topic with members, or with loops that want to know them.
#[derive(Default)]
pub(super) struct Room {
    /// Members of this host, by the identifiers that other hosts hear.
    pub(super) local: Members,
    /// Connections of the users among these.
    pub(super) users: Users,
    pub(super) others: HashMap<String, Lease>,
    /// The members of all hosts that are listed, each user once.
    pub(super) listed: usize,
    /// Members that are counted, and loops that want the number. None without both.
    pub(super) count: Option<Box<Count>>,
    /// All of them, once somebody has asked for them.
    pages: Option<Pages>,
    pub(super) watchers: Vec<Arc<Mailbox>>,
    /// The last time at which this host listed its members for those who asked, and whether they have asked since.
    answered: Option<Instant>,
    pub(super) is_asked: bool,
    /// Hears other hosts.
    pub(super) listening: Option<Listening>,
    /// Its memory as it was counted, in bytes.
    pub(super) told: usize,
}

/// The members of another host.
pub(super) struct Lease {
    pub(super) until: Instant,
    /// By the names that clients see.
    pub(super) members: Members,
    /// The number of those that are counted.
    pub(super) counted: usize,
}

/// The name of a member for clients. That of a user is the same on all hosts.
pub(super) fn shown(id: &str) -> &str {
    id.split_once('/').map_or(id, |(_, rest)| if rest.starts_with(USER) { rest } else { id })
}

/// The user that a member is.
pub(crate) fn user_of(member: &str) -> Option<&str> {
    member.strip_prefix(USER)
}

impl Room {
    /// The members of this host for the others: all that are listed, and the number of those that are counted.
    pub(super) fn own(&self) -> (Option<Members>, Option<usize>) {
        let counted = self.count.as_ref().map_or(0, |count| count.own());
        ((!self.local.is_empty()).then(|| self.local.clone()), (counted > 0).then_some(counted))
    }

    pub(super) fn is_unused(&self) -> bool {
        self.local.is_empty() && self.watchers.is_empty() && self.count.is_none()
    }

    /// Its memory, in bytes.
    pub(super) fn memory(&self, topic: &str) -> usize {
        let hosts = self.others.iter().map(|(host, lease)| host.capacity() + lease.members.memory());
        let listening = self.listening.as_ref().map_or(0, |_| EAR + 2 * name_memory(topic));
        // The topic's name is that of a subscription.
        size_of::<Self>()
            + self.local.memory()
            + self.users.memory()
            + map_memory(&self.others)
            + hosts.sum::<usize>()
            + self.count.as_ref().map_or(0, |count| count.memory())
            + self.watchers.capacity() * size_of::<Arc<Mailbox>>()
            + self.pages.as_ref().map_or(0, Pages::memory)
            + listening
    }

    /// The number of all present members.
    pub(super) fn number(&self) -> usize {
        let own = self.count.as_ref().map_or(0, |count| count.own());
        self.listed + own + self.others.values().map(|lease| lease.counted).sum::<usize>()
    }

    /// Whether a user is a member by another connection, here or on another host.
    fn has(&self, shown: &str) -> bool {
        let Some(user) = user_of(shown) else { return false };
        self.users.contains(user) || self.others.values().any(|lease| lease.members.contains(shown))
    }

    /// A member joins, who is not noted yet. One that is a member on another host has joined before.
    pub(super) fn joined(&mut self, topic: &Arc<str>, shown: &str, name: &str) {
        if self.has(shown) {
            return;
        }
        self.listed += 1;
        self.number_changed();
        self.pages.iter_mut().for_each(|pages| pages.insert(shown, name));
        self.report(topic, &Object::new("join").text("topic", topic).text("member", shown).text("name", name).end());
    }

    /// A member has left, who is not noted any more. One that is a member on another host stays.
    pub(super) fn left(&mut self, topic: &Arc<str>, shown: &str) {
        if self.has(shown) {
            return;
        }
        self.listed -= 1;
        self.number_changed();
        self.pages.iter_mut().for_each(|pages| pages.remove(shown));
        self.report(topic, &Object::new("leave").text("topic", topic).text("member", shown).end());
    }

    pub(super) fn number_changed(&mut self) {
        if let Some(count) = &mut self.count {
            count.is_changed = true;
        }
    }

    /// The messages with all present members. From the first time on, their pages are kept up to date.
    pub(super) fn frames(&mut self, topic: &str) -> Vec<Prepared> {
        let Self { pages, others, local, .. } = self;
        pages.get_or_insert_with(|| all(others, local).fold(Pages::default(), Pages::with)).frames(topic)
    }

    /// All members that are listed, with their names. A user of several hosts comes several times.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        all(&self.others, &self.local)
    }

    /// Whether this host may list its members for those who ask. If so, it is noted that it does.
    pub(super) fn may_answer(&mut self, now: Instant) -> bool {
        let may = self.answered.is_none_or(|last| now.saturating_duration_since(last) >= PER_ANSWER);
        if may {
            self.answered = Some(now);
        }
        may
    }

    fn report(&self, topic: &Arc<str>, frame: &str) {
        for mailbox in &self.watchers {
            mailbox.push(Event::Presence { topic: topic.clone(), frame: frame.to_owned() });
        }
    }
}

fn all<'m>(others: &'m HashMap<String, Lease>, local: &'m Members) -> impl Iterator<Item = (&'m str, &'m str)> {
    let local = local.iter().map(|(id, name)| (shown(id), name));
    others.values().flat_map(|lease| lease.members.iter()).chain(local)
}

#[cfg(test)]
mod tests {
    use super::{shown, user_of};

    #[test]
    fn a_user_has_the_same_name_on_all_hosts_and_a_connection_has_not() {
        for (id, expected) in [
            ("0a1b/user:ann", "user:ann"),
            ("ffff/user:a/user:b", "user:a/user:b"),
            ("user:ann", "user:ann"),
            ("0a1b/7-3", "0a1b/7-3"),
            ("7", "7"),
        ] {
            assert_eq!(shown(id), expected);
        }
        assert_eq!((user_of("user:ann"), user_of("0a1b/7")), (Some("ann"), None));
    }
}
