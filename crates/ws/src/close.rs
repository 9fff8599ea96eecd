use crate::{CloseCode, Error};

/// The content of a close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close<'b> {
    /// The code that says why the peer closes.
    pub code: CloseCode,
    /// The reason in words, up to 123 bytes; often empty.
    pub reason: &'b str,
}

impl<'b> Close<'b> {
    /// Longest reason in bytes: the 125 of a control frame less two for the code.
    pub const MAX_REASON: usize = 123;

    /// Parses a close frame's payload (section 5.5.1); `None` if it is empty.
    ///
    /// # Errors
    /// The payload is a single byte, the code must not be sent, or the reason is not UTF-8.
    pub fn parse(payload: &'b [u8]) -> Result<Option<Self>, Error> {
        let (code, reason) = match payload {
            [] => return Ok(None),
            [_] => return Err(Error::CloseTruncated),
            [high, low, reason @ ..] => (CloseCode::new(u16::from_be_bytes([*high, *low])), reason),
        };
        //= https://www.rfc-editor.org/rfc/rfc6455#section-7.4.1
        //# 1005 is a reserved value and MUST NOT be set as a status code in a Close control frame by an endpoint.
        if !code.is_sendable() {
            return Err(Error::InvalidCloseCode(code.get()));
        }
        let reason = core::str::from_utf8(reason).map_err(|_| Error::InvalidUtf8)?;
        Ok(Some(Self { code, reason }))
    }
}

/// A close frame's payload to be sent.
pub(crate) struct ClosePayload {
    bytes: [u8; 125],
    len: usize,
}

impl ClosePayload {
    /// Makes the payload, with `reason` cut to 123 bytes at a character boundary.
    pub(crate) fn new(code: CloseCode, reason: &str) -> Self {
        let reason = &reason.as_bytes()[..reason.floor_char_boundary(Close::MAX_REASON)];
        let mut bytes = [0; 125];
        bytes[..2].copy_from_slice(&code.get().to_be_bytes());
        bytes[2..2 + reason.len()].copy_from_slice(reason);
        Self { bytes, len: 2 + reason.len() }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::{Close, ClosePayload};
    use crate::{CloseCode, Error};

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
    fn parses_reasons_and_rejects_malformed_payloads() {
        assert_eq!(Close::parse(b""), Ok(None));
        assert_eq!(Close::parse(b"\x03"), Err(Error::CloseTruncated));
        let close = Close { code: CloseCode::NORMAL, reason: "tschüß" };
        assert_eq!(Close::parse("\x03\u{e8}".as_bytes()), Err(Error::InvalidCloseCode(0x03c3)));
        assert_eq!(Close::parse(&[b"\x03\xe8", "tschüß".as_bytes()].concat()), Ok(Some(close)));
        assert_eq!(Close::parse(b"\x03\xe8\xff"), Err(Error::InvalidUtf8));
        assert_eq!(Close::parse(b"\x03\xe8ok\xe2\x82"), Err(Error::InvalidUtf8));
    }

    #[test]
    fn cuts_a_long_reason_at_a_character_boundary() {
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
