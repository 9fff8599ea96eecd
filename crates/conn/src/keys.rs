//! The generator of mask keys and nonces.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Generator of mask keys and nonces: ChaCha12, seeded by the system.
///
/// A mask key that the application can predict defeats masking (RFC 6455, section 10.3).
pub struct Keys(ChaCha12Rng);

impl Keys {
    /// The generator that begins with this seed.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha12Rng::from_seed(seed))
    }

    /// The next mask key.
    #[inline]
    pub fn mask(&mut self) -> [u8; 4] {
        self.0.next_u32().to_ne_bytes()
    }

    /// The nonce of a client's opening handshake.
    pub fn nonce(&mut self) -> [u8; 16] {
        let mut nonce = [0; 16];
        self.0.fill_bytes(&mut nonce);
        nonce
    }

    /// A random number from 0 to `bound`, both included, for jitter.
    pub fn up_to(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % (bound + 1)
    }
}

impl std::fmt::Debug for Keys {
    /// Without the state, from which the next keys follow.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}
