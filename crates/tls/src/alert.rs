//! Alerts (RFC 8446, section 6).

/// Returns the name of an alert by its code (RFC 8446, section 6; RFC 5246, section 7.2 for older ones).
#[must_use]
pub fn name(code: u8) -> String {
    let name = match code {
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
        _ => return format!("number {code}"),
    };
    name.to_owned()
}

/// Returns the code of an alert by its [`name`].
#[must_use]
pub fn code(of: &str) -> Option<u8> {
    (0..=u8::MAX).find(|&code| name(code) == of)
}

#[cfg(test)]
mod tests {
    use super::{code, name};

    #[test]
    fn names_known_alerts_and_numbers_others() {
        assert_eq!(name(48), "unknown_ca");
        assert_eq!(name(200), "number 200");
        assert!((0..=u8::MAX).all(|number| code(&name(number)) == Some(number)));
        assert_eq!(code("unheard_of"), None);
    }
}
