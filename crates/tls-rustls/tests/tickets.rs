//! What servers resume and what they do not: over hosts, over reloads, over time.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use core::time::Duration;
use rustls::client::{ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{HandshakeKind, NamedGroup};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use tautline_testkit::certificate::{Authority, KeyKind, Leaf, Usage, Validity};
use tautline_testkit::pair::{End, Pair, Split};
use tautline_tls::{
    Certificate, ClientAuth, ClientConfig, Engine, Error, Roots, ServerConfig, Session, TicketSecret, Tickets, Versions,
};
use tautline_tls_rustls as library;
use tautline_tls_rustls::fused;

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("Test").unwrap());

fn issue(leaf: &Leaf<'_>) -> Certificate {
    AUTHORITY.issue(&Leaf { names: &["localhost", "other.example"], ..*leaf }).unwrap()
}

fn server_config(tickets: Tickets) -> ServerConfig {
    ServerConfig { certificates: vec![issue(&Leaf::default())], tickets, ..ServerConfig::default() }
}

fn client_config(versions: Versions) -> ClientConfig {
    let own = issue(&Leaf { usage: Usage::Client, ..Leaf::default() });
    let roots = Roots::Pem(AUTHORITY.certificate().into());
    ClientConfig { roots, versions, certificate: Some(own), ..ClientConfig::default() }
}

fn fleet(secret: u8) -> Tickets {
    Tickets::fleet(TicketSecret::new(&[secret; 32]).unwrap())
}

/// Connects, says something, and tells whether the session was resumed and which certificate the client saw.
fn meets(client: &impl Engine, server: &impl Engine) -> (bool, Vec<u8>) {
    let mut pair = Pair::new(client, server, "localhost").unwrap();
    pair.handshake(&mut Split::Whole).unwrap();
    pair.server.send(&[b"hello"]).unwrap();
    pair.settle(&mut Split::Whole).unwrap();
    assert_eq!(pair.client.received, b"hello");
    let (client, server) = (pair.client.session.facts(), pair.server.session.facts());
    assert_eq!(client.resumed, server.resumed);
    (client.resumed, client.peer_certificates[0].clone())
}

fn der(certificate: &Certificate) -> Vec<u8> {
    CertificateDer::from_pem_slice(&certificate.chain).unwrap().to_vec()
}

const VERSIONS: [Versions; 2] = [Versions::Tls13, Versions::Tls12];

#[test]
fn a_fleet_resumes_what_any_host_issued() {
    for versions in VERSIONS {
        // Each host has a certificate and an engine of its own kind.
        let a = fused::Engine::server(&server_config(fleet(1))).unwrap();
        let b = library::Engine::server(&server_config(fleet(1))).unwrap();
        let stranger = fused::Engine::server(&server_config(fleet(2))).unwrap();
        let client = fused::Engine::client(&client_config(versions)).unwrap();
        let (resumed, first) = meets(&client, &a);
        assert!(!resumed);
        assert_eq!(meets(&client, &b), (true, first.clone()), "{versions:?}");
        assert_eq!(meets(&client, &a), (true, first.clone()));
        let (resumed, certificate) = meets(&client, &stranger);
        assert!(!resumed && certificate != first, "another secret");
    }
}

#[test]
fn a_reload_drops_no_session_and_shows_the_new_certificate() {
    for versions in VERSIONS {
        for tickets in [Tickets::default(), fleet(1)] {
            let before = server_config(tickets.clone());
            let server = fused::Engine::server(&before).unwrap();
            let client = fused::Engine::client(&client_config(versions)).unwrap();
            assert_eq!(meets(&client, &server), (false, der(&before.certificates[0])));
            let after = ServerConfig { certificates: vec![issue(&Leaf::default())], ..before.clone() };
            // A clone is another shard's engine.
            server.clone().reload(&after).unwrap();
            assert_eq!(meets(&client, &server), (true, der(&before.certificates[0])));
            let newcomer = fused::Engine::client(&client_config(versions)).unwrap();
            assert_eq!(meets(&newcomer, &server), (false, der(&after.certificates[0])));
            server.reload(&ServerConfig { tickets: fleet(3), ..after.clone() }).unwrap();
            assert!(!meets(&newcomer, &server).0, "other keys");
            server.reload(&ServerConfig { tickets: Tickets::Off, ..after }).unwrap();
            for _ in 0..2 {
                assert!(!meets(&newcomer, &server).0, "no keys");
            }
        }
    }
}

/// A session that stands and a handshake that has begun go on with what they began with.
#[test]
fn a_reload_touches_no_connection() {
    let server = fused::Engine::server(&server_config(Tickets::default())).unwrap();
    let client = fused::Engine::client(&client_config(Versions::All)).unwrap();
    let mut stands = Pair::new(&client, &server, "localhost").unwrap();
    stands.handshake(&mut Split::Whole).unwrap();
    let mut begun = Pair::new(&client, &server, "localhost").unwrap();
    begun.client.work().unwrap();
    let hello = begun.client.take_outbox();
    begun.server.deliver(&hello).unwrap();
    server.reload(&server_config(Tickets::default())).unwrap();
    begun.settle(&mut Split::Whole).unwrap();
    for pair in [&mut stands, &mut begun] {
        pair.client.send(&[b"still here"]).unwrap();
        pair.settle(&mut Split::Whole).unwrap();
        assert_eq!(pair.server.received, b"still here");
    }
}

#[test]
fn clients_that_must_show_certificates_resume_nothing() {
    for versions in VERSIONS {
        let open = server_config(fleet(1));
        let roots = AUTHORITY.certificate().as_bytes().to_vec();
        for client_auth in [ClientAuth::Required(roots.clone()), ClientAuth::Optional(roots)] {
            let strict = ServerConfig { client_auth, ..open.clone() };
            let server = fused::Engine::server(&open).unwrap();
            let second = fused::Engine::server(&strict).unwrap();
            let client = fused::Engine::client(&client_config(versions)).unwrap();
            assert!(!meets(&client, &server).0);
            assert!(!meets(&client, &second).0, "the ticket of a host that asks for no certificate");
            server.reload(&strict).unwrap();
            for _ in 0..2 {
                assert!(!meets(&client, &server).0, "since the reload");
            }
        }
    }
}

#[test]
fn own_keys_end() {
    let config = server_config(Tickets::Own { rotate: Duration::from_secs(1) });
    let server = fused::Engine::server(&config).unwrap();
    let clients = VERSIONS.map(|versions| {
        // Not clones of each other: each remembers for itself.
        let [eager, patient] = [(); 2].map(|()| fused::Engine::client(&client_config(versions)).unwrap());
        assert!(!meets(&eager, &server).0 && !meets(&patient, &server).0);
        assert!(resumes_soon(&eager, &server), "{versions:?}");
        patient
    });
    std::thread::sleep(Duration::from_millis(2100));
    for patient in &clients {
        assert!(!meets(patient, &server).0, "two periods later");
        assert!(resumes_soon(patient, &server));
    }
}

/// A busy machine may take longer than two of these periods, now and then.
fn resumes_soon(client: &impl Engine, server: &impl Engine) -> bool {
    (0..10).any(|_| meets(client, server).0)
}

/// Keeps tickets for whichever host, as no client should.
#[derive(Debug, Default)]
struct Careless {
    tickets: Mutex<Vec<Tls13ClientSessionValue>>,
    session: Mutex<Option<Tls12ClientSessionValue>>,
    given: AtomicUsize,
}

impl ClientSessionStore for Careless {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        *self.session.lock().unwrap() = Some(value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.session.lock().unwrap().clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        *self.session.lock().unwrap() = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.given.fetch_add(1, Ordering::Relaxed);
        self.tickets.lock().unwrap().push(value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.tickets.lock().unwrap().pop()
    }
}

fn careless(version: &'static rustls::SupportedProtocolVersion) -> (Arc<rustls::ClientConfig>, Arc<Careless>) {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(AUTHORITY.certificate().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let store = Arc::new(Careless::default());
    config.resumption = Resumption::store(store.clone());
    (Arc::new(config), store)
}

fn resumes(client: &Arc<rustls::ClientConfig>, server: &impl Engine, name: &'static str) -> bool {
    let mut client = rustls::ClientConnection::new(client.clone(), name.try_into().unwrap()).unwrap();
    let mut end = End::new(server.accept().unwrap());
    loop {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        end.deliver(&wire).unwrap();
        let answer = end.take_outbox();
        if wire.is_empty() && answer.is_empty() {
            break;
        }
        let mut rest = &answer[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
        }
    }
    assert!(!client.is_handshaking() && end.open);
    client.handshake_kind() == Some(HandshakeKind::Resumed)
}

#[test]
fn a_ticket_is_for_one_name() {
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let server = fused::Engine::server(&server_config(fleet(1))).unwrap();
        let (client, _) = careless(version);
        assert!(!resumes(&client, &server, "localhost"));
        assert!(resumes(&client, &server, "localhost"));
        assert!(!resumes(&client, &server, "other.example"), "a ticket for another name");
        assert!(resumes(&client, &server, "other.example"));
    }
}

#[test]
fn as_many_tickets_as_configured() {
    for count in [1, 2, ServerConfig::MOST_TICKETS] {
        let config = ServerConfig { tickets_per_handshake: count, ..server_config(Tickets::default()) };
        let server = fused::Engine::server(&config).unwrap();
        let (client, store) = careless(&rustls::version::TLS13);
        assert!(!resumes(&client, &server, "localhost"));
        assert_eq!(store.given.load(Ordering::Relaxed), usize::from(count));
    }
    for count in [0, ServerConfig::MOST_TICKETS + 1] {
        let config = ServerConfig { tickets_per_handshake: count, ..server_config(Tickets::default()) };
        assert!(matches!(fused::Engine::server(&config), Err(Error::Config(why)) if why.contains("per handshake")));
    }
}

/// A client uses a ticket of TLS 1.3 once: as many connections are resumed at the same time as it has tickets, after `before`
/// were resumed one by one.
fn resumed_at_once(client: &impl Engine, before: usize) -> Vec<bool> {
    let config = ServerConfig { tickets_per_handshake: 3, ..server_config(Tickets::default()) };
    let server = fused::Engine::server(&config).unwrap();
    assert!(!meets(client, &server).0);
    for _ in 0..before {
        assert!(meets(client, &server).0);
    }
    // All begin before any is given new tickets.
    let mut pairs: Vec<_> = (0..5).map(|_| Pair::new(client, &server, "localhost").unwrap()).collect();
    for pair in &mut pairs {
        pair.client.work().unwrap();
    }
    let resumed = pairs.iter_mut().map(|pair| {
        pair.settle(&mut Split::Whole).unwrap();
        pair.client.session.facts().resumed
    });
    resumed.collect()
}

/// The ticket that a resumed connection used is made up for by one, not by as many as are sent to those who had none (RFC 9149).
#[test]
fn our_clients_use_a_ticket_once() {
    for before in [0, 4] {
        let library = library::Engine::client(&client_config(Versions::Tls13)).unwrap();
        assert_eq!(resumed_at_once(&library, before), [true, true, true, false, false]);
        // It takes two tickets of a connection, and then needs nothing of rustls' for it any more.
        let fused = fused::Engine::client(&client_config(Versions::Tls13)).unwrap();
        assert_eq!(resumed_at_once(&fused, before), [true, true, false, false, false]);
    }
}

/// Engines of configurations that are clones of one share what they remember, unless they trust or show something else.
#[test]
fn clones_of_a_configuration_share_sessions() {
    for versions in VERSIONS {
        let server = fused::Engine::server(&server_config(Tickets::default())).unwrap();
        let config = client_config(versions);
        assert!(!meets(&fused::Engine::client(&config).unwrap(), &server).0);
        assert!(meets(&fused::Engine::client(&config.clone()).unwrap(), &server).0);
        assert!(meets(&library::Engine::client(&config).unwrap(), &server).0);
        let off = ClientConfig { no_resumption: true, ..config.clone() };
        assert!(!meets(&fused::Engine::client(&off).unwrap(), &server).0);
        let other = ClientConfig { certificate: None, ..config.clone() };
        assert!(!meets(&fused::Engine::client(&other).unwrap(), &server).0, "without the certificate");
        let roots = Roots::Pem([AUTHORITY.certificate().as_bytes(), AUTHORITY.certificate().as_bytes()].concat());
        assert!(!meets(&fused::Engine::client(&ClientConfig { roots, ..config }).unwrap(), &server).0, "other roots");
    }
}

fn refused(result: Result<(), Error>, words: &str) {
    match result {
        Err(Error::Config(why)) => assert!(why.contains(words), "{why:?} should say {words:?}"),
        other => panic!("{other:?} should be refused with {words:?}"),
    }
}

#[test]
fn what_cannot_serve_is_not_reloaded() {
    let good = server_config(Tickets::default());
    let server = fused::Engine::server(&good).unwrap();
    let [other, fresh] = [issue(&Leaf::default()), issue(&Leaf { key: KeyKind::Ed25519, ..Leaf::default() })];
    let valid = |validity| issue(&Leaf { validity, ..Leaf::default() });
    let garbage = b"-----BEGIN CERTIFICATE-----\nZ2FyYmFnZSB0aGF0IGlzIG5vIGNlcnRpZmljYXRl\n-----END CERTIFICATE-----\n";
    let chained = |issuer: &[u8]| Certificate::new([&fresh.chain, issuer].concat(), fresh.key.clone());
    for (certificate, words) in [
        (Certificate::new("", fresh.key.clone()), "no certificate found"),
        (Certificate::new(fresh.chain.clone(), ""), "no private key found"),
        (Certificate::new(fresh.chain.clone(), other.key.clone()), "does not belong"),
        (valid(Validity::Expired), "mine expired on 20"),
        (valid(Validity::NotYet), "mine is not valid before 20"),
        (Certificate::new(&garbage[..], fresh.key.clone()), "certificate 1 of 1 in it is malformed"),
        (chained(garbage), "certificate 2 of 2 in it is malformed"),
        (chained(&other.chain), "not issued by any other certificate in its chain"),
        (Certificate { ocsp: b"no response".to_vec(), ..fresh.clone() }, "its OCSP response is not one"),
    ] {
        let certificate = Certificate { name: "mine".to_owned(), ..certificate };
        let bad = ServerConfig { certificates: vec![good.certificates[0].clone(), certificate], ..good.clone() };
        refused(server.reload(&bad), words);
    }
    refused(server.reload(&ServerConfig { certificates: Vec::new(), ..good.clone() }), "needs a certificate");
    let client_auth = ClientAuth::Required(Vec::new());
    refused(server.reload(&ServerConfig { client_auth, ..good.clone() }), "roots for client certificates");
    let rotate = Duration::from_hours(24);
    refused(server.reload(&ServerConfig { tickets: Tickets::Own { rotate }, ..good.clone() }), "tickets: keys change");
    let client = fused::Engine::client(&client_config(Versions::All)).unwrap();
    assert_eq!(meets(&client, &server), (false, der(&good.certificates[0])), "all of that changed nothing");
    assert!(meets(&client, &server).0);
    let certificates = vec![chained(AUTHORITY.certificate().as_bytes())];
    server.reload(&ServerConfig { certificates, ..good }).unwrap();
    assert!(matches!(client.reload(&server_config(Tickets::default())), Err(Error::ApiMisuse(_))));
}
