use super::library::{Library, Refusal};
use super::table::{RawIdentity, RawRefusal};
use super::{NAMES, TIME};
use crate::certificate::{Name, Validity};
use core::ptr::NonNull;

/// A certificate chain and its private key, parsed, that belong together.
pub(crate) struct Identity {
    library: Library,
    pub(super) raw: NonNull<RawIdentity>,
}

// SAFETY: the libraries bind certificates and keys to no thread, and several may sign with one key at once: connections of
// many threads do. The shim changes nothing of an identity once it is made.
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
    /// From PEM.
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

    /// How long the key is.
    pub(crate) fn bits(&self) -> i32 {
        // SAFETY: `raw` lives as long as `self`.
        unsafe { (self.library.table.identity_bits)(self.raw.as_ptr()) }
    }

    /// What the certificate is valid for.
    pub(crate) fn names(&self) -> Vec<Name> {
        let mut text = vec![0; NAMES];
        // SAFETY: `raw` lives as long as `self`; `text` has the length that is given.
        let len = unsafe { (self.library.table.identity_names)(self.raw.as_ptr(), text.as_mut_ptr(), text.len()) };
        Name::parse_all(&text[..len.min(NAMES)])
    }

    /// When the certificate is valid, and whether that is now.
    pub(crate) fn validity(&self) -> Validity {
        let (mut from, mut until) = ([0; TIME], [0; TIME]);
        // SAFETY: `raw` lives as long as `self`; both arrays have the length that is given.
        let state = unsafe {
            (self.library.table.identity_validity)(self.raw.as_ptr(), from.as_mut_ptr(), until.as_mut_ptr(), TIME)
        };
        Validity::new(state, &super::text(&from), &super::text(&until))
    }
}

impl Identity {
    /// Signs something; says whether the library did.
    pub(crate) fn sign(&self) -> bool {
        // SAFETY: `raw` lives as long as `self`.
        unsafe { (self.library.table.identity_sign)(self.raw.as_ptr()) != 0 }
    }

    /// Whether the certificate may be used by a server, or by a client.
    pub(crate) fn fits(&self, is_server: bool) -> bool {
        // SAFETY: `raw` lives as long as `self`.
        unsafe { (self.library.table.identity_fits)(self.raw.as_ptr(), is_server.into()) != 0 }
    }

    /// Whether any other certificate of the chain issued the first, where there are others.
    pub(crate) fn is_linked(&self) -> bool {
        // SAFETY: `raw` lives as long as `self`.
        unsafe { (self.library.table.identity_linked)(self.raw.as_ptr()) != 0 }
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        // SAFETY: `raw` is ours, and this is its last use; contexts keep references of their own to what it holds.
        unsafe { (self.library.table.identity_free)(self.raw.as_ptr()) };
    }
}
