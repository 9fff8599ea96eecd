//! TLS configurations of the probe. They complete every handshake to see what the server sends, and verify afterwards.
//!
//! A handshake alone gives the server nothing but the client's offer and certificate. Requests may carry credentials. They
//! are sent only where [`Client::examine`] trusts the chain, or where the user turned verification off.

use super::certificates::{self, now};
use super::facts::{Chain, Tls, Trust};
use super::staple;
use crate::Unusable;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, TicketRequest, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConnection, DigitallySignedStruct, Error, HandshakeKind, NamedGroup, SignatureScheme,
    SupportedProtocolVersion,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tautline::layers::tls::pem;
use tautline::layers::tls_rustls::Anchors;
use tautline::{ClientConfig, Roots};

/// Trust and certificate of a client of the endpoint.
pub(crate) struct Client {
    pub(crate) provider: Arc<CryptoProvider>,
    name: ServerName<'static>,
    /// `None` if verification is turned off.
    anchors: Option<Anchors>,
    own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    key_log: bool,
}

/// The variable part of an offer.
#[derive(Clone)]
pub(crate) struct Offer {
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) versions: &'static [&'static SupportedProtocolVersion],
    pub(crate) alpn: &'static [&'static [u8]],
    pub(crate) sends_name: bool,
    pub(crate) sessions: Option<Arc<Sessions>>,
}

impl Client {
    pub(crate) fn new(host: &str, config: &ClientConfig) -> Result<Self, Unusable> {
        let unusable = |what: &str, error: &dyn std::fmt::Display| Unusable(format!("{what}: {error}"));
        let name = ServerName::try_from(host.to_owned()).map_err(|error| unusable("host name", &error))?;
        let anchors = match Anchors::of(&config.roots) {
            // A chain can be examined without a trust store, and plain endpoints need none.
            Err(error) if matches!(config.roots, Roots::Platform) => {
                log::warn!("{error}");
                Some(Anchors::default())
            }
            anchors => anchors.map_err(tautline::Error::from)?,
        };
        let own = config.certificate.as_ref().map(|own| {
            let what = "certificate of the client";
            let sections = pem::certificates(&own.chain, what).map_err(tautline::Error::from)?;
            let chain = sections.iter().map(|section| CertificateDer::from(section.der.to_vec())).collect();
            let key = pem::private_key(&own.key, what).map_err(tautline::Error::from)?;
            let key = PrivateKeyDer::from_pem_slice(&key.to_pem()).map_err(|error| unusable(what, &error))?;
            Ok::<_, Unusable>((chain, key))
        });
        let provider = Arc::new(aws_lc_rs::default_provider());
        Ok(Self { provider, name, anchors, own: own.transpose()?, key_log: config.key_log })
    }

    /// The usual offer: all versions, suites and groups, HTTP/1.1, no resumption.
    pub(crate) fn offer(&self) -> Offer {
        Offer {
            provider: Arc::clone(&self.provider),
            versions: rustls::ALL_VERSIONS,
            alpn: &[b"http/1.1"],
            sends_name: true,
            sessions: None,
        }
    }

    /// The configuration for an offer.
    ///
    /// Sessions are resumed only within one configuration: the TLS library compares verifiers.
    ///
    /// # Errors
    /// If the offer cannot be made, for example with a suite that no version has.
    pub(crate) fn prepare(&self, offer: &Offer) -> Result<Prepared, Error> {
        let seen = Arc::new(Seen { provider: Arc::clone(&offer.provider), shown: Mutex::default() });
        let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&offer.provider))
            .with_protocol_versions(offer.versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::<Seen>::clone(&seen));
        let mut config = match &self.own {
            Some((chain, key)) => builder.with_client_auth_cert(chain.clone(), key.clone_key())?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = offer.alpn.iter().map(|name| name.to_vec()).collect();
        config.enable_sni = offer.sends_name;
        config.resumption = match &offer.sessions {
            Some(sessions) => Resumption::store(Arc::<Sessions>::clone(sessions)),
            None => Resumption::disabled(),
        };
        // One for each resumption that is tried.
        config.send_ticket_request = Some(TicketRequest { new_session_count: 4, resumption_count: 1 });
        if self.key_log {
            config.key_log = Arc::new(rustls::KeyLogFile::new());
        }
        Ok(Prepared { config: Arc::new(config), name: self.name.clone(), seen })
    }

    /// Verifies what the server showed as a client does.
    pub(crate) fn examine(&self, seen: &Seen) -> Chain {
        let shown = seen.shown();
        let anchors = self.anchors.as_ref();
        let chain = certificates::examine(&shown.chain, &self.name, anchors, &self.provider, now());
        let roots = anchors.map(|anchors| &*anchors.store);
        let algorithms = self.provider.signature_verification_algorithms.all;
        Chain { ocsp: staple::read(&shown.ocsp, &shown.chain, roots, algorithms), ..chain }
    }

    /// Whether requests may be sent to a server that showed this chain.
    pub(crate) fn may_send(&self, chain: &Chain, seen: &Seen) -> bool {
        self.anchors.is_none() || (chain.trust == Trust::Trusted && seen.shown().bad_signature.is_none())
    }
}

/// A configuration for one offer, and what servers showed in its last handshake.
#[derive(Clone)]
pub(crate) struct Prepared {
    config: Arc<rustls::ClientConfig>,
    name: ServerName<'static>,
    pub(crate) seen: Arc<Seen>,
}

impl Prepared {
    pub(crate) fn connection(&self) -> Result<ClientConnection, Error> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone())
    }
}

/// The negotiated values of a connection.
pub(crate) fn negotiated(tls: &ClientConnection, seen: &Seen) -> Tls {
    let shown = seen.shown();
    let group = tls.negotiated_key_exchange_group().map(|group| group_name(group.name()));
    Tls {
        version: tls.protocol_version().and_then(|version| version.as_str()).unwrap_or("unknown").replace('_', "."),
        suite: tls.negotiated_cipher_suite().map_or_else(String::new, |suite| format!("{:?}", suite.suite())),
        group: group.unwrap_or_default(),
        alpn: tls.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned()),
        resumed: tls.handshake_kind() == Some(HandshakeKind::Resumed),
        bad_signature: shown.bad_signature,
    }
}

/// The name of a group that people know: RFC 8446 calls P-256 `secp256r1`.
pub fn group_name(group: NamedGroup) -> String {
    match group {
        NamedGroup::secp256r1 => "P-256".to_owned(),
        NamedGroup::secp384r1 => "P-384".to_owned(),
        NamedGroup::secp521r1 => "P-521".to_owned(),
        NamedGroup::secp256r1MLKEM768 => "SecP256r1MLKEM768".to_owned(),
        other => format!("{other:?}"),
    }
}

/// A verifier that keeps what the server shows, and accepts it. The caller verifies the chain before it sends anything.
#[derive(Debug)]
pub(crate) struct Seen {
    provider: Arc<CryptoProvider>,
    shown: Mutex<Shown>,
}

/// The server's part of a handshake that the probe keeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) ocsp: Vec<u8>,
    /// The reason, if the handshake's signature does not verify.
    pub(crate) bad_signature: Option<String>,
}

impl Seen {
    pub(crate) fn shown(&self) -> Shown {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signature(&self, verified: Result<HandshakeSignatureValid, Error>) -> HandshakeSignatureValid {
        verified.unwrap_or_else(|error| {
            self.lock().bad_signature = Some(error.to_string());
            HandshakeSignatureValid::assertion()
        })
    }
}

impl ServerCertVerifier for Seen {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let mut shown = self.lock();
        let chain = [end_entity].into_iter().chain(intermediates);
        shown.chain = chain.map(|one| one.clone().into_owned()).collect();
        shown.ocsp = ocsp_response.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        Ok(self.signature(verify_tls12_signature(message, cert, dss, algorithms)))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        Ok(self.signature(verify_tls13_signature(message, cert, dss, algorithms)))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Sessions to resume, and how many servers offered.
#[derive(Debug)]
pub(crate) struct Sessions {
    cache: ClientSessionMemoryCache,
    offered: AtomicUsize,
    presented: AtomicUsize,
}

impl Sessions {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            cache: ClientSessionMemoryCache::new(8),
            offered: AtomicUsize::new(0),
            presented: AtomicUsize::new(0),
        })
    }

    /// How many connections have presented a session.
    pub(crate) fn presented(&self) -> usize {
        self.presented.load(Ordering::Relaxed)
    }

    fn present<T>(&self, session: Option<T>) -> Option<T> {
        self.presented.fetch_add(usize::from(session.is_some()), Ordering::Relaxed);
        session
    }

    /// How many tickets, or sessions of TLS 1.2, servers have offered.
    pub(crate) fn offered(&self) -> usize {
        self.offered.load(Ordering::Relaxed)
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        self.cache.set_kx_hint(server_name, group);
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        self.cache.kx_hint(server_name)
    }

    fn set_tls12_session(&self, server_name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.offered.fetch_add(1, Ordering::Relaxed);
        self.cache.set_tls12_session(server_name, value);
    }

    fn tls12_session(&self, server_name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.present(self.cache.tls12_session(server_name))
    }

    fn remove_tls12_session(&self, server_name: &ServerName<'static>) {
        self.cache.remove_tls12_session(server_name);
    }

    fn insert_tls13_ticket(&self, server_name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.offered.fetch_add(1, Ordering::Relaxed);
        self.cache.insert_tls13_ticket(server_name, value);
    }

    fn take_tls13_ticket(&self, server_name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.present(self.cache.take_tls13_ticket(server_name))
    }
}
