//! Against the responder of the program openssl, and responders that do harm.

use super::*;
use crate::acme::Acme;
use crate::clock::now;
use crate::config::AcmeConfig;
use crate::leaf::{self, Leaf};
use crate::plan::FailureKind;
use rcgen::{BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const DIRECTORY: &str = "https://localhost:1/dir";

/// The time that a slow, loaded machine has for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with an authority and a certificate of it, which names a responder on loopback.
struct Home {
    folder: PathBuf,
    port: u16,
    leaf: Leaf,
    file: String,
    ca: String,
}

impl Home {
    /// `None` if openssl is missing.
    fn new(name: &str) -> Option<Self> {
        if let Err(error) = Command::new("openssl").arg("version").output() {
            eprintln!("SKIPPED: `openssl` cannot be run ({error}), so nothing was tested with it");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("tautline-ocsp-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "Test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&ca_key).unwrap().pem();
        let issuer = Issuer::new(params, &ca_key);
        let url = format!("http://127.0.0.1:{port}/");
        let way = der(SEQUENCE, &[&[6, 8, 0x2b, 6, 1, 5, 5, 7, 0x30, 1], &der(0x86, &[url.as_bytes()])]);
        let access = |id: &[u64], content| CustomExtension::from_oid_content(id, content);
        let mut params = CertificateParams::new(["one.example".to_owned()]).unwrap();
        params.custom_extensions = vec![
            access(&[1, 3, 6, 1, 5, 5, 7, 1, 1], der(SEQUENCE, &[&way])),
            access(&[1, 3, 6, 1, 5, 5, 7, 1, 24], der(SEQUENCE, &[&[2, 1, 5]])),
        ];
        let key = KeyPair::generate().unwrap();
        let own = params.signed_by(&key, &issuer).unwrap().pem();
        fs::write(folder.join("ca.pem"), &ca).unwrap();
        fs::write(folder.join("ca.key"), ca_key.serialize_pem()).unwrap();
        let file = leaf::file(DIRECTORY, &format!("{own}{ca}"), &key.serialize_pem());
        let leaf = Leaf::read(file.as_bytes()).unwrap();
        assert!(leaf.must_be_stapled && leaf.responder.as_deref() == Some(&*url));
        let home = Self { folder, port, leaf, file, ca };
        home.index("V", "");
        Some(home)
    }

    /// Writes the authority's index, with this status of the certificate.
    fn index(&self, status: &str, date: &str) {
        let serial: String = trimmed(self.question().serial).iter().map(|byte| format!("{byte:02X}")).collect();
        let line = format!("{status}\t991231235959Z\t{date}\t{serial}\tunknown\t/CN=one\n");
        fs::write(self.folder.join("index"), line).unwrap();
    }

    fn question(&self) -> Question<'_> {
        Question::of(&self.leaf.der, self.leaf.issuer.as_deref()).unwrap()
    }

    /// Starts the responder.
    fn responder(&self, minutes: &str) -> Running {
        let port = self.port.to_string();
        let mut openssl = Command::new("openssl");
        openssl.args(["ocsp", "-port", &port, "-index", "index", "-CA", "ca.pem", "-rsigner", "ca.pem"]);
        openssl.args(["-rkey", "ca.key", "-nmin", minutes]).current_dir(&self.folder);
        let spawned = openssl.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut running = Running(spawned, String::new());
        // A connection without a request would stop it for good.
        BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut running.1).unwrap();
        assert!(running.1.starts_with("ACCEPT"), "{}", running.1);
        running
    }

    /// A responder that answers each request with these bytes.
    fn scripted(&self, answer: &'static [u8], endless: bool) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer);
            while endless && stream.write_all(&[b'x'; 4096]).is_ok() {}
        });
    }

    fn ask(&self) -> Result<(Vec<u8>, Word), String> {
        let transport = Transport::new(Some(self.ca.as_bytes())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(self.question().ask(&transport, now()))
    }

    /// A server's certificate, which is the one of this folder.
    fn acme(&self) -> Acme {
        let config = AcmeConfig::new(["one.example"], self.folder.join("acme")).unwrap();
        let config = config.with_directory(DIRECTORY).unwrap().with_roots(self.ca.as_bytes());
        let file = self.folder.join("acme/certificate.pem");
        if !file.exists() {
            drop(Acme::open(config.clone()).unwrap());
            fs::write(&file, &self.file).unwrap();
        }
        Acme::open(config).unwrap()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A process that ends with its test.
struct Running(Child, String);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_responder_is_asked_and_its_answer_judged() {
    let Some(home) = Home::new("judged") else { return };
    let down = home.ask().unwrap_err();
    assert!(down.contains("cannot reach the responder http://127.0.0.1"), "{down}");
    let responder = home.responder("60");
    let (response, word) = home.ask().unwrap();
    let Word::Good(life) = word else { panic!("{word:?}") };
    assert_eq!((life.length(), leaf_life(&home, &response)), (Duration::from_secs(3600), Some(life)));
    let judge = |response: &[u8], now| home.question().judge(response, now);
    assert!(judge(&response, life.end).unwrap_err().contains("ran out"));
    assert!(judge(&response, life.begin - AHEAD - Duration::from_secs(1)).unwrap_err().contains("clock"));
    // A bit of the signed time.
    let mut changed = response.clone();
    let produced = changed.windows(2).position(|tag| tag == [0x18, 15]).unwrap();
    changed[produced + 14] ^= 1;
    assert!(judge(&changed, now()).unwrap_err().contains("signed"));
    for len in 0..response.len() {
        assert!(judge(&response[..len], now()).is_err(), "cut at {len}");
    }
    let other = Home::new("other").unwrap();
    assert!(other.question().judge(&response, now()).unwrap_err().contains("other certificates"));
    drop(responder);
    home.index("R", "200101000000Z,keyCompromise");
    let _responder = home.responder("60");
    let (_, word) = home.ask().unwrap();
    assert_eq!(word, Word::Revoked(Time::from_secs(1_577_836_800), Some("key compromise")));
}

fn leaf_life(home: &Home, response: &[u8]) -> Option<Life> {
    let file = leaf::with_response(home.file.as_bytes(), Some(response));
    let read = Leaf::read(&file).unwrap();
    assert_eq!((read.response.as_deref(), &read.der), (Some(response), &home.leaf.der));
    assert_eq!(*leaf::with_response(&file, None), *home.file.as_bytes());
    read.response_life()
}

#[test]
fn answers_that_do_harm_are_bounded_and_named() {
    for (number, (answer, endless, words)) in [
        (&b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"[..], false, "no OCSP response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n\x30\x03\x0a\x01\x03", false, "try later"),
        (b"HTTP/1.1 503 Away\r\nContent-Length: 0\r\n\r\n", false, "status 503"),
        (b"HTTP/1.1 200 OK\r\n\r\n", true, "limit"),
        (b"SSH-2.0-OpenSSH\r\n", false, "cannot reach"),
    ]
    .into_iter()
    .enumerate()
    {
        let Some(home) = Home::new(&format!("harm-{number}")) else { return };
        home.scripted(answer, endless);
        let why = home.ask().unwrap_err();
        assert!(why.contains(words), "{words}: {why}");
    }
}

#[test]
fn processes_of_a_folder_share_a_response_and_renew_it() {
    let Some(home) = Home::new("shared") else { return };
    let (one, two) = (home.acme(), home.acme());
    assert!(one.status().names_responder && one.status().response_expiry.is_none());
    let running = [&one, &two].map(|acme| acme.renew(|| Ok(())).unwrap());
    until("a failure without a responder", || one.status().response_failures + two.status().response_failures > 0);
    let _responder = home.responder("60");
    until("both have a response", || [&one, &two].iter().all(|acme| acme.status().response_expiry.is_some()));
    assert_eq!(one.status().responses + two.status().responses, 1);
    assert_eq!(one.status().orders_itself, one.status().responses == 1, "the process that orders fetches");
    drop(running);
    // A new process goes on with it, and does not ask.
    let upgraded = home.acme();
    assert!(upgraded.status().response_expiry.is_some());
    let report = crate::Report::of(upgraded.folder()).unwrap();
    assert!(report.must_be_stapled && report.response_expiry == upgraded.status().response_expiry);
}

#[test]
fn a_revoked_certificate_is_reported_and_ordered_anew() {
    let Some(home) = Home::new("revoked") else { return };
    let responder = home.responder("60");
    let acme = home.acme();
    let running = acme.renew(|| Ok(())).unwrap();
    until("a response", || acme.status().response_expiry.is_some());
    drop((running, responder));
    home.index("R", "200101000000Z,keyCompromise");
    let _responder = home.responder("60");
    // Without its response, the certificate is asked about at once.
    fs::write(acme.certificate_file(), &home.file).unwrap();
    let acme = home.acme();
    let _running = acme.renew(|| Ok(())).unwrap();
    let failures = |kind| {
        let index = FailureKind::ALL.iter().position(|one| *one == kind).unwrap();
        acme.status().failures[index]
    };
    until("the revocation is counted", || failures(FailureKind::Revoked) == 1);
    // Nobody listens at the authority's directory.
    until("an order is tried", || failures(FailureKind::Network) > 0);
    assert!(acme.status().response_expiry.is_none());
    assert_eq!(acme.status().responses, 0);
}
