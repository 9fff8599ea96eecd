use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

/// When a certificate expires.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CertificateExpiry {
    /// The first name that it is valid for, or else its subject.
    pub name: String,
    /// Its serial number in hex, which tells two certificates of one name apart.
    pub serial: String,
    /// Its end, in seconds since 1970.
    pub not_after: i64,
}

impl CertificateExpiry {
    /// Reads the first certificate of a chain in PEM; `None` if there is none.
    #[must_use]
    pub fn of_chain(chain: &[u8]) -> Option<Self> {
        let pem = Pem::iter_from_buffer(chain).filter_map(Result::ok).find(|pem| pem.label.contains("CERTIFICATE"))?;
        let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
        let names = certificate.subject_alternative_name().ok().flatten();
        let first = names.and_then(|names| {
            names.value.general_names.iter().find_map(|name| match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                _ => None,
            })
        });
        Some(Self {
            name: first.unwrap_or_else(|| certificate.subject().to_string()),
            serial: certificate.raw_serial().iter().map(|byte| format!("{byte:02x}")).collect(),
            not_after: certificate.validity().not_after.timestamp(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::CertificateExpiry;
    use std::time::{SystemTime, UNIX_EPOCH};
    use tautline_dev_cert::{Authority, Leaf};

    #[test]
    fn the_first_certificate_of_a_chain_counts() {
        let authority = Authority::new("an authority").unwrap();
        let leaf = authority.issue(&Leaf::new(&["127.0.0.1", "one.example", "two.example"])).unwrap();
        let chain = [&leaf.chain[..], authority.certificate().as_bytes()].concat();
        let expiry = CertificateExpiry::of_chain(&chain).unwrap();
        assert_eq!((expiry.name.as_str(), expiry.serial.is_empty()), ("one.example", false));
        let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
        let days = (expiry.not_after - now) / 86_400;
        assert!((390..=400).contains(&days), "{days}");
        let of_authority = CertificateExpiry::of_chain(authority.certificate().as_bytes()).unwrap();
        assert!(of_authority.name.contains("an authority"), "{of_authority:?}");
        assert_eq!(CertificateExpiry::of_chain(b"no certificate"), None);
    }
}
