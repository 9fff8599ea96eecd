use super::table::Table;
use core::fmt;
use core::hash::{Hash, Hasher};
use std::sync::OnceLock;
use tautline_tls::Capabilities;

/// A library that another crate builds, behind the table of `csrc/table.h`. There must be one static for each.
pub struct External {
    table: *const Table,
    title: &'static str,
    capabilities: &'static Capabilities,
    started: OnceLock<Option<&'static Table>>,
}

// SAFETY: a table never changes, and its functions may be called on any thread.
unsafe impl Send for External {}
// SAFETY: as above.
unsafe impl Sync for External {}

impl External {
    /// Describes the library behind `table`.
    ///
    /// `title` is the library's name in its makers' spelling.
    ///
    /// # Safety
    /// `table` must be the `TL_TABLE` of a shim in C, and keep the contracts that are written in `csrc` of this crate.
    #[must_use]
    pub const unsafe fn new(table: *const Table, title: &'static str, capabilities: &'static Capabilities) -> Self {
        Self { table, title, capabilities, started: OnceLock::new() }
    }

    pub(crate) const fn capabilities(&self) -> &'static Capabilities {
        self.capabilities
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

impl PartialEq for External {
    fn eq(&self, other: &Self) -> bool {
        self.capabilities.engine == other.capabilities.engine
    }
}

impl Eq for External {}

impl Hash for External {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.capabilities.engine.hash(state);
    }
}

impl fmt::Debug for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.capabilities.engine)
    }
}
