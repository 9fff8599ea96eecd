//! A listener's certificates, and their names, which say whether a request came to the right connection.

use serde::Deserialize;
use std::path::{Path, PathBuf};
use tautline::CertificateFiles;
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
    /// The demand on the clients of its hosts; `None` if they show no certificate.
    pub clients: Option<Clients>,
}

/// The certificates that the clients of a host show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clients {
    /// The file of their authorities, PEM.
    pub ca: PathBuf,
    /// Whether a client needs one.
    pub certified: Certified,
}

/// Whether a client needs a certificate.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Certified {
    /// It does.
    #[default]
    Required,
    /// It may show one, which then must be by one of the authorities.
    Optional,
}

impl CertificatePaths {
    /// The files for a server, with the rule about clients.
    #[must_use]
    pub fn files(&self) -> CertificateFiles {
        let files = CertificateFiles::new(&self.cert, &self.key);
        match &self.clients {
            Some(clients) => {
                files.with_client_roots(clients.rule(), &clients.ca, clients.certified == Certified::Required)
            }
            None => files,
        }
    }
}

impl Clients {
    /// The name of this rule in TLS. A connection tells by which rule it was accepted.
    #[must_use]
    pub fn rule(&self) -> String {
        let ca = self.ca.display();
        match self.certified {
            Certified::Required => format!("required by {ca}"),
            Certified::Optional => format!("optional by {ca}"),
        }
    }
}

/// The names of the certificates, of which the loops choose one by the name for which a client asks in TLS (SNI), and their
/// rules about clients.
#[derive(Debug, PartialEq, Eq)]
pub struct CertificateNames(Vec<Named>);

/// The names of one certificate in lower case, and wildcards as `*.example.com`.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    names: Vec<String>,
    /// The rule about the clients of these names.
    rule: Option<String>,
}

impl CertificateNames {
    /// Reads the certificates. `None` if nothing depends on their names: there are fewer than two, without a rule about clients.
    ///
    /// # Errors
    /// If a certificate cannot be read: its number, and the fault in words.
    pub fn read(
        paths: &[CertificatePaths],
        read: impl Fn(&Path) -> Result<Vec<u8>, String>,
    ) -> Result<Option<Self>, (usize, String)> {
        if paths.len() < 2 && paths.iter().all(|paths| paths.clients.is_none()) {
            return Ok(None);
        }
        let named = |(number, paths): (usize, &CertificatePaths)| {
            let names = read(&paths.cert).and_then(|chain| {
                let how = || format!("the names in {} cannot be read: give a certificate in PEM", paths.cert.display());
                names_of(&chain).ok_or_else(how)
            });
            let names = names.map_err(|why| (number, why))?;
            Ok(Named { names, rule: paths.clients.as_ref().map(Clients::rule) })
        };
        let all: Result<Vec<_>, _> = paths.iter().enumerate().map(named).collect();
        all.map(|all| Some(Self(all)))
    }

    /// The rule about the clients of a host, or of clients that name none.
    #[must_use]
    pub fn rule(&self, host: Option<&str>) -> Option<&str> {
        let serving = host.map_or(0, |host| self.serving(host).first().copied().unwrap_or_default());
        self.0.get(serving)?.rule.as_deref()
    }

    /// A name that this certificate shares with one before it whose rule about clients is another, and the number of that one.
    #[must_use]
    pub fn conflict(&self, number: usize) -> Option<(&str, usize)> {
        let own = self.0.get(number)?;
        let before = self.0.iter().take(number).enumerate().filter(|(_, other)| other.rule != own.rule);
        before
            .flat_map(|(at, other)| other.names.iter().map(move |name| (name.as_str(), at)))
            .find(|(name, _)| own.names.iter().any(|own| own == name))
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
            let all = self.0.iter().enumerate().filter(|(_, one)| one.names.iter().any(|own| own == name));
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
        let first = self.0.first().map(|one| &one.names);
        self.0.iter().enumerate().filter(|(_, one)| Some(&one.names) == first).map(|(at, _)| at).collect()
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
        with_rules(&all.iter().map(|names| (*names, None)).collect::<Vec<_>>())
    }

    fn with_rules(all: &[(&[&str], Option<&str>)]) -> CertificateNames {
        let named = |&(names, rule): &(&[&str], Option<&str>)| Named {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            rule: rule.map(str::to_owned),
        };
        CertificateNames(all.iter().map(named).collect())
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

    #[test]
    fn a_host_has_the_rule_of_the_certificate_that_tls_chooses() {
        let names = with_rules(&[
            (&["*.a.example", "c.example"], Some("staff")),
            (&["x.a.example"], None),
            (&["x.a.example", "b.example"], None),
        ]);
        for (host, rule) in [
            (Some("y.a.example"), Some("staff")),
            (Some("X.A.example."), None),
            (Some("b.example"), None),
            (Some("unknown.example"), Some("staff")),
            (None, Some("staff")),
        ] {
            assert_eq!(names.rule(host), rule, "{host:?}");
        }
        assert!((0..3).all(|number| names.conflict(number).is_none()));
        let names =
            with_rules(&[(&["a.example", "b.example"], None), (&["c.example"], None), (&["b.example"], Some("x"))]);
        assert_eq!((names.conflict(1), names.conflict(2)), (None, Some(("b.example", 0))));
    }

    #[test]
    fn a_rule_says_whose_certificates_and_whether_they_are_needed() {
        let rule = |ca: &str, certified| Clients { ca: ca.into(), certified }.rule();
        let [one, other] = ["a/ca.pem", "b/ca.pem"].map(|ca| rule(ca, Certified::Required));
        assert!(one.contains("a/ca.pem") && one != other && one != rule("a/ca.pem", Certified::Optional), "{one}");
    }
}
