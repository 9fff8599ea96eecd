//! Responses by the program openssl.

use super::*;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tautline_dev_cert::{Authority, Leaf};

/// A folder with an authority and a certificate of it.
struct Home {
    folder: PathBuf,
    chain: Vec<CertificateDer<'static>>,
}

impl Home {
    /// `None` if openssl is missing.
    fn new(name: &str) -> Option<Self> {
        if let Err(error) = Command::new("openssl").arg("version").output() {
            eprintln!("SKIPPED: `openssl` cannot be run ({error}), so nothing was tested with it");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("taut-staple-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let authority = Authority::new("Test").unwrap();
        let leaf = authority.issue(&Leaf::new(&["localhost"])).unwrap();
        fs::write(folder.join("ca.pem"), authority.certificate()).unwrap();
        fs::write(folder.join("ca-key.pem"), authority.key()).unwrap();
        fs::write(folder.join("cert.pem"), &leaf.chain).unwrap();
        let chain = CertificateDer::pem_slice_iter(&leaf.chain).map(Result::unwrap).collect();
        Some(Self { folder, chain })
    }

    fn openssl(&self, arguments: &[&str]) -> String {
        let output = Command::new("openssl").args(arguments).current_dir(&self.folder).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// A response with the index's `status`, revocation `date` and `number` of the certificate, by this signer.
    fn respond(&self, (status, date, number): (&str, &str, Option<&str>), signer: &str, key: &str) -> Vec<u8> {
        let serial = self.openssl(&["x509", "-in", "cert.pem", "-noout", "-serial"]);
        let serial = number.unwrap_or_else(|| serial.trim().trim_start_matches("serial="));
        let line = format!("{status}\t991231235959Z\t{date}\t{serial}\tunknown\t/CN=localhost\n");
        fs::write(self.folder.join("index"), line).unwrap();
        let by = ["-index", "index", "-CA", "ca.pem", "-rsigner", signer, "-rkey", key, "-issuer", "ca.pem"];
        let about = ["-cert", "cert.pem", "-respout", "response", "-nmin", "60", "-noverify"];
        self.openssl(&[&["ocsp"], &by[..], &about].concat());
        fs::read(self.folder.join("response")).unwrap()
    }

    fn good(&self) -> Vec<u8> {
        self.respond(("V", "", None), "ca.pem", "ca-key.pem")
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.folder.join("ca.pem")).unwrap()).unwrap();
        roots
    }

    fn read(&self, response: &[u8]) -> Staple {
        self.read_with(response, Some(&self.roots()))
    }

    fn read_with(&self, response: &[u8], roots: Option<&RootCertStore>) -> Staple {
        // The leaf alone, as servers of a root send it.
        let algorithms = default_provider().signature_verification_algorithms.all;
        read(response, &self.chain[..1], roots, algorithms).unwrap()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn the_status_dates_and_signature_are_read() {
    let Some(home) = Home::new("status") else { return };
    let good = home.read(&home.good());
    assert_eq!((good.status, good.certified), (Status::Good, Certified::ByIssuer));
    assert_eq!(good.next_update, Some(good.this_update + 3600));
    let date = |clock: &str| format!("200101{clock}Z,keyCompromise");
    let revoked = home.read(&home.respond(("R", &date("000000"), None), "ca.pem", "ca-key.pem"));
    assert_eq!((revoked.status, revoked.reason), (Status::Revoked, Some("key compromise")));
    assert!(revoked.revoked.as_deref().is_some_and(|date| date.contains("2020")), "{:?}", revoked.revoked);
    // The index has no line for the certificate.
    let unknown = home.read(&home.respond(("V", "", Some("77")), "ca.pem", "ca-key.pem"));
    assert_eq!((unknown.status, unknown.certified), (Status::Unknown, Certified::ByIssuer));
    assert!(unknown.revoked.is_none());
}

#[test]
fn only_the_issuer_and_its_responders_count() {
    let Some(home) = Home::new("signers") else { return };
    let good = home.good();
    let Certified::NotVerified(why) = home.read_with(&good, None).certified else { panic!("nobody is known") };
    assert!(why.contains("issuer"), "{why}");
    // The second at which it was made is signed, too.
    let mut changed = good;
    let produced = changed.windows(2).position(|tag| tag == [0x18, 15]).unwrap();
    changed[produced + 2 + 13] ^= 1;
    assert!(matches!(home.read(&changed).certified, Certified::Wrong(_)));

    let issue = |name: &str, extensions: &str| {
        fs::write(home.folder.join("extensions"), extensions).unwrap();
        let (key, request, certificate) = (format!("{name}.key"), format!("{name}.csr"), format!("{name}.pem"));
        let new = ["req", "-new", "-nodes", "-newkey", "rsa:2048", "-subj", "/CN=Responder"];
        home.openssl(&[&new[..], &["-keyout", &key, "-out", &request]].concat());
        let by = ["-CA", "ca.pem", "-CAkey", "ca-key.pem", "-set_serial", "5", "-extfile", "extensions"];
        home.openssl(&[&["x509", "-req", "-in", &request, "-out", &certificate, "-days", "2"], &by[..]].concat());
        home.respond(("V", "", None), &certificate, &key)
    };
    let appointed = home.read(&issue("appointed", "extendedKeyUsage = OCSPSigning\n")).certified;
    assert!(matches!(&appointed, Certified::ByResponder(name) if name.contains("Responder")), "{appointed:?}");
    let other = home.read(&issue("other", "extendedKeyUsage = serverAuth\n"));
    assert!(matches!(other.certified, Certified::Wrong(_)), "{other:?}");
    assert_eq!(other.status, Status::Good, "what it says is told all the same");
}

#[test]
fn another_certificate_and_refusals_are_told_apart() {
    let Some(home) = Home::new("others") else { return };
    let Some(other) = Home::new("other") else { return };
    assert_eq!(home.read(&other.good()).status, Status::OtherCertificate);
    let refusals = [(1, "malformed request"), (3, "try later"), (6, "unauthorized"), (9, "unknown error")];
    for (code, words) in refusals {
        assert_eq!(home.read(&[0x30, 3, 10, 1, code]).status, Status::Refused(words.to_owned()));
    }
    assert!(read(&[], &home.chain, None, &[]).is_none(), "none was stapled");
}

#[test]
fn damaged_responses_are_malformed_and_do_no_harm() {
    let Some(home) = Home::new("damaged") else { return };
    let good = home.good();
    for len in 1..good.len() {
        assert_eq!(home.read(&good[..len]).status, Status::Malformed, "cut at {len}");
    }
    assert_eq!(home.read(&[&good[..], &[0]].concat()).status, Status::Malformed);
    for at in 0..good.len() {
        for change in [1, 0x20, 0x80, 0xff] {
            let mut changed = good.clone();
            changed[at] ^= change;
            let _ = home.read(&changed);
        }
    }
}
