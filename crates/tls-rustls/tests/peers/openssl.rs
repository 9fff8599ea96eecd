//! OpenSSL's command line tools as peers, over loopback. Skipped, loudly, where `openssl` is not installed.

use crate::wire::{Fixture, Program, Rekey, Wire, skipped};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use tautline_testkit::certificate::KeyKind;
use tautline_tls::{ClientConfig, Engine, Error, Roots, ServerConfig, Session as _};
use tautline_tls_rustls as library;
use tautline_tls_rustls::fused;

/// `openssl s_client` at a server of ours.
struct Client<'f> {
    fixture: &'f Fixture,
    version: &'f str,
}

impl Client<'_> {
    fn connect<E: Engine>(&self, engine: &E, further: &[&str]) -> (Program, Wire<E::Session>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &listener.local_addr().unwrap().to_string(), "-servername", "localhost"]);
        command.args(["-verify_return_error", "-CAfile"]).arg(self.fixture.folder.join("roots.pem")).arg(self.version);
        let client = Program::start(command.args(further));
        (client, Wire::new(engine.accept().unwrap(), listener.accept().unwrap().0))
    }

    /// Lines both ways, new keys of either between them, and a close.
    fn converses<E: Engine<Session: Rekey>>(&self, engine: &E) {
        let (mut client, mut wire) = self.connect(engine, &[]);
        client.tell("first line");
        wire.hears("first line\n");
        if self.version == "-tls1_3" {
            for command in ["K", "k"] {
                let control = wire.end.control;
                client.tell(command);
                wire.until("a key update", |end| end.control > control);
            }
        }
        let control = wire.end.control;
        let rekeyed = Rekey::rekey(&mut wire.end, true) && Rekey::rekey(&mut wire.end, false);
        wire.flush();
        // What we ask for comes before whatever it says next.
        client.tell("second line");
        wire.hears("second line\n");
        assert_eq!(wire.end.control > control, rekeyed, "{}", self.version);
        let received = wire.end.received.clone();
        wire.send(&[b"we received: ", &received, &[b'.'; 20_000], b"END\n"]);
        client.says("we received: first line");
        client.says("second line");
        client.says("....END");
        client.tell("Q");
        wire.closes();
    }

    fn resumes<E: Engine>(&self, engine: &E) {
        let session = self.fixture.folder.join("session.pem");
        let session = session.to_str().unwrap();
        let (mut client, mut wire) = self.connect(engine, &["-sess_out", session]);
        assert!(!wire.end.session.facts().resumed);
        wire.send(&[b"behind the tickets\n"]);
        client.says("behind the tickets");
        client.tell("Q");
        wire.closes();
        let (mut client, mut wire) = self.connect(engine, &["-sess_in", session]);
        assert!(wire.end.session.facts().resumed, "{}", self.version);
        wire.send(&[b"again\n"]);
        client.says("again");
        client.tell("Q");
        wire.closes();
    }

    fn tells_what_is_wrong<E: Engine>(&self, engine: &E) {
        let (mut client, mut wire) = self.connect(engine, &[]);
        client.tell("changed on its way");
        wire.forges_what_comes();
        client.says("alert bad record mac");
        let (_client, mut wire) = self.connect(engine, &[]);
        assert_eq!(wire.forges_what_goes(), Error::Alert("bad_record_mac".to_owned()));
    }
}

/// `openssl s_server`, and its port.
fn server(fixture: &Fixture, version: &str, further: &[&str]) -> (Program, u16) {
    let mut command = Command::new("openssl");
    command.args(["s_server", "-accept", "127.0.0.1:0", "-cert"]).arg(fixture.folder.join("chain.pem"));
    command.arg("-key").arg(fixture.folder.join("key.pem")).arg(version).args(further);
    let mut server = Program::start(&command);
    let port = server.says("ACCEPT ").rsplit(':').next().unwrap().parse().unwrap();
    (server, port)
}

fn connect<E: Engine>(engine: &E, port: u16) -> Wire<E::Session> {
    Wire::new(engine.connect("localhost").unwrap(), TcpStream::connect(("127.0.0.1", port)).unwrap())
}

/// `openssl s_server -rev` sends every line back reversed.
fn resumes_at_s_server<E: Engine<Session: Rekey>>(fixture: &Fixture, engine: &E, version: &str) {
    let (_server, port) = server(fixture, version, &["-rev"]);
    for round in 0..2 {
        let mut wire = connect(engine, port);
        assert_eq!(wire.end.session.facts().resumed, round == 1, "{version}");
        wire.send(&[b"desserts ", b"stressed\n"]);
        wire.hears("desserts stressed");
        let control = wire.end.control;
        let rekeyed = Rekey::rekey(&mut wire.end, true);
        wire.send(&[b"reviled\n"]);
        wire.hears("deliver");
        assert_eq!(wire.end.control > control, rekeyed, "{version}");
        wire.send(&[b"CLOSE\n"]);
        wire.closes();
    }
}

fn is_told_by_s_server<E: Engine>(fixture: &Fixture, engine: &E, version: &str) {
    let (mut server, port) = server(fixture, version, &[]);
    let mut wire = connect(engine, port);
    wire.send(&[b"first line\n"]);
    server.says("first line");
    if version == "-tls1_3" {
        for command in ["K", "k"] {
            let control = wire.end.control;
            server.tell(command);
            wire.until("a key update", |end| end.control > control);
            wire.send(&[b"under new keys\n"]);
            server.says("under new keys");
        }
    }
    server.tell("from the server");
    wire.hears("from the server");
    // It answers a close with one.
    wire.leaves();
    server.says("DONE");
    let mut wire = connect(engine, port);
    server.tell("changed on its way");
    // Tickets are before it, in TLS 1.3.
    wire.forges_what_comes();
    server.says("alert bad record mac");
    let mut wire = connect(engine, port);
    assert_eq!(wire.forges_what_goes(), Error::Alert("bad_record_mac".to_owned()));
}

fn everything(name: &str, key: KeyKind) {
    if let Err(error) = Command::new("openssl").arg("version").output() {
        return skipped(&format!("`openssl` cannot be run ({error}), so nothing was tried against it"));
    }
    let fixture = Fixture::new(name, key);
    let server = ServerConfig { certificates: vec![fixture.certificate.clone()], ..ServerConfig::default() };
    // Each remembers for itself: the servers are others every time, behind one name.
    let client = || ClientConfig { roots: Roots::Pem(fixture.roots.clone().into()), ..ClientConfig::default() };
    for version in ["-tls1_3", "-tls1_2"] {
        with(&fixture, &library::Engine::new(Some(&server), Some(&client())).unwrap(), version);
        with(&fixture, &fused::Engine::new(Some(&server), Some(&client())).unwrap(), version);
    }
}

fn with<E: Engine<Session: Rekey>>(fixture: &Fixture, engine: &E, version: &str) {
    let client = Client { fixture, version };
    client.converses(engine);
    client.resumes(engine);
    client.tells_what_is_wrong(engine);
    resumes_at_s_server(fixture, engine, version);
    is_told_by_s_server(fixture, engine, version);
}

#[test]
fn ecdsa() {
    everything("ecdsa", KeyKind::P256);
}

#[test]
fn rsa() {
    everything("rsa", KeyKind::Rsa2048);
}
