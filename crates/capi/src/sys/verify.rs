use super::types::{Destroy, Slice, TlsPeer, TlsVerify};
use crate::codes::{TAUT_ACCEPT, TAUT_REJECT};
use core::ffi::c_void;
use tautline_tls::{PeerCertificates, Verify};

/// A verification callback with its user pointer.
pub(super) struct Callback {
    function: unsafe extern "C" fn(*mut c_void, *const TlsPeer) -> u32,
    user: *mut c_void,
    destroy: Destroy,
}

// SAFETY: the interface demands a callback that any thread may call, with this user pointer.
unsafe impl Send for Callback {}
// SAFETY: as above, several threads at once included.
unsafe impl Sync for Callback {}

impl Callback {
    /// `None` if there is no function; then `destroy` is called at once.
    pub(super) fn new(function: TlsVerify, user: *mut c_void, destroy: Destroy) -> Option<Self> {
        match (function, destroy) {
            (Some(function), destroy) => Some(Self { function, user, destroy }),
            (None, Some(destroy)) => {
                // SAFETY: the caller of `taut_tls_config_verify` gives a function that fits the user pointer.
                unsafe { destroy(user) };
                None
            }
            (None, None) => None,
        }
    }
}

impl Verify for Callback {
    fn verify(&self, peer: &PeerCertificates<'_>) -> Result<(), String> {
        let slice = |bytes: &[u8]| Slice { data: bytes.as_ptr(), len: bytes.len() };
        let certificates: Vec<Slice> = peer.chain.iter().map(|one| slice(one)).collect();
        let reason = peer.rejected.map(ToString::to_string).unwrap_or_default();
        let shown = TlsPeer {
            size: size_of::<TlsPeer>(),
            certificates: certificates.as_ptr(),
            certificates_count: certificates.len(),
            host: slice(peer.host.unwrap_or_default().as_bytes()),
            accepted: peer.rejected.is_none().into(),
            reason: slice(reason.as_bytes()),
        };
        // SAFETY: the caller of `taut_tls_config_verify` gives a function of this type, to be called with this pointer.
        match unsafe { (self.function)(self.user, &raw const shown) } {
            TAUT_ACCEPT => Ok(()),
            TAUT_REJECT => Err("the program rejects it".to_owned()),
            other => Err(format!("the verification callback returned {other}, which is no decision")),
        }
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: as in `new`. This is the last use of the pointer.
            unsafe { destroy(self.user) };
        }
    }
}
