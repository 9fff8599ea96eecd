//! The structs of the interface. Each one that can grow begins with its size, which the caller sets.

use super::exclusive::Exclusive;
use crate::codes::Code;
use crate::config::Config;
use crate::tls::Tls;
use core::ffi::{c_char, c_void};

/// A configuration for any number of sessions. All functions on it may be called from any thread at any time.
pub struct TlsConfig(pub(crate) Config);

/// One TLS connection. Any thread may use it, one call at a time.
pub struct TlsSession(pub(crate) Exclusive<Tls>);

/// Bytes that a call reads.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slice {
    /// May be null if `len` is 0.
    pub data: *const u8,
    /// Number of bytes.
    pub len: usize,
}

/// Memory that a call reads or writes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Window {
    /// May be null if `len` is 0.
    pub data: *mut u8,
    /// Number of bytes.
    pub len: usize,
}

/// The windows of a call, and what the call did with them.
///
/// A program keeps one per session or thread, sets the windows and passes it to call after call. No windows may overlap,
/// with one exception: `plain` may be exactly the memory of `in`. Plaintext then stays where its records were.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TlsIo {
    /// sizeof(taut_tls_io).
    pub size: usize,
    /// Bytes of the peer, for `taut_tls_handshake` and `taut_tls_open`. The bytes that are taken may be changed.
    pub r#in: Window,
    /// Room for plaintext, for `taut_tls_open`: 16384 bytes hold that of any record.
    pub plain: Window,
    /// Room for bytes for the peer. The length of the data, 30 bytes for each 16384 bytes of it or part of them, and
    /// 64 bytes for a KeyUpdate that may be due, are always enough for `taut_tls_seal`.
    pub out: Window,
    /// The data for `taut_tls_seal`: an array of slices, sealed as one stream.
    pub data: *const Slice,
    /// Number of slices in `data`. More than 64 may cost an allocation.
    pub data_count: usize,
    /// Most records that `taut_tls_open` opens; 0 for as many as there are.
    pub max_records: usize,

    /// Result: bytes of `in` that were used, or bytes of `data` that were sealed. Present the others again.
    pub taken: usize,
    /// Result: bytes written to the front of `out`. Send them, also after an error.
    pub written: usize,
    /// Result: the plaintext begins at this offset in `plain`.
    pub plain_offset: usize,
    /// Result: bytes of plaintext.
    pub plain_len: usize,
    /// Result: records that were opened or sealed.
    pub records: usize,
    /// Result: one of TAUT_WANT_….
    pub want: u32,
    /// Result: bytes of plaintext that wait for room in `plain`.
    pub plain_waiting: usize,
    /// Result: bytes for the peer that wait for room in `out`.
    pub out_waiting: usize,
}

/// An error in detail. The caller sets `size`, `text` and `room`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ErrorDetail {
    /// sizeof(taut_error).
    pub size: usize,
    /// Room for the text, which ends with a zero byte and is cut if `room` is too small; may be null.
    pub text: *mut c_char,
    /// Bytes in `text`.
    pub room: usize,
    /// Result: length of the whole text, without the zero byte.
    pub len: usize,
    /// Result: the code, one of TAUT_ERR_…, or TAUT_OK if there is no error.
    pub code: Code,
    /// Result: the TLS alert that was received or sent (RFC 8446, section 6), or TAUT_NO_ALERT.
    pub alert: i32,
}

/// A certificate chain with its key.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CertificatePem {
    /// sizeof(taut_certificate).
    pub size: usize,
    /// Chain in PEM, end entity first.
    pub chain: Slice,
    /// Private key in PEM: PKCS#8, PKCS#1 or SEC1.
    pub key: Slice,
    /// OCSP response to staple, in DER; empty for none.
    pub ocsp: Slice,
    /// Name in errors, such as the file's name; may be null.
    pub name: *const c_char,
}

/// The result of a handshake. Texts end with a zero byte.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TlsFacts {
    /// sizeof(taut_tls_facts).
    pub size: usize,
    /// `TLSv1.3` or `TLSv1.2`; empty before the handshake.
    pub version: [c_char; 16],
    /// Cipher suite by its IANA name.
    pub suite: [c_char; 64],
    /// Key exchange group.
    pub group: [c_char; 32],
    /// Host name that the client sent (SNI); empty for none.
    pub server_name: [c_char; 256],
    /// Application protocol (ALPN).
    pub alpn: [u8; 256],
    /// Length of the application protocol; 0 for none.
    pub alpn_len: usize,
    /// Number of the peer's certificates.
    pub peer_certificates: usize,
    /// 1 if the handshake resumed an earlier session, else 0.
    pub resumed: u32,
}

/// How often a window was too small. Both counts stay 0 on the normal path.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TlsCounters {
    /// sizeof(taut_tls_counters).
    pub size: usize,
    /// Calls that left bytes for the peer behind, because `out` was too small.
    pub spills: u64,
    /// Records of which plaintext was left behind, because `plain` was too small.
    pub carries: u64,
}

/// The certificates that a peer shows, for a verification callback. All of it is valid during the call only.
#[repr(C)]
pub struct TlsPeer {
    /// Size of this struct. A library that is newer than the program may have more behind.
    pub size: usize,
    /// The chain in DER, end entity first.
    pub certificates: *const Slice,
    /// Number of certificates.
    pub certificates_count: usize,
    /// The host that a client connects to, without a zero byte behind it; empty for servers.
    pub host: Slice,
    /// 1 if the library accepts the chain, else 0.
    pub accepted: u32,
    /// The reason why the library rejects the chain, without a zero byte behind it; empty if it accepts it.
    pub reason: Slice,
}

/// Decides whether a handshake goes on: TAUT_ACCEPT or TAUT_REJECT. Every other value fails the handshake.
///
/// The decision replaces the library's, in both directions. The callback runs in the thread that calls
/// `taut_tls_handshake`, possibly in several threads at once for different sessions. No runtime's exception may leave
/// it, and it must not call a function on the session of the handshake, which answers TAUT_ERR_BUSY.
pub type TlsVerify = Option<unsafe extern "C" fn(user: *mut c_void, peer: *const TlsPeer) -> u32>;

/// Called once when no configuration and no session needs the user pointer any more, in the thread that released the
/// last one. It must not call a function on a configuration.
pub type Destroy = Option<unsafe extern "C" fn(user: *mut c_void)>;
