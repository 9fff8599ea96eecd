//! rustls itself at the other end of a session, with one cipher suite of TLS 1.3.
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "runs inside tests, which fail by panicking")]

use crate::certificate::{Authority, Leaf};
use crate::pair::{End, Side};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CipherSuite, Connection};
use std::io::{Read, Write};
use std::sync::Arc;
use tautline_tls::{Certificate, ClientConfig, Roots, ServerConfig, Session, Versions};

/// The cipher suites of TLS 1.3.
pub const SUITES: [CipherSuite; 3] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
];

/// A certificate for `localhost`, and the authority that both ends trust.
pub struct Fixture {
    /// In PEM.
    pub roots: String,
    /// The server's, whoever it is.
    pub certificate: Certificate,
}

impl Default for Fixture {
    fn default() -> Self {
        let authority = Authority::new("Test").unwrap();
        let certificate = authority.issue(&Leaf { names: &["localhost"], ..Leaf::default() }).unwrap();
        Self { roots: authority.certificate().into(), certificate }
    }
}

impl Fixture {
    /// Configures an engine's servers.
    #[must_use]
    pub fn server(&self, versions: Versions) -> ServerConfig {
        ServerConfig { certificates: vec![self.certificate.clone()], versions, ..ServerConfig::default() }
    }

    /// Configures an engine's clients.
    #[must_use]
    pub fn client(&self, versions: Versions) -> ClientConfig {
        ClientConfig { roots: Roots::Pem(self.roots.clone().into()), versions, ..ClientConfig::default() }
    }

    /// Configures rustls' clients.
    #[must_use]
    pub fn rustls_client(&self, suite: CipherSuite) -> rustls::ClientConfig {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.roots.as_bytes()).unwrap()).unwrap();
        rustls::ClientConfig::builder_with_provider(provider(suite))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }

    /// Configures rustls' servers.
    #[must_use]
    pub fn rustls_server(&self, suite: CipherSuite) -> rustls::ServerConfig {
        let chain = CertificateDer::pem_slice_iter(&self.certificate.chain).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(&self.certificate.key).unwrap();
        rustls::ServerConfig::builder_with_provider(provider(suite))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap()
    }

    /// rustls as this end of a connection.
    #[must_use]
    pub fn rustls(&self, side: Side, suite: CipherSuite) -> Connection {
        match side {
            Side::Client => rustls::ClientConnection::new(Arc::new(self.rustls_client(suite)), host()).unwrap().into(),
            Side::Server => rustls::ServerConnection::new(Arc::new(self.rustls_server(suite))).unwrap().into(),
        }
    }
}

/// The name in the certificate.
#[must_use]
pub fn host() -> ServerName<'static> {
    ServerName::try_from("localhost").unwrap()
}

fn provider(suite: CipherSuite) -> Arc<rustls::crypto::CryptoProvider> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|known| known.suite() == suite);
    Arc::new(provider)
}

/// Carries bytes both ways until none are left; `cut` bytes at a time to our end.
pub fn settle<S: Session>(end: &mut End<S>, peer: &mut Connection, cut: usize) {
    loop {
        let mut wire = Vec::new();
        while peer.wants_write() {
            peer.write_tls(&mut wire).unwrap();
        }
        let ours = end.take_outbox();
        if wire.is_empty() && ours.is_empty() {
            return;
        }
        for piece in wire.chunks(cut) {
            end.deliver(piece).unwrap();
        }
        let mut ours = &ours[..];
        while !ours.is_empty() {
            peer.read_tls(&mut ours).unwrap();
            peer.process_new_packets().unwrap();
        }
    }
}

/// Says something both ways, and checks that it arrives.
pub fn converse<S: Session>(end: &mut End<S>, peer: &mut Connection, question: &[u8], answer: &[&[u8]], cut: usize) {
    end.received.clear();
    peer.writer().write_all(question).unwrap();
    end.send(answer).unwrap();
    settle(end, peer, cut);
    assert!(end.received == question);
    let answer = answer.concat();
    let mut heard = vec![0; answer.len()];
    peer.reader().read_exact(&mut heard).unwrap();
    assert!(heard == answer);
}
