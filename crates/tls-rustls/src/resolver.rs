use crate::certificate;
use crate::cost::Costs;
use crate::staple::Stapled;
use core::cell::RefCell;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{SignatureAlgorithm, SignatureScheme};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

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
    costs: Costs,
}

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
        let costs = Costs::measure(keys.iter().map(|key| &*key.key().key));
        Self { keys, names, fallback, costs }
    }

    /// How long the signature takes that [`resolve`](Self::resolve) would have made for this name and these schemes.
    pub(crate) fn signing_time(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Duration {
        self.choose(name, schemes).map_or(Duration::ZERO, |index| self.costs.time(index))
    }

    /// How long the signatures of all keys take.
    pub(crate) const fn costs(&self) -> &Costs {
        &self.costs
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
