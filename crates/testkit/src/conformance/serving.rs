//! Reloads of a server's configuration, optional client certificates, and engines shared by threads.

use super::{Engines, Make, certificate, client_config, greet, server_config, trusted};
use crate::certificate::{Authority, KeyKind, Leaf, Usage, Validity};
use crate::pair::{Pair, Split};
use core::time::Duration;
use tautline_tls::{Certificate, ClientAuth, Engine, Error, ServerConfig, Session, Tickets, TlsInfo, Versions};

/// Completes a handshake and returns the client's `TlsInfo`. A message each way carries tickets that come late.
fn negotiate<E: Engine>(client: &E, server: &E) -> TlsInfo {
    let mut pair = Pair::new(client, server, "localhost").unwrap();
    pair.handshake(&mut Split::Whole).unwrap();
    greet(&mut pair);
    pair.client.session.tls_info()
}

fn config_with(certificate: Certificate) -> ServerConfig {
    ServerConfig::new([certificate])
}

/// A reload changes the certificates of later connections, in all clones, and keeps the ticket keys.
///
/// A reload with an invalid configuration changes nothing. One with another ticket setting replaces the ticket keys.
pub fn reloads<E: Engine>(make: impl Make<E>) {
    let fresh = || certificate(&["localhost"], KeyKind::P256);
    let server = make(Some(&config_with(fresh())), None).unwrap();
    let has_tickets = server.capabilities().resumes_tls13;
    let versions = if has_tickets { Versions::All } else { Versions::Tls12 };
    let config = client_config().with_versions(versions);
    let client = make(None, Some(&config)).unwrap();
    let stranger = make(None, Some(&config.without_resumption())).unwrap();
    let first = negotiate(&client, &server);
    assert!(!first.resumed);
    let clone = server.clone();
    clone.reload(&config_with(fresh())).unwrap();
    assert!(negotiate(&client, &server).resumed, "tickets outlive a reload");
    for server in [&server, &clone] {
        assert_ne!(negotiate(&stranger, server).peer_certificates, first.peer_certificates);
    }

    let expired = Leaf::new(&["localhost"]).with_validity(Validity::Expired);
    let mut unlinked = fresh();
    unlinked.chain.extend(Authority::new("Other").unwrap().certificate().as_bytes());
    for (bad, words) in [(super::issue(&expired), "expired on"), (unlinked, "chain")] {
        let refused = server.reload(&config_with(bad));
        assert!(matches!(&refused, Err(Error::Config(why)) if why.contains(words)), "{refused:?}");
    }
    assert!(negotiate(&client, &server).resumed, "a rejected reload changes nothing");
    // The issuer may be anywhere in the chain, because most clients sort it.
    let mut shuffled = fresh();
    shuffled.chain.extend(Authority::new("Other").unwrap().certificate().as_bytes());
    shuffled.chain.extend(trusted());
    server.reload(&config_with(shuffled)).unwrap();
    let mut linked = fresh();
    linked.chain.extend(trusted());
    // Another setting makes new ticket keys, which cannot open the old tickets.
    let tickets = Tickets::Own { rotate: Duration::from_secs(60) };
    server.reload(&config_with(linked).with_tickets(tickets)).unwrap();
    assert!(!negotiate(&client, &server).resumed);
}

/// If client certificates are optional, a certificate that a client shows is verified all the same.
pub fn optional_certificates_are_verified<E: Engine>(make: impl Make<E>) {
    let stranger = Authority::new("Somebody else").unwrap();
    let own = stranger.issue(&Leaf::new(&["client"]).with_usage(Usage::Client)).unwrap();
    for versions in [Versions::Tls13, Versions::Tls12] {
        let server = server_config().with_client_auth(ClientAuth::Optional(trusted())).with_versions(versions);
        let client = client_config().with_certificate(own.clone());
        let (failure, _) = Engines::new(&make, &server, &client).refused("localhost");
        assert!(matches!(&failure.error, Error::Certificate(_)), "{failure:?}");
    }
}

/// Several threads can use one engine at the same time, with handshakes, messages and reloads.
pub fn threads_share_an_engine<E: Engine>(make: impl Make<E>) {
    for (key, versions) in [(KeyKind::P256, Versions::All), (KeyKind::Rsa2048, Versions::Tls12)] {
        let config = config_with(certificate(&["localhost"], key));
        let engines = Engines::new(&make, &config, &client_config().with_versions(versions));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..40 {
                        negotiate(&engines.client, &engines.server);
                        engines.server.reload(&config).unwrap();
                    }
                });
            }
        });
    }
}
