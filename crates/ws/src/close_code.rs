use core::fmt;

/// The code of a close frame, which says why a connection ends (RFC 6455, section 7.4).
///
/// A code can have any number; [`is_sendable`](Self::is_sendable) says whether it may be sent.
///
/// ```
/// # mod tautline { pub use tautline_ws::CloseCode; }
/// use tautline::CloseCode;
///
/// assert_eq!(CloseCode::GOING_AWAY.get(), 1001);
/// // Applications have 4000 to 4999 for themselves.
/// assert!(CloseCode::new(4000).is_sendable() && !CloseCode::ABNORMAL.is_sendable());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CloseCode(u16);

impl CloseCode {
    /// 1000: the connection has fulfilled its purpose.
    pub const NORMAL: Self = Self(1000);
    /// 1001: the server goes down, or the browser left the page.
    pub const GOING_AWAY: Self = Self(1001);
    /// 1002: the peer broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// 1003: the receiver does not accept this kind of data.
    pub const UNSUPPORTED: Self = Self(1003);
    /// 1005: the peer's close frame held no code. Never on the wire.
    pub const NO_STATUS: Self = Self(1005);
    /// 1006: the connection ended without a close frame. Never on the wire.
    pub const ABNORMAL: Self = Self(1006);
    /// 1007: the data does not fit its kind, such as text that is not UTF-8.
    pub const INVALID_PAYLOAD: Self = Self(1007);
    /// 1008: the message violates the receiver's policy.
    pub const POLICY: Self = Self(1008);
    /// 1009: the message is too big to process.
    pub const MESSAGE_TOO_BIG: Self = Self(1009);
    /// 1010: the client needs an extension that the server did not negotiate.
    pub const EXTENSION_REQUIRED: Self = Self(1010);
    /// 1011: the server met an unexpected condition.
    pub const INTERNAL_ERROR: Self = Self(1011);
    /// 1012: the service restarts; come back after a random delay of 5 to 30 seconds.
    pub const SERVICE_RESTART: Self = Self(1012);
    /// 1013: the service is overloaded; try again later.
    pub const TRY_AGAIN_LATER: Self = Self(1013);
    /// 1014: the server is a gateway, and the server behind it gave an invalid answer.
    pub const BAD_GATEWAY: Self = Self(1014);
    /// 1015: the TLS handshake failed. Never on the wire.
    pub const TLS_HANDSHAKE: Self = Self(1015);

    /// Makes a code of a number.
    #[must_use]
    pub const fn new(code: u16) -> Self {
        Self(code)
    }

    /// The number of the code.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Whether the code may be in a close frame: 1000-1003, 1007-1014 and 3000-4999.
    ///
    /// The codes 1012 to 1014 were registered after RFC 6455.
    #[must_use]
    pub const fn is_sendable(self) -> bool {
        matches!(self.0, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}

impl From<u16> for CloseCode {
    fn from(code: u16) -> Self {
        Self(code)
    }
}

impl From<CloseCode> for u16 {
    fn from(code: CloseCode) -> Self {
        code.0
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
