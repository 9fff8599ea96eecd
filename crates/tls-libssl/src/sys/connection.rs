use super::context::Context;
use super::session::ResumableSession;
use super::table::{RawConn, RawInfo, RawResult, Table};
use super::text::{NAMES, TIME, text};
use crate::certificate::{Name, Validity};
use core::ffi::CStr;
use core::ptr::NonNull;
use std::sync::Arc;
use tautline_buf::Buf;
use tautline_tls::{CipherSuite, NamedGroup, ProtocolVersion, TlsInfo};
use tautline_tls_records::Secret;
use zeroize::Zeroize;

/// `TL_SECRET`: most bytes of a traffic secret.
const SECRET: usize = 48;

/// One connection of a library, over the caller's buffers.
pub(crate) struct Connection {
    raw: NonNull<RawConn>,
    /// Must outlive `raw`, whose callbacks use it.
    context: Arc<Context>,
    /// Most bytes of the output buffer that are lent; tests limit it.
    window: usize,
}

// SAFETY: the libraries bind a connection to no thread. `self` is not `Sync`, so one thread at a time uses it.
unsafe impl Send for Connection {}

/// The outcome of an operation.
pub(crate) struct Outcome {
    pub(crate) status: Status,
    /// Number of bytes of the record that the library consumed.
    pub(crate) used: usize,
    /// Number of bytes of application data.
    pub(crate) plain: usize,
    /// Whether the peer has changed its keys; known only for connections that keep their secrets.
    pub(crate) rekeyed: bool,
}

/// The status of an operation: the constants `TL_DONE` and so on.
pub(crate) enum Status {
    Done,
    /// The library needs the peer's next record.
    Want,
    /// The peer's close_notify arrived.
    Closed,
    Failed(Failure),
}

/// The reason why an operation failed.
pub(crate) struct Failure {
    /// One of the constants of [`failure`].
    pub(crate) kind: i32,
    /// The alert that arrived, if `kind` is [`failure::ALERT`].
    pub(crate) alert: u8,
    /// One of the constants of [`verify`], if `kind` is [`failure::CERTIFICATE`].
    pub(crate) verify: i32,
    /// The library's words.
    pub(crate) reason: String,
}

impl Connection {
    /// Makes a server's connection; `None` if memory runs out.
    pub(crate) fn accept(context: Arc<Context>) -> Option<Self> {
        // SAFETY: the context outlives the connection.
        let raw = unsafe { (context.library.table.conn_accept)(context.raw.as_ptr()) };
        Some(Self { raw: NonNull::new(raw)?, context, window: usize::MAX })
    }

    /// Makes a client's connection to `name`, or to `ip` if there is no name; `None` if memory runs out.
    pub(crate) fn connect(
        context: Arc<Context>,
        name: Option<&CStr>,
        ip: &[u8],
        session: Option<ResumableSession>,
    ) -> Option<Self> {
        let name = name.map_or(core::ptr::null(), CStr::as_ptr);
        let offered = session.as_ref().map_or(core::ptr::null_mut(), |session| session.raw.as_ptr());
        // SAFETY: the context outlives the connection. The call copies name and address. It takes a reference to the
        // session, or a copy; the session is of the same library, and ours is dropped when this returns.
        let raw =
            unsafe { (context.library.table.conn_connect)(context.raw.as_ptr(), name, ip.as_ptr(), ip.len(), offered) };
        Some(Self { raw: NonNull::new(raw)?, context, window: usize::MAX })
    }

    /// Advances the handshake with one record, or with none. Bytes for the peer are appended to `out`.
    pub(crate) fn handshake(&mut self, record: &[u8], out: &mut Buf) -> Outcome {
        self.run(out, 0, |table, raw, window, len, result| {
            // SAFETY: `raw` is a connection of this table; record and window outlive the call, which disarms both.
            unsafe { (table.conn_handshake)(raw, record.as_ptr(), record.len(), window, len, result) };
        })
    }

    /// Opens one record into `plain`, which is at least as long. Bytes for the peer are appended to `out`.
    pub(crate) fn read_into(&mut self, record: &[u8], plain: &mut [u8], out: &mut Buf) -> Outcome {
        self.run(out, 0, |table, raw, window, window_len, result| {
            // SAFETY: `raw` is a connection of this table; record, plaintext and window outlive the call, which disarms all.
            unsafe {
                let (at, len) = (plain.as_mut_ptr(), plain.len());
                (table.conn_read)(raw, record.as_ptr(), record.len(), at, len, window, window_len, result);
            }
        })
    }

    /// Opens one record in place: its content is then at its front. Bytes for the peer are appended to `out`.
    pub(crate) fn read(&mut self, record: &mut [u8], out: &mut Buf) -> Outcome {
        let (at, len) = (record.as_mut_ptr(), record.len());
        self.run(out, 0, |table, raw, window, window_len, result| {
            // SAFETY: `raw` is a connection of this table; record and window outlive the call, which disarms both. It opens
            // the record in place, or copies it before it writes there. It writes at most `len` bytes.
            unsafe { (table.conn_read)(raw, at.cast_const(), len, at, len, window, window_len, result) };
        })
    }

    /// Seals `plain`, at least one byte, and appends the records to `out`. `room` is their expected length.
    pub(crate) fn write(&mut self, plain: &[u8], room: usize, out: &mut Buf) -> Outcome {
        self.run(out, room, |table, raw, window, len, result| {
            // SAFETY: `raw` is a connection of this table; plaintext and window outlive the call, which disarms the window.
            unsafe { (table.conn_write)(raw, plain.as_ptr(), plain.len(), window, len, result) };
        })
    }

    /// Appends close_notify to `out`.
    pub(crate) fn close(&mut self, out: &mut Buf) -> Outcome {
        self.run(out, 64, |table, raw, window, len, result| {
            // SAFETY: `raw` is a connection of this table; the window outlives the call, which disarms it.
            unsafe { (table.conn_close)(raw, window, len, result) };
        })
    }

    /// Appends to `out` the records that a server holds back until its first write.
    pub(crate) fn flush(&mut self, out: &mut Buf) -> Outcome {
        self.run(out, 0, |table, raw, window, len, result| {
            if let Some(flush) = table.conn_flush {
                // SAFETY: `raw` is a connection of this table; the window outlives the call, which disarms it.
                unsafe { flush(raw, window, len, result) };
            }
        })
    }

    /// Takes the first traffic secrets of client and server; `None` if they were not kept.
    pub(crate) fn secrets(&mut self) -> Option<(Secret, Secret)> {
        let take = self.context.library.table.conn_secrets?;
        let (mut client, mut server) = ([0; SECRET], [0; SECRET]);
        // SAFETY: `raw` lives as long as `self`; both arrays have the most bytes that the shim writes.
        let len = unsafe { take(self.raw.as_ptr(), client.as_mut_ptr(), server.as_mut_ptr()) };
        let secret = |bytes: &[u8; SECRET]| bytes.get(..len).filter(|_| len > 0).and_then(Secret::new);
        let secrets = secret(&client).zip(secret(&server));
        client.zeroize();
        server.zeroize();
        secrets
    }

    /// Lends the free part of `out`, at least `room` bytes, to one operation.
    ///
    /// The operation's output is then in `out`, including the bytes that did not fit at first.
    fn run(
        &mut self,
        out: &mut Buf,
        room: usize,
        operation: impl FnOnce(&Table, *mut RawConn, *mut u8, usize, *mut RawResult),
    ) -> Outcome {
        let mut result = RawResult::EMPTY;
        let table = self.context.library.table;
        let window = out.reserve(room);
        let len = window.len().min(self.window);
        operation(table, self.raw.as_ptr(), window.as_mut_ptr(), len, &raw mut result);
        out.commit(result.written);
        if result.spilled > 0 {
            let rest = out.reserve(result.spilled);
            // SAFETY: `raw` is a connection of this table, and `rest` has room for the bytes that spilled.
            unsafe { (table.conn_spill)(self.raw.as_ptr(), rest.as_mut_ptr()) };
            out.commit(result.spilled);
        }
        let status = match result.status {
            0 => Status::Done,
            1 => Status::Want,
            2 => Status::Closed,
            _ => Status::Failed(Failure {
                kind: result.failure,
                alert: u8::try_from(result.alert).unwrap_or(u8::MAX),
                verify: result.verify,
                reason: text(&result.reason),
            }),
        };
        Outcome { status, used: result.used, plain: result.plain, rekeyed: result.rekeyed != 0 }
    }

    /// Whether the handshake negotiated TLS 1.3.
    pub(crate) fn is_tls13(&self) -> bool {
        self.raw_info().version == i32::from(ProtocolVersion::Tls13.number())
    }

    /// Has the next write change the keys first. Returns whether the library can.
    pub(crate) fn update_keys(&mut self) -> bool {
        // SAFETY: `raw` lives as long as `self`.
        unsafe { (self.context.library.table.conn_update_keys)(self.raw.as_ptr()) == 1 }
    }

    /// The negotiated parameters.
    pub(crate) fn tls_info(&self) -> TlsInfo {
        let raw = self.raw_info();
        let mut info = TlsInfo::default();
        let number = |number: i32| u16::try_from(number).ok().filter(|&number| number != 0);
        info.version = number(raw.version).map(ProtocolVersion::from);
        info.suite = number(raw.suite).map(CipherSuite::from);
        info.group = group(&text(&raw.group));
        info.alpn = (raw.alpn_len > 0).then(|| {
            // SAFETY: the library keeps the protocol until the next use of the connection; the slice is copied at once.
            unsafe { core::slice::from_raw_parts(raw.alpn, raw.alpn_len) }.to_vec()
        });
        info.server_name = (!raw.server_name.is_null()).then(|| {
            // SAFETY: the name is a string in the connection, which is copied at once.
            unsafe { CStr::from_ptr(raw.server_name) }.to_string_lossy().into_owned()
        });
        info.resumed = raw.resumed != 0;
        info.peer_certificates = (0..).map_while(|index| self.peer_certificate(index)).collect();
        info
    }

    fn raw_info(&self) -> RawInfo {
        let mut raw = RawInfo {
            version: 0,
            suite: 0,
            resumed: 0,
            alpn: core::ptr::null(),
            alpn_len: 0,
            server_name: core::ptr::null(),
            group: [0; 48],
        };
        // SAFETY: `self.raw` lives as long as `self`; the call fills `raw`.
        unsafe { (self.context.library.table.conn_info)(self.raw.as_ptr(), &raw mut raw) };
        raw
    }

    /// The peer's certificate at `index` in DER; its own is the first.
    fn peer_certificate(&self, index: usize) -> Option<Vec<u8>> {
        let table = self.context.library.table;
        let mut der = core::ptr::null_mut();
        // SAFETY: `raw` lives as long as `self`; the call stores the address of a copy that is ours in `der`.
        let len = unsafe { (table.conn_peer_certificate)(self.raw.as_ptr(), index, &raw mut der) };
        if len == 0 {
            return None;
        }
        // SAFETY: the shim made a copy of this length.
        let copy = unsafe { core::slice::from_raw_parts(der, len) }.to_vec();
        // SAFETY: the copy is ours, and this is its last use.
        unsafe { (table.bytes_free)(der) };
        Some(copy)
    }

    /// The names that the rejected certificate is valid for.
    pub(crate) fn refused_names(&self) -> Vec<Name> {
        let mut names = vec![0; NAMES];
        // SAFETY: `raw` lives as long as `self`; `names` has the given length.
        let len = unsafe {
            (self.context.library.table.conn_refused_names)(self.raw.as_ptr(), names.as_mut_ptr(), names.len())
        };
        Name::parse_all(&names[..len.min(NAMES)])
    }

    /// The time for which the rejected certificate is valid.
    pub(crate) fn refused_validity(&self) -> Validity {
        let (mut from, mut until) = ([0; TIME], [0; TIME]);
        // SAFETY: `raw` lives as long as `self`; both arrays have the given length.
        let state = unsafe {
            let validity = self.context.library.table.conn_refused_validity;
            validity(self.raw.as_ptr(), from.as_mut_ptr(), until.as_mut_ptr(), TIME)
        };
        Validity::new(state, &text(&from), &text(&until))
    }

    /// Makes all sessions available to [`session`](Self::session). Must be called when a client's handshake is complete.
    pub(crate) fn keep_session(&mut self) {
        // SAFETY: `raw` lives as long as `self`.
        unsafe { (self.context.library.table.conn_keep_session)(self.raw.as_ptr()) };
    }

    /// Takes the newest session that can be resumed.
    pub(crate) fn session(&mut self) -> Option<ResumableSession> {
        let library = self.context.library;
        // SAFETY: `raw` lives as long as `self`; the call gives us its reference.
        let session = NonNull::new(unsafe { (library.table.conn_session)(self.raw.as_ptr()) })?;
        Some(ResumableSession::new(library, session))
    }

    /// For benchmarks, before the first operation: has the library read and write memory of its own instead of the windows.
    pub(crate) fn use_memory(&mut self) -> bool {
        // SAFETY: `raw` lives as long as `self`.
        self.context.library.table.conn_memory.is_some_and(|memory| unsafe { memory(self.raw.as_ptr()) } != 0)
    }

    /// For tests: limits the windows to `window` bytes, so that the rest spills; `spill_fails` makes spilling fail.
    pub(crate) fn inject(&mut self, window: usize, spill_fails: bool) {
        self.window = window;
        // SAFETY: `raw` lives as long as `self`.
        unsafe { (self.context.library.table.conn_faults)(self.raw.as_ptr(), spill_fails.into()) };
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: `raw` is ours, and this is its last use; the context is dropped later.
        unsafe { (self.context.library.table.conn_free)(self.raw.as_ptr()) };
    }
}

/// The group that the library has this name for.
fn group(name: &str) -> Option<NamedGroup> {
    match name {
        "prime256v1" | "P-256" => Some(NamedGroup::Secp256r1),
        "P-384" => Some(NamedGroup::Secp384r1),
        "P-521" => Some(NamedGroup::Secp521r1),
        other => NamedGroup::from_name(other),
    }
}

/// The kinds of failures: the constants `TL_PROTOCOL` and so on.
pub(crate) mod failure {
    pub(crate) const ALERT: i32 = 2;
    pub(crate) const CERTIFICATE: i32 = 3;
    pub(crate) const NO_CERTIFICATE: i32 = 4;
    pub(crate) const NO_ALPN: i32 = 5;
    pub(crate) const BAD_RECORD: i32 = 6;
    pub(crate) const VERSION: i32 = 7;
    pub(crate) const NO_CIPHER: i32 = 8;
    pub(crate) const LIBRARY: i32 = 9;
    pub(crate) const MEMORY: i32 = 10;
}

/// The reasons to reject a certificate: the constants `TL_VERIFY_...`.
pub(crate) mod verify {
    pub(crate) const EXPIRED: i32 = 1;
    pub(crate) const NOT_YET: i32 = 2;
    pub(crate) const ISSUER: i32 = 3;
    pub(crate) const NAME: i32 = 4;
    pub(crate) const PURPOSE: i32 = 5;
    pub(crate) const SIGNATURE: i32 = 6;
    pub(crate) const AUTHORITY: i32 = 7;
    pub(crate) const REVOKED: i32 = 8;
}
