use super::{CONTEXTS, Claim, PLACES, SOON};
use crate::schedule::{Key, Suite};
use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce};
use core::cell::Cell;
use tautline_testkit::Random;

/// A key, and what it makes of nothing, as a name for it.
struct Known {
    claim: Claim,
    key: Key,
    tag: Vec<u8>,
}

fn tag(context: &LessSafeKey) -> Vec<u8> {
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    context.seal_in_place_separate_tag(nonce, Aad::empty(), &mut []).unwrap().as_ref().to_vec()
}

fn known(seed: u32) -> Known {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&seed.to_be_bytes());
    let key = Key::new(&bytes).unwrap();
    let tag = tag(&key.context(Suite::Aes128Gcm).unwrap());
    Known { claim: Claim::new(), key, tag }
}

impl Known {
    /// Uses the key's context, which must be its own; says whether it had to be made.
    fn used(&mut self) -> bool {
        let made = Cell::new(false);
        let make = || {
            made.set(true);
            self.key.context(Suite::Aes128Gcm)
        };
        assert_eq!(self.claim.with(make, tag).unwrap(), self.tag);
        made.get()
    }
}

fn held() -> usize {
    CONTEXTS.with_borrow(|contexts| contexts.places.iter().filter(|place| place.context.is_some()).count())
}

#[test]
fn what_comes_up_once_takes_no_place_and_what_comes_up_again_does() {
    let mut keys: Vec<_> = (0..50).map(known).collect();
    assert!(keys.iter_mut().all(Known::used));
    assert_eq!(held(), 0);
    assert!(keys.iter_mut().all(Known::used));
    assert_eq!(held(), 50);
    assert!(!keys.iter_mut().any(Known::used));
    drop(keys);
    assert_eq!(held(), 0, "contexts go with their keys");
}

#[test]
fn as_many_as_there_are_places_keep_theirs() {
    let mut keys: Vec<_> = (0..u32::try_from(PLACES).unwrap()).map(known).collect();
    for round in 0..4 {
        let made = keys.iter_mut().filter_map(|key| key.used().then_some(())).count();
        assert_eq!(made, if round < 2 { PLACES } else { 0 }, "round {round}");
    }
    // One more comes up often: another one goes.
    let mut late = known(u32::MAX);
    assert_eq!([late.used(), late.used(), late.used()], [true, true, false]);
    assert_eq!(held(), PLACES);
    let lost = keys.iter_mut().filter_map(|key| key.used().then_some(())).count();
    assert_eq!(lost, 1);
}

#[test]
fn many_that_come_up_rarely_do_not_push_out_the_busy_ones() {
    let mut busy: Vec<_> = (0..100).map(known).collect();
    let mut rare: Vec<_> = (100..100 + 4 * SOON).map(known).collect();
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
    let mut keys: Vec<_> = (0..3 * PLACES).map(|_| next()).collect();
    for _ in 0..30_000 {
        // Most of the time among few, so that places fill, change hands and are freed.
        let among = [keys.len(), 1200, 40][random.below(3)];
        let at = random.below(among);
        match random.below(20) {
            // The connection ends and another one begins, or the key is updated.
            0 => keys[at] = next(),
            _ => {
                keys[at].used();
            }
        }
    }
    assert!(held() <= PLACES);
    let free = CONTEXTS.with_borrow(|contexts| contexts.free.len());
    assert_eq!(held() + free, CONTEXTS.with_borrow(|contexts| contexts.places.len()));
    drop(keys);
    assert_eq!(held(), 0);
}

#[test]
fn a_key_that_changes_threads_makes_its_context_there() {
    let mut key = known(1);
    assert_eq!([key.used(), key.used(), key.used()], [true, true, false]);
    let mut key = std::thread::spawn(move || {
        assert_eq!([key.used(), key.used()], [true, true]);
        assert!(!key.used());
        key
    })
    .join()
    .unwrap();
    // Its place here is not known any more; it takes another one.
    assert!((0..3).map(|_| key.used()).last().is_some_and(|made| !made));
    let claimed = key.claim.name();
    drop(key);
    assert!(CONTEXTS.with_borrow(|contexts| contexts.places.iter().all(|place| place.name != claimed)));
}

#[test]
fn two_that_meet_in_one_place_keep_apart() {
    let (mut first, mut second) = (known(1), known(2));
    // Neither has a place: both names point to the first one.
    assert_eq!(first.claim.place(), second.claim.place());
    assert_eq!([first.used(), second.used(), first.used(), second.used()], [true; 4]);
    assert_eq!([first.used(), second.used()], [false; 2]);
    assert_ne!(first.claim.place(), second.claim.place());
    let stale = core::mem::replace(&mut first.claim, Claim::new());
    drop(stale);
    assert!(first.used(), "the old claim's context is gone");
    assert!(!second.used());
}
