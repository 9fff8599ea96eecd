use super::{CONTEXTS, Claim, REUSE_WITHIN, SLOTS};
use crate::aead::context::Context;
use crate::aead::provider::{PROVIDERS, Provider};
use crate::schedule::{Key, Suite};
use core::cell::Cell;
use tautline_testkit::Random;

/// A key, with the tag that its context makes of an empty message, to recognise the context by.
struct Known {
    claim: Claim,
    key: Key,
    tag: Vec<u8>,
}

fn tag(context: &Context) -> Vec<u8> {
    let mut tag = [0; 16];
    context.seal_in_place([0; 12], [0; 5], &mut tag).unwrap();
    tag.to_vec()
}

fn context(provider: Provider, key: &Key) -> Context {
    Context::new(provider, Suite::Aes128Gcm, key.of(Suite::Aes128Gcm)).unwrap()
}

fn known(seed: u32) -> Known {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&seed.to_be_bytes());
    let key = Key::new(&bytes).unwrap();
    let tag = tag(&context(Provider::AwsLc, &key));
    Known { claim: Claim::new(), key, tag }
}

impl Known {
    /// Uses the key's context and checks that it is its own; returns whether it had to be made.
    fn used(&mut self) -> bool {
        self.used_by(Provider::AwsLc)
    }

    fn used_by(&mut self, provider: Provider) -> bool {
        let made = Cell::new(false);
        let make = || {
            made.set(true);
            Ok(context(provider, &self.key))
        };
        assert_eq!(self.claim.with(provider, make, tag).unwrap(), self.tag);
        made.get()
    }
}

fn held() -> usize {
    CONTEXTS.with_borrow(|contexts| contexts.slots.iter().flat_map(|slot| &slot.contexts).flatten().count())
}

fn slots() -> usize {
    CONTEXTS.with_borrow(|contexts| contexts.slots.iter().filter(|slot| slot.handle != 0).count())
}

#[test]
fn a_key_gets_a_second_context_only_when_a_record_needs_it() {
    let mut keys: Vec<_> = (0..20).map(known).collect();
    for _ in 0..3 {
        for key in &mut keys {
            key.used();
        }
    }
    assert_eq!((held(), slots()), (20, 20));
    for round in 0..3 {
        for key in &mut keys {
            let made = Provider::ALL.map(|provider| key.used_by(provider));
            assert!(!made[0] && made[1..].iter().all(|made| *made == (round == 0)), "round {round}: {made:?}");
        }
    }
    assert_eq!((held(), slots()), (20 * PROVIDERS, 20), "both lie in one slot");
    drop(keys);
    assert_eq!((held(), slots()), (0, 0));
}

#[test]
fn a_key_gets_a_slot_at_its_second_use() {
    let mut keys: Vec<_> = (0..50).map(known).collect();
    assert!(keys.iter_mut().all(Known::used));
    assert_eq!(held(), 0);
    assert!(keys.iter_mut().all(Known::used));
    assert_eq!(held(), 50);
    assert!(!keys.iter_mut().any(Known::used));
    drop(keys);
    assert_eq!(held(), 0, "dropping a key drops its context");
}

#[test]
fn as_many_keys_as_slots_keep_their_contexts() {
    let mut keys: Vec<_> = (0..u32::try_from(SLOTS).unwrap()).map(known).collect();
    for round in 0..4 {
        let made = keys.iter_mut().filter_map(|key| key.used().then_some(())).count();
        assert_eq!(made, if round < 2 { SLOTS } else { 0 }, "round {round}");
    }
    // One more busy key takes the slot of another.
    let mut late = known(u32::MAX);
    assert_eq!([late.used(), late.used(), late.used()], [true, true, false]);
    assert_eq!(held(), SLOTS);
    let lost = keys.iter_mut().filter_map(|key| key.used().then_some(())).count();
    assert_eq!(lost, 1);
}

#[test]
fn many_rarely_used_keys_do_not_evict_the_busy_ones() {
    let mut busy: Vec<_> = (0..100).map(known).collect();
    let mut rare: Vec<_> = (100..100 + 4 * REUSE_WITHIN).map(known).collect();
    let made = |keys: &mut [Known]| keys.iter_mut().filter_map(|key| key.used().then_some(())).count();
    assert_eq!([made(&mut busy), made(&mut busy)], [100, 100]);
    for _ in 0..3 {
        assert_eq!(made(&mut busy), 0);
        assert_eq!(made(&mut rare), rare.len());
    }
    assert_eq!(held(), 100);
}

#[test]
fn no_key_ever_gets_the_context_of_another() {
    let mut random = Random::new(3);
    let mut seed = 0;
    let mut next = || {
        seed += 1;
        known(seed)
    };
    let mut keys: Vec<_> = (0..3 * SLOTS).map(|_| next()).collect();
    for _ in 0..30_000 {
        // Most uses are of few keys, so that slots are filled, replaced and freed.
        let among = [keys.len(), 1200, 40][random.below(3)];
        let at = random.below(among);
        match random.below(20) {
            // The connection ends and another begins, or the key is updated.
            0 => keys[at] = next(),
            _ => {
                keys[at].used_by(Provider::ALL[random.below(PROVIDERS)]);
            }
        }
    }
    assert!(slots() <= SLOTS && held() <= SLOTS * PROVIDERS);
    let free = CONTEXTS.with_borrow(|contexts| contexts.free.len());
    assert_eq!(slots() + free, CONTEXTS.with_borrow(|contexts| contexts.slots.len()));
    drop(keys);
    assert_eq!(held(), 0);
}

#[test]
fn a_key_that_moves_to_another_thread_makes_a_new_context_there() {
    let mut key = known(1);
    assert_eq!([key.used(), key.used(), key.used()], [true, true, false]);
    let mut key = std::thread::spawn(move || {
        assert_eq!([key.used(), key.used()], [true, true]);
        assert!(!key.used());
        key
    })
    .join()
    .unwrap();
    // The key has forgotten its slot here and takes another one.
    assert!((0..3).map(|_| key.used()).last().is_some_and(|made| !made));
    let claimed = key.claim.handle();
    drop(key);
    assert!(CONTEXTS.with_borrow(|contexts| contexts.slots.iter().all(|slot| slot.handle != claimed)));
}

#[test]
fn keys_with_the_same_slot_index_do_not_share_a_context() {
    let (mut first, mut second) = (known(1), known(2));
    // Neither has a slot yet: both handles have the index 0.
    assert_eq!(first.claim.slot(), second.claim.slot());
    assert_eq!([first.used(), second.used(), first.used(), second.used()], [true; 4]);
    assert_eq!([first.used(), second.used()], [false; 2]);
    assert_ne!(first.claim.slot(), second.claim.slot());
    let stale = core::mem::replace(&mut first.claim, Claim::new());
    drop(stale);
    assert!(first.used(), "the old claim's context is gone");
    assert!(!second.used());
}
