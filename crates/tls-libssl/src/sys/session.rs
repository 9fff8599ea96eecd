use super::library::Library;
use core::ffi::c_void;
use core::ptr::NonNull;

/// A session that a client can resume once.
pub(crate) struct ResumableSession {
    library: Library,
    pub(super) raw: NonNull<c_void>,
}

// SAFETY: in most libraries it is a copy of its own, which no connection uses (`tl_session_copy`; Mbed TLS and wolfSSL copy
// too). In AWS-LC and BoringSSL it is immutable, with an atomic count of references. `connect` takes it by value, so
// nothing else holds a session that was given to a connection.
unsafe impl Send for ResumableSession {}

impl ResumableSession {
    /// Takes over a reference.
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
