//! A TLS 1.2 peer that seals whatever records a test asks for.
//!
//! rustls does the handshake. Afterwards the peer seals records with the keys that rustls exports (RFC 5246, section
//! 6.2, and RFC 5288).
#![expect(clippy::unwrap_used, reason = "runs inside tests, which fail by panicking")]

use crate::pair::End;
use crate::rustls_peer::{host, settle};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS12;
use rustls::{
    ClientConfig, ClientConnection, Connection, ConnectionTrafficSecrets, RootCertStore, ServerConfig, ServerConnection,
};
use std::sync::Arc;
use tautline_tls::{Certificate, Session};

/// A TLS 1.2 peer after the handshake.
pub struct RawPeerTls12 {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl RawPeerTls12 {
    /// Connects to the accepting session `server`. It must show an ECDSA certificate that `roots` (PEM) vouches for.
    ///
    /// # Panics
    /// If the handshake fails.
    pub fn client<S: Session>(server: &mut End<S>, roots: &str) -> Self {
        let mut store = RootCertStore::empty();
        store.add(CertificateDer::from_pem_slice(roots.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS12]).unwrap();
        let mut config = config.with_root_certificates(store).with_no_client_auth();
        config.enable_secret_extraction = true;
        Self::handshake(ClientConnection::new(Arc::new(config), host()).unwrap().into(), server)
    }

    /// Accepts the connecting session `client`, which must trust `certificate`.
    ///
    /// # Panics
    /// If the handshake fails.
    pub fn server<S: Session>(client: &mut End<S>, certificate: &Certificate) -> Self {
        let chain = CertificateDer::pem_slice_iter(&certificate.chain).collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(&certificate.key).unwrap();
        let config = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS12]).unwrap();
        let mut config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
        config.enable_secret_extraction = true;
        client.work().unwrap();
        Self::handshake(ServerConnection::new(Arc::new(config)).unwrap().into(), client)
    }

    fn handshake<S: Session>(mut own: Connection, peer: &mut End<S>) -> Self {
        settle(peer, &mut own, usize::MAX);
        assert!(peer.open && !own.is_handshaking(), "both ends are open");
        let (sequence, secrets) = own.dangerous_extract_secrets().unwrap().tx;
        let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else {
            unreachable!("no other suite was offered")
        };
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key.as_ref()).unwrap());
        Self { key, iv: iv.as_ref().try_into().unwrap(), sequence }
    }

    /// Seals a record of type `kind` with `content`.
    ///
    /// # Panics
    /// If the record is too long for its header.
    pub fn seal(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let sequence = self.sequence.to_be_bytes();
        self.sequence += 1;
        let mut nonce = self.iv;
        for (byte, sequence) in nonce[4..].iter_mut().zip(sequence) {
            *byte ^= sequence;
        }
        let len = |more: usize| u16::try_from(content.len() + more).unwrap().to_be_bytes();
        let aad = [&sequence[..], &[kind, 3, 3], &len(0)].concat();
        let mut sealed = content.to_vec();
        self.key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(aad), &mut sealed).unwrap();
        [&[kind, 3, 3][..], &len(8 + 16), &nonce[4..], &sealed].concat()
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites = vec![TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256];
    Arc::new(provider)
}
