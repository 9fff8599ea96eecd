//! TLS of clients: trust, versions, resumption and client certificates.

use super::failure;
use crate::common::frame::{TEXT, masked};
use crate::common::server::{AUTHORITY, client_config, config, server_config};
use crate::common::{App, Over, Started, logs, serve};
use std::time::Duration;
use tautline::{
    Certificate, ClientAuth, ClientConfig, CloseCode, Config, Incoming, ProtocolVersion, Reconnect, Roots, Server,
    ServerConfig, Socket, Tickets, Tls, TlsEngine, Versions,
};
use tautline_testkit::certificate::{Authority, Leaf, Usage, Validity};

fn serve_with(tls: ServerTls) -> Started {
    logs::keep();
    let app = App::default();
    let events = app.events.clone();
    let server = Server::new(tls).listen("127.0.0.1:0".parse().unwrap()).config(config());
    let handle = server.start(move |_| app.clone()).unwrap();
    let address = handle.addresses()[0].clone();
    Started { handle, events, address, over: Over::Fused }
}

type ServerTls = Tls<ServerConfig, TlsEngine>;
type ClientTls = Tls<ClientConfig, TlsEngine>;

fn each_engine(test: impl Fn(fn(ServerConfig) -> ServerTls, fn(ClientConfig) -> ClientTls)) {
    test(|config| Tls { engine: TlsEngine::Fused, config }, |config| Tls { engine: TlsEngine::Fused, config });
    test(|config| Tls { engine: TlsEngine::Rustls, config }, |config| Tls { engine: TlsEngine::Rustls, config });
}

fn fused(config: ServerConfig) -> ServerTls {
    Tls { engine: TlsEngine::Fused, config }
}

fn certificate(leaf: &Leaf<'_>) -> ServerConfig {
    ServerConfig::new([AUTHORITY.issue(leaf).unwrap()])
}

#[test]
fn the_error_of_an_unknown_authority_names_the_remedy() {
    each_engine(|server_tls, client_tls| {
        let server = serve_with(server_tls(server_config()));
        let other = Authority::new("Other CA").unwrap();
        let roots = Roots::Pem(other.certificate().into());
        let tls = client_tls(ClientConfig::default().with_roots(roots));
        let error = failure(server.target(), tls, config());
        assert!(error.contains("issuer is not trusted") && error.contains("add the authority"), "{error}");
        // The server logs the client's alert.
        logs::expect(&["handshake failed: TLS peer sent the alert unknown_ca"]);
        server.survives();
    });
}

#[test]
fn rejected_certificates_are_explained() {
    for (leaf, words) in [
        (Leaf::new(&["elsewhere.example"]), ["localhost", "elsewhere.example"]),
        (Leaf::new(&["localhost"]).with_validity(Validity::Expired), ["expired", "20"]),
        (Leaf::new(&["localhost"]).with_validity(Validity::NotYet), ["not valid before", "clock"]),
        (Leaf::new(&["localhost"]).with_usage(Usage::Client), ["another use", "server"]),
    ] {
        let server = serve_with(fused(certificate(&leaf)));
        let error = failure(server.target(), client_config(), config());
        assert!(
            error.starts_with("peer certificate refused") && words.iter().all(|word| error.contains(word)),
            "{error}"
        );
        server.forgets();
        assert_eq!(server.counters().handshakes_failed, 1);
        server.stop();
    }
}

#[test]
fn danger_none_accepts_any_certificate() {
    let server = serve_with(fused(certificate(&Leaf::new(&["elsewhere.example"]))));
    let tls = ClientConfig::default().with_roots(Roots::DangerNone);
    drop(Socket::connect(server.target(), tls, Config::default()).unwrap());
    server.forgets();
    server.stop();
}

#[test]
fn versions_are_negotiated() {
    each_engine(|server_tls, client_tls| {
        for (server_versions, client_versions, expected) in [
            (Versions::All, Versions::All, Some(ProtocolVersion::Tls13)),
            (Versions::Tls12, Versions::All, Some(ProtocolVersion::Tls12)),
            (Versions::All, Versions::Tls12, Some(ProtocolVersion::Tls12)),
            (Versions::Tls12, Versions::Tls13, None),
            (Versions::Tls13, Versions::Tls12, None),
        ] {
            let server = serve_with(server_tls(server_config().with_versions(server_versions)));
            let tls = client_tls(client_config().with_versions(client_versions));
            match expected {
                Some(version) => {
                    let mut socket = Socket::connect(server.target(), tls, config()).unwrap();
                    assert_eq!(socket.tls().version, Some(version));
                    for len in [0, 100, 20_000, 200_000] {
                        let message = crate::common::payload(len);
                        socket.binary(&message).unwrap();
                        assert!(socket.receive().unwrap() == Incoming::Binary(message));
                    }
                    socket.close(CloseCode::NORMAL, "").unwrap();
                    assert_eq!(server.events.open(0).1.tls.version, Some(version));
                    server.forgets();
                    server.stop();
                }
                None => {
                    let error = failure(server.target(), tls, config());
                    assert!(error.contains("version"), "{error}");
                    server.forgets();
                    server.stop();
                }
            }
        }
    });
}

#[test]
fn sessions_are_resumed() {
    each_engine(|server_tls, client_tls| {
        for (versions, no_resumption) in [(Versions::Tls13, false), (Versions::Tls12, false), (Versions::All, true)] {
            let tickets = if no_resumption { Tickets::Off } else { Tickets::default() };
            let server = serve_with(server_tls(server_config().with_versions(versions).with_tickets(tickets)));
            let mut target = server.target();
            let wait = Duration::from_millis(5);
            target.reconnect = Some(Reconnect::new(wait, wait));
            let app = App::default().greets("hello");
            let events = app.events.clone();
            let client = tautline::Client::new(client_tls(client_config())).target(target);
            let client = client.start(move |_| app).unwrap();
            for n in 0..3 {
                let (_, seen) = events.open(n);
                assert_eq!(seen.tls.resumed, n > 0 && !no_resumption, "{versions:?} {n}");
                let (theirs, seen) = server.events.open(n);
                assert_eq!(seen.tls.resumed, n > 0 && !no_resumption, "{versions:?} {n}");
                server.handle.shards()[0].close(theirs, CloseCode::NORMAL, "again").unwrap();
            }
            events.open(3);
            client.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
            client.join().unwrap();
            server.forgets();
            server.stop();
        }
    });
}

fn client_certificate(authority: &Authority) -> Certificate {
    authority.issue(&Leaf::new(&["somebody"]).with_usage(Usage::Client)).unwrap()
}

#[test]
fn client_certificates() {
    each_engine(|server_tls, client_tls| {
        let roots = AUTHORITY.certificate().as_bytes().to_vec();
        for versions in [Versions::Tls13, Versions::Tls12] {
            let required =
                server_config().with_client_auth(ClientAuth::Required(roots.clone())).with_versions(versions);
            let server = serve_with(server_tls(required));
            let ours = client_config().with_certificate(client_certificate(&AUTHORITY));
            let mut socket = Socket::connect(server.target(), client_tls(ours), config()).unwrap();
            socket.text("known").unwrap();
            assert_eq!(socket.receive().unwrap(), Incoming::Text("known".into()));
            assert_eq!(server.events.open(0).1.tls.peer_certificates.len(), 1);
            socket.close(CloseCode::NORMAL, "").unwrap();

            let error = failure(server.target(), client_tls(client_config()), config());
            let word = if versions == Versions::Tls13 { "certificate_required" } else { "alert" };
            assert!(error.contains(word), "{error}");
            let stranger = client_certificate(&Authority::new("Stranger CA").unwrap());
            let theirs = client_config().with_certificate(stranger);
            let error = failure(server.target(), client_tls(theirs), config());
            assert!(error.contains("unknown_ca"), "{error}");
            logs::expect(&["handshake failed: peer certificate refused: none was shown"]);
            logs::expect(&["handshake failed: peer certificate refused: its issuer is not trusted"]);
            server.forgets();
            server.stop();

            let optional =
                server_config().with_client_auth(ClientAuth::Optional(roots.clone())).with_versions(versions);
            let server = serve_with(server_tls(optional));
            drop(Socket::connect(server.target(), client_tls(client_config()), config()).unwrap());
            assert!(server.events.open(0).1.tls.peer_certificates.is_empty());
            server.forgets();
            server.stop();
        }
    });
}

#[test]
fn application_protocols() {
    let alpn = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
    let server = serve_with(fused(server_config().with_alpn(alpn(&["http/1.1"]))));
    let tls = client_config().with_alpn(alpn(&["h2", "http/1.1"]));
    let mut socket = Socket::connect(server.target(), tls, config()).unwrap();
    assert_eq!(socket.tls().alpn.as_deref(), Some(&b"http/1.1"[..]));
    drop(socket);
    let tls = client_config().with_alpn(alpn(&["h2"]));
    let error = failure(server.target(), tls, config());
    assert!(error.contains("no_application_protocol"), "{error}");
    server.forgets();
    server.stop();
}

#[test]
fn wss_to_a_plain_port_and_ws_to_a_tls_port_are_explained() {
    let server = serve(Over::Plain, config(), App::default());
    let mut target = tautline::Target::new("wss://localhost/").unwrap();
    target.address = Some(server.address.clone());
    let error = failure(target, client_config(), config());
    assert!(error.contains("plain HTTP"), "{error}");
    server.survives();
    let server = serve(Over::Fused, config(), App::default());
    let mut target = tautline::Target::new("ws://localhost/").unwrap();
    target.address = Some(server.address.clone());
    let error = failure(target, client_config(), config());
    assert!(error.contains("malformed") || error.contains("TLS"), "{error}");
    server.survives();
}

#[test]
fn names_choose_certificates() {
    let config =
        ServerConfig::new(["localhost", "two.example"].map(|name| AUTHORITY.issue(&Leaf::new(&[name])).unwrap()));
    let server = serve_with(fused(config));
    for name in ["localhost", "two.example"] {
        let mut target = tautline::Target::new(&format!("wss://{name}/")).unwrap();
        target.address = Some(server.address.clone());
        drop(Socket::connect(target, client_config(), Config::default()).unwrap());
    }
    assert_eq!(server.events.open(1).1.tls.server_name.as_deref(), Some("two.example"));
    server.forgets();
    server.stop();
}

#[test]
fn a_flood_of_rejected_clients_does_not_disturb_others() {
    // Handshakes that fail at the end cost the server most.
    let roots = AUTHORITY.certificate().as_bytes().to_vec();
    let server = serve_with(fused(server_config().with_client_auth(ClientAuth::Optional(roots))));
    let mut known = server.peer();
    let stranger = Authority::new("Stranger CA").unwrap();
    for _ in 0..20 {
        let theirs = client_config().with_certificate(client_certificate(&stranger));
        failure(server.target(), theirs, config());
        known.send(&masked(TEXT, b"still here"));
        assert_eq!(known.frame().text(), "still here");
    }
    known.close();
    server.forgets();
    server.stop();
}
