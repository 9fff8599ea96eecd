//! The client of a request as its certificate names it, for the server.

use aws_lc_rs::digest::{SHA256, digest};
use std::fmt::Write as _;
use tautline::http::header::{HeaderMap, HeaderName, HeaderValue};
use tautline::layers::tls::fields::Fields;
use tautline::layers::tls::names::distinguished;

const VERIFIED: HeaderName = HeaderName::from_static("x-client-cert-verified");
const SUBJECT: HeaderName = HeaderName::from_static("x-client-cert-subject");
const NAMES: HeaderName = HeaderName::from_static("x-client-cert-san");
const FINGERPRINT: HeaderName = HeaderName::from_static("x-client-cert-fingerprint");

/// Most bytes of a field. The names behind them are left out.
const LONGEST: usize = 4 << 10;

/// Whether a field tells of the client's certificate: one of ours, or of RFC 9440.
pub(super) fn tells_of_certificate(name: &str) -> bool {
    name.starts_with("x-client-cert") || name == "client-cert" || name == "client-cert-chain"
}

/// Tells a server of the client's certificate, which TLS has verified. Fields that the client sent itself are removed already.
pub fn set_identity(headers: &mut HeaderMap, certificate: &[u8]) {
    let Some(fields) = Fields::of(certificate) else { return };
    headers.insert(VERIFIED, HeaderValue::from_static("true"));
    headers.insert(FINGERPRINT, fingerprint(certificate));
    let subject = distinguished(fields.subject());
    let mut names = String::new();
    for name in fields.alternative_names().iter().map(ToString::to_string) {
        // A name with a comma could be read as two.
        let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
        if is_plain && names.len() + name.len() < LONGEST {
            let comma = if names.is_empty() { "" } else { ", " };
            let _ = write!(names, "{comma}{name}");
        }
    }
    for (header, text) in [(SUBJECT, subject), (NAMES, names)] {
        if let Ok(value) = HeaderValue::try_from(text)
            && !value.is_empty()
            && value.len() <= LONGEST
        {
            headers.insert(header, value);
        }
    }
}

/// The SHA-256 of a certificate, in hexadecimal digits.
fn fingerprint(certificate: &[u8]) -> HeaderValue {
    let mut text = String::with_capacity(64);
    for byte in digest(&SHA256, certificate).as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline::layers::tls::pem;
    use tautline_dev_cert::{Authority, Leaf};

    #[test]
    fn a_server_is_told_subject_names_and_fingerprint() {
        let authority = Authority::new("test").unwrap();
        let chain = authority.issue(&Leaf::new(&["ada.example", "192.0.2.7"])).unwrap().chain;
        let der = pem::certificates(&chain, "test").unwrap().remove(0).der;
        let mut headers = HeaderMap::new();
        set_identity(&mut headers, &der);
        assert_eq!(headers[VERIFIED], "true");
        assert_eq!(headers[SUBJECT], "CN=ada.example");
        assert_eq!(headers[NAMES], "DNS:ada.example, IP:192.0.2.7");
        let digits = headers[FINGERPRINT].to_str().unwrap();
        assert!(digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{digits}");
        let many: Vec<String> = (0..500).map(|number| format!("host-{number}.example.org")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let chain = authority.issue(&Leaf::new(&many)).unwrap().chain;
        set_identity(&mut headers, &pem::certificates(&chain, "test").unwrap().remove(0).der);
        let names = headers[NAMES].to_str().unwrap();
        assert!(names.len() > 3000 && names.len() <= LONGEST && names.ends_with(".example.org"), "{names}");
        let mut none = HeaderMap::new();
        set_identity(&mut none, b"no certificate");
        assert!(none.is_empty());
    }
}
