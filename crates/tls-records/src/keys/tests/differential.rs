//! All providers make and accept the same records, and a connection may change between them at any record.

use super::super::{Keys, OVERHEAD};
use super::keys_of;
use crate::Suite;
use crate::aead::provider::Provider;
use crate::chunks::Chunks;
use tautline_testkit::Random;

/// Both ends of one direction, with the AEADs of both chosen anew for each record.
struct Pair {
    suite: Suite,
    random: Random,
    /// Each provider seals all records by itself, for comparison.
    alone: Vec<Keys>,
    sender: Keys,
    receiver: Keys,
}

impl Pair {
    fn new(suite: Suite, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (key, iv, sequence) = (random.bytes(suite.key_len()), random.bytes(12), random.next() >> 2);
        let keys = || keys_of(&key, &iv, sequence);
        let alone = Provider::ALL.map(|_| keys()).into();
        Self { suite, alone, sender: keys(), receiver: keys(), random }
    }

    fn provider(&mut self) -> Provider {
        Provider::ALL[self.random.below(Provider::ALL.len())]
    }

    /// Seals one record in every way and opens it; then refuses a changed copy of it.
    fn exchange(&mut self, source: &[u8], memory: &mut [Vec<u8>; 3]) {
        // Few records are long, since a test has to be fast; their sizes lie around those of the classes, too.
        let at_most = match self.random.below(100) {
            0 => 16_385,
            1..=3 => 2_100,
            4..=20 => 300,
            _ => 100,
        };
        let len = self.random.below(at_most);
        let start = self.random.below(source.len() - len);
        let plain = &source[start..start + len];
        let kind = [21, 22, 23][self.random.below(3)];
        let [record, other, copy] = memory;
        let (record, other, copy) = (&mut record[..len + OVERHEAD], &mut other[..len + OVERHEAD], &mut copy[..]);

        let sealer = self.provider();
        if self.random.below(2) == 0 {
            self.sender.seal_by(sealer, self.suite, kind, Some(plain), record).unwrap();
        } else {
            // In place, with the content gathered from chunks.
            let cuts = [self.random.below(len + 1), self.random.below(len + 1)];
            let chunks = [&plain[..cuts[0].min(cuts[1])], &plain[cuts[0].min(cuts[1])..cuts[0].max(cuts[1])]];
            let chunks = [chunks[0], &[], chunks[1], &plain[cuts[0].max(cuts[1])..]];
            Chunks::new(&chunks).gather(&mut record[5..5 + len]);
            self.sender.seal_by(sealer, self.suite, kind, None, record).unwrap();
        }
        for (provider, keys) in Provider::ALL.into_iter().zip(&mut self.alone) {
            keys.seal_by(provider, self.suite, kind, Some(plain), other).unwrap();
            assert!(record == other, "{sealer} and {provider} seal {len} bytes differently, {:?}", self.suite);
        }
        assert_eq!(record[..3], [23, 3, 3]);
        assert_eq!(usize::from(record[3]) << 8 | usize::from(record[4]), len + 17);

        // A changed record is refused by all, and no plaintext is left. So is one whose header lies about its length.
        if self.random.below(8) == 0 {
            let sequence = self.receiver.sequence;
            let (at, bit) = (self.random.below(len + 17), 1 << self.random.below(8));
            for provider in Provider::ALL {
                let changed = &mut copy[..len + 17];
                changed.copy_from_slice(&record[5..]);
                changed[at] ^= bit;
                assert_eq!(self.receiver.open_by(provider, self.suite, changed), Ok(None), "{provider}");
                // Short contents can be equal by chance.
                assert!(len < 16 || !changed.windows(16).any(|window| window == &plain[..16]), "{provider}: plaintext");
                self.receiver.sequence = sequence;
                let shorter = &mut copy[..len + 16];
                shorter.copy_from_slice(&record[5..len + 21]);
                assert_eq!(self.receiver.open_by(provider, self.suite, shorter), Ok(None), "{provider}");
                self.receiver.sequence = sequence;
            }
        }
        // Each provider opens the record, in a random order; the connection goes on with the last one.
        let first = self.random.below(Provider::ALL.len());
        for (turn, memory) in (first..first + Provider::ALL.len()).zip([record, other]) {
            let opener = Provider::ALL[turn % Provider::ALL.len()];
            let sequence = if turn == first { self.receiver.sequence } else { self.receiver.sequence - 1 };
            self.receiver.sequence = sequence;
            let opened = self.receiver.open_by(opener, self.suite, &mut memory[5..]).unwrap();
            assert_eq!(opened, Some(len + 1), "{opener} refuses a record of {len} bytes by {sealer}");
            assert!(memory[5..5 + len] == *plain && memory[5 + len] == kind);
        }
    }
}

/// Half a million records over the three suites.
const RECORDS: u64 = 500_000_u64.div_ceil(3);

/// Exchanges records over a suite, in connections of a hundred.
fn exchange(suite: Suite) {
    let source = Random::new(9).bytes(40_000);
    let mut memory = [(); 3].map(|()| vec![0xa5; 16_385 + OVERHEAD]);
    for seed in 0..RECORDS.div_ceil(100) {
        let mut pair = Pair::new(suite, seed * 3 + suite as u64);
        for _ in 0..100 {
            pair.exchange(&source, &mut memory);
        }
    }
}

// One test for each suite, so that they run at once.

#[test]
fn providers_agree_on_records_of_aes_128_gcm() {
    exchange(Suite::Aes128Gcm);
}

#[test]
fn providers_agree_on_records_of_aes_256_gcm() {
    exchange(Suite::Aes256Gcm);
}

#[test]
fn providers_agree_on_records_of_chacha20_poly1305() {
    exchange(Suite::Chacha20Poly1305);
}
