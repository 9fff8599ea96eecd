//! Whom a ticket is for.

use super::{Engines, Make, certificate, client_config, server_config, trusted};
use crate::certificate::KeyKind;
use crate::pair::{End, Pair, Split};
use rustls::client::{ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, NamedGroup, RootCertStore};
use std::io::Write;
use std::sync::Arc;
use tautline_tls::{Engine, ServerConfig, Session, Versions};

/// A ticket that another server made, or that is for another name, leads to a full handshake.
pub fn tickets_are_for_one_server<E: Engine>(make: impl Make<E>) {
    for versions in [Versions::Tls13, Versions::Tls12] {
        let engines = Engines::with_versions(&make, versions);
        super::greet(&mut engines.open("localhost"));
        let server = make(Some(&ServerConfig { versions, ..server_config() }), None).unwrap();
        let mut pair = Pair::new(&engines.client, &server, "localhost").unwrap();
        pair.handshake(&mut Split::Whole).unwrap();
        super::greet(&mut pair);
        assert!(!pair.client.session.facts().resumed && !pair.server.session.facts().resumed);

        let names = certificate(&["localhost", "other.test", "127.0.0.1"], KeyKind::P256);
        let config = ServerConfig { certificates: vec![names], versions, ..server_config() };
        let ends = Engines::new(&make, &config, &super::ClientConfig { versions, ..client_config() });
        let can_resume = ends.resume_tls13() || versions == Versions::Tls12;
        let client = one_for_all_names(versions);
        for (name, resumes) in [
            ("localhost", false),
            ("localhost", can_resume),
            ("other.test", false),
            ("other.test", can_resume),
            // An address is asked for without a name.
            ("127.0.0.1", false),
            ("127.0.0.1", can_resume),
            ("localhost", false),
        ] {
            assert_eq!(visit(&client, &ends.server, name), resumes, "{versions:?}, {name}");
        }
    }
}

/// Shakes hands with `server`, has a little said, and tells whether a session was resumed.
fn visit<E: Engine>(client: &Arc<ClientConfig>, server: &E, name: &str) -> bool {
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
            // Some libraries send tickets no sooner than their first data.
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
    server.session.facts().resumed
}

/// A client that shows every server the ticket that it got last, whichever name it was for.
fn one_for_all_names(versions: Versions) -> Arc<ClientConfig> {
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
