//! `certificates`, `client-ca` and `client-certificate`: the certificates of hosts, and those of their clients.

use super::fault::Finder;
use super::file::{self, File};
use super::files::{Files, read_file};
use crate::certificates::{CertificateNames, CertificatePaths, Certified, Clients};
use crate::plan::Plan;
use std::ops::Range;
use std::path::PathBuf;
use tautline::layers::tls::pem;
use toml::Spanned;

/// Sets the certificates of the plan, each with its rule about clients: its own, or that at the top.
pub(super) fn certificates(files: &Files<'_>, file: &File, plan: &mut Plan, finder: &mut Finder<'_>) {
    let of_all = of_all(files, file, plan, finder);
    plan.certificates = file
        .certificates
        .iter()
        .map(|entry| {
            let one = entry.get_ref();
            let clients = of_one(files, one, of_all.as_ref(), finder);
            CertificatePaths { cert: files.path(&one.cert), key: files.path(&one.key), clients }
        })
        .collect();
    let spans: Vec<Range<usize>> = file.certificates.iter().map(Spanned::span).collect();
    let asks = plan.certificates.iter().any(|one| one.clients.is_some());
    let mut are_usable = true;
    for (one, span) in file.certificates.iter().map(Spanned::get_ref).zip(&spans) {
        for path in [&one.cert, &one.key] {
            are_usable &= finder.take(span.clone(), files.look(path)).is_some();
        }
        are_usable &= finder.take(span.clone(), files.look_for_swap(&one.cert, &one.key)).is_some();
    }
    plan.names = match CertificateNames::read(&plan.certificates, read_file) {
        // The fault has been found above.
        _ if !are_usable => None,
        Ok(names) => names,
        // Without the names nobody knows whose rule holds for a host.
        Err((number, why)) if asks => {
            finder.add(spans.get(number).cloned().unwrap_or_default(), why);
            None
        }
        Err((_, why)) => {
            log::warn!("requests for a host of another certificate are answered: {why}");
            None
        }
    };
    for (number, span) in spans.iter().enumerate() {
        let Some((name, before)) = plan.names.as_ref().and_then(|names| names.conflict(number)) else { continue };
        let line = spans.get(before).map_or(0, |span| finder.line(span));
        let what = format!(
            "{name} has another rule about clients in the certificate of line {line}: \
             give both the same client-ca and client-certificate"
        );
        finder.add(span.clone(), what);
    }
}

/// The rule at the top.
fn of_all(files: &Files<'_>, file: &File, plan: &mut Plan, finder: &mut Finder<'_>) -> Option<Clients> {
    plan.client_ca = file.client_ca.as_ref().map(|path| files.path(path.get_ref()));
    match &file.client_ca {
        Some(path) if plan.plain => {
            finder.add(path.span(), "plain = true serves without TLS: leave it out, or client-ca");
        }
        Some(path) if files.looks() => read_authorities(files, path, finder),
        _ => {}
    }
    if let Some(given) = &file.client_certificate {
        if plan.client_ca.is_none() {
            finder.add(given.span(), "client-certificate has no effect without client-ca: add that key");
        }
        plan.client_certificate = *given.get_ref();
    }
    plan.client_ca.clone().map(|ca| Clients { ca, certified: plan.client_certificate })
}

/// The rule of a certificate.
fn of_one(
    files: &Files<'_>,
    one: &file::Certificate,
    of_all: Option<&Clients>,
    finder: &mut Finder<'_>,
) -> Option<Clients> {
    let given = one.client_certificate.as_ref();
    let Some(ca) = &one.client_ca else {
        if let Some(given) = given.filter(|_| of_all.is_none()) {
            finder.add(given.span(), "client-certificate has no effect without client-ca: add that key beside it");
        }
        let certified = given.map(|given| *given.get_ref());
        return of_all.map(|all| Clients { certified: certified.unwrap_or(all.certified), ..all.clone() });
    };
    read_authorities(files, ca, finder);
    let certified = given.map_or(Certified::Required, |given| *given.get_ref());
    Some(Clients { ca: files.path(ca.get_ref()), certified })
}

/// Checks a file of authorities.
fn read_authorities(files: &Files<'_>, ca: &Spanned<PathBuf>, finder: &mut Finder<'_>) {
    let readable = files.read(ca.get_ref()).and_then(|authorities| {
        let what = format!("the authorities in {}", files.path(ca.get_ref()).display());
        pem::certificates(&authorities, &what).map(drop).map_err(|error| error.to_string())
    });
    finder.take(ca.span(), readable);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{parse, read};
    use std::time::Instant;
    use tautline_dev_cert::{Authority, Leaf};

    /// A folder with certificates of `a.example` and `b.example`, and an authority.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("taut-clients-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let authority = Authority::new("test").unwrap();
            for (file, names) in [("a", &["a.example"][..]), ("b", &["b.example"]), ("ab", &["a.example", "b.example"])]
            {
                let chain = authority.issue(&Leaf::new(names)).unwrap().chain;
                std::fs::write(folder.join(format!("{file}.pem")), chain).unwrap();
            }
            std::fs::write(folder.join("ca.pem"), authority.certificate()).unwrap();
            std::fs::write(folder.join("other.pem"), authority.certificate()).unwrap();
            std::fs::write(folder.join("text.pem"), "no certificate").unwrap();
            Self(folder)
        }

        /// The plan with these lines at the top, and with these entries, which begin in line 3.
        fn plan(&self, top: &str, entries: &[&str]) -> Result<Plan, String> {
            let entries: Vec<String> = entries.iter().map(|entry| format!("{{ key = \"k\", {entry} }},\n")).collect();
            let text = format!("{top}\ncertificates = [\n{}]\n[[route]]\nanswer.status = 200\n", entries.concat());
            parse(&self.0.join("t"), &text, None, Instant::now()).map_err(|faults| faults.to_string())
        }

        /// The faults, each with its line.
        fn faults(&self, top: &str, entries: &[&str]) -> Vec<String> {
            let faults = self.plan(top, entries).unwrap_err();
            let begin = format!("{}:", self.0.join("t").display());
            faults.lines().map(|line| line.strip_prefix(&begin).unwrap().to_owned()).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_certificate_has_its_own_rule_or_that_at_the_top() {
        let folder = Folder::new("rules");
        let ca = |name: &str, certified| Some(Clients { ca: folder.0.join(name), certified });
        let rules = |top: &str, entries: &[&str]| -> Vec<Option<Clients>> {
            folder.plan(top, entries).unwrap().certificates.into_iter().map(|one| one.clients).collect()
        };
        let (required, optional) = (Certified::Required, Certified::Optional);
        let entries =
            ["cert = \"a.pem\"", "cert = \"b.pem\", client-ca = \"ca.pem\", client-certificate = \"optional\""];
        assert_eq!(rules("", &entries), [None, ca("ca.pem", optional)]);
        let top = "client-ca = \"other.pem\"";
        assert_eq!(rules(top, &entries), [ca("other.pem", required), ca("ca.pem", optional)]);
        let entries =
            ["cert = \"a.pem\", client-certificate = \"optional\"", "cert = \"b.pem\", client-ca = \"ca.pem\""];
        assert_eq!(rules(top, &entries), [ca("other.pem", optional), ca("ca.pem", required)]);
        let plan = folder.plan("", &entries[1..]).unwrap();
        let rule = plan.certificates[0].clients.as_ref().map(Clients::rule);
        assert!(plan.asks_clients() && plan.files == [folder.0.join("ca.pem")]);
        assert_eq!(plan.names.unwrap().rule(Some("b.example")), rule.as_deref());
    }

    #[test]
    fn faults_of_rules_have_a_line_and_a_remedy() {
        let folder = Folder::new("faults");
        let a = "cert = \"a.pem\"";
        for (entry, fault) in [
            (
                "cert = \"b.pem\", client-certificate = \"required\"",
                "4: client-certificate has no effect without client-ca",
            ),
            ("cert = \"b.pem\", client-ca = \"gone.pem\"", "4: cannot read "),
            ("cert = \"b.pem\", client-ca = \"text.pem\"", "4: "),
            ("cert = \"gone.pem\", client-ca = \"ca.pem\"", "4: cannot read "),
            ("cert = \"text.pem\", client-ca = \"ca.pem\"", "4: the names in "),
            (
                "cert = \"ab.pem\", client-ca = \"ca.pem\"",
                "4: a.example has another rule about clients in the certificate of line 3",
            ),
            (
                "cert = \"b.pem\", client-caa = \"ca.pem\"",
                "4: there is no key \"client-caa\": did you mean \"client-ca\"?",
            ),
        ] {
            let said = folder.faults("", &[a, entry]);
            assert!(said.len() == 1 && said[0].starts_with(fault), "{entry}: {said:?}");
        }
        let file = folder.0.join("t");
        let text = format!(
            "client-ca = \"text.pem\"\ncertificates = [{{ {a}, key = \"text.pem\" }},\n{{ cert = \"ca.pem\", key = \"gone.pem\" }}]\n"
        );
        std::fs::write(&file, text + "[[route]]\nanswer.status = 200\n").unwrap();
        let said = read(&file, None, Instant::now()).unwrap_err().to_string();
        let said: Vec<&str> =
            said.lines().map(|line| line.strip_prefix(&format!("{}:", file.display())).unwrap()).collect();
        assert!(said.len() == 2 && said[0].starts_with("1: ") && said[0].contains("text.pem"), "{said:?}");
        assert!(said[1].starts_with("3: cannot read ") && said[1].contains("gone.pem"), "{said:?}");
        let said = folder.faults("", &[a, "cert = \"b.pem\", client-ca = \"text.pem\""]);
        assert!(said[0].contains("text.pem") && said[0].contains("BEGIN CERTIFICATE"), "{said:?}");
    }

    #[test]
    fn a_certificate_and_a_key_that_are_swapped_are_named() {
        let folder = Folder::new("swapped");
        let key = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
        std::fs::write(folder.0.join("key.pem"), key).unwrap();
        let both = [std::fs::read(folder.0.join("a.pem")).unwrap(), key.into()].concat();
        std::fs::write(folder.0.join("both.pem"), both).unwrap();
        let said = |cert: &str, key: &str| {
            let file = folder.0.join("t");
            let text =
                format!("certificates = [{{ cert = {cert:?}, key = {key:?} }}]\n[[route]]\nanswer.status = 200\n");
            std::fs::write(&file, text).unwrap();
            read(&file, None, Instant::now()).err().map(|faults| faults.list().to_vec())
        };
        for (cert, key, what) in [
            ("key.pem", "a.pem", "key.pem holds a private key, and no certificate"),
            ("key.pem", "key.pem", "key.pem holds a private key, and no certificate"),
            ("a.pem", "b.pem", "b.pem holds a certificate, and no private key"),
        ] {
            let said = said(cert, key).unwrap();
            assert!(said.len() == 1 && said[0].line == Some(1) && said[0].what.contains(what), "{said:?}");
            assert!(said[0].what.ends_with("are cert and key swapped?"), "{said:?}");
        }
        for (cert, key) in [("a.pem", "key.pem"), ("both.pem", "both.pem"), ("a.pem", "text.pem")] {
            assert_eq!(said(cert, key), None, "{cert} {key}");
        }
    }
}
