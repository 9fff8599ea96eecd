use crate::certificate;
use crate::staple::Stapled;
use core::cell::RefCell;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{SignatureAlgorithm, SignatureScheme};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

thread_local! {
    /// The name in the ClientHello that this thread resolved last.
    ///
    /// An unbuffered connection does not tell it, so the resolver, which runs inside our own call into rustls, notes it.
    static ASKED: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

/// The host name of the ClientHello that was resolved on this thread since the last call.
pub(crate) fn take_asked_name() -> Option<Box<str>> {
    ASKED.with_borrow_mut(Option::take)
}

/// Chooses among a server's certificates: by name, then by what the client can verify.
#[derive(Debug)]
pub(crate) struct Resolver {
    keys: Vec<Stapled>,
    /// Exact names, and wildcards as `*.example.com`, each with its certificates, the preferred one first.
    names: HashMap<String, Vec<usize>>,
    /// For clients that name no host, or none of ours: the first certificate and those for just the same names.
    fallback: Vec<usize>,
    /// How long each key takes to sign.
    times: Vec<OnceLock<Duration>>,
}

/// Every scheme that a key could want to be measured with.
const ALL_SCHEMES: &[SignatureScheme] = &[
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED25519,
];

impl Resolver {
    pub(crate) fn new(keys: Vec<Stapled>) -> Self {
        let own_names: Vec<_> = keys.iter().map(|key| certificate::names(key.key())).collect();
        let mut by_preference: Vec<_> = (0..keys.len()).collect();
        by_preference.sort_by_key(|&index| rank(keys[index].key().key.algorithm()));
        let mut names: HashMap<String, Vec<usize>> = HashMap::new();
        for &index in &by_preference {
            for name in &own_names[index] {
                names.entry(name.clone()).or_default().push(index);
            }
        }
        let fallback =
            by_preference.into_iter().filter(|&index| index == 0 || own_names[index] == own_names[0]).collect();
        let times = keys.iter().map(|_| OnceLock::new()).collect();
        Self { keys, names, fallback, times }
    }

    /// How long the signature takes that [`resolve`](Self::resolve) would have made for this name and these schemes.
    pub(crate) fn signing_time(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Duration {
        self.choose(name, schemes).map_or(Duration::ZERO, |index| self.measured(index))
    }

    /// The same for the slowest key.
    pub(crate) fn longest_signing_time(&self) -> Duration {
        (0..self.keys.len()).map(|index| self.measured(index)).max().unwrap_or_default()
    }

    /// Measured when it is first asked for, which takes three signatures.
    fn measured(&self, index: usize) -> Duration {
        *self.times[index].get_or_init(|| {
            let key = &self.keys[index].key().key;
            let Some(signer) = key.choose_scheme(ALL_SCHEMES) else { return Duration::ZERO };
            let once = || {
                let start = Instant::now();
                // A failure is for the handshake to report.
                let _ = signer.sign(&[0; 64]);
                start.elapsed()
            };
            (0..3).map(|_| once()).min().unwrap_or_default()
        })
    }

    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<usize> {
        let candidates = self.candidates(name);
        let verifiable = |index: &&usize| self.keys[**index].key().key.choose_scheme(schemes).is_some();
        // Where nothing fits, any of them: rustls then refuses the client with a better reason than "no certificate".
        candidates.iter().find(verifiable).or_else(|| candidates.first()).copied()
    }

    fn candidates(&self, name: Option<&str>) -> &[usize] {
        let Some(name) = name else { return &self.fallback };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        // RFC 6125, section 6.4.3: a wildcard stands for one whole label, the leftmost.
        let wildcard = || name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        self.names
            .get(&name)
            .or_else(|| wildcard().and_then(|wildcard| self.names.get(&wildcard)))
            .unwrap_or(&self.fallback)
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        ASKED.set(hello.server_name().map(Box::from));
        let index = self.choose(hello.server_name(), hello.signature_schemes())?;
        Some(Arc::clone(self.keys[index].current()))
    }
}

/// ECDSA signs fastest, RSA slowest.
const fn rank(algorithm: SignatureAlgorithm) -> u8 {
    match algorithm {
        SignatureAlgorithm::ECDSA => 0,
        SignatureAlgorithm::ED25519 => 1,
        _ => 2,
    }
}
