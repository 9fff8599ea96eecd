//! Members by name: connections, and users with the number of their connections.

use std::collections::HashMap;
use tautline::layers::engine::sized::{map_memory, shrink_map};

/// A member: one connection, or all connections of a user.
pub(crate) enum Who<'w> {
    Conn(&'w str),
    User(&'w str),
}

/// Users with the number of their connections.
#[derive(Default)]
pub(super) struct Users {
    map: HashMap<Box<str>, u32>,
    /// Bytes of the names.
    names: usize,
}

impl Users {
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    pub(super) fn contains(&self, user: &str) -> bool {
        self.map.contains_key(user)
    }

    /// Counts one more connection of a user that is known. False if it is not.
    pub(super) fn again(&mut self, user: &str) -> bool {
        let Some(number) = self.map.get_mut(user) else { return false };
        *number += 1;
        true
    }

    /// The first connection of a user.
    pub(super) fn add(&mut self, user: &str) {
        if self.map.insert(user.into(), 1).is_none() {
            self.names += user.len();
        }
    }

    /// One connection less. Whether the user has gone with it, or was not known.
    pub(super) fn leave(&mut self, user: &str) -> bool {
        let Some(number) = self.map.get_mut(user) else { return true };
        *number -= 1;
        if *number > 0 {
            return false;
        }
        self.map.remove(user);
        self.names -= user.len();
        shrink_map(&mut self.map);
        true
    }

    /// Its memory, in bytes.
    pub(super) fn memory(&self) -> usize {
        map_memory(&self.map) + self.names
    }
}
