//! Keys that sign tokens. A key has one algorithm, whatever a token says of itself.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};

/// Least bytes of a shared secret (RFC 7518, section 3.2).
const LEAST_SECRET: usize = 32;
/// Most keys. A token without a name of its key is tried with all of its algorithm.
const MOST: usize = 16;
/// Bytes of an uncompressed point on P-256.
const P256: usize = 65;

/// A key, and the one algorithm for which it is used.
#[derive(Clone)]
pub(crate) struct Key {
    /// The name by which a token may choose it. It is compared, and nothing else.
    pub(super) id: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// The keys whose tokens a hub accepts.
#[derive(Clone, Default)]
pub(crate) struct Keys(Vec<Key>);

impl Keys {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys that may have signed a token which names this key.
    pub(super) fn named(&self, id: Option<&str>) -> impl Iterator<Item = &Key> {
        self.0.iter().filter(move |key| key.id.is_none() || id.is_none() || key.id.as_deref() == id)
    }

    fn add(&mut self, key: Key) -> Result<(), String> {
        if self.0.len() >= MOST {
            return Err(format!("more than {MOST} keys; leave old ones out"));
        }
        self.0.push(key);
        Ok(())
    }

    /// Adds a secret for HS256. White space around it is left out.
    pub(crate) fn add_secret(&mut self, secret: &[u8]) -> Result<(), String> {
        let secret = secret.trim_ascii();
        if secret.starts_with(b"-----BEGIN") {
            return Err("is a PEM file, and no secret: name it in `public-keys`".to_owned());
        }
        if secret.len() < LEAST_SECRET {
            return Err(format!("has fewer than {LEAST_SECRET} bytes; make one by `openssl rand -hex 32`"));
        }
        let key = DecodingKey::from_secret(secret).map_err(|error| error.to_string())?;
        self.add(Key { id: None, algorithm: Algorithm::HS256, key })
    }

    /// Adds a public key in PEM: of RSA for RS256, of P-256 for ES256, or of Ed25519 for EdDSA.
    pub(crate) fn add_pem(&mut self, pem: &[u8]) -> Result<(), String> {
        if pem.windows(11).any(|part| part == b"PRIVATE KEY") {
            return Err("has a private key: give the hub the public one, by `openssl pkey -pubout`".to_owned());
        }
        let ec = || DecodingKey::from_ec_pem(pem).ok().filter(is_p256).map(|key| (Algorithm::ES256, key));
        let ed = || DecodingKey::from_ed_pem(pem).ok().map(|key| (Algorithm::EdDSA, key));
        let rsa = || DecodingKey::from_rsa_pem(pem).ok().map(|key| (Algorithm::RS256, key));
        let found = ec().or_else(ed).or_else(rsa);
        let (algorithm, key) = found.ok_or("has no public key in PEM of RSA, P-256 or Ed25519")?;
        self.add(Key { id: None, algorithm, key })
    }

    /// Adds the keys of a JWKS file (RFC 7517). Keys for encryption and of other kinds are left out.
    pub(crate) fn add_jwks(&mut self, json: &[u8]) -> Result<(), String> {
        let has_private = serde_json::from_slice::<serde_json::Value>(json).is_ok_and(|set| {
            let keys = set.get("keys").and_then(serde_json::Value::as_array);
            keys.is_some_and(|keys| keys.iter().any(|key| key.get("d").is_some()))
        });
        if has_private {
            return Err("has a private key (`d`): give the hub the public ones".to_owned());
        }
        let set: JwkSet = serde_json::from_slice(json).map_err(|error| format!("is no JWKS file: {error}"))?;
        let before = self.0.len();
        for jwk in &set.keys {
            let is_for_signing = jwk.common.public_key_use.as_ref().is_none_or(|to| *to == PublicKeyUse::Signature);
            let Some(algorithm) = algorithm(jwk).filter(|_| is_for_signing) else { continue };
            let key = DecodingKey::from_jwk(jwk).map_err(|error| format!("has a key that cannot be used: {error}"))?;
            if algorithm == Algorithm::HS256 && key.try_get_as_bytes().is_ok_and(|bytes| bytes.len() < LEAST_SECRET) {
                return Err(format!("has a secret of fewer than {LEAST_SECRET} bytes"));
            }
            self.add(Key { id: jwk.common.key_id.clone(), algorithm, key })?;
        }
        if self.0.len() == before {
            return Err("has no key for RS256, ES256, EdDSA or HS256".to_owned());
        }
        Ok(())
    }
}

/// The algorithm of a key by its kind. `None` if the key names another one, or if its kind has none that is accepted.
fn algorithm(jwk: &Jwk) -> Option<Algorithm> {
    let (own, named) = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
        }
        AlgorithmParameters::OctetKey(_) => (Algorithm::HS256, KeyAlgorithm::HS256),
        _ => return None,
    };
    jwk.common.key_algorithm.as_ref().is_none_or(|other| *other == named).then_some(own)
}

fn is_p256(key: &DecodingKey) -> bool {
    key.try_get_as_bytes().is_ok_and(|point| point.len() == P256)
}
