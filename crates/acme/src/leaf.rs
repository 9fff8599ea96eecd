use crate::chain;
use crate::ocsp;
use crate::plan::{Life, Time};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use std::time::Duration;
use tautline_tls::fields::Fields;
use tautline_tls::pem;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

/// The subject of the certificate that a server presents before it has a real one.
const PLACEHOLDER: &str = "no certificate yet";

/// The validity of a placeholder: long enough for any outage.
const PLACEHOLDER_LIFE: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Begins a line before the chain that names the directory of the authority.
const DIRECTORY: &str = "Directory: ";

/// A certificate of the folder, as far as its renewal depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) life: Life,
    /// Its names, in lower case.
    pub(crate) names: Vec<String>,
    pub(crate) der: Vec<u8>,
    /// The certificate behind it in the file, in DER.
    pub(crate) issuer: Option<Vec<u8>>,
    /// The URL of the responder that knows its status.
    pub(crate) responder: Option<String>,
    /// Whether clients reject it without an OCSP response ("must-staple").
    pub(crate) must_be_stapled: bool,
    /// The OCSP response in the file.
    pub(crate) response: Option<Vec<u8>>,
    /// It stands for one that has not come yet.
    pub(crate) is_placeholder: bool,
    /// The directory of the authority that issued it, if the file says so.
    pub(crate) directory: Option<String>,
}

impl Leaf {
    /// Reads the first certificate of a file. The others must be readable as well, or no server takes the file.
    pub(crate) fn read(file: &[u8]) -> Result<Self, String> {
        let sections = pem::certificates(file, "certificate").map_err(|error| error.to_string())?;
        chain::check_encoding(&sections)?;
        let mut chain = sections.iter().map(|section| section.der.to_vec());
        let (der, issuer) = (chain.next().unwrap_or_default(), chain.next());
        let malformed = |error| format!("the certificate is malformed: {error}");
        let (_, certificate) = X509Certificate::from_der(&der).map_err(malformed)?;
        let names = certificate.subject_alternative_name().map_err(|error| error.to_string())?;
        let names = names.iter().flat_map(|names| &names.value.general_names).filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        });
        let time = |at: i64| Time::from_secs(u64::try_from(at).unwrap_or_default());
        let validity = certificate.validity();
        let life = Life { begin: time(validity.not_before.timestamp()), end: time(validity.not_after.timestamp()) };
        let subject = certificate.subject();
        let is_placeholder = subject == certificate.issuer()
            && subject.iter_common_name().any(|name| name.as_str().is_ok_and(|name| name == PLACEHOLDER));
        let before = file.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let directory = std::str::from_utf8(before).ok().and_then(|line| line.strip_prefix(DIRECTORY));
        let fields = Fields::of(&der);
        Ok(Self {
            life,
            names: names.collect(),
            is_placeholder,
            directory: directory.map(str::to_owned),
            responder: fields.as_ref().and_then(|own| own.responder()).map(str::to_owned),
            must_be_stapled: fields.is_some_and(|own| own.must_be_stapled()),
            response: pem::ocsp_response(file),
            issuer,
            der,
        })
    }

    /// Whether it is by this authority, and for these names at least.
    pub(crate) fn serves(&self, names: &[String], directory: &str) -> bool {
        !self.is_placeholder
            && self.directory.as_deref().is_none_or(|of| of == directory)
            && names.iter().all(|name| self.names.contains(name))
    }

    /// The validity of its response; `None` without one that says that it is good.
    pub(crate) fn response_life(&self) -> Option<Life> {
        let own = Fields::of(&self.der)?;
        ocsp::life(self.response.as_deref()?, own.serial())
    }

    /// Whether this key in PKCS#8 belongs to it.
    pub(crate) fn belongs_to(&self, key: &KeyPair) -> bool {
        use rcgen::PublicKeyData;
        X509Certificate::from_der(&self.der).is_ok_and(|(_, own)| own.public_key().raw == key.subject_public_key_info())
    }
}

/// The file with a chain and its key. A rename replaces both at once.
pub(crate) fn file(directory: &str, chain: &str, key: &str) -> String {
    format!("{DIRECTORY}{directory}\n{}\n{}\n", chain.trim(), key.trim())
}

/// This file with another OCSP response, or without one.
pub(crate) fn with_response(file: &[u8], response: Option<&[u8]>) -> Zeroizing<Vec<u8>> {
    let begin = format!("-----BEGIN {}-----", pem::OCSP_RESPONSE);
    let end = file.windows(begin.len()).position(|window| window == begin.as_bytes()).unwrap_or(file.len());
    let mut new = Zeroizing::new(file[..end].to_vec());
    if let Some(response) = response {
        new.extend_from_slice(&pem::encode_ocsp_response(response));
    }
    new
}

/// A file with a certificate that nobody trusts, for a server that waits for its first one.
pub(crate) fn placeholder(names: &[String], now: Time) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::new(names.to_vec())?;
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, PLACEHOLDER);
    params.distinguished_name = subject;
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(Duration::from_secs(60 * 60));
    params.not_after = epoch + now + PLACEHOLDER_LIFE;
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(format!("{}\n{}\n", certificate.pem().trim(), key.serialize_pem().trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_serves_no_name() {
        let names = ["one.example".to_owned()];
        let now = Time::from_secs(1_800_000_000);
        let leaf = Leaf::read(placeholder(&names, now).unwrap().as_bytes()).unwrap();
        assert!(leaf.is_placeholder && leaf.names == names && !leaf.serves(&names, "d"));
        assert!(leaf.life.begin < now && leaf.life.end > now);
    }

    #[test]
    fn a_certificate_serves_the_names_that_it_has() {
        let now = Time::from_secs(1_800_000_000);
        let names = ["one.example".to_owned(), "Two.example".to_owned()];
        let text = placeholder(&names, now).unwrap();
        let chain = text.split_once("-----BEGIN PRIVATE").unwrap().0;
        let key = &text[chain.len()..];
        let mut leaf = Leaf::read(file("https://a/dir", chain, key).as_bytes()).unwrap();
        assert_eq!(leaf.directory.as_deref(), Some("https://a/dir"));
        leaf.is_placeholder = false;
        let serves = |names: &[&str], directory: &str| {
            leaf.serves(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>(), directory)
        };
        assert!(serves(&["two.example", "one.example"], "https://a/dir") && serves(&["one.example"], "https://a/dir"));
        assert!(!serves(&["one.example", "three.example"], "https://a/dir"));
        assert!(!serves(&["one.example"], "https://b/dir"));
        let own = KeyPair::from_pem(key).unwrap();
        assert!(leaf.belongs_to(&own) && !leaf.belongs_to(&KeyPair::generate().unwrap()));
    }

    #[test]
    fn garbage_is_no_certificate() {
        for text in ["", "nothing", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----"] {
            assert!(Leaf::read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
