use crate::Error;
use core::fmt;

/// Why a connection ends: the code of a close frame (RFC 6455, section 7.4).
///
/// Any number can be held; [`is_sendable`](Self::is_sendable) says which ones may be on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CloseCode(u16);

impl CloseCode {
    /// 1000: the purpose of the connection is fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// 1001: the server goes down, or the browser left the page.
    pub const GOING_AWAY: Self = Self(1001);
    /// 1002: the peer broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// 1003: a kind of data that the receiver cannot accept.
    pub const UNSUPPORTED: Self = Self(1003);
    /// 1005: the peer's close frame held no code. Never on the wire.
    pub const NO_STATUS: Self = Self(1005);
    /// 1006: the connection ended without a close frame. Never on the wire.
    pub const ABNORMAL: Self = Self(1006);
    /// 1007: data that does not fit its kind, as text that is not UTF-8.
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

    /// The code of this number.
    #[must_use]
    pub const fn new(code: u16) -> Self {
        Self(code)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Whether the code may be in a close frame: 1000-1003, 1007-1014 and 3000-4999. Of the registered ones 1012, 1013
    /// and 1014 are younger than RFC 6455.
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

/// What a close frame says: the code and a reason for people, up to 123 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close<'b> {
    /// Why the peer closes.
    pub code: CloseCode,
    /// The same in words; often empty.
    pub reason: &'b str,
}

impl<'b> Close<'b> {
    /// Longest reason, in bytes: a control frame's 125 less two for the code.
    pub const MAX_REASON: usize = 123;

    /// Parses a close frame's payload (section 5.5.1); an empty one is `None`.
    ///
    /// # Errors
    /// A single byte, a code that must not be on the wire, a reason that is not UTF-8.
    pub fn parse(payload: &'b [u8]) -> Result<Option<Self>, Error> {
        let (code, reason) = match payload {
            [] => return Ok(None),
            [_] => return Err(Error::CloseTruncated),
            [high, low, reason @ ..] => (CloseCode(u16::from_be_bytes([*high, *low])), reason),
        };
        //= https://www.rfc-editor.org/rfc/rfc6455#section-7.4.1
        //# 1005 is a reserved value and MUST NOT be set as a status code in a Close control frame by an endpoint.
        if !code.is_sendable() {
            return Err(Error::InvalidCloseCode(code.0));
        }
        let reason = core::str::from_utf8(reason).map_err(|_| Error::InvalidUtf8)?;
        Ok(Some(Self { code, reason }))
    }
}

/// A close frame's payload, ready to be framed.
pub(crate) struct ClosePayload {
    bytes: [u8; 125],
    len: usize,
}

impl ClosePayload {
    /// Cuts `reason` to 123 bytes at a character's boundary.
    pub(crate) fn new(code: CloseCode, reason: &str) -> Self {
        let reason = &reason.as_bytes()[..reason.floor_char_boundary(Close::MAX_REASON)];
        let mut bytes = [0; 125];
        bytes[..2].copy_from_slice(&code.0.to_be_bytes());
        bytes[2..2 + reason.len()].copy_from_slice(reason);
        Self { bytes, len: 2 + reason.len() }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::{Close, CloseCode, ClosePayload};
    use crate::Error;

    #[test]
    fn accepts_exactly_the_codes_that_may_be_sent() {
        let valid = |code: u16| {
            [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014].contains(&code)
                || (3000..5000).contains(&code)
        };
        for code in 0..=u16::MAX {
            let parsed = Close::parse(&code.to_be_bytes()).map(|close| close.map(|c| (c.code.get(), c.reason.len())));
            let expected = if valid(code) { Ok(Some((code, 0))) } else { Err(Error::InvalidCloseCode(code)) };
            assert_eq!(parsed, expected);
        }
    }

    #[test]
    fn parses_reasons_and_refuses_what_is_malformed() {
        assert_eq!(Close::parse(b""), Ok(None));
        assert_eq!(Close::parse(b"\x03"), Err(Error::CloseTruncated));
        let close = Close { code: CloseCode::NORMAL, reason: "tschüß" };
        assert_eq!(Close::parse("\x03\u{e8}".as_bytes()), Err(Error::InvalidCloseCode(0x03c3)));
        assert_eq!(Close::parse(&[b"\x03\xe8", "tschüß".as_bytes()].concat()), Ok(Some(close)));
        assert_eq!(Close::parse(b"\x03\xe8\xff"), Err(Error::InvalidUtf8));
        assert_eq!(Close::parse(b"\x03\xe8ok\xe2\x82"), Err(Error::InvalidUtf8));
    }

    #[test]
    fn cuts_a_reason_between_characters() {
        for lead in 0..4 {
            let reason = format!("{}{}", "x".repeat(lead), "\u{20ac}".repeat(60));
            let payload = ClosePayload::new(CloseCode::POLICY, &reason);
            let close = Close::parse(payload.as_slice()).unwrap().unwrap();
            assert!(reason.starts_with(close.reason));
            assert!((121..=123).contains(&close.reason.len()), "{}", close.reason.len());
        }
        assert_eq!(ClosePayload::new(CloseCode::NORMAL, "").as_slice(), b"\x03\xe8");
    }
}
