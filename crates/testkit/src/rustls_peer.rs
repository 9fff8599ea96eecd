//! The rustls library as the peer of a session, with one cipher suite of TLS 1.3.
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

/// A certificate for `localhost` and the authority that issued it, which clients trust.
pub struct Fixture {
    /// The authority's certificate in PEM.
    pub roots: String,
    /// The certificate and key of the server, which is an engine's or rustls'.
    pub certificate: Certificate,
}

impl Default for Fixture {
    fn default() -> Self {
        let authority = Authority::new("Test").unwrap();
        let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
        Self { roots: authority.certificate().into(), certificate }
    }
}

impl Fixture {
    /// A server configuration for an engine.
    #[must_use]
    pub fn server(&self, versions: Versions) -> ServerConfig {
        ServerConfig::new([self.certificate.clone()]).with_versions(versions)
    }

    /// A client configuration for an engine.
    #[must_use]
    pub fn client(&self, versions: Versions) -> ClientConfig {
        ClientConfig::default().with_roots(Roots::Pem(self.roots.clone().into())).with_versions(versions)
    }

    /// A client configuration for rustls.
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

    /// A server configuration for rustls.
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

    /// Makes a rustls connection for this side.
    #[must_use]
    pub fn rustls(&self, side: Side, suite: CipherSuite) -> Connection {
        match side {
            Side::Client => rustls::ClientConnection::new(Arc::new(self.rustls_client(suite)), host()).unwrap().into(),
            Side::Server => rustls::ServerConnection::new(Arc::new(self.rustls_server(suite))).unwrap().into(),
        }
    }
}

/// The name in the fixture's certificate.
#[must_use]
pub fn host() -> ServerName<'static> {
    ServerName::try_from("localhost").unwrap()
}

fn provider(suite: CipherSuite) -> Arc<rustls::crypto::CryptoProvider> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|known| known.suite() == suite);
    Arc::new(provider)
}

/// Exchanges bytes until neither side has any left. `end` gets its bytes in pieces of at most `cut`.
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

/// Sends `question` to `end` and `answer` to `peer`, and checks that both arrive.
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
