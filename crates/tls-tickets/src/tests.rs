//! Keys over time, on a clock that the tests set.

use crate::keys::Keys;
use crate::material::{KeyMaker, Material};
use crate::ticketer::SHORTEST_INTERVAL;
use crate::{Random, Renewal, Ticketer};
use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, Nonce, UnboundKey};
use core::time::Duration;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Instant;
use tautline_tls::{Error, TicketKeySource, TicketSecret, Tickets};

const PERIOD: u64 = 3600;
const START: u64 = 500_000 * PERIOD + 1000;

fn secret(byte: u8) -> TicketSecret {
    TicketSecret::new(&[byte; 32]).unwrap()
}

fn random() -> Random {
    Box::new(|bytes| aws_lc_rs::rand::fill(bytes).is_ok())
}

fn maker() -> KeyMaker {
    KeyMaker { format: "", random: random() }
}

fn own(period: u64) -> Keys<Material> {
    Keys::own(maker(), period, START).unwrap()
}

fn fleet(secrets: &[u8]) -> Keys<Material> {
    Keys::fleet(maker(), secrets.iter().copied().map(secret).collect(), PERIOD, START).unwrap()
}

/// A ticket of these tests is the key that seals it.
type Sealed = [u8; Material::KEY];

fn seal(keys: &Keys<Material>, now: u64) -> Sealed {
    *keys.current(now).unwrap().key()
}

fn opens(keys: &Keys<Material>, now: u64, ticket: &Sealed) -> bool {
    keys.find(now, |key| (key.key() == ticket).then_some(())).is_some()
}

#[test]
fn own_keys_open_for_one_period_at_least_and_two_at_most() {
    let keys = own(PERIOD);
    let ticket = seal(&keys, START);
    assert_eq!(keys.lifetime(START), 7200);
    let late = seal(&keys, START + PERIOD - 1);
    assert_eq!(keys.lifetime(START + PERIOD - 1), 3601);
    for now in [START, START + PERIOD, START + 2 * PERIOD - 1] {
        assert!(opens(&keys, now, &ticket) && opens(&keys, now, &late), "{}", now - START);
    }
    let after = seal(&keys, START + 2 * PERIOD - 1);
    assert!(!opens(&keys, START + 2 * PERIOD, &ticket));
    assert!(opens(&keys, START + 2 * PERIOD, &after));
    assert!(!opens(&keys, START + 9 * PERIOD, &after), "the keys were not used for seven periods");
}

#[test]
fn a_key_that_leaves_the_ring_is_dropped() {
    let keys = own(PERIOD);
    let first = Arc::downgrade(&keys.ring.load().current);
    keys.renew(START + PERIOD).unwrap();
    assert!(first.upgrade().is_some(), "it is the previous key now");
    keys.renew(START + 2 * PERIOD).unwrap();
    assert!(first.upgrade().is_none());
    let current = Arc::downgrade(&keys.ring.load().current);
    keys.renew(START + 5 * PERIOD).unwrap();
    assert!(current.upgrade().is_none());
}

#[test]
fn own_keys_survive_a_clock_that_is_set_back() {
    let keys = own(PERIOD);
    let ticket = seal(&keys, START);
    assert!(opens(&keys, START - 10 * PERIOD, &ticket));
    assert!(opens(&keys, START - 9 * PERIOD, &ticket), "its key is the previous one");
    assert!(!opens(&keys, START - 8 * PERIOD, &ticket));
}

/// The clock jumps by up to 200 years, to and fro. Tickets open for as long as they say, and keys still change.
#[test]
fn keys_survive_any_jump_of_the_clock() {
    for keys in [own(PERIOD), fleet(&[7])] {
        let (mut state, mut seen) = (0x9e37_79b9_7f4a_7c15_u64, std::collections::BTreeSet::new());
        for _ in 0..1_000 {
            // xorshift64.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let now = if state.is_multiple_of(9) { state % 3 } else { state % (2 * START) };
            let ticket = seal(&keys, now);
            let lifetime = u64::from(keys.lifetime(now));
            assert!(opens(&keys, now, &ticket) && (1..=3 * PERIOD).contains(&lifetime), "{now}, for {lifetime} s");
            for later in [now + PERIOD / 2, now + lifetime - 1] {
                assert!(opens(&keys, later, &ticket), "{now}, {} of {lifetime} s later", later - now);
            }
            assert!(!opens(&keys, now + 5 * PERIOD, &ticket), "{now}");
            seen.insert(ticket);
        }
        assert!(seen.len() > 100, "{} keys", seen.len());
    }
}

#[test]
fn a_thread_with_an_old_time_does_not_renew_keys() {
    let keys = own(PERIOD);
    let ticket = seal(&keys, START);
    for now in [START + PERIOD, START + PERIOD - 1, START + 2 * PERIOD - 1] {
        assert!(opens(&keys, now, &ticket), "{}", now - START);
    }
}

#[test]
fn hosts_with_one_secret_open_each_others_tickets() {
    let (a, b) = (fleet(&[1]), fleet(&[1]));
    let ticket = seal(&a, START);
    assert!(opens(&b, START, &ticket));
    assert!(opens(&b, START - PERIOD, &ticket), "its clock is behind");
    assert!(opens(&b, START + PERIOD, &ticket));
    assert!(!opens(&b, START + 2 * PERIOD, &ticket));
    assert!(!opens(&b, START - 2 * PERIOD, &ticket));
    assert!(!opens(&fleet(&[2]), START, &ticket), "another secret");
    let other_period = Keys::fleet(maker(), vec![secret(1)], PERIOD / 2, START).unwrap();
    assert!(!opens(&other_period, START, &ticket));
}

#[test]
fn hosts_resume_each_others_sessions_while_a_new_secret_spreads() {
    let (a, b) = (fleet(&[1]), fleet(&[1]));
    let with = |bytes: &[u8]| bytes.iter().copied().map(secret).collect::<Vec<_>>();
    let resumes = |a: &Keys<Material>, b: &Keys<Material>| {
        let ticket = seal(a, START);
        opens(b, START, &ticket)
    };
    assert!(!b.replace(with(&[1]), START).unwrap(), "nothing new");
    for (step, host) in [(&[1, 2], &a), (&[1, 2], &b), (&[2, 1], &a), (&[2, 1], &b)] {
        assert!(host.replace(with(step), START).unwrap());
        assert!(resumes(&a, &b) && resumes(&b, &a), "{step:?}");
    }
    let old = seal(&fleet(&[1]), START - PERIOD);
    assert!(opens(&a, START, &old));
    assert!(a.replace(with(&[2]), START).unwrap());
    assert!(resumes(&a, &b) && resumes(&b, &a));
    assert!(!opens(&a, START, &old));
    assert!(a.replace(with(&[]), START).is_err() && a.replace(with(&[1; 5]), START).is_err());
}

#[test]
fn different_ticket_formats_derive_different_keys() {
    let with = |format| {
        let maker = KeyMaker { format, random: random() };
        Keys::<Material>::fleet(maker, vec![secret(1)], PERIOD, START).unwrap()
    };
    let (a, b) = (with("openssl").current(START).unwrap(), with("mbedtls").current(START).unwrap());
    assert!(a.name() != b.name() && a.key() != b.key());
    assert_eq!(a.name(), with("openssl").current(START).unwrap().name());
}

#[test]
fn own_keys_need_randomness_and_derived_keys_do_not() {
    let broken = || KeyMaker { format: "", random: Box::new(|_| false) };
    assert!(matches!(Keys::<Material>::own(broken(), PERIOD, START), Err(Error::Library(_))));
    let derived = Keys::<Material>::fleet(broken(), vec![secret(1)], PERIOD, START).unwrap();
    assert!(derived.current(START).is_some(), "a fleet's keys are derived");
}

/// The derivation changes only with its version. These bytes come from another implementation of HKDF and AES-GCM-SIV.
#[test]
fn derives_the_documented_keys() {
    let key: Material = maker().derived(&secret(7), 43_200, 41_000).unwrap();
    assert_eq!(key.name(), DOCUMENTED_NAME);
    let aead = LessSafeKey::new(UnboundKey::new(&AES_256_GCM_SIV, &key.key()[..32]).unwrap());
    let nonce = Nonce::assume_unique_for_key([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    let mut sealed = *DOCUMENTED_SEALED;
    assert_eq!(aead.open_in_place(nonce, Aad::from(DOCUMENTED_NAME), &mut sealed).unwrap(), b"session");
}

const DOCUMENTED_NAME: &[u8; 16] = b"\x32\xbb\x5b\xb3\x2c\xa8\x3a\xc6\x35\xc2\xea\x04\x19\x1d\x9a\xe2";
const DOCUMENTED_SEALED: &[u8; 23] =
    b"\x5a\x14\xaf\xdb\xdd\x42\xca\xe4\x0a\x11\xa5\x5a\xbe\x4f\x98\x38\x02\xb2\x34\x2d\x56\xb2\x6f";

#[test]
fn threads_seal_and_open_across_the_end_of_a_period() {
    const THREADS: usize = 4;
    let keys = own(2);
    let round = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (keys, round) = (&keys, &round);
            scope.spawn(move || {
                for second in START..START + 500 {
                    round.wait();
                    // At any time about half of the threads use a clock that is one second behind.
                    for late in [thread & 1, thread >> 1] {
                        let now = second + late as u64;
                        let ticket = seal(keys, now);
                        assert!(opens(keys, now, &ticket), "{thread} at {second}");
                        assert!(opens(keys, second + 1, &ticket), "{thread} after {second}");
                    }
                }
            });
        }
    });
}

fn ticketer(tickets: &Tickets) -> Result<Option<Ticketer<Material>>, Error> {
    Ticketer::new(tickets, "", random(), Renewal::Thread)
}

#[test]
fn a_caller_that_renews_keys_needs_no_thread() {
    let tickets = Tickets::Own { rotate: Duration::from_secs(1) };
    let ticketer = Ticketer::<Material>::new(&tickets, "", random(), Renewal::Caller).unwrap().unwrap();
    assert_eq!(Arc::strong_count(&ticketer.keys), 1, "a thread would hold the keys, too");
    let first = Arc::downgrade(&ticketer.current().unwrap());
    let end = Instant::now() + Duration::from_secs(60);
    while first.upgrade().is_some() {
        assert!(Instant::now() < end, "the key is never erased");
        std::thread::sleep(ticketer.renew().unwrap());
    }
    let fleet = Tickets::Fleet { source: Arc::new(secret(1)), epoch: Tickets::LONGEST };
    let fleet = Ticketer::<Material>::new(&fleet, "", random(), Renewal::Caller).unwrap().unwrap();
    assert_eq!(fleet.renew(), None, "its source may block");
}

#[test]
fn periods_are_bounded() {
    for rotate in [Duration::ZERO, Duration::from_millis(999), Tickets::LONGEST + Duration::from_nanos(1)] {
        assert!(matches!(ticketer(&Tickets::Own { rotate }), Err(Error::Config(_))), "{rotate:?}");
    }
    let epoch = Duration::from_millis(1500);
    assert!(ticketer(&Tickets::Fleet { source: Arc::new(secret(1)), epoch }).is_err());
    assert!(ticketer(&Tickets::Off).unwrap().is_none());
}

/// A source that returns the secret with the number it holds, and an error for 0.
struct Numbered(AtomicUsize);

impl TicketKeySource for Numbered {
    fn secrets(&self) -> Result<Vec<TicketSecret>, Error> {
        match u8::try_from(self.0.load(Ordering::Relaxed)).unwrap() {
            0 => Err(Error::Config("no secret today".to_owned())),
            number => Ok(vec![secret(number)]),
        }
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(1)
    }
}

#[test]
fn polls_the_source_and_keeps_the_old_secrets_after_an_error() {
    let source = Arc::new(Numbered(AtomicUsize::new(0)));
    let tickets = Tickets::Fleet { source: source.clone(), epoch: Tickets::LONGEST };
    assert!(ticketer(&tickets).is_err());
    source.0.store(1, Ordering::Relaxed);
    let ticketer = ticketer(&tickets).unwrap().unwrap();
    let first = *ticketer.current().unwrap().key();
    let opens = |ticketer: &Ticketer<Material>| ticketer.find(|key| (*key.key() == first).then_some(())).is_some();
    source.0.store(0, Ordering::Relaxed);
    std::thread::sleep(3 * SHORTEST_INTERVAL);
    assert!(opens(&ticketer));
    source.0.store(2, Ordering::Relaxed);
    let end = Instant::now() + Duration::from_secs(20);
    while opens(&ticketer) {
        assert!(Instant::now() < end, "the new secret never came");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The background thread holds the other reference to the keys, and ends with the ticketer.
    let keys = Arc::downgrade(&ticketer.keys);
    drop(ticketer);
    while keys.upgrade().is_some() {
        assert!(Instant::now() < end, "the thread does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn own_keys_move_to_another_process_and_go_on_there() {
    for periods in [0, 1] {
        let old = own(PERIOD);
        let first = seal(&old, START);
        let now = START + periods * PERIOD;
        let ticket = seal(&old, now);
        let mut saved = Vec::new();
        old.save(&mut saved);
        let new = own(PERIOD / 2);
        let before = seal(&new, START);
        new.restore(&saved).unwrap();
        assert!(opens(&new, now, &ticket) && opens(&new, now, &first) && !opens(&new, now, &before));
        assert_eq!(seal(&new, now), ticket);
        // Both have the same next key, so the order in which they change does not matter.
        assert_eq!(seal(&new, now + PERIOD), seal(&old, now + PERIOD));
        assert!(opens(&new, now + PERIOD, &ticket) && !opens(&new, now + 3 * PERIOD, &ticket));
    }
}

#[test]
fn keys_of_other_formats_and_other_bytes_are_refused() {
    let keys = own(PERIOD);
    let mut saved = Vec::new();
    keys.save(&mut saved);
    let ticket = seal(&keys, START);
    let other = Keys::<Material>::own(KeyMaker { format: "other", random: random() }, PERIOD, START).unwrap();
    assert!(other.restore(&saved).is_err());
    for len in 0..saved.len() {
        assert!(keys.restore(&saved[..len]).is_err(), "{len}");
    }
    let later = [&[2], &saved[1..]].concat();
    let endless = [&saved[..10], &[0xff; 8], &saved[18..]].concat();
    let backwards = [&saved[..2], &saved[10..18], &saved[2..10], &saved[18..]].concat();
    let many = [&saved[..], &saved[18..]].concat();
    for bytes in [later, endless, backwards, many] {
        assert!(keys.restore(&bytes).is_err());
    }
    assert!(opens(&keys, START, &ticket), "a refusal has changed the keys");
}

#[test]
fn a_fleet_keeps_its_keys() {
    let (mut saved, keys) = (Vec::new(), fleet(&[1]));
    keys.save(&mut saved);
    assert!(saved.is_empty());
    own(PERIOD).save(&mut saved);
    let ticket = seal(&keys, START);
    keys.restore(&saved).unwrap();
    assert!(opens(&keys, START, &ticket));
}
