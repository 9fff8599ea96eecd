//! The sessions that servers resume, across hosts, reloads and time.

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
    let mut leaf = *leaf;
    leaf.names = &["localhost", "other.example"];
    AUTHORITY.issue(&leaf).unwrap()
}

fn server_config(tickets: Tickets) -> ServerConfig {
    ServerConfig::new([issue(&Leaf::default())]).with_tickets(tickets)
}

fn client_config(versions: Versions) -> ClientConfig {
    let own = issue(&Leaf::default().with_usage(Usage::Client));
    let roots = Roots::Pem(AUTHORITY.certificate().into());
    ClientConfig::default().with_roots(roots).with_versions(versions).with_certificate(own)
}

fn fleet(secret: u8) -> Tickets {
    Tickets::fleet(TicketSecret::new(&[secret; 32]).unwrap())
}

/// Connects and sends a message. Returns whether the session was resumed, and the server's certificate.
fn connect(client: &impl Engine, server: &impl Engine) -> (bool, Vec<u8>) {
    let mut pair = Pair::new(client, server, "localhost").unwrap();
    pair.handshake(&mut Split::Whole).unwrap();
    pair.server.send(&[b"hello"]).unwrap();
    pair.settle(&mut Split::Whole).unwrap();
    assert_eq!(pair.client.received, b"hello");
    let (client, server) = (pair.client.session.tls_info(), pair.server.session.tls_info());
    assert_eq!(client.resumed, server.resumed);
    (client.resumed, client.peer_certificates[0].clone())
}

fn der(certificate: &Certificate) -> Vec<u8> {
    CertificateDer::from_pem_slice(&certificate.chain).unwrap().to_vec()
}

const VERSIONS: [Versions; 2] = [Versions::Tls13, Versions::Tls12];

#[test]
fn a_fleet_resumes_the_sessions_of_any_host() {
    for versions in VERSIONS {
        // The hosts have different certificates and different engines.
        let a = fused::Engine::server(&server_config(fleet(1))).unwrap();
        let b = library::Engine::server(&server_config(fleet(1))).unwrap();
        let stranger = fused::Engine::server(&server_config(fleet(2))).unwrap();
        let client = fused::Engine::client(&client_config(versions)).unwrap();
        let (resumed, first) = connect(&client, &a);
        assert!(!resumed);
        assert_eq!(connect(&client, &b), (true, first.clone()), "{versions:?}");
        assert_eq!(connect(&client, &a), (true, first.clone()));
        let (resumed, certificate) = connect(&client, &stranger);
        assert!(!resumed && certificate != first, "another secret");
    }
}

#[test]
fn a_reload_keeps_sessions_and_shows_the_new_certificate() {
    for versions in VERSIONS {
        for tickets in [Tickets::default(), fleet(1)] {
            let before = server_config(tickets.clone());
            let server = fused::Engine::server(&before).unwrap();
            let client = fused::Engine::client(&client_config(versions)).unwrap();
            assert_eq!(connect(&client, &server), (false, der(&before.certificates[0])));
            let after = before.clone().with_certificates([issue(&Leaf::default())]);
            // A clone is another shard's engine.
            server.clone().reload(&after).unwrap();
            assert_eq!(connect(&client, &server), (true, der(&before.certificates[0])));
            let newcomer = fused::Engine::client(&client_config(versions)).unwrap();
            assert_eq!(connect(&newcomer, &server), (false, der(&after.certificates[0])));
            server.reload(&after.clone().with_tickets(fleet(3))).unwrap();
            assert!(!connect(&newcomer, &server).0, "other keys");
            server.reload(&after.with_tickets(Tickets::Off)).unwrap();
            for _ in 0..2 {
                assert!(!connect(&newcomer, &server).0, "no keys");
            }
        }
    }
}

/// Open connections and handshakes under way keep the configuration that they began with.
#[test]
fn a_reload_does_not_affect_existing_connections() {
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
fn servers_that_ask_for_client_certificates_resume_nothing() {
    for versions in VERSIONS {
        let open = server_config(fleet(1));
        let roots = AUTHORITY.certificate().as_bytes().to_vec();
        for client_auth in [ClientAuth::Required(roots.clone()), ClientAuth::Optional(roots)] {
            let strict = open.clone().with_client_auth(client_auth);
            let server = fused::Engine::server(&open).unwrap();
            let second = fused::Engine::server(&strict).unwrap();
            let client = fused::Engine::client(&client_config(versions)).unwrap();
            assert!(!connect(&client, &server).0);
            assert!(!connect(&client, &second).0, "the ticket is from a host that asks for no certificate");
            server.reload(&strict).unwrap();
            for _ in 0..2 {
                assert!(!connect(&client, &server).0, "after the reload");
            }
        }
    }
}

#[test]
fn own_ticket_keys_expire_after_two_periods() {
    let config = server_config(Tickets::Own { rotate: Duration::from_secs(1) });
    let server = fused::Engine::server(&config).unwrap();
    let clients = VERSIONS.map(|versions| {
        // These are not clones, so each has sessions of its own.
        let [eager, patient] = [(); 2].map(|()| fused::Engine::client(&client_config(versions)).unwrap());
        assert!(!connect(&eager, &server).0 && !connect(&patient, &server).0);
        assert!(resumes_soon(&eager, &server), "{versions:?}");
        patient
    });
    std::thread::sleep(Duration::from_millis(2100));
    for patient in &clients {
        assert!(!connect(patient, &server).0, "two periods later");
        assert!(resumes_soon(patient, &server));
    }
}

/// Connects until a session is resumed. On a busy machine a connection may take longer than two periods.
fn resumes_soon(client: &impl Engine, server: &impl Engine) -> bool {
    (0..10).any(|_| connect(client, server).0)
}

/// A store that offers its tickets to every host, which no client should do.
#[derive(Debug, Default)]
struct AnyHostStore {
    tickets: Mutex<Vec<Tls13ClientSessionValue>>,
    session: Mutex<Option<Tls12ClientSessionValue>>,
    given: AtomicUsize,
}

impl ClientSessionStore for AnyHostStore {
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

fn any_host_client(
    version: &'static rustls::SupportedProtocolVersion,
) -> (Arc<rustls::ClientConfig>, Arc<AnyHostStore>) {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(AUTHORITY.certificate().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let store = Arc::new(AnyHostStore::default());
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
fn rejects_a_ticket_from_another_sni() {
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let server = fused::Engine::server(&server_config(fleet(1))).unwrap();
        let (client, _) = any_host_client(version);
        assert!(!resumes(&client, &server, "localhost"));
        assert!(resumes(&client, &server, "localhost"));
        assert!(!resumes(&client, &server, "other.example"), "a ticket for another name");
        assert!(resumes(&client, &server, "other.example"));
    }
}

#[test]
fn issues_the_configured_number_of_tickets() {
    for count in [1, 2, ServerConfig::MOST_TICKETS] {
        let config = server_config(Tickets::default()).with_tickets_per_handshake(count);
        let server = fused::Engine::server(&config).unwrap();
        let (client, store) = any_host_client(&rustls::version::TLS13);
        assert!(!resumes(&client, &server, "localhost"));
        assert_eq!(store.given.load(Ordering::Relaxed), usize::from(count));
    }
    for count in [0, ServerConfig::MOST_TICKETS + 1] {
        let config = server_config(Tickets::default()).with_tickets_per_handshake(count);
        assert!(matches!(fused::Engine::server(&config), Err(Error::Config(why)) if why.contains("per handshake")));
    }
}

/// Returns which of five simultaneous connections are resumed, after `before` connections that were resumed one by one.
///
/// A client uses a TLS 1.3 ticket once, so its number of tickets is the limit.
fn resumed_at_once(client: &impl Engine, before: usize) -> Vec<bool> {
    let config = server_config(Tickets::default()).with_tickets_per_handshake(3);
    let server = fused::Engine::server(&config).unwrap();
    assert!(!connect(client, &server).0);
    for _ in 0..before {
        assert!(connect(client, &server).0);
    }
    // All connections begin before any receives new tickets.
    let mut pairs: Vec<_> = (0..5).map(|_| Pair::new(client, &server, "localhost").unwrap()).collect();
    for pair in &mut pairs {
        pair.client.work().unwrap();
    }
    let resumed = pairs.iter_mut().map(|pair| {
        pair.settle(&mut Split::Whole).unwrap();
        pair.client.session.tls_info().resumed
    });
    resumed.collect()
}

/// A resumed connection receives one ticket for the one it used; a full handshake receives more (RFC 9149).
#[test]
fn clients_use_a_ticket_once() {
    for before in [0, 4] {
        let library = library::Engine::client(&client_config(Versions::Tls13)).unwrap();
        assert_eq!(resumed_at_once(&library, before), [true, true, true, false, false]);
        // The fused engine takes two tickets of a connection, and then frees rustls' part of it.
        let fused = fused::Engine::client(&client_config(Versions::Tls13)).unwrap();
        assert_eq!(resumed_at_once(&fused, before), [true, true, false, false, false]);
    }
}

/// Engines share sessions if their configurations are clones with equal roots and certificates.
#[test]
fn clones_of_a_configuration_share_sessions() {
    for versions in VERSIONS {
        let server = fused::Engine::server(&server_config(Tickets::default())).unwrap();
        let config = client_config(versions);
        assert!(!connect(&fused::Engine::client(&config).unwrap(), &server).0);
        assert!(connect(&fused::Engine::client(&config.clone()).unwrap(), &server).0);
        assert!(connect(&library::Engine::client(&config).unwrap(), &server).0);
        let off = config.clone().without_resumption();
        assert!(!connect(&fused::Engine::client(&off).unwrap(), &server).0);
        let mut other = config.clone();
        other.certificate = None;
        assert!(!connect(&fused::Engine::client(&other).unwrap(), &server).0, "without the certificate");
        let roots = Roots::Pem([AUTHORITY.certificate().as_bytes(), AUTHORITY.certificate().as_bytes()].concat());
        assert!(!connect(&fused::Engine::client(&config.with_roots(roots)).unwrap(), &server).0, "other roots");
    }
}

fn rejected(result: Result<(), Error>, words: &str) {
    match result {
        Err(Error::Config(why)) => assert!(why.contains(words), "{why:?} should say {words:?}"),
        other => panic!("{other:?} should be rejected with {words:?}"),
    }
}

#[test]
fn a_reload_rejects_an_unusable_configuration() {
    let good = server_config(Tickets::default());
    let server = fused::Engine::server(&good).unwrap();
    let [other, fresh] = [issue(&Leaf::default()), issue(&Leaf::default().with_key(KeyKind::Ed25519))];
    let valid = |validity| issue(&Leaf::default().with_validity(validity));
    let garbage = b"-----BEGIN CERTIFICATE-----\nZ2FyYmFnZSB0aGF0IGlzIG5vIGNlcnRpZmljYXRl\n-----END CERTIFICATE-----\n";
    let chained = |issuer: &[u8]| Certificate::new([&fresh.chain, issuer].concat(), fresh.key.to_vec());
    for (certificate, words) in [
        (Certificate::new("", fresh.key.to_vec()), "no certificate found"),
        (Certificate::new(fresh.chain.clone(), ""), "no private key found"),
        (Certificate::new(fresh.chain.clone(), other.key.to_vec()), "does not belong"),
        (valid(Validity::Expired), "mine expired on 20"),
        (valid(Validity::NotYet), "mine is not valid before 20"),
        (Certificate::new(&garbage[..], fresh.key.to_vec()), "certificate 1 of 1 in it is malformed"),
        (chained(garbage), "certificate 2 of 2 in it is malformed"),
        (chained(&other.chain), "not issued by any other certificate in its chain"),
        (fresh.clone().with_ocsp(b"no response".to_vec()), "its OCSP response cannot be read"),
    ] {
        let certificate = certificate.with_name("mine".to_owned());
        let bad = good.clone().with_certificates([good.certificates[0].clone(), certificate]);
        rejected(server.reload(&bad), words);
    }
    rejected(server.reload(&good.clone().with_certificates(Vec::new())), "needs a certificate");
    let client_auth = ClientAuth::Required(Vec::new());
    rejected(server.reload(&good.clone().with_client_auth(client_auth)), "roots for client certificates");
    let rotate = Duration::from_hours(24);
    rejected(server.reload(&good.clone().with_tickets(Tickets::Own { rotate })), "tickets: the period of a key");
    let client = fused::Engine::client(&client_config(Versions::All)).unwrap();
    assert_eq!(connect(&client, &server), (false, der(&good.certificates[0])), "a failed reload changed something");
    assert!(connect(&client, &server).0);
    let certificates = vec![chained(AUTHORITY.certificate().as_bytes())];
    server.reload(&good.with_certificates(certificates)).unwrap();
    assert!(matches!(client.reload(&server_config(Tickets::default())), Err(Error::ApiMisuse(_))));
}
