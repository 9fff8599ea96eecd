use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use tautline_tls::{Certificate, Challenges};

/// The path of challenges of HTTP-01 (RFC 8555, section 8.3), before the token.
const WELL_KNOWN: &str = "/.well-known/acme-challenge/";

/// A way to prove that a server answers for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Method {
    /// RFC 8737.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn,
    /// RFC 8555, section 8.3.
    #[serde(rename = "http-01")]
    Http,
}

/// The answer to one challenge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) method: Method,
    pub(crate) name: String,
    pub(crate) token: String,
    pub(crate) key_authorization: String,
}

/// The answers to the challenges of the order in progress, of this process or of another one.
#[derive(Default)]
pub(crate) struct Answers(RwLock<Table>);

#[derive(Default)]
struct Table {
    /// Certificates by name.
    certificates: HashMap<String, Certificate>,
    /// Key authorizations by token.
    texts: HashMap<String, String>,
}

impl Answers {
    /// Replaces all answers. One that cannot be made is logged.
    pub(crate) fn set(&self, answers: &[Answer]) {
        let mut table = Table::default();
        for Answer { method, name, token, key_authorization } in answers {
            match method {
                Method::Http => _ = table.texts.insert(token.clone(), key_authorization.clone()),
                Method::TlsAlpn => match certificate(name, key_authorization) {
                    Ok(certificate) => _ = table.certificates.insert(name.clone(), certificate),
                    Err(error) => log::error!("acme: cannot make the certificate of a challenge for {name}: {error}"),
                },
            }
        }
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = table;
    }

    /// The body of the answer to a request for this path; `None` if no authority asks for it.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let token = path.strip_prefix(WELL_KNOWN)?;
        self.0.read().unwrap_or_else(PoisonError::into_inner).texts.get(token).cloned()
    }
}

impl Challenges for Answers {
    fn certificate(&self, name: &str) -> Option<Certificate> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).certificates.get(name).cloned()
    }
}

/// The certificate that answers a challenge of TLS-ALPN-01 (RFC 8737, section 3).
fn certificate(name: &str, key_authorization: &str) -> Result<Certificate, rcgen::Error> {
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key_authorization.as_bytes());
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest.as_ref())];
    let key = KeyPair::generate()?;
    let chain = params.self_signed(&key)?.pem();
    Ok(Certificate::new(chain, key.serialize_pem()).with_name(format!("challenge for {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_tls::pem;
    use x509_parser::prelude::{FromDer, X509Certificate};

    fn answer(method: Method, name: &str, token: &str) -> Answer {
        let key_authorization = format!("{token}.thumb");
        Answer { method, name: name.to_owned(), token: token.to_owned(), key_authorization }
    }

    #[test]
    fn answers_are_for_their_names_and_tokens_alone() {
        let answers = Answers::default();
        assert!(answers.certificate("one.example").is_none() && answers.text("/").is_none());
        answers.set(&[answer(Method::TlsAlpn, "one.example", "a"), answer(Method::Http, "two.example", "b")]);
        assert!(answers.certificate("one.example").is_some() && answers.certificate("two.example").is_none());
        assert_eq!(answers.text("/.well-known/acme-challenge/b").as_deref(), Some("b.thumb"));
        for path in ["/.well-known/acme-challenge/a", "/.well-known/acme-challenge/", "/b", "b"] {
            assert_eq!(answers.text(path), None, "{path}");
        }
        answers.set(&[]);
        assert!(answers.certificate("one.example").is_none());
    }

    #[test]
    fn the_certificate_has_the_digest_in_a_critical_extension() {
        let made = certificate("one.example", "token.thumb").unwrap();
        let der = pem::certificates(&made.chain, "challenge").unwrap()[0].der.to_vec();
        let (_, parsed) = X509Certificate::from_der(&der).unwrap();
        let extension = parsed.extensions().iter().find(|one| one.oid.to_id_string() == "1.3.6.1.5.5.7.1.31").unwrap();
        // SHA-256 of "token.thumb", as `openssl dgst` says.
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"token.thumb");
        assert!(extension.critical && extension.value[..2] == [4, 32] && extension.value[2..] == *digest.as_ref());
    }
}
