//! The members of a presence channel, as one loop knows them.
//!
//! The hub's presence has one member for each user and host. A user of several hosts is one member here, who joins with the first
//! and leaves with the last.

use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Members by user.
#[derive(Default)]
pub(super) struct Room {
    /// The users of the hub's members.
    members: HashMap<Box<str>, Arc<str>>,
    /// Their information, and the number of their members.
    users: HashMap<Arc<str>, (Box<str>, usize)>,
}

/// A change that subscribers are told.
#[derive(Debug, PartialEq)]
pub(super) enum News {
    Added(Arc<str>, Value),
    Removed(Arc<str>),
}

impl Room {
    pub(super) fn len(&self) -> usize {
        self.users.len()
    }

    pub(super) fn has(&self, user: &str) -> bool {
        self.users.contains_key(user)
    }

    /// A member of the hub's presence joins.
    pub(super) fn join(&mut self, member: &str, info: &str) -> Option<News> {
        let user: Arc<str> = user_of(member)?.into();
        if self.members.insert(member.into(), user.clone()).is_some() {
            return None;
        }
        let (_, number) = self.users.entry(user.clone()).or_insert_with(|| (info.into(), 0));
        *number += 1;
        (*number == 1).then(|| News::Added(user, parsed(info)))
    }

    /// A member of the hub's presence leaves.
    pub(super) fn leave(&mut self, member: &str) -> Option<News> {
        let user = self.members.remove(member)?;
        let (_, number) = self.users.get_mut(&user)?;
        *number -= 1;
        if *number > 0 {
            return None;
        }
        self.users.remove(&user);
        Some(News::Removed(user))
    }

    /// Takes a list of all members in place of those that it knows.
    pub(super) fn replace(&mut self, all: &[(String, String)]) -> Vec<News> {
        let gone: Vec<Box<str>> =
            self.members.keys().filter(|member| !all.iter().any(|(id, _)| **id == ***member)).cloned().collect();
        let joined: Vec<News> = all.iter().filter_map(|(member, info)| self.join(member, info)).collect();
        let left = gone.iter().filter_map(|member| self.leave(member));
        left.chain(joined).collect()
    }

    /// All members for a subscriber, who is one of them.
    pub(super) fn list(&self, own: &str, info: &str) -> Value {
        let mut hash: Map<String, Value> =
            self.users.iter().map(|(user, (info, _))| (user.to_string(), parsed(info))).collect();
        hash.entry(own).or_insert_with(|| parsed(info));
        let ids: Vec<&String> = hash.keys().collect();
        json!({ "presence": { "count": ids.len(), "ids": ids, "hash": hash } })
    }
}

/// The user of a member: its identifier is `HOST/user:USER`.
pub(super) fn user_of(member: &str) -> Option<&str> {
    member.split_once("/user:").map(|(_, user)| user)
}

fn parsed(info: &str) -> Value {
    serde_json::from_str(info).unwrap_or_default()
}
