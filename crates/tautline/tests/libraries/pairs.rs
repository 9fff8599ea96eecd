//! Every engine of this build against every other, in both roles: the tests of the suite that concern two ends.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::libraries;
use tautline::layers::tls::{self, ClientConfig, Error, Roots, ServerConfig};
use tautline::layers::tls_libssl::{Engine, Flavour, fused};
use tautline::layers::tls_rustls::{Engine as Rustls, fused::Engine as Fused};
use tautline::{Capabilities, TlsEngine};
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::conformance;
use tautline_testkit::pair::{End, Pair, Split};

/// One engine for accepting, and another for connecting.
#[derive(Clone)]
struct Mixed<S, C> {
    server: S,
    client: C,
    /// Whether it was made for the server's role. The suite asks for the features of the engine with this role's name.
    is_server: bool,
}

impl<S: tls::Engine, C: tls::Engine> tls::Engine for Mixed<S, C> {
    type Session = Box<dyn tls::Session>;

    fn capabilities(&self) -> &'static Capabilities {
        if self.is_server { self.server.capabilities() } else { self.client.capabilities() }
    }

    fn accept(&self) -> Result<Self::Session, Error> {
        Ok(Box::new(self.server.accept()?))
    }

    fn connect(&self, host: &str) -> Result<Self::Session, Error> {
        Ok(Box::new(self.client.connect(host)?))
    }
}

/// Makes the engine that accepts by one function and the engine that connects by another.
fn mixed<S, C>(
    server: impl Fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<S, Error>,
    client: impl Fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<C, Error>,
) -> impl Fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<Mixed<S, C>, Error> {
    move |server_config, client_config| {
        let is_server = server_config.is_some();
        Ok(Mixed { server: server(server_config, None)?, client: client(None, client_config)?, is_server })
    }
}

/// Makes engines of this library.
fn libssl(flavour: Flavour) -> impl Fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<Engine, Error> {
    move |server, client| Engine::new(flavour, server, client)
}

/// Makes engines with this library's handshake and our own records.
fn fused(flavour: Flavour) -> impl Fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<fused::Engine, Error> {
    move |server, client| fused::Engine::new(flavour, server, client)
}

/// Runs `$then` with `$make` as the function that makes this engine.
macro_rules! made {
    ($engine:expr, $make:ident => $then:expr) => {
        match $engine {
            TlsEngine::Fused => {
                let $make = Fused::new;
                $then
            }
            TlsEngine::Rustls => {
                let $make = Rustls::new;
                $then
            }
            TlsEngine::Libssl(flavour) => {
                let $make = libssl(flavour);
                $then
            }
            TlsEngine::FusedLibssl(flavour) => {
                let $make = fused(flavour);
                $then
            }
            other => panic!("{other} is not tested with the others"),
        }
    };
}

/// Runs tests of the suite with all pairs of different engines.
///
/// Tests that need both roles of one engine, and tests of an engine with itself, stay with the engine's own tests.
macro_rules! every_pair {
    ($($test:ident)+) => {
        $(
            #[test]
            fn $test() {
                for server in TlsEngine::all() {
                    for client in TlsEngine::all().filter(|client| *client != server) {
                        eprintln!("{server} accepts, {client} connects");
                        made!(server, accepts => made!(client, connects => conformance::$test(mixed(accepts, connects))));
                    }
                }
            }
        )+
    };
}

every_pair! {
    every_key_and_version versions_without_common_ground splits data_behind_finished resumption
    resumption_is_off_where_told tickets_are_for_one_server fleets_share_their_tickets names_choose_certificates key_types_stand_side_by_side
    client_certificates client_certificates_that_are_refused server_certificates_that_are_refused protocols
    unverified_servers sizes chunks full_records close_both_ways truncation errors_after_close
}

/// Sends a short message, and returns the number of records: two if there was a key update.
fn say<A: tls::Session, B: tls::Session>(from: &mut End<A>, to: &mut End<B>) -> usize {
    from.send(&[b"a word"]).unwrap();
    let wire = from.take_outbox();
    to.received.clear();
    to.deliver(&wire).unwrap();
    assert_eq!(to.received, b"a word");
    let (mut at, mut records) = (0, 0);
    while at < wire.len() {
        at += 5 + usize::from(u16::from_be_bytes([wire[at + 3], wire[at + 4]]));
        records += 1;
    }
    records
}

/// A library changes a worn-out key before its next record, and every other engine follows.
#[test]
fn changes_of_keys() {
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    let server = ServerConfig::new([certificate]);
    let client = ClientConfig::default().with_roots(Roots::Pem(authority.certificate().into()));
    for flavour in libraries() {
        // LibreSSL cannot be asked to change its keys, and wolfSSL also requests a change by the peer.
        let changed = if flavour.name() == "libressl" { 1 } else { 2 };
        let answer = if flavour.name() == "wolfssl" { 2 } else { 1 };
        for other in TlsEngine::all().filter(|other| *other != TlsEngine::Libssl(flavour)) {
            made!(other, make => {
                eprintln!("{flavour} connects to {other}");
                let (connects, accepts) = (libssl(flavour)(None, Some(&client)).unwrap(), make(Some(&server), None).unwrap());
                let mut pair = Pair::new(&connects, &accepts, "localhost").unwrap();
                pair.handshake(&mut Split::Whole).unwrap();
                say(&mut pair.server, &mut pair.client);
                for _ in 0..3 {
                    assert_eq!(say(&mut pair.client, &mut pair.server), 1);
                    pair.client.session.wear_out();
                    assert_eq!(say(&mut pair.client, &mut pair.server), changed);
                    assert_eq!(say(&mut pair.server, &mut pair.client), answer);
                }
                eprintln!("{flavour} accepts {other}");
                let (connects, accepts) = (make(None, Some(&client)).unwrap(), libssl(flavour)(Some(&server), None).unwrap());
                let mut pair = Pair::new(&connects, &accepts, "localhost").unwrap();
                pair.handshake(&mut Split::Whole).unwrap();
                say(&mut pair.server, &mut pair.client);
                for _ in 0..3 {
                    pair.server.session.wear_out();
                    assert_eq!(say(&mut pair.server, &mut pair.client), changed);
                    assert_eq!(say(&mut pair.client, &mut pair.server), answer);
                }
            });
        }
    }
}
