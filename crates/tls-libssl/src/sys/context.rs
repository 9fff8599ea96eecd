use super::identity::Identity;
use super::library::{Library, Refusal};
use super::table::{RawContext, RawName, RawOptions, RawRefusal};
use super::tickets::{TicketKeys, find_key};
use core::ptr::NonNull;
use std::ffi::CString;
use std::sync::Arc;

/// The configuration of one role, from which connections are made.
pub(crate) struct Context {
    pub(super) library: Library,
    pub(super) raw: NonNull<RawContext>,
    /// Must outlive `raw`, whose callbacks use the keys.
    _tickets: Option<Arc<TicketKeys>>,
}

// SAFETY: a complete context is used only by `conn_new`, which counts its references atomically. The libraries allow
// connections of one SSL_CTX on several threads, and the shim only reads its own additions.
unsafe impl Send for Context {}
// SAFETY: as above; methods that change a context take it by `&mut`.
unsafe impl Sync for Context {}

/// The settings of a context.
pub(crate) struct Options<'a> {
    pub(crate) server: bool,
    /// The lowest and the highest version, as on the wire.
    pub(crate) versions: (u16, u16),
    pub(crate) verify: Verify,
    /// Whether a client keeps sessions.
    pub(crate) resume: bool,
    /// The keys of a server's tickets, and the number of tickets for each handshake of TLS 1.3.
    pub(crate) tickets: Option<(Arc<TicketKeys>, u8)>,
    /// Number of groups of certificates, which are selected by name; at least one.
    pub(crate) groups: usize,
    /// Whether key exchanges with ML-KEM are left out.
    pub(crate) classical: bool,
    /// Application protocols, each behind its length.
    pub(crate) alpn: &'a [u8],
    /// The file of the key log.
    pub(crate) key_log: Option<CString>,
    /// Whether connections keep their traffic secrets.
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
        // SAFETY: all pointers in `raw_options` outlive the call, which copies what it keeps. The exception is the ticket
        // keys, which live as long as the context.
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

    /// Trusts one certificate in DER. Returns whether the library can parse it.
    pub(crate) fn trust_der(&mut self, der: &[u8]) -> bool {
        // SAFETY: `raw` lives as long as `self`; `der` outlives the call, which keeps no pointer to it.
        unsafe { (self.library.table.context_trust_der)(self.raw.as_ptr(), der.as_ptr(), der.len()) != 0 }
    }

    /// Adds `identity` to a group. The preferred one must come first; there is at most one for each kind of key.
    pub(crate) fn add(&mut self, group: usize, identity: &Identity) -> Result<(), Refusal> {
        let mut refusal = RawRefusal::EMPTY;
        // SAFETY: `raw` lives as long as `self`, `identity` is of the same library and outlives the call, which takes
        // references of its own; the shim checks `group`.
        let added = unsafe {
            (self.library.table.context_use)(self.raw.as_ptr(), group, identity.raw.as_ptr(), &raw mut refusal)
        };
        if added != 0 { Ok(()) } else { Err(Refusal::from(&refusal)) }
    }

    /// Maps names to groups and makes the context ready for connections. Must be called once.
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
        // SAFETY: `raw` is ours, and this is its last use: each connection holds its context.
        unsafe { (self.library.table.context_free)(self.raw.as_ptr()) };
    }
}
