//! Keys over time, on a clock that the tests turn.

use super::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

const PERIOD: u64 = 3600;
const START: u64 = 500_000 * PERIOD + 1000;

fn secret(byte: u8) -> TicketSecret {
    TicketSecret::new(&[byte; 32]).unwrap()
}

fn fleet(secrets: &[u8]) -> Keys {
    Keys::fleet(secrets.iter().copied().map(secret).collect(), PERIOD, START).unwrap()
}

#[test]
fn own_keys_open_for_one_period_at_least_and_two_at_most() {
    let keys = Keys::own(PERIOD, START).unwrap();
    let ticket = keys.seal(START, b"session").unwrap();
    assert_eq!(keys.lifetime(START), 7200);
    let late = keys.seal(START + PERIOD - 1, b"late").unwrap();
    assert_eq!(keys.lifetime(START + PERIOD - 1), 3601);
    for now in [START, START + PERIOD, START + 2 * PERIOD - 1] {
        assert_eq!(keys.open(now, &ticket).as_deref(), Some(&b"session"[..]), "{}", now - START);
        assert_eq!(keys.open(now, &late).as_deref(), Some(&b"late"[..]));
    }
    let after = keys.seal(START + 2 * PERIOD - 1, b"after").unwrap();
    assert_eq!(keys.open(START + 2 * PERIOD, &ticket), None);
    assert_eq!(keys.open(START + 2 * PERIOD, &after).as_deref(), Some(&b"after"[..]));
    assert_eq!(keys.open(START + 9 * PERIOD, &after), None, "nobody came for long");
}

#[test]
fn keys_that_are_in_no_ring_are_dropped() {
    let keys = Keys::own(PERIOD, START).unwrap();
    let first = Arc::downgrade(&keys.ring.load().current);
    keys.renew(START + PERIOD).unwrap();
    assert!(first.upgrade().is_some(), "it is the previous one now");
    keys.renew(START + 2 * PERIOD).unwrap();
    assert!(first.upgrade().is_none());
    let current = Arc::downgrade(&keys.ring.load().current);
    keys.renew(START + 5 * PERIOD).unwrap();
    assert!(current.upgrade().is_none());
}

#[test]
fn a_clock_that_is_set_back_keeps_own_keys() {
    let keys = Keys::own(PERIOD, START).unwrap();
    let ticket = keys.seal(START, b"session").unwrap();
    assert!(keys.open(START - 10 * PERIOD, &ticket).is_some());
    assert!(keys.open(START - 9 * PERIOD, &ticket).is_some(), "as the previous one");
    assert!(keys.open(START - 8 * PERIOD, &ticket).is_none());
}

#[test]
fn who_is_late_brings_no_key_early() {
    let keys = Keys::own(PERIOD, START).unwrap();
    let ticket = keys.seal(START, b"session").unwrap();
    for now in [START + PERIOD, START + PERIOD - 1, START + 2 * PERIOD - 1] {
        assert!(keys.open(now, &ticket).is_some(), "{}", now - START);
    }
}

#[test]
fn hosts_with_one_secret_open_each_others_tickets() {
    let (a, b) = (fleet(&[1]), fleet(&[1]));
    let ticket = a.seal(START, b"session").unwrap();
    assert!(b.open(START, &ticket).is_some());
    assert!(b.open(START - PERIOD, &ticket).is_some(), "its clock is behind");
    assert!(b.open(START + PERIOD, &ticket).is_some());
    assert!(b.open(START + 2 * PERIOD, &ticket).is_none());
    assert!(b.open(START - 2 * PERIOD, &ticket).is_none());
    assert!(fleet(&[2]).open(START, &ticket).is_none(), "another secret");
    let other_period = Keys::fleet(vec![secret(1)], PERIOD / 2, START).unwrap();
    assert!(other_period.open(START, &ticket).is_none());
}

#[test]
fn a_new_secret_is_spread_before_it_is_used() {
    let (a, b) = (fleet(&[1]), fleet(&[1]));
    let with = |bytes: &[u8]| bytes.iter().copied().map(secret).collect::<Vec<_>>();
    let resumes = |a: &Keys, b: &Keys| {
        let ticket = a.seal(START, b"session").unwrap();
        b.open(START, &ticket).is_some()
    };
    assert!(!b.replace(with(&[1]), START).unwrap(), "nothing new");
    for (step, host) in [(&[1, 2], &a), (&[1, 2], &b), (&[2, 1], &a), (&[2, 1], &b)] {
        assert!(host.replace(with(step), START).unwrap());
        assert!(resumes(&a, &b) && resumes(&b, &a), "{step:?}");
    }
    let old = fleet(&[1]).seal(START - PERIOD, b"session").unwrap();
    assert!(a.open(START, &old).is_some());
    assert!(a.replace(with(&[2]), START).unwrap());
    assert!(resumes(&a, &b) && resumes(&b, &a));
    assert!(a.open(START, &old).is_none());
    assert!(a.replace(with(&[]), START).is_err() && a.replace(with(&[1; 5]), START).is_err());
}

#[test]
fn whatever_was_changed_does_not_open() {
    let keys = fleet(&[1, 2]);
    let ticket = keys.seal(START, b"session").unwrap();
    assert_eq!(ticket.len(), 16 + 12 + 7 + 16);
    assert_ne!(ticket, keys.seal(START, b"session").unwrap());
    for at in 0..ticket.len() {
        let mut changed = ticket.clone();
        changed[at] ^= 1;
        assert_eq!(keys.open(START, &changed), None, "byte {at}");
        assert_eq!(keys.open(START, &ticket[..at]), None, "cut at {at}");
    }
    assert_eq!(keys.open(START, &[&ticket[..], &[0]].concat()), None);
}

/// What hosts of one fleet agree on stays as it is, or gets a new version: these bytes come from an HKDF and an AES-GCM-SIV of
/// another implementation.
#[test]
fn the_derivation_is_the_documented_one() {
    let key = Key::derived(&secret(7), 43_200, 41_000).unwrap();
    let ticket = key.seal(b"").unwrap();
    assert_eq!(&ticket[..16], DOCUMENTED_NAME);
    let nonce: Vec<u8> = (0..12).collect();
    let theirs = [&DOCUMENTED_NAME[..], &nonce, DOCUMENTED_SEALED].concat();
    assert_eq!(key.open(&theirs).as_deref(), Some(&b"session"[..]));
}

const DOCUMENTED_NAME: &[u8; 16] = b"\x32\xbb\x5b\xb3\x2c\xa8\x3a\xc6\x35\xc2\xea\x04\x19\x1d\x9a\xe2";
const DOCUMENTED_SEALED: &[u8; 23] =
    b"\x5a\x14\xaf\xdb\xdd\x42\xca\xe4\x0a\x11\xa5\x5a\xbe\x4f\x98\x38\x02\xb2\x34\x2d\x56\xb2\x6f";

#[test]
fn many_threads_meet_the_end_of_a_period() {
    const THREADS: usize = 4;
    let keys = Keys::own(2, START).unwrap();
    let round = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (keys, round) = (&keys, &round);
            scope.spawn(move || {
                for second in START..START + 500 {
                    round.wait();
                    // Half of them read the clock a moment too early, whoever comes first.
                    for late in [thread & 1, thread >> 1] {
                        let now = second + late as u64;
                        let ticket = keys.seal(now, b"session").unwrap();
                        assert!(keys.open(now, &ticket).is_some(), "{thread} at {second}");
                        assert!(keys.open(second + 1, &ticket).is_some(), "{thread} after {second}");
                    }
                }
            });
        }
    });
}

#[test]
fn periods_are_bounded() {
    for rotate in [Duration::ZERO, Duration::from_millis(999), Tickets::LONGEST + Duration::from_nanos(1)] {
        assert!(matches!(Ticketer::new(&Tickets::Own { rotate }), Err(Error::Config(_))), "{rotate:?}");
    }
    let epoch = Duration::from_millis(1500);
    assert!(Ticketer::new(&Tickets::Fleet { source: Arc::new(secret(1)), epoch }).is_err());
    assert!(Ticketer::new(&Tickets::Off).unwrap().is_none());
}

/// Gives the secret of the number that it holds; none at 0.
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
fn the_source_is_asked_again_and_a_failure_changes_nothing() {
    let source = Arc::new(Numbered(AtomicUsize::new(0)));
    let tickets = Tickets::Fleet { source: source.clone(), epoch: Tickets::LONGEST };
    assert!(Ticketer::new(&tickets).is_err());
    source.0.store(1, Ordering::Relaxed);
    let ticketer = Ticketer::new(&tickets).unwrap().unwrap();
    let first = ticketer.encrypt(b"session").unwrap();
    source.0.store(0, Ordering::Relaxed);
    std::thread::sleep(3 * SHORTEST_INTERVAL);
    assert!(ticketer.decrypt(&first).is_some());
    source.0.store(2, Ordering::Relaxed);
    let end = Instant::now() + Duration::from_secs(20);
    while ticketer.decrypt(&first).is_some() {
        assert!(Instant::now() < end, "the new secret never came");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The thread has the other reference to the keys, and ends with the ticketer.
    let keys = Arc::downgrade(&ticketer.keys);
    drop(ticketer);
    while keys.upgrade().is_some() {
        assert!(Instant::now() < end, "the thread does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
}
