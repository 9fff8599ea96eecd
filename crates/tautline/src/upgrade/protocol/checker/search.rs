//! Searches: one path for each seed, and all paths with few faults.

use super::rules::Rule;
use super::world::{Comes, Event, World};
use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// Steps of one seed.
const LONGEST: usize = 80;
/// Most faults of one seed.
const FAULTS_OF_A_SEED: u8 = 4;
/// Tries paths from seeds. Returns the first seed with a fault.
pub(super) fn seeds<R: Rule>(count: u64) -> Option<(u64, String)> {
    (0..count).find_map(|seed| one::<R>(seed).err().map(|fault| (seed, fault)))
}

fn one<R: Rule>(seed: u64) -> Result<(), String> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut world, mut events, mut likely) = (World::new(), Vec::new(), Vec::new());
    for _ in 0..random.below(LONGEST) {
        world.events(FAULTS_OF_A_SEED, &mut events);
        // Most steps succeed. Otherwise few paths would come far.
        likely.clear();
        let succeeds =
            |event: &&Event| matches!(event, Event::Step(_, Comes::Whole) | Event::Hold(_) | Event::Seal(..));
        likely.extend(events.iter().filter(succeeds));
        let from = if likely.is_empty() || random.below(8) == 0 { &events } else { &likely };
        let Some(event) = from.get(random.below(from.len().max(1))) else { break };
        world.apply::<R>(*event)?;
    }
    world.settle::<R>()
}

/// Tries all paths with at most `faults` faults. Returns the number of states, and the first fault.
pub(super) fn all<R: Rule>(faults: u8) -> (usize, Option<String>) {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    // States by their hashes: two of 64 bits are the same by chance once in a thousand such runs.
    let mut seen = HashSet::new();
    let mut open = vec![World::new()];
    let mut events = Vec::new();
    while let Some(world) = open.pop() {
        world.events(faults, &mut events);
        for event in &events {
            let mut next = world.clone();
            if let Err(fault) = next.apply::<R>(*event) {
                return (seen.len(), Some(fault));
            }
            if seen.insert(hasher.hash_one(&next)) {
                if let Err(fault) = next.clone().settle::<R>() {
                    return (seen.len(), Some(fault));
                }
                open.push(next);
            }
        }
    }
    (seen.len(), None)
}

/// xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 32).unwrap_or(0) % bound
    }
}
