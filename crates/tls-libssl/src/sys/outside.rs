use super::table::Table;
use core::fmt;
use core::hash::{Hash, Hasher};
use std::sync::OnceLock;

/// A library that another crate builds, behind the table of `csrc/table.h`. Each is one static.
pub struct Outside {
    table: *const Table,
    name: &'static str,
    title: &'static str,
    started: OnceLock<Option<&'static Table>>,
}

// SAFETY: a table is never changed, and the functions behind it may be called on any thread.
unsafe impl Send for Outside {}
// SAFETY: as above.
unsafe impl Sync for Outside {}

impl Outside {
    /// The library behind `table`, with the engine's name in configuration, logs and results, and the library's as its makers
    /// write it.
    ///
    /// # Safety
    /// `table` must be what a shim in C defines as its `TL_TABLE`, and keep the contracts that stand in `csrc` of this crate.
    #[must_use]
    pub const unsafe fn new(table: *const Table, name: &'static str, title: &'static str) -> Self {
        Self { table, name, title, started: OnceLock::new() }
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) const fn title(&self) -> &'static str {
        self.title
    }

    pub(super) const fn table(&self) -> *const Table {
        self.table
    }

    pub(super) const fn started(&self) -> &OnceLock<Option<&'static Table>> {
        &self.started
    }
}

impl PartialEq for Outside {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Outside {}

impl Hash for Outside {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
