use crate::certificate;
use crate::cost::Costs;
use crate::staple::Stapled;
use core::cell::RefCell;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{SignatureAlgorithm, SignatureScheme};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tautline_tls::Error;

thread_local! {
    /// The name in the last ClientHello that this thread resolved.
    ///
    /// An unbuffered connection does not report it. The resolver runs inside our own call into rustls and notes it here.
    static SNI: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

/// Takes the host name in the last ClientHello that this thread resolved since the previous call.
pub(crate) fn take_sni() -> Option<Box<str>> {
    SNI.with_borrow_mut(Option::take)
}

/// Forgets the host name of a ClientHello that is refused.
pub(crate) fn forget_sni() {
    SNI.set(None);
}

/// Chooses among a server's certificates: by name, then by what the client can verify.
#[derive(Debug)]
pub(crate) struct Resolver {
    keys: Vec<Stapled>,
    /// Exact names, and wildcards as `*.example.com`, each with the indices of its certificates, the preferred one first.
    names: HashMap<String, Vec<usize>>,
    /// The first certificate and those for the same names. They serve clients that send no name, or an unknown one.
    fallback: Vec<usize>,
    /// For each certificate the index of the demand on its clients. Empty if there is one for all, so that no name is looked up.
    demands: Vec<usize>,
    costs: Costs,
}

impl Resolver {
    /// Takes certificates, each with the index of the demand on its clients.
    ///
    /// # Errors
    /// [`Error::Config`] if certificates for one name have different demands: the kinds of key that a client knows would choose.
    pub(crate) fn new(keys: Vec<Stapled>, demands: Vec<usize>) -> Result<Self, Error> {
        let own_names: Vec<_> = keys.iter().map(|key| certificate::names(key.key())).collect();
        let mut by_preference: Vec<_> = (0..keys.len()).collect();
        by_preference.sort_by_key(|&index| rank(keys[index].key().key.algorithm()));
        let mut names: HashMap<String, Vec<usize>> = HashMap::new();
        for &index in &by_preference {
            for name in &own_names[index] {
                names.entry(name.clone()).or_default().push(index);
            }
        }
        let fallback: Vec<_> =
            by_preference.into_iter().filter(|&index| index == 0 || own_names[index] == own_names[0]).collect();
        let differ = |group: &[usize]| group.iter().any(|&index| demands[index] != demands[group[0]]);
        let mut mixed: Vec<_> =
            names.iter().filter(|(_, group)| differ(group)).map(|(name, _)| name.as_str()).collect();
        mixed.sort_unstable();
        if differ(&fallback) || !mixed.is_empty() {
            let name = mixed.first().copied().unwrap_or("clients without a name in TLS");
            return Err(Error::Config(format!(
                "the certificates for {name} have different rules about clients: give all of them the same rule"
            )));
        }
        let costs = Costs::measure(keys.iter().map(|key| &*key.key().key));
        let is_one = demands.iter().all(|&demand| demand == 0);
        let demands = if is_one { Vec::new() } else { demands };
        Ok(Self { keys, names, fallback, demands, costs })
    }

    /// The index of the demand on clients that ask for this name.
    pub(crate) fn demand(&self, name: Option<&str>) -> usize {
        if self.demands.is_empty() {
            return 0;
        }
        let first = self.candidates(name).first();
        first.and_then(|&index| self.demands.get(index)).copied().unwrap_or_default()
    }

    /// The time of the signature if [`resolve`](Self::resolve) were called with this name and these schemes.
    pub(crate) fn signing_time(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Duration {
        self.choose(name, schemes).map_or(Duration::ZERO, |index| self.costs.time(index))
    }

    /// The chains of the certificates.
    pub(crate) fn chains(&self) -> impl ExactSizeIterator<Item = &[CertificateDer<'static>]> {
        self.keys.iter().map(|key| key.key().cert.as_slice())
    }

    /// The times that signatures take, by key.
    pub(crate) const fn costs(&self) -> &Costs {
        &self.costs
    }

    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<usize> {
        let candidates = self.candidates(name);
        let verifiable = |index: &&usize| self.keys[**index].key().key.choose_scheme(schemes).is_some();
        // If none fits, any of them will do: rustls then gives a better reason than "no certificate".
        candidates.iter().find(verifiable).or_else(|| candidates.first()).copied()
    }

    fn candidates(&self, name: Option<&str>) -> &[usize] {
        let Some(name) = name else { return &self.fallback };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        // RFC 6125, section 6.4.3: a wildcard stands for exactly one label, the leftmost.
        let wildcard = || name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        self.names
            .get(&name)
            .or_else(|| wildcard().and_then(|wildcard| self.names.get(&wildcard)))
            .unwrap_or(&self.fallback)
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        SNI.set(hello.server_name().map(Box::from));
        let index = self.choose(hello.server_name(), hello.signature_schemes())?;
        Some(Arc::clone(self.keys[index].current()))
    }
}

/// The order of preference: ECDSA signs fastest, RSA slowest.
const fn rank(algorithm: SignatureAlgorithm) -> u8 {
    match algorithm {
        SignatureAlgorithm::ECDSA => 0,
        SignatureAlgorithm::ED25519 => 1,
        _ => 2,
    }
}
