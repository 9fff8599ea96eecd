//! The verifiers of certificates, of servers and of clients, and the program's own decision behind them.

use crate::anchors::Anchors;
use crate::certificate;
use crate::error::{Refused, describe};
use crate::platform;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, SignatureScheme};
use std::fmt;
use std::sync::Arc;
use tautline_tls::fields::Role;
use tautline_tls::{ClientAuth, Error, PeerCertificates, Roots, Verify};

impl Anchors {
    /// The anchors of a client's configuration. `None` if it verifies nothing.
    ///
    /// # Errors
    /// A certificate cannot be an authority's, or the platform has no store.
    pub fn of(roots: &Roots) -> Result<Option<Self>, Error> {
        match roots {
            Roots::Platform => platform::anchors().map(Some),
            Roots::Pem(pem) => certificate::anchors(pem, "trusted roots").map(Some),
            Roots::DangerNone => Ok(None),
            _ => Err(Error::unknown("trusted roots")),
        }
    }
}

/// Makes the verifier with which a client checks servers.
pub(crate) fn server_verifier(
    roots: &Roots,
    verify: Option<&Arc<dyn Verify>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let Some(anchors) = Anchors::of(roots)? else {
        return Ok(decided(Arc::new(DangerNone(Arc::clone(provider))), verify));
    };
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::clone(&anchors.store), Arc::clone(provider))
        .build()
        .map_err(|error| Error::Config(format!("trusted roots: {error}")))?;
    Ok(decided(Arc::new(Anchored { inner, anchors }), verify))
}

/// Puts the program's own decision, if there is one, behind a verifier.
fn decided(verifier: Arc<dyn ServerCertVerifier>, verify: Option<&Arc<dyn Verify>>) -> Arc<dyn ServerCertVerifier> {
    match verify {
        Some(verify) => Arc::new(Decided { inner: verifier, verify: Arc::clone(verify) }),
        None => verifier,
    }
}

/// Makes the verifier with which a server checks clients. `rule` is the name of a demand that some certificates have.
pub(crate) fn client_verifier(
    auth: &ClientAuth,
    rule: Option<&str>,
    verify: Option<&Arc<dyn Verify>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let (pem, required) = match auth {
        ClientAuth::None if verify.is_some() => {
            return Err(Error::Config(
                "a decision about clients' certificates needs a server that requests them".to_owned(),
            ));
        }
        ClientAuth::None => return Ok(WebPkiClientVerifier::no_client_auth()),
        ClientAuth::Required(pem) => (pem, true),
        ClientAuth::Optional(pem) => (pem, false),
        _ => return Err(Error::unknown("client certificates")),
    };
    if let Some(verify) = verify
        && pem.is_empty()
    {
        let inner: Arc<dyn ClientCertVerifier> =
            Arc::new(NoClientRoots { inner: DangerNone(Arc::clone(provider)), required });
        return Ok(Arc::new(Decided { verify: Arc::clone(verify), inner }));
    }
    let what = rule.map_or_else(
        || "roots for client certificates".to_owned(),
        |rule| format!("roots for client certificates ({rule})"),
    );
    let anchors = certificate::anchors(pem, &what)?;
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(&anchors.store), Arc::clone(provider));
    if !required {
        builder = builder.allow_unauthenticated();
    }
    let inner = builder.build().map_err(|error| Error::Config(format!("{what}: {error}")))?;
    let verifier: Arc<dyn ClientCertVerifier> = Arc::new(Anchored { inner, anchors });
    Ok(match verify {
        Some(verify) => Arc::new(Decided { inner: verifier, verify: Arc::clone(verify) }),
        None => verifier,
    })
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

/// The methods of a verifier that verify the handshake's signature, by `inner`.
macro_rules! signatures_by_inner {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.inner.verify_tls12_signature(message, cert, dss)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.inner.verify_tls13_signature(message, cert, dss)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.inner.supported_verify_schemes()
        }
    };
}

/// Knows no authority, so that a program decides alone, and is told so. The handshake's signature is verified.
#[derive(Debug)]
struct NoClientRoots {
    inner: DangerNone,
    required: bool,
}

impl ClientCertVerifier for NoClientRoots {
    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))
    }

    signatures_by_inner!();
}

/// A verifier of rustls' that also accepts a trusted certificate as a peer's own.
struct Anchored<V: ?Sized> {
    inner: Arc<V>,
    anchors: Anchors,
}

impl<V: ?Sized> fmt::Debug for Anchored<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Anchored")
    }
}

impl ServerCertVerifier for Anchored<WebPkiServerVerifier> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        let accepted = ServerCertVerified::assertion();
        self.anchors.judge(end_entity, (Role::Server, Some(server_name)), now, (verified, accepted))
    }

    signatures_by_inner!();
}

impl ClientCertVerifier for Anchored<dyn ClientCertVerifier> {
    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now);
        self.anchors.judge(end_entity, (Role::Client, None), now, (verified, ClientCertVerified::assertion()))
    }

    signatures_by_inner!();
}

/// A verifier of rustls', whose result the program's own decision replaces.
struct Decided<V: ?Sized> {
    verify: Arc<dyn Verify>,
    inner: Arc<V>,
}

impl<V: ?Sized> Decided<V> {
    /// Asks the program. `verified` is rustls' own result.
    fn decide<T>(
        &self,
        (first, rest): (&CertificateDer<'_>, &[CertificateDer<'_>]),
        host: Option<&str>,
        verified: Result<T, rustls::Error>,
        accepted: T,
    ) -> Result<T, rustls::Error> {
        let chain: Vec<&[u8]> = [first].into_iter().chain(rest).map(|one| one.as_ref()).collect();
        let rejected = verified.as_ref().err().map(describe);
        match self.verify.verify(&PeerCertificates::new(&chain, host, rejected.as_ref())) {
            Ok(()) => Ok(accepted),
            Err(why) => Err(verified.err().unwrap_or_else(|| {
                let refused = OtherError(Arc::new(Refused(why)));
                rustls::Error::InvalidCertificate(CertificateError::Other(refused))
            })),
        }
    }
}

impl<V: ?Sized> fmt::Debug for Decided<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decided")
    }
}

impl ServerCertVerifier for Decided<dyn ServerCertVerifier> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        let host = server_name.to_str();
        self.decide((end_entity, intermediates), Some(&host), verified, ServerCertVerified::assertion())
    }

    signatures_by_inner!();
}

impl ClientCertVerifier for Decided<dyn ClientCertVerifier> {
    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now);
        self.decide((end_entity, intermediates), None, verified, ClientCertVerified::assertion())
    }

    signatures_by_inner!();
}
