//! Client certificates: missing, expired, of another authority, and a good one.

use crate::outcome::Result;
use crate::script::{Expect, Over, Script};
use crate::seen::Seen;
use crate::server::Server;
use crate::tls;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tautline::Certificate;

const GROUP: &str = "client certificates";

pub(super) fn scripts() -> Vec<Script> {
    let script = |name: &str, program: fn(&Server) -> Result<Seen>, alerts: &'static [u8]| {
        Script::program(GROUP, name, program, Expect::Alert(alerts)).over(Over::ClientCertificates)
    };
    // Alerts: 40 handshake_failure, 42 bad_certificate, 45 certificate_expired, 48 unknown_ca, 51 decrypt_error,
    // 116 certificate_required.
    vec![
        Script::program(
            GROUP,
            "a good certificate",
            |server| present(server, Some(&server.clients[0])),
            Expect::Word("open"),
        )
        .over(Over::ClientCertificates),
        script("none", |server| present(server, None), &[116, 40]),
        script("an expired one", |server| present(server, Some(&server.clients[1])), &[45]),
        script("one of another authority", |server| present(server, Some(&server.clients[2])), &[48]),
        script(
            "another's certificate with one's own key",
            |server| {
                let [good, _, other] = &server.clients;
                let mixed = Certificate::new(good.chain.clone(), other.key.to_vec());
                present(server, Some(&mixed))
            },
            &[51],
        ),
    ]
}

/// Presents a certificate.
fn present(server: &Server, certificate: Option<&Certificate>) -> Result<Seen> {
    let mut config = tls::client_config(server)?;
    if let Some(certificate) = certificate {
        let chain: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate.chain).collect();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let key = provider.key_provider.load_private_key(PrivateKeyDer::from_pem_slice(&certificate.key)?)?;
        // Not checked for a fit, so that a wrong pair can be shown.
        let own = rustls::sign::CertifiedKey::new(chain?, key);
        config.client_auth_cert_resolver = std::sync::Arc::new(rustls::sign::SingleCertAndKey::from(own));
    }
    match tls::converse(server, config) {
        Ok(_) => Ok(Seen { word: "open", ..Seen::default() }),
        Err(error) => match tls::alert(&*error) {
            Some(alert) => Ok(Seen { alert: Some(alert), end: Some(crate::seen::End::Finished), ..Seen::default() }),
            None => Err(error),
        },
    }
}
