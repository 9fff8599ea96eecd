use super::library::Library;
use core::ffi::c_void;
use core::ptr::NonNull;

/// What a client keeps of a connection, to resume it.
pub(crate) struct ResumableSession {
    library: Library,
    pub(super) raw: NonNull<c_void>,
}

// SAFETY: an SSL_SESSION counts its references atomically and is not changed once a callback has given it away.
unsafe impl Send for ResumableSession {}

impl ResumableSession {
    /// From a reference that is ours to drop.
    pub(super) const fn new(library: Library, raw: NonNull<c_void>) -> Self {
        Self { library, raw }
    }

    /// Whether it is one of TLS 1.3, whose tickets must be used once only (RFC 8446, appendix C.4).
    pub(crate) fn is_for_one_use(&self) -> bool {
        self.version() >= 0x0304
    }

    /// Whether it can still be resumed: OpenSSL gives one up once a connection that resumed it was given a new ticket.
    pub(crate) fn is_usable(&self) -> bool {
        self.version() != 0
    }

    fn version(&self) -> i32 {
        // SAFETY: `raw` lives as long as `self`.
        unsafe { (self.library.table.session_version)(self.raw.as_ptr()) }
    }
}

impl Drop for ResumableSession {
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and this is its last use.
        unsafe { (self.library.table.session_free)(self.raw.as_ptr()) };
    }
}
