use crate::dev_cert::DevCert;
use crate::failure::Failure;
use crate::files;
use crate::local::is_loopback;
use crate::output;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use std::path::{Path, PathBuf};
use tautline::layers::tls::pem;
use tautline::{ClientConfig, Roots};

/// The authorities that a client trusts, and its own certificate.
#[derive(Debug, clap::Args)]
pub(crate) struct Trust {
    /// Trust the authorities in this PEM file instead of the platform's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// DANGER: trust every server. Anyone on the path can then read and change all data.
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
    /// Certificate chain of the client, PEM.
    #[arg(help_heading = "TLS", long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the client certificate, PEM.
    #[arg(help_heading = "TLS", long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Write the session's secrets to the file that SSLKEYLOGFILE names.
    #[arg(help_heading = "TLS", long)]
    key_log: bool,
}

impl Trust {
    /// The configuration for connections to `host`.
    ///
    /// The platform's authorities are trusted by default. On loopback, the development authority that `taut serve` made for
    /// this user is trusted instead, if there is one, and with it those of the file that `SSL_CERT_FILE` names.
    pub(crate) fn config(&self, host: &str) -> Result<ClientConfig, Failure> {
        let roots = if self.insecure {
            output::note(format_args!("taut: --insecure: anyone on the path to {host} can read and change all data"));
            Roots::DangerNone
        } else if let Some(path) = &self.ca {
            Roots::Pem(files::read(path, "authority")?)
        } else {
            let dev_cert = DevCert::locate().filter(|_| is_loopback(host));
            match dev_cert.and_then(|dev_cert| std::fs::read(dev_cert.authority).ok()) {
                None => Roots::Platform,
                Some(authority) => Roots::Pem([authority, told_roots()?].join(&b'\n')),
            }
        };
        let config = ClientConfig::default().with_roots(roots).with_key_log(self.key_log);
        Ok(match (&self.cert, &self.key) {
            (Some(chain), Some(key)) => config.with_certificate(files::certificate(chain, key)?),
            _ => config,
        })
    }
}

/// The authorities that the environment names, as for OpenSSL; empty if it names none.
fn told_roots() -> Result<Vec<u8>, Failure> {
    match std::env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty()) {
        None => Ok(Vec::new()),
        Some(path) => {
            let content = files::read(Path::new(&path), "file of authorities that SSL_CERT_FILE names")?;
            Ok(parsable(&content, &Path::new(&path).display().to_string()))
        }
    }
}

/// The certificates in `content` that can be authorities'. Others are skipped with a warning, as in the platform's store.
fn parsable(content: &[u8], path: &str) -> Vec<u8> {
    let mut roots = RootCertStore::empty();
    let mut usable = Vec::new();
    let trust = |der: &[u8]| {
        let is_usable = roots.add(CertificateDer::from(der)).is_ok();
        if is_usable {
            usable.push(der.to_vec());
        }
        is_usable
    };
    for one in pem::trust_each(content, trust) {
        log::warn!("SSL_CERT_FILE: {path}: {one}; this certificate is not trusted");
    }
    // A line may have a good section beside a bad one.
    let is_usable =
        |section: &pem::Section| section.is_certificate() && usable.iter().any(|der| *der == section.der[..]);
    pem::sections(content).flatten().filter(is_usable).flat_map(|section| section.to_pem().to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_that_cannot_be_parsed_are_skipped() {
        let root = tautline_dev_cert::Authority::new("Test").unwrap();
        let bad = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----";
        let content = format!("\u{feff}{bad}{}-----BEGIN CERTIFICATE-----\n{bad}", root.certificate());
        let kept = parsable(content.as_bytes(), "roots.pem");
        let (kept, expected) = (pem::certificates(&kept, "kept"), pem::certificates(root.certificate().as_bytes(), ""));
        let ders = |sections: Vec<pem::Section>| sections.into_iter().map(|section| section.der).collect::<Vec<_>>();
        assert_eq!(ders(kept.unwrap()), ders(expected.unwrap()));
    }

    #[test]
    fn the_development_authority_is_trusted_on_loopback_only() {
        for host in ["localhost", "127.0.0.1", "127.8.8.8", "::1"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["localhost.example", "10.0.0.1", "example.org", "", "::2"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
