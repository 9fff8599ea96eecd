use crate::Token;
use std::io;

/// A place for one connection.
pub(crate) struct Slot<C> {
    generation: u32,
    conn: Option<C>,
}

/// The connections of one driver by token. Freed slots are used again, the latest first.
pub(crate) struct Slots<C> {
    slots: Vec<Slot<C>>,
    free: Vec<u32>,
    most: u32,
}

impl<C> Slots<C> {
    /// Indices stay below `most`.
    pub(crate) const fn new(most: u32) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), most }
    }

    /// Whether there has never been a connection.
    pub(crate) const fn is_new(&self) -> bool {
        self.slots.is_empty()
    }

    /// # Errors
    /// All slots are taken.
    pub(crate) fn insert(&mut self, conn: C) -> io::Result<Token> {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.conn = Some(conn);
            return Ok(Token { index, generation: slot.generation });
        }
        let index = u32::try_from(self.slots.len()).ok().filter(|&index| index < self.most);
        let index = index.ok_or(io::ErrorKind::OutOfMemory)?;
        self.slots.push(Slot { generation: 0, conn: Some(conn) });
        Ok(Token { index, generation: 0 })
    }

    pub(crate) fn get(&self, token: Token) -> Option<&C> {
        let slot = self.slots.get(token.index as usize)?;
        if slot.generation == token.generation { slot.conn.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut C> {
        let slot = self.slots.get_mut(token.index as usize)?;
        if slot.generation == token.generation { slot.conn.as_mut() } else { None }
    }

    /// The tokens of all connections.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        let token = |(index, slot): (u32, &Slot<C>)| {
            slot.conn.is_some().then_some(Token { index, generation: slot.generation })
        };
        (0..).zip(&self.slots).filter_map(token).collect()
    }

    /// Invalidates `token` and returns the one that names the connection from now on.
    pub(crate) fn rename(&mut self, token: Token) -> Token {
        let generation = token.generation.wrapping_add(1);
        if let Some(slot) = self.slots.get_mut(token.index as usize) {
            slot.generation = generation;
        }
        Token { generation, ..token }
    }

    /// Frees the slot and returns what it held.
    pub(crate) fn remove(&mut self, token: Token) -> Option<C> {
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
