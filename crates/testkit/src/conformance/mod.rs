//! What every TLS engine must do, as functions that panic where one does not.
//!
//! An engine's tests instantiate all of them with [`tls_conformance!`](crate::tls_conformance), which is given how to
//! make an engine. None of them knows which library is behind it, but for each `Difference`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "these are tests: whoever calls them wants the panic"
)]

mod close;
mod configuration;
mod differences;
mod handshake;
mod hostile;
mod identity;
mod post_handshake;
mod records;
mod serving;
mod tickets;
mod tls12;

pub use close::*;
pub use configuration::*;
pub use handshake::*;
pub use hostile::*;
pub use identity::*;
pub use post_handshake::*;
pub use records::*;
pub use serving::*;
pub use tickets::*;
pub use tls12::*;

use differences::Difference;

use crate::certificate::{Authority, KeyKind, Leaf};
use crate::pair::{End, Failure, Pair, Split};
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};
use tautline_tls::{Capabilities, Certificate, ClientConfig, Engine, Error, Roots, ServerConfig, Session, Versions};

/// Instantiates the whole suite as tests, for the engine that the given function makes from its optional configurations:
/// `fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<E, Error>`.
#[macro_export]
macro_rules! tls_conformance {
    ($make:expr) => {
        $crate::tls_conformance! { $make =>
            every_key_and_version versions_without_common_ground splits facts_before_the_handshake key_logs_stay_off
            data_behind_finished resumption resumption_is_off_where_told tickets_are_for_one_server
            tickets_tell_how_long_they_last answers_tell_what_was_done keys_are_measured_when_loaded
            fleets_share_their_tickets names_choose_certificates signatures_are_weighed suites_are_weighed key_types_stand_side_by_side
            client_certificates client_certificates_that_are_refused server_certificates_that_are_refused protocols
            unverified_servers reloads optional_certificates_are_verified threads_share_an_engine bad_configurations
            unusable_certificates_are_reported keys_that_cannot_be_used keys_that_do_not_sign misuse sizes chunks full_records close_both_ways truncation errors_after_close
            flipped_bits flipped_bits_in_handshakes garbage other_protocols impossible_lengths endless_hellos
            repeated_and_dropped_records padding every_suite impossible_inner_plaintexts empty_records key_updates
            key_update_floods bad_key_updates split_handshake_messages unexpected_handshake_messages
            ticket_floods alerts unprotected_records old_empty_records old_alerts renegotiation
        }
    };
    ($make:expr => $($test:ident)+) => {
        $(
            #[test]
            fn $test() {
                $crate::conformance::$test($make);
            }
        )+
    };
}

/// Makes an engine from optional configurations of its roles.
pub trait Make<E>: Fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<E, Error> {}

impl<E, F: Fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<E, Error>> Make<E> for F {}

/// The authority that clients and servers here trust.
static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("Tautline Test").unwrap());

/// For `localhost`, ECDSA P-256.
static LOCALHOST: LazyLock<Certificate> = LazyLock::new(|| issue(&Leaf { names: &["localhost"], ..Leaf::default() }));

/// A new one each time, but for those with RSA keys, which take long to make: most of a run with many engines would go there.
fn issue(leaf: &Leaf<'_>) -> Certificate {
    static WITH_RSA: Mutex<BTreeMap<String, Certificate>> = Mutex::new(BTreeMap::new());
    let new = || AUTHORITY.issue(leaf).unwrap();
    if leaf.key != KeyKind::Rsa2048 {
        return new();
    }
    let name = format!("{leaf:?}");
    let known = WITH_RSA.lock().unwrap().get(&name).cloned();
    // Not made under the lock, for which other tests wait.
    known.unwrap_or_else(|| {
        let new = new();
        WITH_RSA.lock().unwrap().entry(name).or_insert(new).clone()
    })
}

/// For `names`, with a key of this kind.
fn certificate(names: &[&str], key: KeyKind) -> Certificate {
    issue(&Leaf { names, key, ..Leaf::default() })
}

fn trusted() -> Vec<u8> {
    AUTHORITY.certificate().into()
}

fn server_config() -> ServerConfig {
    ServerConfig { certificates: vec![LOCALHOST.clone()], ..ServerConfig::default() }
}

fn client_config() -> ClientConfig {
    ClientConfig { roots: Roots::Pem(trusted()), ..ClientConfig::default() }
}

/// Both ends' engines.
struct Engines<E> {
    server: E,
    client: E,
}

impl<E: Engine> Engines<E> {
    fn new(make: &impl Make<E>, server: &ServerConfig, client: &ClientConfig) -> Self {
        Self { server: make(Some(server), None).unwrap(), client: make(None, Some(client)).unwrap() }
    }

    fn with_versions(make: &impl Make<E>, versions: Versions) -> Self {
        Self::new(make, &ServerConfig { versions, ..server_config() }, &ClientConfig { versions, ..client_config() })
    }

    /// Kinds of keys that both ends know.
    fn keys(&self) -> impl Iterator<Item = KeyKind> + use<E> {
        let has_ed25519 = |engine: &E| Capabilities::of(engine.name()).is_none_or(|one| one.ed25519);
        let ed25519 = has_ed25519(&self.server) && has_ed25519(&self.client);
        KeyKind::QUICK.into_iter().filter(move |&key| key != KeyKind::Ed25519 || ed25519)
    }

    /// Whether the server is known for this.
    fn differs(&self, what: Difference) -> bool {
        what.is_known_of(self.server.name())
    }

    /// Whether either end is known for this.
    fn any_differs(&self, what: Difference) -> bool {
        what.is_known_of(self.server.name()) || what.is_known_of(self.client.name())
    }

    /// Whether both ends resume sessions of TLS 1.3.
    fn resume_tls13(&self) -> bool {
        [self.server.name(), self.client.name()]
            .iter()
            .all(|engine| Capabilities::of(engine).is_none_or(|one| one.resumes_tls13))
    }

    fn pair(&self, host: &str) -> Pair<E::Session, E::Session> {
        Pair::new(&self.client, &self.server, host).unwrap()
    }

    /// A pair that has shaken hands.
    fn open(&self, host: &str) -> Pair<E::Session, E::Session> {
        let mut pair = self.pair(host);
        pair.handshake(&mut Split::Whole).unwrap();
        assert!(pair.client.open && pair.server.open, "the handshake completes");
        pair
    }

    /// What goes wrong in a handshake that must fail.
    fn refused(&self, host: &str) -> (Failure, Pair<E::Session, E::Session>) {
        let mut pair = self.pair(host);
        let failure = pair.handshake(&mut Split::Whole).expect_err("the handshake fails");
        (failure, pair)
    }
}

/// Sends `data` from one end to the other.
fn transfer<A: Session, B: Session>(from: &mut End<A>, to: &mut End<B>, data: &[u8]) {
    from.send(&[data]).unwrap();
    let wire = from.take_outbox();
    to.received.clear();
    to.deliver(&wire).unwrap();
    assert!(to.received == data, "{} bytes arrive as they were sent", data.len());
}

/// Sends a little both ways, as proof that a connection works.
fn greet<A: Session, B: Session>(pair: &mut Pair<A, B>) {
    transfer(&mut pair.client, &mut pair.server, b"hello from the client");
    transfer(&mut pair.server, &mut pair.client, b"hello from the server");
    pair.settle(&mut Split::Whole).unwrap();
}
