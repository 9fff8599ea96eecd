//! Alerts (RFC 8446, section 6).

use core::fmt;

/// An alert by its number (RFC 8446, section 6; RFC 5246, section 7.2 for older ones).
///
/// It prints its name, or its number if that has none.
///
/// ```
/// use tautline_tls::alert::Alert;
///
/// assert_eq!(Alert::BAD_RECORD_MAC.to_string(), "bad_record_mac");
/// assert_eq!(Alert(200).to_string(), "number 200");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Alert(pub u8);

impl Alert {
    /// The sender sends nothing more.
    pub const CLOSE_NOTIFY: Self = Self(0);
    /// A message that has no place in the state of the connection.
    pub const UNEXPECTED_MESSAGE: Self = Self(10);
    /// A record that does not authenticate.
    pub const BAD_RECORD_MAC: Self = Self(20);
    /// A record that is too long.
    pub const RECORD_OVERFLOW: Self = Self(22);
    /// No common parameters.
    pub const HANDSHAKE_FAILURE: Self = Self(40);
    /// A field with a wrong value.
    pub const ILLEGAL_PARAMETER: Self = Self(47);
    /// A certificate of an authority that is not trusted.
    pub const UNKNOWN_CA: Self = Self(48);
    /// A message that cannot be parsed.
    pub const DECODE_ERROR: Self = Self(50);
    /// No common version of TLS.
    pub const PROTOCOL_VERSION: Self = Self(70);
    /// An error that is not the peer's.
    pub const INTERNAL_ERROR: Self = Self(80);
    /// The user has cancelled the handshake.
    pub const USER_CANCELED: Self = Self(90);
    /// The server has no certificate for the name.
    pub const UNRECOGNIZED_NAME: Self = Self(112);
    /// The server wants a certificate of the client.
    pub const CERTIFICATE_REQUIRED: Self = Self(116);
    /// No common application protocol.
    pub const NO_APPLICATION_PROTOCOL: Self = Self(120);

    /// Its name in the RFCs.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "close_notify",
            10 => "unexpected_message",
            20 => "bad_record_mac",
            21 => "decryption_failed",
            22 => "record_overflow",
            30 => "decompression_failure",
            40 => "handshake_failure",
            41 => "no_certificate",
            42 => "bad_certificate",
            43 => "unsupported_certificate",
            44 => "certificate_revoked",
            45 => "certificate_expired",
            46 => "certificate_unknown",
            47 => "illegal_parameter",
            48 => "unknown_ca",
            49 => "access_denied",
            50 => "decode_error",
            51 => "decrypt_error",
            60 => "export_restriction",
            70 => "protocol_version",
            71 => "insufficient_security",
            80 => "internal_error",
            86 => "inappropriate_fallback",
            90 => "user_canceled",
            100 => "no_renegotiation",
            109 => "missing_extension",
            110 => "unsupported_extension",
            111 => "certificate_unobtainable",
            112 => "unrecognized_name",
            113 => "bad_certificate_status_response",
            114 => "bad_certificate_hash_value",
            115 => "unknown_psk_identity",
            116 => "certificate_required",
            120 => "no_application_protocol",
            121 => "ech_required",
            _ => return None,
        })
    }
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "number {}", self.0),
        }
    }
}

impl fmt::Debug for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Alert({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::Alert;
    use std::collections::HashSet;
    use std::string::ToString;

    #[test]
    fn names_known_alerts_and_numbers_others() {
        assert_eq!(Alert(48).to_string(), "unknown_ca");
        assert_eq!(Alert(200).to_string(), "number 200");
        let all: HashSet<_> = (0..=u8::MAX).map(|number| Alert(number).to_string()).collect();
        assert_eq!(all.len(), 256);
    }
}
