//! The server, the name and the time that a ticket is valid for.

use super::{Engines, Make, certificate, client_config, server_config, trusted};
use crate::certificate::KeyKind;
use crate::pair::{End, Pair, Split};
use crate::raw_peer::{RawPeer, kind};
use crate::record_ranges;
use core::time::Duration;
use rustls::client::{ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, NamedGroup, RootCertStore};
use std::io::Write;
use std::sync::Arc;
use tautline_tls::{Engine, Session, Tickets, Versions};

/// A ticket of another server or for another name leads to a full handshake.
pub fn tickets_are_for_one_server<E: Engine>(make: impl Make<E>) {
    for versions in [Versions::Tls13, Versions::Tls12] {
        let engines = Engines::with_versions(&make, versions);
        super::greet(&mut engines.open("localhost"));
        let server = make(Some(&server_config().with_versions(versions)), None).unwrap();
        let mut pair = Pair::new(&engines.client, &server, "localhost").unwrap();
        pair.handshake(&mut Split::Whole).unwrap();
        super::greet(&mut pair);
        assert!(!pair.client.session.tls_info().resumed && !pair.server.session.tls_info().resumed);

        let names = certificate(&["localhost", "other.test", "127.0.0.1"], KeyKind::P256);
        let config = server_config().with_certificates([names]).with_versions(versions);
        let ends = Engines::new(&make, &config, &client_config().with_versions(versions));
        let can_resume = versions == Versions::Tls12 || has_tickets(&ends.server);
        let client = client_that_ignores_names(versions);
        for (name, resumes) in [
            ("localhost", false),
            ("localhost", can_resume),
            ("other.test", false),
            ("other.test", can_resume),
            // A client sends no SNI for an address.
            ("127.0.0.1", false),
            ("127.0.0.1", can_resume),
            ("localhost", false),
        ] {
            assert_eq!(connect_and_greet(&client, &ends.server, name), resumes, "{versions:?}, {name}");
        }
    }
}

/// The announced lifetime of a ticket is one to two rotation periods of the ticket keys.
pub fn tickets_tell_how_long_they_last<E: Engine>(make: impl Make<E>) {
    for (seconds, versions) in [(100, Versions::Tls13), (43_200, Versions::Tls13), (100, Versions::Tls12)] {
        let tickets = Tickets::Own { rotate: Duration::from_secs(seconds) };
        let server = server_config().with_versions(versions).with_tickets(tickets);
        let ends = Engines::new(&make, &server, &client_config().with_versions(versions));
        let messages = match versions {
            Versions::Tls12 => tickets_of_tls12(&ends),
            _ => tickets_of_tls13(&ends.server),
        };
        let has_tickets = versions == Versions::Tls12 || has_tickets(&ends.server);
        assert_eq!(messages.is_empty(), !has_tickets, "{versions:?}");
        for message in messages {
            let lifetime = u64::from(u32::from_be_bytes(message[4..8].try_into().unwrap()));
            // Libraries count whole seconds, and one may end between the key's first moment and the ticket's.
            assert!((seconds - 1..=2 * seconds).contains(&lifetime), "{lifetime} s of {seconds}, {versions:?}");
        }
    }
}

/// Whether the server issues TLS 1.3 tickets.
fn has_tickets<E: Engine>(server: &E) -> bool {
    server.capabilities().resumes_tls13
}

const NEW_SESSION_TICKET: u8 = 4;

/// The tickets that a TLS 1.3 server sends, as handshake messages.
fn tickets_of_tls13<E: Engine>(server: &E) -> Vec<Vec<u8>> {
    let mut server = End::new(server.accept().unwrap());
    let mut raw_peer = RawPeer::client(&mut server, &String::from_utf8(trusted()).unwrap(), None);
    server.send(&[b"tickets stand before this"]).unwrap();
    let said = raw_peer.open(&server.take_outbox());
    let handshake: Vec<u8> =
        said.into_iter().filter(|said| said.0 == kind::HANDSHAKE).flat_map(|said| said.1).collect();
    tickets_among(&handshake)
}

/// The tickets that a TLS 1.2 server sends: unprotected, before its Finished.
fn tickets_of_tls12<E: Engine>(ends: &Engines<E>) -> Vec<Vec<u8>> {
    let mut pair = ends.pair("localhost");
    pair.client.work().unwrap();
    let (mut wire, mut answer) = (pair.client.take_outbox(), Vec::new());
    for _ in 0..2 {
        pair.server.deliver(&wire).unwrap();
        answer = pair.server.take_outbox();
        pair.client.deliver(&answer).unwrap();
        wire = pair.client.take_outbox();
    }
    let records = record_ranges(&answer);
    let unprotected = records.into_iter().take_while(|record| answer[record.start] == kind::HANDSHAKE);
    tickets_among(&unprotected.flat_map(|record| answer[record.start + 5..record.end].to_vec()).collect::<Vec<_>>())
}

/// The tickets among handshake messages.
fn tickets_among(mut handshake: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let [kind, high, middle, low, ..] = *handshake {
        let len = 4 + u32::from_be_bytes([0, high, middle, low]) as usize;
        let (message, rest) = handshake.split_at(len);
        handshake = rest;
        found.extend((kind == NEW_SESSION_TICKET).then(|| message.to_vec()));
    }
    found
}

/// Completes a handshake with `server`, exchanges messages, and returns whether a session was resumed.
fn connect_and_greet<E: Engine>(client: &Arc<ClientConfig>, server: &E, name: &str) -> bool {
    let mut client = ClientConnection::new(Arc::clone(client), ServerName::try_from(name).unwrap().to_owned()).unwrap();
    let mut server = End::new(server.accept().unwrap());
    let mut spoke = false;
    loop {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        server.deliver(&wire).unwrap();
        if server.open && !spoke {
            spoke = true;
            // Some libraries send tickets only with their first data.
            server.send(&[b"tickets stand before this"]).unwrap();
            client.writer().write_all(b"hello").unwrap();
        }
        let answer = server.take_outbox();
        let mut answer = answer.as_slice();
        if answer.is_empty() && !client.wants_write() {
            break;
        }
        while !answer.is_empty() {
            client.read_tls(&mut answer).unwrap();
            client.process_new_packets().unwrap();
        }
    }
    assert_eq!(server.received, b"hello");
    server.session.tls_info().resumed
}

/// A client that presents its tickets to every server, for whatever name they were issued.
fn client_that_ignores_names(versions: Versions) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&trusted()).unwrap()).unwrap();
    let versions = if versions == Versions::Tls12 { &[&TLS12] } else { &[&TLS13] };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("any.test").unwrap();
    let store = OneName { sessions: ClientSessionMemoryCache::new(8), name };
    config.resumption = rustls::client::Resumption::store(Arc::new(store));
    Arc::new(config)
}

#[derive(Debug)]
struct OneName {
    sessions: ClientSessionMemoryCache,
    name: ServerName<'static>,
}

impl ClientSessionStore for OneName {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.sessions.set_kx_hint(self.name.clone(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.sessions.kx_hint(&self.name)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.sessions.set_tls12_session(self.name.clone(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.sessions.tls12_session(&self.name)
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.sessions.remove_tls12_session(&self.name);
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.sessions.insert_tls13_ticket(self.name.clone(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.sessions.take_tls13_ticket(&self.name)
    }
}
