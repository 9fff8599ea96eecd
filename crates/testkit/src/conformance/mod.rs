//! The conformance suite of TLS engines: functions that panic if an engine fails them.
//!
//! An engine's tests instantiate all of them with [`tls_conformance!`](crate::tls_conformance), which takes a function
//! that makes an engine. The suite treats all libraries alike, except for each `Difference`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "runs inside tests, which fail by panicking"
)]

mod close;
mod configuration;
mod differences;
mod handshake;
mod hostile;
mod identity;
mod post_handshake;
mod program;
mod records;
mod serving;
mod stapling;
mod tickets;
mod tls12;

pub use close::*;
pub use configuration::*;
pub use handshake::*;
pub use hostile::*;
pub use identity::*;
pub use post_handshake::*;
pub use program::*;
pub use records::*;
pub use serving::*;
pub use stapling::*;
pub use tickets::*;
pub use tls12::*;

use differences::Difference;

use crate::certificate::{Authority, KeyKind, Leaf};
use crate::pair::{End, Failure, Pair, Split};
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};
use tautline_tls::{Certificate, ClientConfig, Engine, Error, Roots, ServerConfig, Session, Versions};

/// Instantiates the whole suite as tests of one engine.
///
/// The argument makes the engine from its optional configurations:
/// `fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<E, Error>`.
#[macro_export]
macro_rules! tls_conformance {
    ($make:expr) => {
        $crate::tls_conformance! { $make =>
            every_key_and_version versions_without_common_ground splits facts_before_the_handshake key_logs_stay_off
            data_behind_finished resumption resumption_is_off_where_told tickets_are_for_one_server
            tickets_tell_how_long_they_last answers_tell_what_was_done keys_are_measured_when_loaded
            fleets_share_their_tickets names_choose_certificates signatures_are_weighed suites_are_weighed
            key_types_stand_side_by_side client_certificates client_certificates_that_are_refused
            server_certificates_that_are_refused certificates_that_are_trusted_themselves protocols unverified_servers reloads optional_certificates_are_verified threads_share_an_engine bad_configurations
            unusable_certificates_are_reported missing_intermediates_are_reported keys_that_cannot_be_used keys_that_do_not_sign misuse sizes chunks
            full_records close_both_ways truncation errors_after_close
            flipped_bits flipped_bits_in_handshakes garbage other_protocols impossible_lengths endless_hellos
            repeated_and_dropped_records padding every_suite impossible_inner_plaintexts empty_records key_updates
            key_update_floods bad_key_updates key_updates_behind_finished split_handshake_messages unexpected_handshake_messages
            ticket_floods alerts unprotected_records old_empty_records old_alerts renegotiation
            programs_decide_about_certificates decisions_do_not_share_sessions exporters key_updates_by_a_call
            slices_hold_the_sealed_records sent_alerts_are_those_that_arrive responses_are_stapled
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

/// A function that makes an engine from the optional configurations of its two roles.
pub trait Make<E>: Fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<E, Error> {}

impl<E, F: Fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<E, Error>> Make<E> for F {}

/// The authority that the suite's clients and servers trust.
static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("Tautline Test").unwrap());

/// A certificate for `localhost` with a P-256 key.
static LOCALHOST: LazyLock<Certificate> = LazyLock::new(|| issue(&Leaf::new(&["localhost"])));

/// Issues a certificate.
///
/// One with an RSA-2048 key is made once per `leaf` and then reused. Generating such keys would otherwise take most
/// of a run with many engines.
fn issue(leaf: &Leaf<'_>) -> Certificate {
    static WITH_RSA: Mutex<BTreeMap<String, Certificate>> = Mutex::new(BTreeMap::new());
    let new = || AUTHORITY.issue(leaf).unwrap();
    if leaf.key != KeyKind::Rsa2048 {
        return new();
    }
    let name = format!("{leaf:?}");
    let known = WITH_RSA.lock().unwrap().get(&name).cloned();
    // The key is generated outside the lock, so that other tests do not wait for it.
    known.unwrap_or_else(|| {
        let new = new();
        WITH_RSA.lock().unwrap().entry(name).or_insert(new).clone()
    })
}

/// Issues a certificate for `names` with this kind of key.
fn certificate(names: &[&str], key: KeyKind) -> Certificate {
    issue(&Leaf::new(names).with_key(key))
}

fn trusted() -> Vec<u8> {
    AUTHORITY.certificate().into()
}

fn server_config() -> ServerConfig {
    ServerConfig::new([LOCALHOST.clone()])
}

fn client_config() -> ClientConfig {
    ClientConfig::default().with_roots(Roots::Pem(trusted()))
}

/// The engines of both ends.
struct Engines<E> {
    server: E,
    client: E,
}

impl<E: Engine> Engines<E> {
    fn new(make: &impl Make<E>, server: &ServerConfig, client: &ClientConfig) -> Self {
        Self { server: make(Some(server), None).unwrap(), client: make(None, Some(client)).unwrap() }
    }

    fn with_versions(make: &impl Make<E>, versions: Versions) -> Self {
        Self::new(make, &server_config().with_versions(versions), &client_config().with_versions(versions))
    }

    /// The quick kinds of keys that both engines can use.
    fn keys(&self) -> impl Iterator<Item = KeyKind> + use<E> {
        let has_ed25519 = |engine: &E| engine.capabilities().ed25519;
        let ed25519 = has_ed25519(&self.server) && has_ed25519(&self.client);
        KeyKind::QUICK.into_iter().filter(move |&key| key != KeyKind::Ed25519 || ed25519)
    }

    /// Whether the server's library has this difference.
    fn differs(&self, what: Difference) -> bool {
        what.applies_to(self.server.name())
    }

    /// Whether either end's library has this difference.
    fn any_differs(&self, what: Difference) -> bool {
        what.applies_to(self.server.name()) || what.applies_to(self.client.name())
    }

    /// Whether both engines resume TLS 1.3 sessions.
    fn resume_tls13(&self) -> bool {
        [&self.server, &self.client].iter().all(|engine| engine.capabilities().resumes_tls13)
    }

    fn pair(&self, host: &str) -> Pair<E::Session, E::Session> {
        Pair::new(&self.client, &self.server, host).unwrap()
    }

    /// Makes a pair and completes its handshake.
    fn open(&self, host: &str) -> Pair<E::Session, E::Session> {
        let mut pair = self.pair(host);
        pair.handshake(&mut Split::Whole).unwrap();
        assert!(pair.client.open && pair.server.open, "the handshake completes");
        pair
    }

    /// Runs a handshake that must fail, and returns its failure.
    fn refused(&self, host: &str) -> (Failure, Pair<E::Session, E::Session>) {
        let mut pair = self.pair(host);
        let failure = pair.handshake(&mut Split::Whole).expect_err("the handshake fails");
        (failure, pair)
    }
}

/// Sends `data` from one end to the other, and checks that it arrives.
fn transfer<A: Session, B: Session>(from: &mut End<A>, to: &mut End<B>, data: &[u8]) {
    from.send(&[data]).unwrap();
    let wire = from.take_outbox();
    to.received.clear();
    to.deliver(&wire).unwrap();
    assert!(to.received == data, "{} bytes arrive as they were sent", data.len());
}

/// Sends a message each way, to check that the connection works.
fn greet<A: Session, B: Session>(pair: &mut Pair<A, B>) {
    transfer(&mut pair.client, &mut pair.server, b"hello from the client");
    transfer(&mut pair.server, &mut pair.client, b"hello from the server");
    pair.settle(&mut Split::Whole).unwrap();
}
