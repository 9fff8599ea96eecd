use super::identity::Identity;
use super::library::{Library, Refusal};
use super::table::{RawContext, RawName, RawOptions, RawRefusal};
use super::tickets::{TicketKeys, find_key};
use core::ptr::NonNull;
use std::ffi::CString;
use std::sync::Arc;

/// The configuration of one role, to make connections of.
pub(crate) struct Context {
    pub(super) library: Library,
    pub(super) raw: NonNull<RawContext>,
    /// Its callbacks use them.
    _tickets: Option<Arc<TicketKeys>>,
}

// SAFETY: once built, only `conn_new` uses a context, which counts its references atomically; the libraries allow
// connections of one SSL_CTX on several threads, and the shim only reads what it added to it.
unsafe impl Send for Context {}
// SAFETY: as above; what changes a context takes it by `&mut`.
unsafe impl Sync for Context {}

/// What a context is made of.
pub(crate) struct Options<'a> {
    pub(crate) server: bool,
    /// The lowest and the highest version, as on the wire.
    pub(crate) versions: (u16, u16),
    pub(crate) verify: Verify,
    /// Whether a client keeps sessions.
    pub(crate) resume: bool,
    /// What a server seals its tickets with, and how many it issues for each handshake of TLS 1.3.
    pub(crate) tickets: Option<(Arc<TicketKeys>, u8)>,
    /// Groups of certificates that are chosen from by name; at least one.
    pub(crate) groups: usize,
    /// No key exchange with ML-KEM.
    pub(crate) classical: bool,
    /// Application protocols, each behind its length.
    pub(crate) alpn: &'a [u8],
    /// A file to append secrets to.
    pub(crate) key_log: Option<CString>,
    /// Connections keep their traffic secrets.
    pub(crate) secrets: bool,
}

/// Whether the peer's certificate is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verify {
    Never,
    IfShown,
    Required,
}

impl Context {
    pub(crate) fn new(library: Library, options: &Options<'_>) -> Result<Self, Refusal> {
        let tickets = options.tickets.as_ref().map(|(keys, _)| Arc::clone(keys));
        let raw_options = RawOptions {
            server: options.server.into(),
            lowest: options.versions.0.into(),
            highest: options.versions.1.into(),
            verify: options.verify as i32,
            resume: (options.resume || options.tickets.is_some()).into(),
            groups: options.groups.max(1),
            classical: options.classical.into(),
            alpn: options.alpn.as_ptr(),
            alpn_len: options.alpn.len(),
            key_log: options.key_log.as_ref().map_or(core::ptr::null(), |name| name.as_ptr()),
            find_key: tickets.is_some().then_some(find_key),
            ticket_keys: tickets.as_ref().map_or(core::ptr::null(), Arc::as_ptr).cast(),
            tickets_each: options.tickets.as_ref().map_or(0, |(_, each)| usize::from(*each)),
            tickets_last: tickets.as_ref().map_or(0, |keys| keys.period()),
            secrets: options.secrets.into(),
        };
        let mut refusal = RawRefusal::EMPTY;
        // SAFETY: all that `raw_options` points to outlives the call, which copies what it keeps, but for the ticket keys, which
        // live as long as the context.
        let raw = unsafe { (library.table.context_new)(&raw const raw_options, &raw mut refusal) };
        NonNull::new(raw).map(|raw| Self { library, raw, _tickets: tickets }).ok_or_else(|| Refusal::from(&refusal))
    }

    pub(crate) const fn library(&self) -> Library {
        self.library
    }

    /// Trusts all certificates in `pem`.
    pub(crate) fn trust_pem(&mut self, pem: &[u8]) -> Result<(), Refusal> {
        let mut refusal = RawRefusal::EMPTY;
        // SAFETY: `raw` lives as long as `self`; `pem` and `refusal` outlive the call, which keeps no pointer to them.
        let trusted = unsafe {
            (self.library.table.context_trust_pem)(self.raw.as_ptr(), pem.as_ptr(), pem.len(), &raw mut refusal)
        };
        if trusted > 0 { Ok(()) } else { Err(Refusal::from(&refusal)) }
    }

    /// Trusts one certificate, DER; says whether the library can read it.
    pub(crate) fn trust_der(&mut self, der: &[u8]) -> bool {
        // SAFETY: `raw` lives as long as `self`; `der` outlives the call, which keeps no pointer to it.
        unsafe { (self.library.table.context_trust_der)(self.raw.as_ptr(), der.as_ptr(), der.len()) != 0 }
    }

    /// Adds `identity` to a group: the preferred ones first, one of each kind of key.
    pub(crate) fn add(&mut self, group: usize, identity: &Identity) -> Result<(), Refusal> {
        let mut refusal = RawRefusal::EMPTY;
        // SAFETY: `raw` lives as long as `self`, `identity` is of the same library and outlives the call, which takes
        // references of its own; the shim checks `group`.
        let added = unsafe {
            (self.library.table.context_use)(self.raw.as_ptr(), group, identity.raw.as_ptr(), &raw mut refusal)
        };
        if added != 0 { Ok(()) } else { Err(Refusal::from(&refusal)) }
    }

    /// Says which group serves which names, and makes the context ready for connections. To be called once.
    pub(crate) fn complete(&mut self, names: &[(CString, u32)]) -> bool {
        let raw_names: Vec<_> =
            names.iter().map(|(name, group)| RawName { name: name.as_ptr(), group: *group }).collect();
        // SAFETY: `raw` lives as long as `self`; the names outlive the call, which copies them and checks the groups.
        let named =
            unsafe { (self.library.table.context_names)(self.raw.as_ptr(), raw_names.as_ptr(), raw_names.len()) };
        // SAFETY: `raw` lives as long as `self`.
        named != 0 && unsafe { (self.library.table.context_seal)(self.raw.as_ptr()) } != 0
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: `raw` is ours, and this is its last use: connections hold the context that they were made of.
        unsafe { (self.library.table.context_free)(self.raw.as_ptr()) };
    }
}
