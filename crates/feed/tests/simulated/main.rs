//! Feeds against simulated venues in virtual time, with planted faults and an oracle.
//!
//! `TAUTLINE_FEED_SEEDS=1000 cargo test --test simulated` runs 1,000 seeds of ten minutes for each venue.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "all of this runs inside tests")]

mod eyes;
mod faults;
mod world;

use eyes::Report;
use tautline_venue::Kind;
use world::{Run, SECOND};

const KINDS: [Kind; 3] = [Kind::Binance, Kind::Coinbase, Kind::Kraken];

fn ten_minutes(kind: Kind, seed: u64) -> Run {
    let (time, symbols, step, life) = (600 * SECOND, 3, SECOND / 2, 120 * SECOND);
    Run { kind, seed, time, symbols, step, life, has_faults: true }
}

fn seeds() -> u64 {
    std::env::var("TAUTLINE_FEED_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(3)
}

fn run_seeds(kind: Kind) {
    let mut sum = Report::default();
    for seed in 1..=seeds() {
        sum.add(&world::run(ten_minutes(kind, seed)));
    }
    println!("{kind:?}: {} seeds, {sum:?}\n{}", seeds(), sum.faults);
    sum.faults.check(kind);
    // The faults and the rotation did happen.
    assert!(sum.checks > 1000 * seeds() && sum.rebuilt > seeds() && sum.replaced > 3 * seeds(), "{sum:?}");
    assert!(sum.trades > 0 && sum.second > 0, "{sum:?}");
    let most = if kind == Kind::Kraken { 4 } else { 2 };
    let found = &sum.faults.found;
    assert!(found[..most].iter().sum::<u64>() > seeds() && found[3] > 0, "{sum:?}");
}

#[test]
fn books_of_binance_are_right_or_say_that_they_are_rebuilt() {
    run_seeds(Kind::Binance);
}

#[test]
fn books_of_coinbase_are_right_or_say_that_they_are_rebuilt() {
    run_seeds(Kind::Coinbase);
}

#[test]
fn books_of_kraken_are_right_or_say_that_they_are_rebuilt() {
    run_seeds(Kind::Kraken);
}

#[test]
fn a_run_follows_from_its_seed() {
    for kind in KINDS {
        let short = Run { time: 150 * SECOND, ..ten_minutes(kind, 7) };
        assert_eq!(world::run(short), world::run(short));
    }
}

#[test]
fn connections_of_a_day_are_replaced_before_the_venue_ends_them() {
    // A day is an hour unless many seeds are wanted.
    let day = if seeds() < 100 { 3600 * SECOND } else { 24 * 3600 * SECOND };
    for kind in KINDS {
        let (step, has_faults) = (20 * SECOND, false);
        let run = Run { time: day * 11 / 10, symbols: 2, step, life: day, has_faults, ..ten_minutes(kind, 1) };
        let report = world::run(run);
        assert_eq!((report.missing, report.faults.planted), (0, [0; 4]), "{report:?}");
        // Each book is built once, and never again.
        assert!(report.replaced > 0 && report.rebuilt == 0, "{report:?}");
    }
}
