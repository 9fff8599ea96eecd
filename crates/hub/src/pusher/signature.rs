//! Signatures of the Pusher protocol: HMAC-SHA256 with the app's secret, in hexadecimal digits.

use aws_lc_rs::hmac;
use md5::{Digest as _, Md5};
use std::fmt::Write as _;
use subtle::ConstantTimeEq as _;

/// Least bytes of a secret. Shorter ones could be guessed.
const LEAST: usize = 20;

/// The secret of an app.
#[derive(Clone, PartialEq)]
pub(crate) struct Secret(Box<[u8]>);

impl Secret {
    /// A secret from a file. White space around it is left out.
    pub(crate) fn new(bytes: &[u8]) -> Result<Self, String> {
        let bytes = bytes.trim_ascii();
        if bytes.len() < LEAST || !bytes.iter().all(u8::is_ascii_graphic) {
            return Err(format!("has no secret of {LEAST} visible ASCII characters or more: `openssl rand -hex 20`"));
        }
        Ok(Self(bytes.into()))
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }

    /// Whether a signature in hexadecimal digits is that of a text. The time says nothing about the signature.
    pub(crate) fn verifies(&self, text: &str, signature: &str) -> bool {
        unhex(signature).is_some_and(|signature| hmac::verify(&self.key(), text.as_bytes(), &signature).is_ok())
    }
}

/// Whether `given` is the MD5 of a body, which the signature of a request covers. The signature protects it, not MD5.
pub(super) fn is_md5(body: &[u8], given: &str) -> bool {
    hex(&Md5::digest(body)).as_bytes().ct_eq(given.to_ascii_lowercase().as_bytes()).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    if !text.len().is_multiple_of(2) || text.len() > 128 {
        return None;
    }
    text.as_bytes().chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Secret, is_md5};

    /// The examples of the protocol's documentation.
    #[test]
    fn signatures_are_those_of_the_documentation() {
        let secret = Secret::new(b"7ad3773142a6692b25b8").unwrap();
        for (text, signature) in [
            ("1234.1234:private-foobar", "58df8b0c36d6982b82c3ecf6b4662e34fe8c25bba48f5369f135bf843651c3a4"),
            (
                "1234.1234:presence-foobar:{\"user_id\":10,\"user_info\":{\"name\":\"Mr. Pusher\"}}",
                "afaed3695da2ffd16931f457e338e6c9f2921fa133ce7dac49f529792be6304c",
            ),
        ] {
            assert!(secret.verifies(text, signature), "{text}");
            assert!(secret.verifies(text, &signature.to_uppercase()), "{text}");
            assert!(!secret.verifies(text, &signature.replace('5', "6")) && !secret.verifies("", signature));
        }
        let body = br#"{"name":"foo","channels":["project-3"],"data":"{\"some\":\"data\"}"}"#;
        assert!(is_md5(body, "ec365a775a4cd0599faeb73354201b6f") && !is_md5(b"", "ec365a775a4cd0599faeb73354201b6f"));
        assert!(Secret::new(b"short").is_err());
    }
}
