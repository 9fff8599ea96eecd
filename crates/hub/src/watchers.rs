//! Subscribers of a loop that are told the members of topics, or their number.

use std::collections::HashMap;
use std::sync::Arc;
use tautline::ConnId;
use tautline::layers::engine::Roster;
use tautline::layers::engine::sized::{map_memory, shrink_map};

/// Subscribers by topic.
#[derive(Default)]
pub(crate) struct Watchers(HashMap<Arc<str>, Roster<ConnId>>);

impl Watchers {
    /// One more. Its memory is counted in `bytes`.
    pub(crate) fn add(&mut self, topic: &Arc<str>, conn: ConnId, bytes: &mut usize) {
        let watchers = self.0.entry(topic.clone()).or_default();
        *bytes -= watchers.memory();
        watchers.add(conn);
        *bytes += watchers.memory();
    }

    /// One less. True if it was the last one of the topic.
    pub(crate) fn remove(&mut self, topic: &Arc<str>, conn: ConnId, bytes: &mut usize) -> bool {
        let Some(watchers) = self.0.get_mut(topic) else { return false };
        *bytes -= watchers.memory();
        watchers.remove(conn);
        *bytes += watchers.memory();
        let is_last = watchers.is_empty();
        if is_last {
            *bytes -= watchers.memory();
            self.0.remove(topic);
            shrink_map(&mut self.0);
        }
        is_last
    }

    /// Those of a topic.
    pub(crate) fn of(&self, topic: &str) -> &[ConnId] {
        self.0.get(topic).map_or(&[], Roster::as_slice)
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }

    /// Memory of the table, in bytes.
    pub(crate) fn memory(&self) -> usize {
        map_memory(&self.0)
    }
}
