use super::library::{Library, Refusal};
use super::table::{RawIdentity, RawRefusal};
use super::text::{NAMES, TIME, text};
use crate::certificate::{Name, Validity};
use core::ptr::NonNull;

/// A parsed certificate chain and the private key that belongs to it.
pub(crate) struct Identity {
    library: Library,
    pub(super) raw: NonNull<RawIdentity>,
}

// SAFETY: the libraries bind certificates and keys to no thread, and connections of many threads may sign with one key at
// once. The shim does not change an identity after it is made.
unsafe impl Send for Identity {}
// SAFETY: as above.
unsafe impl Sync for Identity {}

/// Kinds of keys, the cheapest to sign with first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum KeyKind {
    Ecdsa,
    Ed25519,
    Rsa,
    Other,
}

impl Identity {
    /// Parses a chain and a key in PEM.
    pub(crate) fn new(library: Library, chain: &[u8], key: &[u8]) -> Result<Self, Refusal> {
        let mut refusal = RawRefusal::EMPTY;
        // SAFETY: both slices and `refusal` outlive the call, which keeps no pointer to them.
        let raw = unsafe {
            (library.table.identity_new)(chain.as_ptr(), chain.len(), key.as_ptr(), key.len(), &raw mut refusal)
        };
        NonNull::new(raw).map(|raw| Self { library, raw }).ok_or_else(|| Refusal::from(&refusal))
    }

    pub(crate) fn kind(&self) -> KeyKind {
        // SAFETY: `raw` lives as long as `self`.
        match unsafe { (self.library.table.identity_kind)(self.raw.as_ptr()) } {
            0 => KeyKind::Ecdsa,
            1 => KeyKind::Ed25519,
            2 => KeyKind::Rsa,
            _ => KeyKind::Other,
        }
    }

    /// The length of the key in bits.
    pub(crate) fn bits(&self) -> i32 {
        // SAFETY: `raw` lives as long as `self`.
        unsafe { (self.library.table.identity_bits)(self.raw.as_ptr()) }
    }

    /// The names that the certificate is valid for.
    pub(crate) fn names(&self) -> Vec<Name> {
        let mut names = vec![0; NAMES];
        // SAFETY: `raw` lives as long as `self`; `names` has the given length.
        let len = unsafe { (self.library.table.identity_names)(self.raw.as_ptr(), names.as_mut_ptr(), names.len()) };
        Name::parse_all(&names[..len.min(NAMES)])
    }

    /// The time for which the certificate is valid, and whether it is valid now.
    pub(crate) fn validity(&self) -> Validity {
        let (mut from, mut until) = ([0; TIME], [0; TIME]);
        // SAFETY: `raw` lives as long as `self`; both arrays have the given length.
        let state = unsafe {
            (self.library.table.identity_validity)(self.raw.as_ptr(), from.as_mut_ptr(), until.as_mut_ptr(), TIME)
        };
        Validity::new(state, &text(&from), &text(&until))
    }
}

impl Identity {
    /// Has servers staple this OCSP response, until this second since 1970. Returns whether the library can.
    pub(crate) fn staple(&mut self, response: &[u8], until: u64) -> bool {
        let Some(staple) = self.library.table.identity_staple else { return false };
        // SAFETY: `raw` lives as long as `self`, which no context has seen yet; `response` outlives the call, which copies it.
        unsafe { staple(self.raw.as_ptr(), response.as_ptr(), response.len(), until) != 0 }
    }

    /// Makes a signature over fixed bytes. Returns whether the library could.
    pub(crate) fn sign(&self) -> bool {
        // SAFETY: `raw` lives as long as `self`.
        unsafe { (self.library.table.identity_sign)(self.raw.as_ptr()) != 0 }
    }

    /// Whether the certificate's usage allows a server, or a client.
    pub(crate) fn fits(&self, is_server: bool) -> bool {
        // SAFETY: `raw` lives as long as `self`.
        unsafe { (self.library.table.identity_fits)(self.raw.as_ptr(), is_server.into()) != 0 }
    }

    /// Whether another certificate of the chain issued the first; true if there is no other.
    pub(crate) fn is_linked(&self) -> bool {
        // SAFETY: `raw` lives as long as `self`.
        unsafe { (self.library.table.identity_linked)(self.raw.as_ptr()) != 0 }
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        // SAFETY: `raw` is ours, and this is its last use; contexts hold references of their own to its parts.
        unsafe { (self.library.table.identity_free)(self.raw.as_ptr()) };
    }
}
