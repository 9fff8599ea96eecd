//! Names of connections, symbols, streams and requests.

use std::fmt;

/// A connection of a [`Feed`](crate::Feed). Numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub(crate) u32);

/// A symbol of a [`Feed`](crate::Feed), in the order in which they were declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SymbolId(pub(crate) u32);

/// A request for a snapshot. Numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FetchId(pub(crate) u64);

impl LinkId {
    /// The number, from 1 on.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl FetchId {
    /// The number's lower half, which is unique in any recording.
    #[expect(clippy::cast_possible_truncation, reason = "four billion fetches take a century")]
    pub(crate) const fn number(self) -> u32 {
        self.0 as u32
    }
}

impl SymbolId {
    /// The place among the symbols, from 0 on: for tables of the application.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {}", self.0)
    }
}
