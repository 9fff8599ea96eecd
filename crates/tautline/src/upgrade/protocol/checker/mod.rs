//! Tries interleavings of two processes, and watches each sequence number that somebody seals with.
//!
//! [`World`](world::World) executes the steps of both state machines with all results that steps can have: each write may come whole,
//! in part or not at all, each wait may end late. Beside that, processes are killed, stopped and continued, their threads panic,
//! their loops fail, and frames come that nobody expects. Loops seal whenever they may.
//!
//! [`rules`] has the rule, and wrong ones that have to be found.

mod rules;
mod search;
mod world;

use rules::{
    Correct, GoesOnAfterDeath, GoesOnUnwritten, OldTakesCutForEnd, OldTakesFailureForUnwritten, OldTakesStrangeForEnd,
    OldTiresOfWaiting, Rule, WaitsForEver,
};
use search::{all, seeds};

/// Seeds of a normal run; `TAUTLINE_UPGRADE_SEEDS` names another number.
const SEEDS: u64 = 100_000;
/// Most faults of a path in a normal run, if all paths are tried; `TAUTLINE_UPGRADE_FAULTS` names another number. Two take minutes.
const FAULTS: u8 = 1;

fn asked<T: std::str::FromStr>(variable: &str, normal: T) -> T {
    std::env::var(variable).ok().and_then(|asked| asked.parse().ok()).unwrap_or(normal)
}

#[test]
fn no_seed_uses_a_sequence_number_twice_or_leaves_connections_without_an_owner() {
    if let Some((seed, fault)) = seeds::<Correct>(asked("TAUTLINE_UPGRADE_SEEDS", SEEDS)) {
        panic!("seed {seed}: {fault}");
    }
}

#[test]
fn no_interleaving_uses_a_sequence_number_twice_or_leaves_connections_without_an_owner() {
    let (states, fault) = all::<Correct>(asked("TAUTLINE_UPGRADE_FAULTS", FAULTS));
    assert!(fault.is_none(), "{}", fault.unwrap_or_default());
    assert!(states > 10_000, "only {states} states: the model does not reach what it is to check");
}

#[test]
fn seeds_find_a_new_process_that_goes_on_whenever_the_old_one_has_ended() {
    let (_, fault) = seeds::<GoesOnAfterDeath>(1_000).unwrap();
    assert!(fault.contains("twice"), "{fault}");
}

fn is_found<R: Rule>(what: &str) {
    let (_, fault) = all::<R>(FAULTS);
    let fault = fault.unwrap_or_else(|| panic!("{} is not found", std::any::type_name::<R>()));
    assert!(fault.contains(what), "{fault}");
}

#[test]
fn each_wrong_rule_is_found() {
    is_found::<GoesOnAfterDeath>("twice");
    is_found::<GoesOnUnwritten>("twice");
    is_found::<OldTakesCutForEnd>("twice");
    is_found::<OldTakesFailureForUnwritten>("twice");
    is_found::<OldTakesStrangeForEnd>("twice");
    is_found::<OldTiresOfWaiting>("twice");
    is_found::<WaitsForEver>("nobody");
}
