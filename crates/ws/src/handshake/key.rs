//! `Sec-WebSocket-Key` and `Sec-WebSocket-Accept` (RFC 6455, sections 4.1 and 4.2.2).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;

const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Makes a client's key of its nonce.
pub(crate) fn encode(nonce: [u8; 16]) -> String {
    STANDARD.encode(nonce)
}

/// Whether `key` is 16 bytes in base64.
///
/// The unused bits of the last character are ignored, as RFC 4648, section 3.5 permits. The key is never decoded, and
/// some clients fill all 22 characters at random.
pub(crate) fn is_valid(key: &[u8]) -> bool {
    matches!(key, [digits @ .., b'=', b'='] if digits.len() == 22
        && digits.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/')))
}

/// Makes the server's answer to `key`.
pub(crate) fn accept(key: &[u8]) -> String {
    let mut sha1 = sha1_smol::Sha1::new();
    sha1.update(key);
    sha1.update(GUID);
    STANDARD.encode(sha1.digest().bytes())
}

/// Makes the server's answer to `key` as a header value.
pub(crate) fn accept_value(key: &[u8]) -> Option<HeaderValue> {
    HeaderValue::try_from(accept(key)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_as_in_rfc_6455_section_1_3() {
        let key = encode(*b"the sample nonce");
        assert_eq!(key, "dGhlIHNhbXBsZSBub25jZQ==");
        assert!(is_valid(key.as_bytes()));
        assert_eq!(accept(key.as_bytes()), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn rejects_keys_that_are_not_16_bytes_in_base64() {
        for wrong in [
            "",
            "==",
            "dGhlIHNhbXBsZSBub25jZQ=",
            "dGhlIHNhbXBsZSBub25jZQ",
            "dGhlIHNhbXBsZSBub25jZQ== ",
            "dGhlIHNhbXBsZSBub25jZQA=",
            "dGhlIHNhbXBsZSBub25j-Q==",
            "SGVsbG8sIHdvcmxkIQ==",
            "dGhlIHNhbXBsZSBub25jZWFhYQ==",
        ] {
            assert!(!is_valid(wrong.as_bytes()), "{wrong:?}");
        }
    }
}
