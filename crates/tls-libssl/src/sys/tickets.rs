use super::library::Library;
use super::table::RawTickets;
use core::ptr::NonNull;

/// The previous, the current and the next key for tickets.
pub(crate) struct TicketKeys {
    library: Library,
    pub(super) raw: NonNull<RawTickets>,
}

// SAFETY: all that uses the keys takes the lock beside them.
unsafe impl Send for TicketKeys {}
// SAFETY: as above.
unsafe impl Sync for TicketKeys {}

impl TicketKeys {
    /// Keys made at random; `None` where there is no randomness or memory.
    pub(crate) fn new(library: Library) -> Option<Self> {
        // SAFETY: the call takes nothing.
        let raw = unsafe { (library.table.tickets_new)() };
        Some(Self { library, raw: NonNull::new(raw)? })
    }

    /// Has the keys move up; says whether there was randomness for another.
    pub(crate) fn rotate(&self) -> bool {
        // SAFETY: `raw` lives as long as `self`.
        unsafe { (self.library.table.tickets_rotate)(self.raw.as_ptr()) != 0 }
    }
}

impl Drop for TicketKeys {
    fn drop(&mut self) {
        // SAFETY: `raw` is ours, and this is its last use: contexts hold the keys that they use.
        unsafe { (self.library.table.tickets_free)(self.raw.as_ptr()) };
    }
}
