//! Servers whose hosts have different demands on the certificates of clients.

use std::sync::LazyLock;
use tautline_testkit::certificate::{Authority, KeyKind, Leaf, Usage};
use tautline_testkit::pair::{Failure, Pair, Side, Split};
use tautline_tls::{
    Certificate, ClientAuth, ClientConfig, ClientRule, Engine, Error, Roots, ServerConfig, Session, Versions,
};
use tautline_tls_rustls as library;
use tautline_tls_rustls::fused;

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("Test").unwrap());
/// The authority of clients.
static STAFF: LazyLock<Authority> = LazyLock::new(|| Authority::new("Staff").unwrap());

const VERSIONS: [Versions; 2] = [Versions::Tls13, Versions::Tls12];
const HOSTS: [&str; 3] = ["open.example", "strict.example", "lax.example"];

fn roots() -> Vec<u8> {
    STAFF.certificate().into()
}

fn strict() -> ClientRule {
    ClientRule::new("strict", ClientAuth::Required(roots()))
}

fn issue(names: &[&'static str]) -> Certificate {
    AUTHORITY.issue(&Leaf::new(names)).unwrap()
}

/// Three hosts: one asks for nothing, one needs a certificate, one takes one.
fn hosts() -> ServerConfig {
    let [open, needs, takes] = HOSTS.map(|name| issue(&[name]));
    let lax = ClientRule::new("lax", ClientAuth::Optional(roots()));
    ServerConfig::new([open, needs.with_client_rule(strict()), takes.with_client_rule(lax)])
}

fn own() -> Certificate {
    STAFF.issue(&Leaf::new(&["ada"]).with_usage(Usage::Client)).unwrap()
}

fn client(own: Option<&Certificate>, versions: Versions) -> ClientConfig {
    let mut config = ClientConfig::default().with_roots(Roots::Pem(AUTHORITY.certificate().into()));
    config.certificate = own.cloned();
    config.with_versions(versions)
}

/// The rule of a connection, the number of the client's certificates, and whether it was resumed.
type Outcome = Result<(Option<String>, usize, bool), Failure>;

fn connect(client: &impl Engine, server: &impl Engine, host: &str) -> Outcome {
    let mut pair = Pair::new(client, server, host).unwrap();
    pair.handshake(&mut Split::Whole)?;
    pair.server.send(&[b"hello"]).unwrap();
    pair.settle(&mut Split::Whole)?;
    assert_eq!(pair.client.received, b"hello");
    let info = pair.server.session.tls_info();
    Ok((info.client_rule, info.peer_certificates.len(), info.resumed))
}

fn rule(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_owned())
}

#[test]
fn the_server_name_selects_the_demand() {
    fn all(server: &impl Engine) {
        let stranger =
            Authority::new("Stranger").unwrap().issue(&Leaf::new(&["eve"]).with_usage(Usage::Client)).unwrap();
        for versions in VERSIONS {
            let connect = |own: Option<&Certificate>, host: &str| {
                connect(&fused::Engine::client(&client(own, versions)).unwrap(), server, host)
            };
            let refused = |outcome: Outcome| {
                let Err(Failure { side, error: Error::Certificate(_) }) = outcome else { panic!("{outcome:?}") };
                assert_eq!(side, Side::Server);
            };
            assert_eq!(connect(None, HOSTS[0]), Ok((None, 0, false)));
            refused(connect(None, HOSTS[1]));
            assert_eq!(connect(None, HOSTS[2]), Ok((rule("lax"), 0, false)));
            assert_eq!(connect(Some(&stranger), HOSTS[0]), Ok((None, 0, false)), "nobody asks");
            refused(connect(Some(&stranger), HOSTS[1]));
            refused(connect(Some(&stranger), HOSTS[2]));
            for (host, name, count) in [(HOSTS[0], "", 0), (HOSTS[1], "strict", 1), (HOSTS[2], "lax", 1)] {
                assert_eq!(connect(Some(&own()), host), Ok((rule(name), count, false)), "{host}");
            }
        }
    }
    all(&fused::Engine::server(&hosts()).unwrap());
    all(&library::Engine::server(&hosts()).unwrap());
}

/// A name that no certificate has, and no name at all, are those of the first certificate.
#[test]
fn the_first_certificate_has_the_demand_on_unknown_names() {
    let both = [issue(&[HOSTS[1]]).with_client_rule(strict()), issue(&[HOSTS[0], "*.open.example"])];
    let server = fused::Engine::server(&ServerConfig::new(both)).unwrap();
    let anything = ClientConfig::default().with_roots(Roots::DangerNone);
    let connect = |own: Option<Certificate>, host| {
        let mut config = anything.clone();
        config.certificate = own;
        connect(&fused::Engine::client(&config).unwrap(), &server, host)
    };
    for host in ["other.example", "a.b.open.example", "192.0.2.1"] {
        assert!(connect(None, host).is_err(), "{host}");
        assert_eq!(connect(Some(own()), host), Ok((rule("strict"), 1, false)), "{host}");
    }
    for host in ["open.example", "a.open.example"] {
        assert_eq!(connect(None, host), Ok((None, 0, false)), "{host}");
    }
}

/// Hosts that ask for nothing give tickets. No host that asks takes one, and none gives one.
#[test]
fn sessions_are_resumed_by_hosts_that_ask_for_nothing_alone() {
    for versions in VERSIONS {
        let server = fused::Engine::server(&hosts()).unwrap();
        let client = fused::Engine::client(&client(Some(&own()), versions)).unwrap();
        assert_eq!(connect(&client, &server, HOSTS[0]), Ok((None, 0, false)));
        assert_eq!(connect(&client, &server, HOSTS[0]), Ok((None, 0, true)), "{versions:?}");
        for _ in 0..3 {
            assert_eq!(connect(&client, &server, HOSTS[1]), Ok((rule("strict"), 1, false)));
            assert_eq!(connect(&client, &server, HOSTS[2]), Ok((rule("lax"), 1, false)));
        }
        // A ticket that a host gave before it had a rule is worth nothing under the rule, and nothing changes for others.
        let mut asking = hosts();
        asking.certificates[0].client_rule = Some(strict());
        asking.certificates[2].client_rule = None;
        server.reload(&asking).unwrap();
        assert_eq!(connect(&client, &server, HOSTS[0]), Ok((rule("strict"), 1, false)));
        for resumed in [false, true] {
            assert_eq!(connect(&client, &server, HOSTS[2]), Ok((None, 0, resumed)));
        }
    }
}

/// Cuts the record at the front into records with this number of bytes each.
fn cut(wire: &[u8], size: usize) -> Vec<u8> {
    let len = 5 + usize::from(u16::from_be_bytes([wire[3], wire[4]]));
    let record = |piece: &[u8]| [&[22, 3, 1], &u16::try_from(piece.len()).unwrap().to_be_bytes()[..], piece].concat();
    [wire[5..len].chunks(size).flat_map(record).collect(), wire[len..].to_vec()].concat()
}

/// The host name may stand in any record of the ClientHello.
#[test]
fn a_client_hello_in_pieces_gets_by_no_demand() {
    let server = fused::Engine::server(&hosts()).unwrap();
    for versions in VERSIONS {
        for (size, is_read) in [(1_000, true), (60, true), (30, true), (1, false)] {
            for (host, own, accepted) in [
                (HOSTS[0], None, true),
                (HOSTS[1], None, false),
                (HOSTS[1], Some(own()), is_read),
                (HOSTS[2], Some(own()), is_read),
            ] {
                let client = fused::Engine::client(&client(own.as_ref(), versions)).unwrap();
                let mut pair = Pair::new(&client, &server, host).unwrap();
                pair.client.work().unwrap();
                let hello = cut(&pair.client.take_outbox(), size);
                let outcome = pair.server.deliver(&hello).map_err(|error| Failure { side: Side::Server, error });
                let outcome = outcome.and_then(|()| pair.settle(&mut Split::Whole));
                let case = format!("{versions:?}, {size}, {host}, {}: {outcome:?}", own.is_some());
                assert_eq!(outcome.is_ok() && pair.server.open, accepted, "{case}");
                if accepted && own.is_some() {
                    assert_eq!(pair.server.session.tls_info().peer_certificates.len(), 1, "{case}");
                }
            }
        }
    }
}

#[test]
fn a_reload_changes_the_demands_on_new_connections() {
    let without = hosts();
    let mut without = ServerConfig::new(without.certificates);
    without.certificates.iter_mut().for_each(|certificate| certificate.client_rule = None);
    let server = fused::Engine::server(&without).unwrap();
    let client = fused::Engine::client(&client(None, Versions::All)).unwrap();
    let mut old = Pair::new(&client, &server, HOSTS[1]).unwrap();
    old.handshake(&mut Split::Whole).unwrap();
    server.reload(&hosts()).unwrap();
    assert!(connect(&client, &server, HOSTS[1]).is_err());
    assert_eq!(old.server.session.tls_info().client_rule, None, "it tells how it began");
    server.reload(&without).unwrap();
    assert!(connect(&client, &server, HOSTS[1]).is_ok());
    // A faulty configuration changes nothing.
    let mut broken = hosts();
    broken.certificates[1].client_rule = Some(ClientRule::new("broken", ClientAuth::Required(Vec::new())));
    let Err(Error::Config(why)) = server.reload(&broken) else { panic!("it was taken") };
    assert!(why.contains("roots for client certificates (broken)"), "{why}");
    assert!(connect(&client, &server, HOSTS[1]).is_ok());
}

#[test]
fn one_name_has_one_rule() {
    let refused =
        |certificates: Vec<Certificate>, word: &str| match fused::Engine::server(&ServerConfig::new(certificates)) {
            Err(Error::Config(why)) => assert!(why.contains(word), "{why}"),
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("it was taken: {word}"),
        };
    let second = AUTHORITY.issue(&Leaf::new(&["open.example"]).with_key(KeyKind::Ed25519)).unwrap();
    // The kinds of key that a client names would choose its rule.
    refused(vec![issue(&["open.example"]), second.clone().with_client_rule(strict())], "open.example");
    let other = ClientRule::new("strict", ClientAuth::Optional(roots()));
    let both = vec![issue(&["a.example"]).with_client_rule(strict()), issue(&["b.example"]).with_client_rule(other)];
    refused(both, "\"strict\"");
    let same = [issue(&["open.example"]).with_client_rule(strict()), second.with_client_rule(strict())];
    assert!(fused::Engine::server(&ServerConfig::new(same)).is_ok());
}
