//! The simulator itself: its runs repeat exactly, and it finds bugs that are planted.

use tautline_sim::{Plant, run, run_proxied};

/// Seeds that had a finding once, each with the commit that mended it.
const MENDED: [(u64, &str); 2] = [
    (1068, "engine: wake other loops only where handshakes begin"),
    (35893, "engine: do not wake loops that wait for the same memory"),
];

#[test]
fn a_seed_gives_one_trace() {
    // 0 and 16 run over `fused`, 8 over `rustls`, the others without TLS.
    let traces: Vec<u64> = [0, 1, 2, 8, 16].map(|seed| run(seed, None, false).trace).to_vec();
    for (seed, trace) in [0, 1, 2, 8, 16].into_iter().zip(&traces) {
        let again = run(seed, None, false);
        assert_eq!((again.trace, &again.findings[..]), (*trace, &[][..]), "seed {seed}");
        assert!(again.events > 100 && again.messages > 0, "{again:?}");
    }
    assert_eq!(traces.iter().filter(|trace| **trace == traces[0]).count(), 1, "seeds give different runs");
}

#[test]
fn no_seed_that_had_a_finding_has_one_again() {
    for (seed, commit) in MENDED {
        assert_eq!(run(seed, None, false).findings, [""; 0], "seed {seed}, mended by `{commit}`");
    }
}

/// Runs seeds until the planted bug is found.
fn is_found(plant: Plant) {
    let found = (0..1000).find_map(|seed| {
        let finding = run(seed, Some(plant), false).findings.into_iter().next()?;
        Some((seed, finding))
    });
    assert!(found.is_some(), "{plant:?} was not found");
    eprintln!("{plant:?} is found by (seed, finding) {found:?}");
}

#[test]
fn finds_a_lost_wake_up() {
    is_found(Plant::LostWakeUp);
}

#[test]
fn finds_a_reordered_send() {
    is_found(Plant::ReorderedSend);
}

#[test]
fn finds_a_double_release() {
    is_found(Plant::DoubleRelease);
}

/// Seeds of pairs: enough for both ways of passing, each TLS engine and each kind of fault.
const PAIRS: u64 = 24;

#[test]
fn pairs_lose_nothing_and_end_at_both_ends() {
    let mut messages = [0; 2];
    for seed in 0..PAIRS {
        let outcome = run_proxied(seed, None, false);
        assert_eq!(outcome.findings, [""; 0], "seed {seed}");
        messages[usize::try_from(seed % 2).unwrap_or(0)] += outcome.messages;
    }
    assert!(messages.iter().all(|messages| *messages > 50 * PAIRS), "{messages:?} by bytes and by messages");
}

#[test]
fn a_seed_of_pairs_gives_one_trace() {
    for seed in [0, 1, 8, 16, 17] {
        assert_eq!(run_proxied(seed, None, false).trace, run_proxied(seed, None, false).trace, "seed {seed}");
    }
}

#[test]
fn finds_planted_bugs_between_pairs() {
    for plant in [Plant::LostWakeUp, Plant::ReorderedSend] {
        let is_found = (0..1000).any(|seed| !run_proxied(seed, Some(plant), false).findings.is_empty());
        assert!(is_found, "{plant:?} was not found");
    }
}
