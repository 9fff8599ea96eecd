//! Whom a client trusts, and what a server asks of it.

use super::failure;
use crate::common::frame::{TEXT, masked};
use crate::common::server::{AUTHORITY, client_config, config, server_config};
use crate::common::{App, Over, Started, logs, serve};
use std::time::Duration;
use tautline::{
    Certificate, ClientAuth, ClientConfig, ClientTls, CloseCode, Config, Incoming, Reconnect, Roots, Server,
    ServerConfig, Socket, Tickets, Tls, Versions,
};
use tautline_testkit::certificate::{Authority, Leaf, Usage, Validity};

fn serve_with(tls: Tls) -> Started {
    logs::keep();
    let app = App::default();
    let events = app.events.clone();
    let server = Server::new(tls).listen("127.0.0.1:0".parse().unwrap()).config(config());
    let running = server.start(move |_| app.clone()).unwrap();
    let address = running.addresses()[0].clone();
    Started { running, events, address, over: Over::Fused }
}

fn each_engine(test: impl Fn(fn(ServerConfig) -> Tls, fn(ClientConfig) -> ClientTls)) {
    test(|config| Tls::Fused(Box::new(config)), |config| ClientTls::Fused(Box::new(config)));
    test(|config| Tls::Rustls(Box::new(config)), |config| ClientTls::Rustls(Box::new(config)));
}

fn certificate(leaf: &Leaf<'_>) -> ServerConfig {
    ServerConfig { certificates: vec![AUTHORITY.issue(leaf).unwrap()], ..ServerConfig::default() }
}

#[test]
fn an_unknown_authority_says_what_to_do() {
    each_engine(|server_tls, client_tls| {
        let server = serve_with(server_tls(server_config()));
        let other = Authority::new("Other CA").unwrap();
        let roots = Roots::Pem(other.certificate().into());
        let tls = client_tls(ClientConfig { roots, ..ClientConfig::default() });
        let error = failure(server.target(), tls, config());
        assert!(error.contains("issuer is not trusted") && error.contains("add the authority"), "{error}");
        // The server is told by an alert, and says so in its log.
        logs::expect(&["handshake failed: TLS peer sent the alert unknown_ca"]);
        server.survives();
    });
}

#[test]
fn certificates_that_do_not_fit_say_why() {
    for (leaf, words) in [
        (Leaf { names: &["elsewhere.example"], ..Leaf::default() }, ["localhost", "elsewhere.example"]),
        (Leaf { names: &["localhost"], validity: Validity::Expired, ..Leaf::default() }, ["expired", "20"]),
        (Leaf { names: &["localhost"], validity: Validity::NotYet, ..Leaf::default() }, ["not valid before", "clock"]),
        (Leaf { names: &["localhost"], usage: Usage::Client, ..Leaf::default() }, ["another use", "server"]),
    ] {
        let server = serve_with(Tls::with(certificate(&leaf)));
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
fn no_check_at_all_where_that_is_asked_for() {
    let server = serve_with(Tls::with(certificate(&Leaf { names: &["elsewhere.example"], ..Leaf::default() })));
    let tls = ClientConfig { roots: Roots::DangerNone, ..ClientConfig::default() };
    drop(Socket::connect(server.target(), tls, Config::default()).unwrap());
    server.forgets();
    server.stop();
}

#[test]
fn versions_are_negotiated() {
    each_engine(|server_tls, client_tls| {
        for (server_versions, client_versions, expected) in [
            (Versions::All, Versions::All, Some("TLSv1.3")),
            (Versions::Tls12, Versions::All, Some("TLSv1.2")),
            (Versions::All, Versions::Tls12, Some("TLSv1.2")),
            (Versions::Tls12, Versions::Tls13, None),
            (Versions::Tls13, Versions::Tls12, None),
        ] {
            let server = serve_with(server_tls(ServerConfig { versions: server_versions, ..server_config() }));
            let tls = client_tls(ClientConfig { versions: client_versions, ..client_config() });
            match expected {
                Some(version) => {
                    let mut socket = Socket::connect(server.target(), tls, config()).unwrap();
                    assert_eq!(socket.tls().version, version);
                    for len in [0, 100, 20_000, 200_000] {
                        let message = crate::common::payload(len);
                        socket.binary(&message).unwrap();
                        assert!(socket.receive().unwrap() == Incoming::Binary(message));
                    }
                    socket.close(CloseCode::NORMAL, "").unwrap();
                    assert_eq!(server.events.open(0).1.tls.version, version);
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
            let server = serve_with(server_tls(ServerConfig { versions, tickets, ..server_config() }));
            let mut target = server.target();
            let wait = Duration::from_millis(5);
            target.reconnect = Some(Reconnect { first: wait, longest: wait, attempts: None });
            let app = App::default().greets("hello");
            let events = app.events.clone();
            let client = tautline::Client::new(client_tls(client_config())).target(target);
            let client = client.start(move |_| app.clone()).unwrap();
            for n in 0..3 {
                let (_, seen) = events.open(n);
                assert_eq!(seen.tls.resumed, n > 0 && !no_resumption, "{versions:?} {n}");
                let (theirs, seen) = server.events.open(n);
                assert_eq!(seen.tls.resumed, n > 0 && !no_resumption, "{versions:?} {n}");
                server.running.remotes()[0].close(theirs, CloseCode::NORMAL, "again").unwrap();
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
    authority.issue(&Leaf { names: &["somebody"], usage: Usage::Client, ..Leaf::default() }).unwrap()
}

#[test]
fn client_certificates() {
    each_engine(|server_tls, client_tls| {
        let roots = AUTHORITY.certificate().as_bytes().to_vec();
        for versions in [Versions::Tls13, Versions::Tls12] {
            let required =
                ServerConfig { client_auth: ClientAuth::Required(roots.clone()), versions, ..server_config() };
            let server = serve_with(server_tls(required));
            let ours = ClientConfig { certificate: Some(client_certificate(&AUTHORITY)), ..client_config() };
            let mut socket = Socket::connect(server.target(), client_tls(ours), config()).unwrap();
            socket.text("known").unwrap();
            assert_eq!(socket.receive().unwrap(), Incoming::Text("known".into()));
            assert_eq!(server.events.open(0).1.tls.peer_certificates.len(), 1);
            socket.close(CloseCode::NORMAL, "").unwrap();

            let error = failure(server.target(), client_tls(client_config()), config());
            let word = if versions == Versions::Tls13 { "certificate_required" } else { "alert" };
            assert!(error.contains(word), "{error}");
            let stranger = client_certificate(&Authority::new("Stranger CA").unwrap());
            let theirs = ClientConfig { certificate: Some(stranger), ..client_config() };
            let error = failure(server.target(), client_tls(theirs), config());
            assert!(error.contains("unknown_ca"), "{error}");
            logs::expect(&["handshake failed: peer certificate refused: none was shown"]);
            logs::expect(&["handshake failed: peer certificate refused: its issuer is not trusted"]);
            server.forgets();
            server.stop();

            let optional =
                ServerConfig { client_auth: ClientAuth::Optional(roots.clone()), versions, ..server_config() };
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
    let server = serve_with(Tls::with(ServerConfig { alpn: alpn(&["http/1.1"]), ..server_config() }));
    let tls = ClientConfig { alpn: alpn(&["h2", "http/1.1"]), ..client_config() };
    let mut socket = Socket::connect(server.target(), tls, config()).unwrap();
    assert_eq!(socket.tls().alpn.as_deref(), Some(&b"http/1.1"[..]));
    drop(socket);
    let tls = ClientConfig { alpn: alpn(&["h2"]), ..client_config() };
    let error = failure(server.target(), tls, config());
    assert!(error.contains("no_application_protocol"), "{error}");
    server.forgets();
    server.stop();
}

#[test]
fn a_wss_client_at_a_plain_port_and_the_other_way_round() {
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
    let config = ServerConfig {
        certificates: ["localhost", "two.example"]
            .map(|name| AUTHORITY.issue(&Leaf { names: &[name], ..Leaf::default() }).unwrap())
            .into(),
        ..ServerConfig::default()
    };
    let server = serve_with(Tls::with(config));
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
fn a_flood_of_strangers_disturbs_nobody() {
    // Handshakes that fail at the last moment cost the server most.
    let roots = AUTHORITY.certificate().as_bytes().to_vec();
    let server = serve_with(Tls::with(ServerConfig { client_auth: ClientAuth::Optional(roots), ..server_config() }));
    let mut known = server.peer();
    let stranger = Authority::new("Stranger CA").unwrap();
    for _ in 0..20 {
        let theirs = ClientConfig { certificate: Some(client_certificate(&stranger)), ..client_config() };
        failure(server.target(), theirs, config());
        known.send(&masked(TEXT, b"still here"));
        assert_eq!(known.frame().text(), "still here");
    }
    known.close();
    server.forgets();
    server.stop();
}
