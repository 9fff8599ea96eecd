//! The verifiers of certificates, of servers and of clients.

use crate::certificate;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::sync::Arc;
use tautline_tls::{ClientAuth, Error, Roots};

/// Makes the verifier with which a client checks servers.
pub(crate) fn server_verifier(
    roots: &Roots,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let store = match roots {
        Roots::Platform => platform()?,
        Roots::Pem(pem) => certificate::roots(pem, "trusted roots")?,
        Roots::DangerNone => return Ok(Arc::new(DangerNone(Arc::clone(provider)))),
        _ => return Err(Error::unknown("trusted roots")),
    };
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
        .build()
        .map_err(|error| Error::Config(format!("trusted roots: {error}")))?;
    Ok(verifier)
}

/// Makes the verifier with which a server checks clients.
pub(crate) fn client_verifier(
    auth: &ClientAuth,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let (pem, required) = match auth {
        ClientAuth::None => return Ok(WebPkiClientVerifier::no_client_auth()),
        ClientAuth::Required(pem) => (pem, true),
        ClientAuth::Optional(pem) => (pem, false),
        _ => return Err(Error::unknown("client certificates")),
    };
    let store = certificate::roots(pem, "roots for client certificates")?;
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider));
    if !required {
        builder = builder.allow_unauthenticated();
    }
    builder.build().map_err(|error| Error::Config(format!("roots for client certificates: {error}")))
}

fn platform() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    // Trust stores hold a few certificates that predate today's rules. They are skipped.
    let (_, rejected) = store.add_parsable_certificates(found.certs);
    if rejected > 0 {
        log::debug!("{rejected} certificates of the platform's trust store cannot be used");
    }
    if store.is_empty() {
        let reason = found.errors.first().map_or_else(|| "it is empty".to_owned(), ToString::to_string);
        return Err(Error::Config(format!(
            "no trusted authority in the platform's trust store ({reason}): install the system's CA certificates, set \
             SSL_CERT_FILE, or give the roots to trust"
        )));
    }
    Ok(store)
}

/// Accepts every certificate. The handshake's signature is still verified, so the peer holds the certificate's key.
#[derive(Debug)]
struct DangerNone(Arc<CryptoProvider>);

impl ServerCertVerifier for DangerNone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
