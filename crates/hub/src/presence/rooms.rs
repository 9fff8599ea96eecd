//! The topics with members of a host, behind one lock.

use super::room::Room;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use tautline::ApplicationMemory;
use tautline::layers::engine::sized::{map_memory, shrink_map};

pub(super) type Rooms = Mutex<Counted>;

/// All topics with members or watchers, and their memory.
#[derive(Default)]
pub(super) struct Counted {
    pub(super) map: HashMap<Arc<str>, Box<Room>>,
    /// Topics whose numbers may have to be told.
    pub(super) changed: VecDeque<Arc<str>>,
    /// Memory of the topics, in bytes, and the part that the account of memory knows.
    pub(super) bytes: usize,
    pub(super) told: usize,
    pub(super) memory: Option<ApplicationMemory>,
}

impl Counted {
    /// Counts the memory of a topic that has changed. One without members of this host and watchers is forgotten.
    pub(super) fn settle(&mut self, topic: &Arc<str>) {
        if let Some(room) = self.map.get_mut(topic) {
            if room.count.as_ref().is_some_and(|count| count.is_unused()) {
                room.count = None;
            }
            if let Some(count) = &mut room.count
                && count.is_changed
                && !std::mem::replace(&mut count.is_queued, true)
            {
                self.changed.push_back(topic.clone());
            }
            let now = if room.is_unused() { 0 } else { room.memory(topic) };
            self.bytes = self.bytes - room.told + now;
            room.told = now;
            if now == 0 {
                self.map.remove(topic);
                shrink_map(&mut self.map);
            }
        }
        self.tell();
    }

    pub(super) fn tell(&mut self) {
        if let Some(memory) = &self.memory {
            let changed = self.changed.capacity() * size_of::<Arc<str>>();
            let now = map_memory(&self.map) + changed + self.bytes;
            memory.replace(self.told, now);
            self.told = now;
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Members of one host in one topic.
    pub(super) members: usize,
    /// Bytes of a name.
    pub(super) name: usize,
}

pub(super) fn channel(topic: &str) -> String {
    format!("$presence/{topic}")
}
