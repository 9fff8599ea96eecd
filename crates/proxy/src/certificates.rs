//! A listener's certificates, and their names, which say whether a request came to the right connection.

use std::path::{Path, PathBuf};
use tautline::layers::tls::fields::Fields;
use tautline::layers::tls::names::AlternativeName;
use tautline::layers::tls::pem;

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificatePaths {
    /// The chain, PEM.
    pub cert: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}

/// The names of several certificates, of which the loops choose one by the name for which a client asks in TLS (SNI).
///
/// Each has names in lower case, and wildcards as `*.example.com`.
#[derive(Debug, PartialEq, Eq)]
pub struct CertificateNames(Vec<Vec<String>>);

impl CertificateNames {
    /// Reads the certificates. `None` if there are fewer than two, or if one cannot be read, which the start or the reload of
    /// TLS reports.
    #[must_use]
    pub fn read(paths: &[CertificatePaths], read: impl Fn(&Path) -> Result<Vec<u8>, String>) -> Option<Self> {
        if paths.len() < 2 {
            return None;
        }
        let all = paths.iter().map(|paths| names_of(&read(&paths.cert).ok()?)).collect::<Option<Vec<_>>>();
        if all.is_none() {
            log::warn!("requests for a host of another certificate are answered: a certificate cannot be read");
        }
        all.map(Self)
    }

    /// Whether a connection that asked for this name may have requests for a host: a certificate serves both.
    #[must_use]
    pub fn serve(&self, server_name: &str, host: &str) -> bool {
        let (of_connection, of_request) = (self.serving(server_name), self.serving(host));
        of_connection.iter().any(|at| of_request.contains(at))
    }

    /// The certificates from which the loops choose for a name.
    fn serving(&self, name: &str) -> Vec<usize> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let having = |name: &str| -> Vec<usize> {
            let all = self.0.iter().enumerate().filter(|(_, names)| names.iter().any(|own| own == name));
            all.map(|(at, _)| at).collect()
        };
        let exact = having(&name);
        if !exact.is_empty() {
            return exact;
        }
        // RFC 6125, section 6.4.3: a wildcard stands for exactly one label, the leftmost.
        let below = name.split_once('.').map(|(_, parent)| having(&format!("*.{parent}"))).unwrap_or_default();
        if !below.is_empty() {
            return below;
        }
        // The first certificate serves names that none has, and so do others for its names.
        self.0.iter().enumerate().filter(|(_, names)| Some(*names) == self.0.first()).map(|(at, _)| at).collect()
    }
}

/// The names of hosts in the first certificate of a chain.
fn names_of(chain: &[u8]) -> Option<Vec<String>> {
    let sections = pem::certificates(chain, "certificate").ok()?;
    let fields = Fields::of(&sections.first()?.der)?;
    let hosts = fields.alternative_names().into_iter().filter_map(|name| match name {
        AlternativeName::Dns(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    Some(hosts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&[&str]]) -> CertificateNames {
        CertificateNames(all.iter().map(|names| names.iter().map(|name| (*name).to_owned()).collect()).collect())
    }

    #[test]
    fn a_host_of_another_certificate_is_misdirected() {
        let names = names(&[&["a.example", "www.a.example"], &["*.b.example"], &["b.example", "x.b.example"]]);
        for (server_name, host) in [
            ("a.example", "www.a.example"),
            ("A.example.", "a.example"),
            ("one.b.example", "two.b.example"),
            ("b.example", "x.b.example"),
            // Names that no certificate has are those of the first.
            ("other.example", "a.example"),
            ("a.example", "192.0.2.1"),
        ] {
            assert!(names.serve(server_name, host), "{server_name} {host}");
        }
        for (server_name, host) in [
            ("a.example", "b.example"),
            ("one.b.example", "b.example"),
            ("one.b.example", "x.b.example"),
            ("b.example", "other.example"),
            ("one.b.example", "two.one.b.example"),
        ] {
            assert!(!names.serve(server_name, host) && !names.serve(host, server_name), "{server_name} {host}");
        }
    }

    #[test]
    fn a_certificate_with_a_second_key_is_no_other_host() {
        let names = names(&[&["a.example"], &["a.example"], &["b.example"]]);
        assert!(names.serve("a.example", "a.example") && names.serve("c.example", "a.example"));
        assert!(!names.serve("a.example", "b.example"));
    }
}
