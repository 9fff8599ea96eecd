use super::library::Library;
use core::ffi::c_void;
use core::ptr::NonNull;

/// What a client keeps of a connection, to resume it once.
pub(crate) struct ResumableSession {
    library: Library,
    pub(super) raw: NonNull<c_void>,
}

// SAFETY: it is a copy that no connection uses, made for whoever holds it (`tl_session_copy`; Mbed TLS and wolfSSL copy too), or
// does not change any more and counts its references atomically (AWS-LC, BoringSSL). What is given to a connection is held by
// nobody else from then on, since `connect` takes it by value.
unsafe impl Send for ResumableSession {}

impl ResumableSession {
    /// From a reference that is ours to drop.
    pub(super) const fn new(library: Library, raw: NonNull<c_void>) -> Self {
        Self { library, raw }
    }
}

impl Drop for ResumableSession {
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and this is its last use.
        unsafe { (self.library.table.session_free)(self.raw.as_ptr()) };
    }
}
