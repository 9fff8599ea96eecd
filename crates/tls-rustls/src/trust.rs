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
    let trust = |anchors: Anchors| {
        let built =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&anchors.store), Arc::clone(provider)).build();
        Ok::<_, Error>((built.map_err(|error| Error::Config(format!("trusted roots: {error}")))?, anchors))
    };
    Ok(Arc::new(Verifier::<WebPkiServerVerifier> {
        trust: Anchors::of(roots)?.map(trust).transpose()?,
        verify: verify.cloned(),
        provider: Arc::clone(provider),
        required: true,
    }))
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
    let trust = || {
        let what = rule.map_or_else(
            || "roots for client certificates".to_owned(),
            |rule| format!("roots for client certificates ({rule})"),
        );
        let anchors = certificate::anchors(pem, &what)?;
        let built =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&anchors.store), Arc::clone(provider)).build();
        Ok::<_, Error>((built.map_err(|error| Error::Config(format!("{what}: {error}")))?, anchors))
    };
    // Without an authority the program decides alone.
    let decides_alone = pem.is_empty() && verify.is_some();
    Ok(Arc::new(Verifier::<dyn ClientCertVerifier> {
        trust: (!decides_alone).then(trust).transpose()?,
        verify: verify.cloned(),
        provider: Arc::clone(provider),
        required,
    }))
}

/// Verifies certificates of one role by rustls. It also accepts a trusted certificate as a peer's own, and the program's
/// decision, if there is one, replaces the result.
struct Verifier<V: ?Sized> {
    /// rustls' own verifier with what it trusts. Without it every server is accepted, and no client's issuer is known.
    trust: Option<(Arc<V>, Anchors)>,
    verify: Option<Arc<dyn Verify>>,
    provider: Arc<CryptoProvider>,
    /// Whether the peer must show a certificate.
    required: bool,
}

impl<V: ?Sized> Verifier<V> {
    /// Asks the program, if it decides. `verified` is rustls' own result.
    fn decide<T>(
        &self,
        (first, rest): (&CertificateDer<'_>, &[CertificateDer<'_>]),
        host: Option<&str>,
        verified: Result<T, rustls::Error>,
        accepted: T,
    ) -> Result<T, rustls::Error> {
        let Some(verify) = &self.verify else { return verified };
        let chain: Vec<&[u8]> = [first].into_iter().chain(rest).map(|one| one.as_ref()).collect();
        let rejected = verified.as_ref().err().map(describe);
        match verify.verify(&PeerCertificates::new(&chain, host, rejected.as_ref())) {
            Ok(()) => Ok(accepted),
            Err(why) => Err(verified.err().unwrap_or_else(|| {
                let refused = OtherError(Arc::new(Refused(why)));
                rustls::Error::InvalidCertificate(CertificateError::Other(refused))
            })),
        }
    }
}

impl<V: ?Sized> fmt::Debug for Verifier<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

/// The methods that verify the handshake's signature, so that the peer holds the certificate's key. None is left out.
macro_rules! signatures_by_provider {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    };
}

impl ServerCertVerifier for Verifier<WebPkiServerVerifier> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let accepted = ServerCertVerified::assertion;
        let verified = self.trust.as_ref().map_or_else(
            || Ok(accepted()),
            |(inner, anchors)| {
                let verified = inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
                anchors.judge(end_entity, (Role::Server, Some(server_name)), now, (verified, accepted()))
            },
        );
        self.decide((end_entity, intermediates), Some(&server_name.to_str()), verified, accepted())
    }

    signatures_by_provider!();
}

impl ClientCertVerifier for Verifier<dyn ClientCertVerifier> {
    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.trust.as_ref().map_or(&[], |(inner, _)| inner.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let accepted = ClientCertVerified::assertion;
        let verified = self.trust.as_ref().map_or_else(
            || Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)),
            |(inner, anchors)| {
                let verified = inner.verify_client_cert(end_entity, intermediates, now);
                anchors.judge(end_entity, (Role::Client, None), now, (verified, accepted()))
            },
        );
        self.decide((end_entity, intermediates), None, verified, accepted())
    }

    signatures_by_provider!();
}
