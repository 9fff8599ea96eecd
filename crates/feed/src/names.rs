//! Symbols by the venue's names.

use crate::ids::SymbolId;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table of names. Only the application adds to it, so no peer chooses keys that collide.
pub(crate) type Names = HashMap<Box<str>, SymbolId, BuildHasherDefault<Mix>>;

/// Multiplies eight bytes at a time: names are short, and one is looked up for each message.
#[derive(Debug, Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let mixed = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            self.0 = mixed ^ (mixed >> 32);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Mix;
    use std::collections::HashSet;
    use std::hash::Hasher;

    #[test]
    fn names_that_differ_in_one_letter_have_different_hashes() {
        let mut hashes = HashSet::new();
        for first in b'A'..=b'Z' {
            for last in b'A'..=b'Z' {
                let mut mix = Mix::default();
                mix.write(&[first, b'B', b'C', b'D', b'U', b'S', b'D', b'T', last]);
                hashes.insert(mix.finish());
            }
        }
        assert_eq!(hashes.len(), 26 * 26);
    }
}
