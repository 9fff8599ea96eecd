//! The members of a presence channel, as one loop knows them.

use crate::presence::user_of;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Users with their information. The hub's presence has each of them once.
#[derive(Default)]
pub(super) struct Room(HashMap<Arc<str>, Box<str>>);

/// A change that subscribers are told.
#[derive(Debug, PartialEq)]
pub(super) enum News {
    Added(Arc<str>, Value),
    Removed(Arc<str>),
}

impl Room {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn has(&self, user: &str) -> bool {
        self.0.contains_key(user)
    }

    /// A member of the hub's presence joins.
    pub(super) fn join(&mut self, member: &str, info: &str) -> Option<News> {
        let user = user_of(member).filter(|user| !self.has(user))?;
        let user: Arc<str> = user.into();
        self.0.insert(user.clone(), info.into());
        Some(News::Added(user, parsed(info)))
    }

    /// A member of the hub's presence leaves.
    pub(super) fn leave(&mut self, member: &str) -> Option<News> {
        let (user, _) = self.0.remove_entry(user_of(member)?)?;
        Some(News::Removed(user))
    }

    /// Takes a list of all members in place of those that it knows.
    pub(super) fn replace(&mut self, all: &[(String, String)]) -> Vec<News> {
        let present: HashSet<&str> = all.iter().filter_map(|(member, _)| user_of(member)).collect();
        let gone: Vec<Arc<str>> = self.0.keys().filter(|user| !present.contains(&***user)).cloned().collect();
        gone.iter().for_each(|user| _ = self.0.remove(user));
        let joined: Vec<News> = all.iter().filter_map(|(member, info)| self.join(member, info)).collect();
        gone.into_iter().map(News::Removed).chain(joined).collect()
    }

    /// All members for a subscriber, who is one of them.
    pub(super) fn list(&self, own: &str, info: &str) -> Value {
        let mut hash: Map<String, Value> = self.0.iter().map(|(user, info)| (user.to_string(), parsed(info))).collect();
        hash.entry(own).or_insert_with(|| parsed(info));
        let ids: Vec<&String> = hash.keys().collect();
        json!({ "presence": { "count": ids.len(), "ids": ids, "hash": hash } })
    }
}

fn parsed(info: &str) -> Value {
    serde_json::from_str(info).unwrap_or_default()
}
