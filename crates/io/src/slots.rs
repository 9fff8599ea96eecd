//! Places for the connections of a driver, by token.

use crate::Token;
use std::io;

/// The state of a connection of a driver over kernel sockets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// connect(2) has not completed yet.
    Connecting,
    Open,
    /// Broken. The sink was notified, or will be before the driver waits again.
    Failed,
    /// The user closed it, but pending bytes are still to be sent.
    Orphan,
}

/// A place for one connection.
#[derive(Debug)]
pub(crate) struct Slot<C> {
    generation: u32,
    conn: Option<C>,
}

/// The connections of one driver by token. Freed slots are used again, the latest first, under a new generation.
///
/// ```
/// use tautline_io::slots::Slots;
///
/// let mut slots = Slots::new(u32::MAX);
/// let token = slots.put("a connection");
/// assert_eq!((slots.remove(token), slots.get(token), slots.count()), (Some("a connection"), None, 0));
/// ```
#[derive(Debug)]
pub struct Slots<C> {
    slots: Vec<Slot<C>>,
    free: Vec<u32>,
    most: u32,
}

impl<C> Slots<C> {
    /// Indices stay below `most`.
    #[must_use]
    pub const fn new(most: u32) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), most }
    }

    /// Whether there has never been a connection.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.slots.is_empty()
    }

    /// The number of connections.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Gives a connection a slot.
    ///
    /// # Errors
    /// All slots are taken.
    pub fn insert(&mut self, conn: C) -> io::Result<Token> {
        if self.free.is_empty() && self.slots.len() >= self.most as usize {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(self.put(conn))
    }

    /// Gives a connection a slot, for drivers whose own limit keeps the number of connections far below 2^32.
    pub fn put(&mut self, conn: C) -> Token {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.conn = Some(conn);
            return Token { index, generation: slot.generation };
        }
        let index = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push(Slot { generation: 0, conn: Some(conn) });
        Token { index, generation: 0 }
    }

    /// The connection of a token, unless that is old.
    #[must_use]
    pub fn get(&self, token: Token) -> Option<&C> {
        let slot = self.slots.get(token.index as usize)?;
        if slot.generation == token.generation { slot.conn.as_ref() } else { None }
    }

    /// The connection of a token, unless that is old.
    pub fn get_mut(&mut self, token: Token) -> Option<&mut C> {
        let slot = self.slots.get_mut(token.index as usize)?;
        if slot.generation == token.generation { slot.conn.as_mut() } else { None }
    }

    /// The tokens of all connections.
    #[must_use]
    pub fn tokens(&self) -> Vec<Token> {
        let token = |(index, slot): (u32, &Slot<C>)| {
            slot.conn.is_some().then_some(Token { index, generation: slot.generation })
        };
        (0..).zip(&self.slots).filter_map(token).collect()
    }

    /// Invalidates `token` and returns the one that names the connection from now on.
    pub fn rename(&mut self, token: Token) -> Token {
        let generation = token.generation.wrapping_add(1);
        if let Some(slot) = self.slots.get_mut(token.index as usize) {
            slot.generation = generation;
        }
        Token { generation, ..token }
    }

    /// Frees the slot and returns what it held.
    pub fn remove(&mut self, token: Token) -> Option<C> {
        let slot = self.slots.get_mut(token.index as usize)?;
        if slot.generation != token.generation {
            return None;
        }
        let conn = slot.conn.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(token.index);
        Some(conn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_tokens_meet_nobody() {
        let mut slots = Slots::new(2);
        let first = slots.insert('a').unwrap();
        let second = slots.insert('b').unwrap();
        assert!(slots.insert('c').is_err(), "there are two");
        assert_eq!(slots.remove(first), Some('a'));
        assert_eq!(slots.remove(first), None);
        let third = slots.insert('d').unwrap();
        assert_eq!((third.index, slots.get(first), slots.get(third)), (first.index, None, Some(&'d')));
        let renamed = slots.rename(second);
        assert_eq!(slots.get(second), None);
        assert_eq!(slots.get_mut(renamed), Some(&mut 'b'));
    }
}
