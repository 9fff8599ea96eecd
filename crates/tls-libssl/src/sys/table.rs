//! The types of `csrc/table.h`.

use core::ffi::{c_char, c_void};
use tautline_tls_tickets::Material;

/// `tl_identity`
#[repr(C)]
pub(super) struct RawIdentity {
    _opaque: [u8; 0],
}

/// `tl_context`
#[repr(C)]
pub(super) struct RawContext {
    _opaque: [u8; 0],
}

/// `tl_conn`
#[repr(C)]
pub(super) struct RawConn {
    _opaque: [u8; 0],
}

/// Length of a reason, with its terminating zero.
const REASON: usize = 120;

/// `tl_result`
#[repr(C)]
pub(super) struct RawResult {
    pub(super) status: i32,
    pub(super) failure: i32,
    pub(super) alert: i32,
    pub(super) verify: i32,
    pub(super) used: usize,
    pub(super) written: usize,
    pub(super) spilled: usize,
    pub(super) plain: usize,
    pub(super) rekeyed: i32,
    pub(super) reason: [u8; REASON],
}

impl RawResult {
    pub(super) const EMPTY: Self = Self {
        status: 0,
        failure: 0,
        alert: 0,
        verify: 0,
        used: 0,
        written: 0,
        spilled: 0,
        plain: 0,
        rekeyed: 0,
        reason: [0; REASON],
    };
}

/// `tl_refusal`
#[repr(C)]
pub(super) struct RawRefusal {
    pub(super) kind: i32,
    pub(super) reason: [u8; REASON],
}

impl RawRefusal {
    pub(super) const EMPTY: Self = Self { kind: 0, reason: [0; REASON] };
}

/// `tl_ticket_key`
#[repr(C)]
pub(super) struct RawTicketKey {
    name: [u8; Material::NAME],
    key: [u8; Material::KEY],
}

impl RawTicketKey {
    pub(super) fn of(material: &Material) -> Self {
        Self { name: *material.name(), key: *material.key() }
    }
}

/// `tl_options`
#[repr(C)]
pub(super) struct RawOptions {
    pub(super) server: i32,
    pub(super) lowest: i32,
    pub(super) highest: i32,
    pub(super) verify: i32,
    pub(super) resume: i32,
    pub(super) groups: usize,
    pub(super) classical: i32,
    pub(super) alpn: *const u8,
    pub(super) alpn_len: usize,
    pub(super) key_log: *const c_char,
    pub(super) find_key: Option<unsafe extern "C" fn(*const c_void, *const u8, *mut RawTicketKey) -> i32>,
    pub(super) ticket_keys: *const c_void,
    pub(super) tickets_each: usize,
    pub(super) tickets_last: u32,
    pub(super) secrets: i32,
}

/// `tl_info`
#[repr(C)]
pub(super) struct RawInfo {
    pub(super) version: i32,
    pub(super) suite: i32,
    pub(super) resumed: i32,
    pub(super) alpn: *const u8,
    pub(super) alpn_len: usize,
    pub(super) server_name: *const c_char,
    pub(super) group: [u8; 48],
}

/// `tl_name`
#[repr(C)]
pub(super) struct RawName {
    pub(super) name: *const c_char,
    pub(super) group: u32,
}

/// `tl_table`, the functions of one library, which are documented in `csrc`. The first field is the size of the table, so
/// that a mismatch is noticed.
#[cfg_attr(not(feature = "external"), expect(unreachable_pub, reason = "crates that bring a library name it"))]
#[repr(C)]
pub struct Table {
    pub(super) size: usize,
    pub(super) init: unsafe extern "C" fn() -> i32,
    pub(super) version: unsafe extern "C" fn() -> *const c_char,

    pub(super) identity_new:
        unsafe extern "C" fn(*const u8, usize, *const u8, usize, *mut RawRefusal) -> *mut RawIdentity,
    pub(super) identity_free: unsafe extern "C" fn(*mut RawIdentity),
    pub(super) identity_kind: unsafe extern "C" fn(*const RawIdentity) -> i32,
    pub(super) identity_bits: unsafe extern "C" fn(*const RawIdentity) -> i32,
    pub(super) identity_names: unsafe extern "C" fn(*const RawIdentity, *mut u8, usize) -> usize,
    pub(super) identity_validity: unsafe extern "C" fn(*const RawIdentity, *mut u8, *mut u8, usize) -> i32,
    pub(super) identity_linked: unsafe extern "C" fn(*const RawIdentity) -> i32,
    pub(super) identity_fits: unsafe extern "C" fn(*const RawIdentity, i32) -> i32,
    pub(super) identity_sign: unsafe extern "C" fn(*const RawIdentity) -> i32,

    pub(super) random: unsafe extern "C" fn(*mut u8, usize) -> i32,

    pub(super) context_new: unsafe extern "C" fn(*const RawOptions, *mut RawRefusal) -> *mut RawContext,
    pub(super) context_free: unsafe extern "C" fn(*mut RawContext),
    pub(super) context_trust_pem: unsafe extern "C" fn(*mut RawContext, *const u8, usize, *mut RawRefusal) -> i32,
    pub(super) context_trust_der: unsafe extern "C" fn(*mut RawContext, *const u8, usize) -> i32,
    pub(super) context_use: unsafe extern "C" fn(*mut RawContext, usize, *const RawIdentity, *mut RawRefusal) -> i32,
    pub(super) context_names: unsafe extern "C" fn(*mut RawContext, *const RawName, usize) -> i32,
    pub(super) context_seal: unsafe extern "C" fn(*mut RawContext) -> i32,

    pub(super) conn_accept: unsafe extern "C" fn(*const RawContext) -> *mut RawConn,
    pub(super) conn_connect:
        unsafe extern "C" fn(*const RawContext, *const c_char, *const u8, usize, *mut c_void) -> *mut RawConn,
    pub(super) conn_free: unsafe extern "C" fn(*mut RawConn),
    pub(super) conn_handshake: unsafe extern "C" fn(*mut RawConn, *const u8, usize, *mut u8, usize, *mut RawResult),
    pub(super) conn_read:
        unsafe extern "C" fn(*mut RawConn, *const u8, usize, *mut u8, usize, *mut u8, usize, *mut RawResult),
    pub(super) conn_write: unsafe extern "C" fn(*mut RawConn, *const u8, usize, *mut u8, usize, *mut RawResult),
    pub(super) conn_close: unsafe extern "C" fn(*mut RawConn, *mut u8, usize, *mut RawResult),
    pub(super) conn_spill: unsafe extern "C" fn(*mut RawConn, *mut u8),
    pub(super) conn_update_keys: unsafe extern "C" fn(*mut RawConn) -> i32,
    pub(super) conn_info: unsafe extern "C" fn(*const RawConn, *mut RawInfo),
    pub(super) conn_peer_certificate: unsafe extern "C" fn(*const RawConn, usize, *mut *mut u8) -> usize,
    pub(super) conn_refused_names: unsafe extern "C" fn(*const RawConn, *mut u8, usize) -> usize,
    pub(super) conn_refused_validity: unsafe extern "C" fn(*const RawConn, *mut u8, *mut u8, usize) -> i32,
    pub(super) conn_keep_session: unsafe extern "C" fn(*mut RawConn),
    pub(super) conn_session: unsafe extern "C" fn(*mut RawConn) -> *mut c_void,
    pub(super) conn_faults: unsafe extern "C" fn(*mut RawConn, i32),

    pub(super) session_free: unsafe extern "C" fn(*mut c_void),
    pub(super) bytes_free: unsafe extern "C" fn(*mut u8),

    // The functions that a library may lack: `OPTIONAL` of them.
    pub(super) conn_flush: Option<unsafe extern "C" fn(*mut RawConn, *mut u8, usize, *mut RawResult)>,
    pub(super) conn_secrets: Option<unsafe extern "C" fn(*mut RawConn, *mut u8, *mut u8) -> usize>,
    pub(super) conn_memory: Option<unsafe extern "C" fn(*mut RawConn) -> i32>,
    pub(super) identity_staple: Option<unsafe extern "C" fn(*mut RawIdentity, *const u8, usize, u64) -> i32>,
}

/// `TL_OPTIONAL`
pub(super) const OPTIONAL: usize = 4;

#[cfg(any(feature = "openssl", feature = "aws-lc", feature = "boringssl", feature = "libressl"))]
unsafe extern "C" {
    #[cfg(feature = "openssl")]
    pub(super) static tautline_libssl_openssl: Table;
    #[cfg(feature = "aws-lc")]
    pub(super) static tautline_libssl_aws_lc: Table;
    #[cfg(feature = "boringssl")]
    pub(super) static tautline_libssl_boringssl: Table;
    #[cfg(feature = "libressl")]
    pub(super) static tautline_libssl_libressl: Table;
}
