//! Signatures of requests to an application.

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use std::fmt::Write as _;
use std::time::Duration;

/// The header that has the time and the signature.
#[cfg(feature = "hooks")]
pub(crate) const SIGNATURE: &str = "tautline-signature";

/// The value of the header: the time in seconds since 1970, and the HMAC-SHA256 of that number, a dot and the body, in hex.
pub(super) fn signature(secret: &[u8], body: &str, now: Duration) -> String {
    let time = now.as_secs();
    let mut text = format!("t={time},v1=");
    let tag = sign(&Key::new(HMAC_SHA256, secret), format!("{time}.{body}").as_bytes());
    for byte in tag.as_ref() {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::signature;
    use std::time::Duration;

    /// The tag was made by `printf '1700000000.{}' | openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdef`.
    #[test]
    fn the_signature_is_that_of_openssl() {
        let said = signature(b"0123456789abcdef0123456789abcdef", "{}", Duration::from_secs(1_700_000_000));
        assert_eq!(said, "t=1700000000,v1=417adf36b901772f658597a76d329694e335e65fc0849d7715c3ca33406309b5");
    }
}
