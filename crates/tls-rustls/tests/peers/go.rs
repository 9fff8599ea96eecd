//! Go's `crypto/tls` as peer over loopback: key updates, tickets, closes and alerts.
//!
//! `cargo xtask interop` builds the program (`tests/interop/go/tls`) and names it in `TAUTLINE_GO_TLS`. Without that
//! variable the tests are skipped with a message.

use crate::wire::{Fixture, Program, Rekey, Wire, skipped};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use tautline_testkit::certificate::KeyKind;
use tautline_tls::alert::Alert;
use tautline_tls::{ClientConfig, Engine, Error, Roots, ServerConfig, Versions};
use tautline_tls_rustls as library;
use tautline_tls_rustls::fused;

/// The conversation with the program, connection by connection.
fn talk<S: Rekey>(peer: &mut Program, mut connect: impl FnMut() -> Wire<S>) {
    let mut wire = connect();
    wire.send(&[b"first\n"]);
    wire.receives("new first\n");
    let control = wire.end.control;
    let rekeyed = Rekey::rekey(&mut wire.end, true) && Rekey::rekey(&mut wire.end, false);
    wire.send(&[b"under new keys\n"]);
    wire.receives("new under new keys\n");
    assert_eq!(wire.end.control > control, rekeyed, "Go answers with a KeyUpdate");
    let long = vec![b'x'; 100_000];
    wire.send(&[&long, b"\n"]);
    wire.receives("x\n");
    // The peer closes first.
    wire.send(&[b"close\n"]);
    wire.expect_close();
    assert_eq!(peer.wait_for("ended: "), "close_notify");

    // We close first, on a resumed connection.
    let mut wire = connect();
    assert!(wire.end.session.tls_info().resumed);
    wire.send(&[b"again\n"]);
    wire.receives("resumed again\n");
    wire.close_first();
    assert_eq!(peer.wait_for("ended: "), "close_notify");

    let mut wire = connect();
    wire.send(&[b"one\n"]);
    wire.receives("resumed one\n");
    wire.send(&[b"two\n"]);
    wire.corrupt_inbound();
    assert_eq!(peer.wait_for("ended: "), "remote error: tls: bad record MAC");

    let mut wire = connect();
    assert_eq!(wire.corrupt_outbound(), Error::Alert(Alert::BAD_RECORD_MAC));
    assert_eq!(peer.wait_for("ended: "), "local error: tls: bad record MAC");
}

fn with<E: Engine<Session: Rekey>>(go: &PathBuf, fixture: &Fixture, engine: &E) {
    let file = |name| fixture.folder.join(name);
    let mut server = Program::start(Command::new(go).arg("server").arg(file("chain.pem")).arg(file("key.pem")));
    let port: u16 = server.wait_for("port ").parse().unwrap();
    talk(&mut server, || {
        Wire::new(engine.connect("localhost").unwrap(), TcpStream::connect(("127.0.0.1", port)).unwrap())
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = Command::new(go);
    client.arg("client").arg(listener.local_addr().unwrap().to_string()).arg(file("roots.pem")).arg("4");
    let mut client = Program::start(&client);
    talk(&mut client, || Wire::new(engine.accept().unwrap(), listener.accept().unwrap().0));
}

#[test]
fn interoperates_in_both_roles() {
    let Some(go) = std::env::var_os("TAUTLINE_GO_TLS").map(PathBuf::from) else {
        return skipped("Go's TLS: TAUTLINE_GO_TLS is not set; `cargo xtask interop` sets it");
    };
    let fixture = Fixture::new("go", KeyKind::P256);
    for versions in [Versions::Tls13, Versions::Tls12] {
        let certificates = vec![fixture.certificate.clone()];
        let server = ServerConfig::new(certificates).with_versions(versions);
        let roots = Roots::Pem(fixture.roots.clone().into());
        // A new configuration each time, so that no sessions are shared: the servers differ behind one name.
        let client = || ClientConfig::default().with_roots(roots.clone()).with_versions(versions);
        with(&go, &fixture, &library::Engine::new(Some(&server), Some(&client())).unwrap());
        with(&go, &fixture, &fused::Engine::new(Some(&server), Some(&client())).unwrap());
    }
}
