//! OpenSSL's command line tools as peers over loopback. The tests are skipped with a message if `openssl` is missing.

use crate::wire::{Fixture, Program, Rekey, Wire, skipped};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use tautline_testkit::certificate::KeyKind;
use tautline_tls::alert::Alert;
use tautline_tls::{ClientConfig, Engine, Error, Roots, ServerConfig, Session as _};
use tautline_tls_rustls as library;
use tautline_tls_rustls::fused;

/// `openssl s_client` against a server of ours.
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

    /// Exchanges lines both ways, with key updates of both ends between them, and closes.
    fn exchanges_lines<E: Engine<Session: Rekey>>(&self, engine: &E) {
        let (mut client, mut wire) = self.connect(engine, &[]);
        client.write_line("first line");
        wire.receives("first line\n");
        if self.version == "-tls1_3" {
            for command in ["K", "k"] {
                let control = wire.end.control;
                client.write_line(command);
                wire.until("a key update", |end| end.control > control);
            }
        }
        let control = wire.end.control;
        let rekeyed = Rekey::rekey(&mut wire.end, true) && Rekey::rekey(&mut wire.end, false);
        wire.flush();
        // The peer's answer to our KeyUpdate comes before its next line.
        client.write_line("second line");
        wire.receives("second line\n");
        assert_eq!(wire.end.control > control, rekeyed, "{}", self.version);
        let received = wire.end.received.clone();
        wire.send(&[b"we received: ", &received, &[b'.'; 20_000], b"END\n"]);
        client.wait_for("we received: first line");
        client.wait_for("second line");
        client.wait_for("....END");
        client.write_line("Q");
        wire.expect_close();
    }

    fn resumes<E: Engine>(&self, engine: &E) {
        let session = self.fixture.folder.join("session.pem");
        let session = session.to_str().unwrap();
        let (mut client, mut wire) = self.connect(engine, &["-sess_out", session]);
        assert!(!wire.end.session.tls_info().resumed);
        wire.send(&[b"behind the tickets\n"]);
        client.wait_for("behind the tickets");
        client.write_line("Q");
        wire.expect_close();
        let (mut client, mut wire) = self.connect(engine, &["-sess_in", session]);
        assert!(wire.end.session.tls_info().resumed, "{}", self.version);
        wire.send(&[b"again\n"]);
        client.wait_for("again");
        client.write_line("Q");
        wire.expect_close();
    }

    fn exchanges_alerts<E: Engine>(&self, engine: &E) {
        let (mut client, mut wire) = self.connect(engine, &[]);
        client.write_line("changed on its way");
        wire.corrupt_inbound();
        client.wait_for("alert bad record mac");
        let (_client, mut wire) = self.connect(engine, &[]);
        assert_eq!(wire.corrupt_outbound(), Error::Alert(Alert::BAD_RECORD_MAC));
    }
}

/// Starts `openssl s_server`. Returns it and its port.
fn server(fixture: &Fixture, version: &str, further: &[&str]) -> (Program, u16) {
    let mut command = Command::new("openssl");
    command.args(["s_server", "-accept", "127.0.0.1:0", "-cert"]).arg(fixture.folder.join("chain.pem"));
    command.arg("-key").arg(fixture.folder.join("key.pem")).arg(version).args(further);
    let mut server = Program::start(&command);
    let port = server.wait_for("ACCEPT ").rsplit(':').next().unwrap().parse().unwrap();
    (server, port)
}

fn connect<E: Engine>(engine: &E, port: u16) -> Wire<E::Session> {
    Wire::new(engine.connect("localhost").unwrap(), TcpStream::connect(("127.0.0.1", port)).unwrap())
}

/// Resumes at `openssl s_server -rev`, which sends every line back reversed.
fn resumes_at_s_server<E: Engine<Session: Rekey>>(fixture: &Fixture, engine: &E, version: &str) {
    let (_server, port) = server(fixture, version, &["-rev"]);
    for round in 0..2 {
        let mut wire = connect(engine, port);
        assert_eq!(wire.end.session.tls_info().resumed, round == 1, "{version}");
        wire.send(&[b"desserts ", b"stressed\n"]);
        wire.receives("desserts stressed");
        let control = wire.end.control;
        let rekeyed = Rekey::rekey(&mut wire.end, true);
        wire.send(&[b"reviled\n"]);
        wire.receives("deliver");
        assert_eq!(wire.end.control > control, rekeyed, "{version}");
        wire.send(&[b"CLOSE\n"]);
        wire.expect_close();
    }
}

fn talks_to_s_server<E: Engine>(fixture: &Fixture, engine: &E, version: &str) {
    let (mut server, port) = server(fixture, version, &[]);
    let mut wire = connect(engine, port);
    wire.send(&[b"first line\n"]);
    server.wait_for("first line");
    if version == "-tls1_3" {
        for command in ["K", "k"] {
            let control = wire.end.control;
            server.write_line(command);
            wire.until("a key update", |end| end.control > control);
            wire.send(&[b"under new keys\n"]);
            server.wait_for("under new keys");
        }
    }
    server.write_line("from the server");
    wire.receives("from the server");
    // The server answers a close with a close.
    wire.close_first();
    server.wait_for("DONE");
    let mut wire = connect(engine, port);
    server.write_line("changed on its way");
    // In TLS 1.3 tickets come before it.
    wire.corrupt_inbound();
    server.wait_for("alert bad record mac");
    let mut wire = connect(engine, port);
    assert_eq!(wire.corrupt_outbound(), Error::Alert(Alert::BAD_RECORD_MAC));
}

fn with_all_engines(name: &str, key: KeyKind) {
    if let Err(error) = Command::new("openssl").arg("version").output() {
        return skipped(&format!("`openssl` cannot be run: {error}"));
    }
    let fixture = Fixture::new(name, key);
    let server = ServerConfig::new([fixture.certificate.clone()]);
    // A new configuration each time, so that no sessions are shared: the servers differ behind one name.
    let client = || ClientConfig::default().with_roots(Roots::Pem(fixture.roots.clone().into()));
    for version in ["-tls1_3", "-tls1_2"] {
        with(&fixture, &library::Engine::new(Some(&server), Some(&client())).unwrap(), version);
        with(&fixture, &fused::Engine::new(Some(&server), Some(&client())).unwrap(), version);
    }
}

fn with<E: Engine<Session: Rekey>>(fixture: &Fixture, engine: &E, version: &str) {
    let client = Client { fixture, version };
    client.exchanges_lines(engine);
    client.resumes(engine);
    client.exchanges_alerts(engine);
    resumes_at_s_server(fixture, engine, version);
    talks_to_s_server(fixture, engine, version);
}

#[test]
fn ecdsa() {
    with_all_engines("ecdsa", KeyKind::P256);
}

#[test]
fn rsa() {
    with_all_engines("rsa", KeyKind::Rsa2048);
}
