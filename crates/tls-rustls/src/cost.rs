use rustls::sign::SigningKey;
use rustls::{SignatureAlgorithm, SignatureScheme};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tautline_tls::KeyCost;

/// The times that keys take to sign.
///
/// Each kind of key is measured once, when keys are loaded. The time depends on the algorithm and on the length of the
/// key, and to measure each of a thousand RSA keys would take seconds.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    kinds: Vec<KeyCost>,
    /// The index in `kinds` of each key's kind.
    of: Vec<usize>,
}

/// The schemes to measure with, one for each kind of key.
const ALL_SCHEMES: &[SignatureScheme] = &[
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED25519,
];

impl Costs {
    pub(crate) fn measure<'k>(keys: impl Iterator<Item = &'k dyn SigningKey>) -> Self {
        let mut costs = Self::default();
        let mut known = HashMap::new();
        for key in keys {
            // The encoded public key has the same length for all keys of a kind.
            let len = key.public_key().map_or(0, |key| key.len());
            let kind = *known.entry((u8::from(key.algorithm()), len)).or_insert_with(|| {
                costs.kinds.push(measure(key));
                costs.kinds.len() - 1
            });
            costs.kinds[kind].certificates += 1;
            costs.of.push(kind);
        }
        costs
    }

    /// The time that the key at `index` takes.
    pub(crate) fn time(&self, index: usize) -> Duration {
        self.kinds[self.of[index]].time
    }

    /// The time that the slowest key takes.
    pub(crate) fn longest(&self) -> Duration {
        self.kinds.iter().map(|kind| kind.time).max().unwrap_or_default()
    }

    pub(crate) fn kinds(&self) -> &[KeyCost] {
        &self.kinds
    }
}

fn measure(key: &dyn SigningKey) -> KeyCost {
    let signer = key.choose_scheme(ALL_SCHEMES);
    let once = || {
        let start = Instant::now();
        // A key that cannot sign fails in the handshake, which reports it.
        let signature = signer.as_ref()?.sign(&[0; 64]).ok()?;
        Some((start.elapsed(), signature.len()))
    };
    let (time, len) = (0..3).filter_map(|_| once()).min().unwrap_or_default();
    let kind = match signer.map(|signer| signer.scheme()) {
        Some(SignatureScheme::ECDSA_NISTP256_SHA256) => "ECDSA-256".to_owned(),
        Some(SignatureScheme::ECDSA_NISTP384_SHA384) => "ECDSA-384".to_owned(),
        Some(SignatureScheme::ECDSA_NISTP521_SHA512) => "ECDSA-521".to_owned(),
        Some(SignatureScheme::ED25519) => "Ed25519".to_owned(),
        _ if key.algorithm() == SignatureAlgorithm::RSA => format!("RSA-{}", len * 8),
        _ => format!("{:?}", key.algorithm()),
    };
    KeyCost::new(kind, 0, time)
}
