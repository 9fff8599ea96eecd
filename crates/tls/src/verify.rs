use crate::Error;

/// A program's own decision about the certificates of peers, after the engine's verification.
///
/// The decision replaces that of the engine. So a program can reject what the engine accepts, as with a revocation
/// list, or accept what it rejects, as with a pinned certificate.
///
/// A handshake calls it in the thread that drives the session, possibly in several threads at once. A resumed session
/// presents no certificates and is not verified again.
///
/// ```
/// # mod tautline { pub use tautline_tls::ClientConfig; pub mod layers { pub use tautline_tls as tls; } }
/// use std::sync::Arc;
/// use tautline::layers::tls::{PeerCertificates, Verify};
/// use tautline::ClientConfig;
///
/// /// Accepts one certificate and no other.
/// struct Pinned(Vec<u8>);
///
/// impl Verify for Pinned {
///     fn verify(&self, peer: &PeerCertificates<'_>) -> Result<(), String> {
///         if peer.chain.first() == Some(&&self.0[..]) { Ok(()) } else { Err("it is not the pinned one".into()) }
///     }
/// }
/// let config = ClientConfig::default().with_verify(Arc::new(Pinned(vec![0x30])));
/// assert!(config.verify.is_some());
/// ```
pub trait Verify: Send + Sync {
    /// Decides whether the handshake goes on.
    ///
    /// # Errors
    /// The reason why the certificates are rejected, in words for the log. If the engine rejects them too, its own
    /// reason is reported.
    fn verify(&self, peer: &PeerCertificates<'_>) -> Result<(), String>;
}

/// The certificates that a peer presents in a handshake.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PeerCertificates<'a> {
    /// The chain in DER, end entity first.
    pub chain: &'a [&'a [u8]],
    /// The name or address that a client connects to; `None` for a server, whose clients have no such name.
    pub host: Option<&'a str>,
    /// The reason why the engine rejects the chain; `None` if it accepts it.
    pub rejected: Option<&'a Error>,
}

impl<'a> PeerCertificates<'a> {
    /// The certificates of a peer, with the engine's own decision.
    #[must_use]
    pub const fn new(chain: &'a [&'a [u8]], host: Option<&'a str>, rejected: Option<&'a Error>) -> Self {
        Self { chain, host, rejected }
    }
}
