//! A fast keyed hash for connections: a few multiplications by numbers that no peer knows.
//!
//! The standard library's default takes several hundred instructions for two socket addresses.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes hashers with the same random keys.
#[derive(Clone)]
pub(crate) struct FoldState {
    start: u64,
    factor: u64,
}

impl Default for FoldState {
    fn default() -> Self {
        let random = || RandomState::new().hash_one(0);
        // An odd factor loses no bit.
        Self { start: random(), factor: random() | 1 }
    }
}

impl BuildHasher for FoldState {
    type Hasher = FoldHasher;

    fn build_hasher(&self) -> FoldHasher {
        FoldHasher { state: self.start, factor: self.factor }
    }
}

pub(crate) struct FoldHasher {
    state: u64,
    factor: u64,
}

impl FoldHasher {
    fn fold(&mut self, word: u64) {
        let wide = u128::from(self.state ^ word) * u128::from(self.factor);
        let [low, high] = [wide & u128::from(u64::MAX), wide >> 64];
        self.state = u64::try_from(low ^ high).unwrap_or(0).wrapping_add(self.factor.rotate_left(23));
    }
}

impl Hasher for FoldHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|&word| self.fold(u64::from_le_bytes(word)));
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.fold(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.fold(word);
    }

    fn finish(&self) -> u64 {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn similar_inputs_have_distinct_hashes_and_keys_differ() {
        let keys = FoldState::default();
        let hash = |keys: &FoldState, number: u64| {
            let mut hasher = keys.build_hasher();
            hasher.write(&number.to_le_bytes());
            hasher.write(&[1, 2, 3]);
            hasher.finish()
        };
        let all: HashSet<_> = (0..10_000).map(|number| hash(&keys, number)).collect();
        assert_eq!(all.len(), 10_000);
        // The hash table uses the lowest and the highest bits.
        let low: HashSet<_> = all.iter().map(|hash| hash & 0xff).collect();
        let high: HashSet<_> = all.iter().map(|hash| hash >> 57).collect();
        assert!(low.len() > 250 && high.len() > 120, "{} {}", low.len(), high.len());
        assert_ne!(hash(&keys, 1), hash(&FoldState::default(), 1));
    }
}
