//! Go's `crypto/tls` as peer, over loopback: key updates, tickets, closes and alerts. `cargo xtask interop` builds the program
//! (`tests/interop/go/tls`) and names it in `TAUTLINE_GO_TLS`; without that, these are skipped, loudly.

use crate::wire::{Fixture, Program, Rekey, Wire, skipped};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use tautline_testkit::certificate::KeyKind;
use tautline_tls::{ClientConfig, Engine, Error, Roots, ServerConfig, Versions};
use tautline_tls_rustls as library;
use tautline_tls_rustls::fused;

/// What a peer of ours is asked to do, connection by connection.
fn talk<S: Rekey>(peer: &mut Program, mut connect: impl FnMut() -> Wire<S>) {
    let mut wire = connect();
    wire.send(&[b"first\n"]);
    wire.hears("new first\n");
    let control = wire.end.control;
    let rekeyed = Rekey::rekey(&mut wire.end, true) && Rekey::rekey(&mut wire.end, false);
    wire.send(&[b"under new keys\n"]);
    wire.hears("new under new keys\n");
    assert_eq!(wire.end.control > control, rekeyed, "Go answers with new keys");
    let long = vec![b'x'; 100_000];
    wire.send(&[&long, b"\n"]);
    wire.hears("x\n");
    // It closes first, then we.
    wire.send(&[b"close\n"]);
    wire.closes();
    assert_eq!(peer.says("ended: "), "close_notify");

    // We close first, with a ticket.
    let mut wire = connect();
    assert!(wire.end.session.facts().resumed);
    wire.send(&[b"again\n"]);
    wire.hears("resumed again\n");
    wire.leaves();
    assert_eq!(peer.says("ended: "), "close_notify");

    let mut wire = connect();
    wire.send(&[b"one\n"]);
    wire.hears("resumed one\n");
    wire.send(&[b"two\n"]);
    wire.forges_what_comes();
    assert_eq!(peer.says("ended: "), "remote error: tls: bad record MAC");

    let mut wire = connect();
    assert_eq!(wire.forges_what_goes(), Error::Alert("bad_record_mac".to_owned()));
    assert_eq!(peer.says("ended: "), "local error: tls: bad record MAC");
}

fn with<E: Engine<Session: Rekey>>(go: &PathBuf, fixture: &Fixture, engine: &E) {
    let file = |name| fixture.folder.join(name);
    let mut server = Program::start(Command::new(go).arg("server").arg(file("chain.pem")).arg(file("key.pem")));
    let port: u16 = server.says("port ").parse().unwrap();
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
fn go_understands_us() {
    let Some(go) = std::env::var_os("TAUTLINE_GO_TLS").map(PathBuf::from) else {
        return skipped("Go's TLS: TAUTLINE_GO_TLS is not set, `cargo xtask interop` does it");
    };
    let fixture = Fixture::new("go", KeyKind::P256);
    for versions in [Versions::Tls13, Versions::Tls12] {
        let certificates = vec![fixture.certificate.clone()];
        let server = ServerConfig { certificates, versions, ..ServerConfig::default() };
        let roots = Roots::Pem(fixture.roots.clone().into());
        // Each remembers for itself: the servers are others every time, behind one name.
        let client = || ClientConfig { roots: roots.clone(), versions, ..ClientConfig::default() };
        with(&go, &fixture, &library::Engine::new(Some(&server), Some(&client())).unwrap());
        with(&go, &fixture, &fused::Engine::new(Some(&server), Some(&client())).unwrap());
    }
}
