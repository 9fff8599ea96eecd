use core::fmt;
use core::marker::PhantomData;

use super::cursor::{Cursor, Dimension};
use super::error::{SbeError, SbeFault};

/// A view of one entry of a group, which generated code defines.
pub trait Entry<'a>: Sized {
    /// Whether an entry is one block, without groups or data in it.
    const IS_FLAT: bool;

    /// Reads an entry whose block has the given length, and moves behind it.
    ///
    /// # Errors
    /// If the message ends before the entry does, or a field of the message's version has no room in the block.
    fn read(cursor: &mut Cursor<'a>, block_length: u32) -> Result<Self, SbeError>;
}

/// The entries of a group, in order. All of them have been checked.
pub struct Entries<'a, E> {
    cursor: Cursor<'a>,
    block_length: u32,
    left: u32,
    entry: PhantomData<E>,
}

impl<'a, E: Entry<'a>> Entries<'a, E> {
    /// Reads a group, checks its entries and moves behind them.
    ///
    /// # Errors
    /// If an entry cannot be read.
    #[inline]
    pub fn read(cursor: &mut Cursor<'a>, name: &'static str, layout: &Dimension) -> Result<Self, SbeError> {
        let (block_length, left) = cursor.dimension(name, layout)?;
        let entries = Self { cursor: *cursor, block_length, left, entry: PhantomData };
        if E::IS_FLAT {
            cursor.pass(name, block_length, left)?;
            // All entries are alike: if one can be read, the others can.
            if left > 0 {
                E::read(&mut entries.cursor.clone(), block_length)?;
            }
        } else {
            for _ in 0..left {
                let before = cursor.offset();
                E::read(cursor, block_length)?;
                // With nothing in an entry, a few bytes could promise billions of them.
                if cursor.offset() == before {
                    return Err(cursor.wrong(name, before, SbeFault::EmptyEntries));
                }
            }
        }
        Ok(entries)
    }

    /// A group that the message's version does not have.
    #[must_use]
    #[inline]
    pub const fn absent(cursor: &Cursor<'a>) -> Self {
        Self { cursor: *cursor, block_length: 0, left: 0, entry: PhantomData }
    }
}

impl<'a, E: Entry<'a>> Iterator for Entries<'a, E> {
    type Item = E;

    #[inline]
    fn next(&mut self) -> Option<E> {
        self.left = self.left.checked_sub(1)?;
        E::read(&mut self.cursor, self.block_length).ok()
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl<'a, E: Entry<'a>> ExactSizeIterator for Entries<'a, E> {}

impl<E> Clone for Entries<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Entries<'_, E> {}

impl<E> fmt::Debug for Entries<'_, E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Entries").field("len", &self.left).finish_non_exhaustive()
    }
}
