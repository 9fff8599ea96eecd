use crate::sized::{map_memory, shrink_list};
use std::collections::HashMap;
use std::hash::Hash;

/// Entries from which on a list has a table of their positions. A search through fewer takes as long as a look into one.
const MANY: usize = 16;

/// A list in which each entry is once, such as the subscribers of a topic: a slice to walk, and a table of positions once they are
/// many. Each change takes constant time.
///
/// It gives memory back when three quarters of it are unused. One of a single entry has no room for more.
///
/// ```
/// use tautline_engine::Roster;
///
/// let mut numbers = Roster::default();
/// assert!(numbers.add(7) && numbers.add(8) && numbers.add(9) && !numbers.add(7));
/// assert!(numbers.remove(7) && !numbers.remove(7));
/// assert_eq!(numbers.as_slice(), [9, 8], "the last entry has taken the place");
/// ```
#[derive(Clone, Debug)]
pub struct Roster<T> {
    list: Vec<T>,
    #[expect(
        clippy::box_collection,
        reason = "most lists have no table, and an empty one is six times as large as this"
    )]
    at: Option<Box<HashMap<T, u32>>>,
}

impl<T> Default for Roster<T> {
    fn default() -> Self {
        Self { list: Vec::new(), at: None }
    }
}

impl<T: Copy + Eq + Hash> Roster<T> {
    /// All entries.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        &self.list
    }

    /// The number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether it has no entries.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether this is an entry.
    #[must_use]
    pub fn contains(&self, entry: T) -> bool {
        self.position(entry).is_some()
    }

    /// Adds an entry as the last one. False if it was one already.
    pub fn add(&mut self, entry: T) -> bool {
        if self.contains(entry) {
            return false;
        }
        if self.list.is_empty() {
            self.list.reserve_exact(1);
        }
        if let Some(at) = &mut self.at {
            at.insert(entry, index(self.list.len()));
        }
        self.list.push(entry);
        if self.list.len() > MANY && self.at.is_none() {
            self.at = Some(Box::new(self.list.iter().copied().zip(0..).collect()));
        }
        true
    }

    /// Removes an entry, whose place the last one takes. False if it was none.
    pub fn remove(&mut self, entry: T) -> bool {
        let Some(hole) = self.position(entry) else { return false };
        self.remove_at(hole);
        true
    }

    /// The place of an entry.
    pub(crate) fn position(&self, entry: T) -> Option<usize> {
        match &self.at {
            Some(at) => at.get(&entry).map(|at| *at as usize),
            None => self.list.iter().position(|other| *other == entry),
        }
    }

    /// Exchanges the entries of two places.
    pub(crate) fn swap(&mut self, one: usize, other: usize) {
        if one != other {
            self.list.swap(one, other);
            self.note(one);
            self.note(other);
        }
    }

    /// Removes the entry of a place, which the last one takes.
    pub(crate) fn remove_at(&mut self, place: usize) {
        let entry = self.list.swap_remove(place);
        if let Some(at) = &mut self.at {
            at.remove(&entry);
        }
        self.note(place);
        if self.list.len() < MANY / 2 {
            self.at = None;
        }
        if shrink_list(&mut self.list)
            && let Some(at) = &mut self.at
        {
            at.shrink_to(2 * self.list.len());
        }
    }

    /// Its memory beside itself, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let at = self.at.as_ref().map_or(0, |at| size_of_val(&**at) + map_memory(at));
        self.list.capacity() * size_of::<T>() + at
    }

    /// Notes the place of the entry that has come there.
    fn note(&mut self, place: usize) {
        if let (Some(at), Some(entry)) = (&mut self.at, self.list.get(place)) {
            at.insert(*entry, index(place));
        }
    }
}

/// A position in a list. A loop has fewer than 2^32 connections, which the indexes of tokens bound.
fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::Roster;

    #[test]
    fn agrees_with_a_list_that_is_searched() {
        let (mut roster, mut oracle) = (Roster::default(), Vec::new());
        let mut seed = 7_u64;
        for round in 0..20_000_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Grows to some hundred entries, and shrinks to none, again and again.
            let (entry, adds) = (seed >> 55, (seed >> 20) % 100 < if round / 2_000 % 2 == 0 { 70 } else { 30 });
            if adds {
                let is_new = !oracle.contains(&entry);
                assert_eq!(roster.add(entry), is_new);
                oracle.extend(is_new.then_some(entry));
            } else if let Some(place) = oracle.iter().position(|other| *other == entry) {
                oracle.swap_remove(place);
                assert!(roster.remove(entry));
            } else {
                assert!(!roster.remove(entry) && !roster.contains(entry));
            }
            if !oracle.is_empty() && round % 3 == 0 {
                let place = |bits: u64| usize::try_from(bits % 1_000).unwrap() % oracle.len();
                let (one, other) = (place(seed >> 30), place(seed >> 42));
                oracle.swap(one, other);
                roster.swap(one, other);
            }
            assert_eq!(
                (roster.as_slice(), roster.len(), roster.is_empty()),
                (&oracle[..], oracle.len(), oracle.is_empty())
            );
            let looks = round % 16 == 0;
            assert!(!looks || oracle.iter().enumerate().all(|(place, entry)| roster.position(*entry) == Some(place)));
            assert!(roster.list.capacity() <= 4 * oracle.len().max(4));
        }
    }

    #[test]
    fn memory_goes_back() {
        let mut roster = Roster::default();
        (0..10_000_u64).for_each(|entry| assert!(roster.add(entry)));
        let most = roster.memory();
        (0..9_999).for_each(|entry| assert!(roster.remove(entry)));
        assert!(roster.memory() < most / 1_000, "{} of {most}", roster.memory());
        assert!(roster.as_slice() == [9_999] && roster.at.is_none());
        let mut one = Roster::default();
        one.add(1_u64);
        assert_eq!(one.memory(), 8);
    }
}
