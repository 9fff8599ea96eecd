//! The numbers of the interface. They never change their meaning.

/// The result of a call: [`TAUT_OK`], or one of the errors below.
pub type Code = i32;

/// The call did what it says.
pub const TAUT_OK: Code = 0;
/// A pointer is null, or is not aligned, that must not be.
pub const TAUT_ERR_NULL: Code = 1;
/// A struct's `size` is smaller than that of any version of this library, or a length is impossible.
pub const TAUT_ERR_SIZE: Code = 2;
/// Windows overlap that must not.
pub const TAUT_ERR_OVERLAP: Code = 3;
/// Another call uses this session at the same time, in another thread or below this one on the stack.
pub const TAUT_ERR_BUSY: Code = 4;
/// A number or a text has no meaning here.
pub const TAUT_ERR_VALUE: Code = 5;
/// The call does not fit the state: before the handshake, after the close, or in the wrong role.
pub const TAUT_ERR_STATE: Code = 6;
/// The session has failed in an earlier call. Free it.
pub const TAUT_ERR_FAILED: Code = 7;
/// The configuration cannot be used. The text names the part and the remedy.
pub const TAUT_ERR_CONFIG: Code = 8;
/// The peer broke the protocol, or a record does not authenticate.
pub const TAUT_ERR_PEER: Code = 9;
/// The peer sent a fatal alert.
pub const TAUT_ERR_ALERT: Code = 10;
/// This end rejected the peer's certificate.
pub const TAUT_ERR_CERTIFICATE: Code = 11;
/// The TLS library failed on its own.
pub const TAUT_ERR_LIBRARY: Code = 12;
/// This library has a defect. The session is dead, the process is not.
pub const TAUT_ERR_INTERNAL: Code = 13;

/// Role of a configuration: it opens connections.
pub const TAUT_CLIENT: u32 = 0;
/// Role of a configuration: it accepts connections.
pub const TAUT_SERVER: u32 = 1;

/// Wanted next: nothing. The operation is complete, or more whole records lie in the input.
pub const TAUT_WANT_NONE: u32 = 0;
/// Wanted next: more bytes of the peer. Bytes that were not taken are presented again, in front of them.
pub const TAUT_WANT_READ: u32 = 1;
/// Wanted next: room in `out`, since bytes for the peer wait. Call again, even without input.
pub const TAUT_WANT_WRITE: u32 = 2;
/// Wanted next: room in `plain`, since plaintext waits or the next record may not fit. Call again.
pub const TAUT_WANT_ROOM: u32 = 3;
/// Wanted next: nothing more, since the peer has closed its direction. This end can still send.
pub const TAUT_WANT_CLOSED: u32 = 4;

/// Clients need no certificate.
pub const TAUT_CLIENT_AUTH_NONE: u32 = 0;
/// Clients may show a certificate, which must then be valid.
pub const TAUT_CLIENT_AUTH_OPTIONAL: u32 = 1;
/// Clients must show a valid certificate.
pub const TAUT_CLIENT_AUTH_REQUIRED: u32 = 2;

/// Option, versions of TLS: 0 for all (the default), 12 for 1.2 alone, 13 for 1.3 alone.
pub const TAUT_OPTION_VERSIONS: u32 = 1;
/// Option, 1 writes secrets to the file that the environment variable `SSLKEYLOGFILE` names. Default 0.
pub const TAUT_OPTION_KEY_LOG: u32 = 2;
/// Option, 1 keeps a secret of each connection for `taut_tls_export`. Default 0.
pub const TAUT_OPTION_EXPORTER: u32 = 3;
/// Option of a server, period of the ticket keys in seconds; 0 for no tickets. Default 43200.
pub const TAUT_OPTION_TICKETS: u32 = 4;
/// Option of a server, tickets for each TLS 1.3 handshake, 1 to 16. Default 2.
pub const TAUT_OPTION_TICKETS_PER_HANDSHAKE: u32 = 5;
/// Option of a client, 0 resumes no session. Default 1.
pub const TAUT_OPTION_RESUMPTION: u32 = 6;
/// Option of a client, 0 offers no key exchange with ML-KEM. Default 1.
pub const TAUT_OPTION_POST_QUANTUM: u32 = 7;

/// Decision of a verification callback: the certificate is accepted.
pub const TAUT_ACCEPT: u32 = 1;
/// Decision of a verification callback: the certificate is rejected.
pub const TAUT_REJECT: u32 = 2;

/// The value of `taut_error.alert` if there is no alert, or if it is not known.
pub const TAUT_NO_ALERT: i32 = -1;
