//! OpenSSL's command line tools as peers, over loopback. Skipped, loudly, where `openssl` is not installed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tautline_testkit::certificate::{Authority, KeyKind, Leaf};
use tautline_testkit::pair::End;
use tautline_tls::{Certificate, ClientConfig, Engine, Roots, ServerConfig, Session};
use tautline_tls_rustls as library;
use tautline_tls_rustls::fused;

const PATIENCE: Duration = Duration::from_secs(20);

/// A folder with what OpenSSL needs, and what our side needs.
struct Fixture {
    folder: PathBuf,
    roots: String,
    certificate: Certificate,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// `None` where there is no OpenSSL.
fn fixture(name: &str, key: KeyKind) -> Option<Fixture> {
    if let Err(error) = Command::new("openssl").arg("version").output() {
        eprintln!("SKIPPED: `openssl` cannot be run ({error}), so nothing was tried against it");
        return None;
    }
    let folder = std::env::temp_dir().join(format!("tautline-openssl-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf { names: &["localhost"], key, ..Leaf::default() }).unwrap();
    std::fs::write(folder.join("roots.pem"), authority.certificate()).unwrap();
    std::fs::write(folder.join("chain.pem"), &certificate.chain).unwrap();
    std::fs::write(folder.join("key.pem"), &certificate.key).unwrap();
    Some(Fixture { folder, roots: authority.certificate().to_owned(), certificate })
}

/// Our end on a socket.
struct Wire<S> {
    end: End<S>,
    socket: TcpStream,
}

impl<S: Session> Wire<S> {
    fn new(session: S, socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { end: End::new(session), socket }
    }

    fn flush(&mut self) {
        let wire = self.end.take_outbox();
        self.socket.write_all(&wire).unwrap();
    }

    /// Reads until `done`; says whether the stream ended first.
    fn until(&mut self, done: impl Fn(&End<S>) -> bool) -> bool {
        self.end.work().unwrap();
        let mut piece = [0; 4096];
        while !done(&self.end) {
            self.flush();
            match self.socket.read(&mut piece).unwrap() {
                0 => return true,
                len => self.end.deliver(&piece[..len]).unwrap(),
            }
        }
        self.flush();
        false
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// `openssl s_client` sends a line, new keys, another line, and closes; we echo, and our echo arrives.
fn against_s_client<E: Engine>(fixture: &Fixture, engine: &E, version: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut child = Command::new("openssl");
    child.args(["s_client", "-connect", &listener.local_addr().unwrap().to_string(), "-servername", "localhost"]);
    child.args(["-verify_return_error", "-CAfile"]).arg(fixture.folder.join("roots.pem")).arg(version);
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Killed(child.spawn().unwrap());
    let mut stdin = child.0.stdin.take().unwrap();
    let mut wire = Wire::new(engine.accept().unwrap(), listener.accept().unwrap().0);
    assert!(!wire.until(|end| end.open), "the handshake completes");
    stdin.write_all(b"first line\n").unwrap();
    assert!(!wire.until(|end| contains(&end.received, b"first line\n")));
    if version == "-tls1_3" {
        let control = wire.end.control;
        stdin.write_all(b"K\n").unwrap();
        assert!(!wire.until(|end| end.control > control), "a key update arrives");
    }
    stdin.write_all(b"second line\n").unwrap();
    assert!(!wire.until(|end| contains(&end.received, b"second line\n")));
    wire.end.send(&[b"we received: ", &wire.end.received.clone(), &[b'.'; 20_000], b"END\n"]).unwrap();
    wire.flush();
    let mut stdout = BufReader::new(child.0.stdout.take().unwrap());
    let mut said = Vec::new();
    while !contains(&said, b".END\n") {
        assert!(stdout.read_until(b'\n', &mut said).unwrap() > 0, "{}", String::from_utf8_lossy(&said));
    }
    assert!(contains(&said, b"we received: first line\nsecond line\n"));
    stdin.write_all(b"Q\n").unwrap();
    wire.until(|end| end.closed);
    wire.end.close();
}

/// `openssl s_server -rev` sends every line back reversed.
fn against_s_server<E: Engine>(fixture: &Fixture, engine: &E, version: &str) {
    let mut child = Command::new("openssl");
    child.args(["s_server", "-accept", "127.0.0.1:0", "-rev", "-cert"]).arg(fixture.folder.join("chain.pem"));
    child.arg("-key").arg(fixture.folder.join("key.pem")).arg(version);
    child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Killed(child.spawn().unwrap());
    let mut stdout = BufReader::new(child.0.stdout.take().unwrap());
    let port = loop {
        let mut line = String::new();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "s_server says where it listens");
        if let Some(address) = line.trim().strip_prefix("ACCEPT ") {
            break address.rsplit(':').next().unwrap().parse::<u16>().unwrap();
        }
    };
    for round in 0..2 {
        let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut wire = Wire::new(engine.connect("localhost").unwrap(), socket);
        assert!(!wire.until(|end| end.open), "the handshake completes");
        assert_eq!(wire.end.session.facts().resumed, round == 1, "{version}");
        wire.end.send(&[b"desserts ", b"stressed\n"]).unwrap();
        assert!(!wire.until(|end| contains(&end.received, b"desserts stressed")));
        wire.end.send(&[b"CLOSE\n"]).unwrap();
        wire.end.close();
        wire.flush();
        wire.until(|end| end.closed);
    }
}

fn everything(name: &str, key: KeyKind) {
    let Some(fixture) = fixture(name, key) else { return };
    let server = ServerConfig { certificates: vec![fixture.certificate.clone()], ..ServerConfig::default() };
    // Each remembers for itself: the servers are others every time, behind one name.
    let client = || ClientConfig { roots: Roots::Pem(fixture.roots.clone().into()), ..ClientConfig::default() };
    for version in ["-tls1_3", "-tls1_2"] {
        let library = library::Engine::new(Some(&server), Some(&client())).unwrap();
        let fused = fused::Engine::new(Some(&server), Some(&client())).unwrap();
        against_s_client(&fixture, &library, version);
        against_s_client(&fixture, &fused, version);
        against_s_server(&fixture, &library, version);
        against_s_server(&fixture, &fused, version);
    }
}

#[test]
fn ecdsa() {
    everything("ecdsa", KeyKind::P256);
}

#[test]
fn rsa() {
    everything("rsa", KeyKind::Rsa2048);
}
