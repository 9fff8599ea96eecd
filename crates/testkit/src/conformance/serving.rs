//! What a server's configuration does over time and over threads.

use super::{Engines, Make, certificate, client_config, greet, server_config, trusted};
use crate::certificate::{Authority, KeyKind, Leaf, Usage, Validity};
use crate::pair::{Pair, Split};
use core::time::Duration;
use tautline_tls::{
    Capabilities, Certificate, ClientAuth, ClientConfig, Engine, Error, Facts, ServerConfig, Session, Tickets, Versions,
};

/// What client and server agree on; a message each way carries late tickets.
fn agree<E: Engine>(client: &E, server: &E) -> Facts {
    let mut pair = Pair::new(client, server, "localhost").unwrap();
    pair.handshake(&mut Split::Whole).unwrap();
    greet(&mut pair);
    pair.client.session.facts()
}

fn serving(certificate: Certificate) -> ServerConfig {
    ServerConfig { certificates: vec![certificate], ..ServerConfig::default() }
}

/// A reload changes the certificates of whoever comes from then on, in all clones, and keeps ticket keys; a bad one changes
/// nothing.
pub fn reloads<E: Engine>(make: impl Make<E>) {
    let fresh = || certificate(&["localhost"], KeyKind::P256);
    let server = make(Some(&serving(fresh())), None).unwrap();
    let has_tickets = Capabilities::of(server.name()).is_none_or(|one| one.resumes_tls13);
    let versions = if has_tickets { Versions::All } else { Versions::Tls12 };
    let config = ClientConfig { versions, ..client_config() };
    let client = make(None, Some(&config)).unwrap();
    let stranger = make(None, Some(&ClientConfig { no_resumption: true, ..config })).unwrap();
    let first = agree(&client, &server);
    assert!(!first.resumed);
    let clone = server.clone();
    clone.reload(&serving(fresh())).unwrap();
    assert!(agree(&client, &server).resumed, "tickets outlive a reload");
    for server in [&server, &clone] {
        assert_ne!(agree(&stranger, server).peer_certificates, first.peer_certificates);
    }

    let expired = Leaf { names: &["localhost"], validity: Validity::Expired, ..Leaf::default() };
    let mut unlinked = fresh();
    unlinked.chain.extend(Authority::new("Other").unwrap().certificate().as_bytes());
    for (bad, words) in [(super::issue(&expired), "expired on"), (unlinked, "chain")] {
        let refused = server.reload(&serving(bad));
        assert!(matches!(&refused, Err(Error::Config(why)) if why.contains(words)), "{refused:?}");
    }
    assert!(agree(&client, &server).resumed, "what is refused changes nothing");
    // Whichever place the issuer has: most peers sort it out.
    let mut shuffled = fresh();
    shuffled.chain.extend(Authority::new("Other").unwrap().certificate().as_bytes());
    shuffled.chain.extend(trusted());
    server.reload(&serving(shuffled)).unwrap();
    let mut linked = fresh();
    linked.chain.extend(trusted());
    // Other ticket keys: what they did not seal they do not open.
    let tickets = Tickets::Own { rotate: Duration::from_secs(60) };
    server.reload(&ServerConfig { tickets, ..serving(linked) }).unwrap();
    assert!(!agree(&client, &server).resumed);
}

/// Where a client may come without a certificate, the one that it shows is verified all the same.
pub fn optional_certificates_are_verified<E: Engine>(make: impl Make<E>) {
    let stranger = Authority::new("Somebody else").unwrap();
    let own = stranger.issue(&Leaf { names: &["client"], usage: Usage::Client, ..Leaf::default() }).unwrap();
    for versions in [Versions::Tls13, Versions::Tls12] {
        let server = ServerConfig { client_auth: ClientAuth::Optional(trusted()), versions, ..server_config() };
        let client = ClientConfig { certificate: Some(own.clone()), ..client_config() };
        let (failure, _) = Engines::new(&make, &server, &client).refused("localhost");
        assert!(matches!(&failure.error, Error::Certificate(_)), "{failure:?}");
    }
}

/// Connections of one engine on several threads share keys, randomness, tickets and sessions, and are told of their own errors.
pub fn threads_share_an_engine<E: Engine>(make: impl Make<E>) {
    for (key, versions) in [(KeyKind::P256, Versions::All), (KeyKind::Rsa2048, Versions::Tls12)] {
        let config = serving(certificate(&["localhost"], key));
        let engines = Engines::new(&make, &config, &ClientConfig { versions, ..client_config() });
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..40 {
                        agree(&engines.client, &engines.server);
                        engines.server.reload(&config).unwrap();
                    }
                });
            }
        });
    }
}
