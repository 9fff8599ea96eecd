//! Crowds that hold more than the budget of memory. The tests count what a turn does, and not how long it takes.

use crate::bench;
use crate::bench::{Bench, UPGRADE, masked};
use crate::fake::Event;
use tautline_engine::{Cause, Config, MemoryBudget};

/// Most connections that one look at the budget closes.
const MOST: usize = 64;
const BUDGET: usize = 4 << 20;
const OFFENDERS: u32 = 600;

/// A message of 60,000 bytes whose echo nobody reads.
fn large() -> Vec<u8> {
    [&[0x81, 0x80 | 126, 0xea, 0x60, 0, 0, 0, 0][..], &[b'x'; 60_000]].concat()
}

/// A shard with an honest connection, number 0, and others that hold nine times the budget.
fn crowded(config: Config) -> Bench {
    let mut bench = Bench::new(config);
    bench.kernel.push(Event::Room(0, usize::MAX));
    for index in 1..=OFFENDERS {
        bench.kernel.push(Event::Accept);
        bench.kernel.push(Event::Bytes(index, UPGRADE.to_vec()));
    }
    // A turn has little time for connections that open.
    while bench.shard.counters().open < u64::from(OFFENDERS) + 1 {
        bench.turn();
    }
    for index in 1..=OFFENDERS {
        bench.kernel.push(Event::Bytes(index, large()));
    }
    bench
}

fn reset(bench: &Bench) -> usize {
    bench.kernel.0.borrow().wires.values().filter(|wire| wire.closed == Some(true)).count()
}

#[test]
fn a_crowd_above_the_budget_is_closed_in_bounded_steps_beside_honest_peers() {
    let mut config = Config::default();
    config.limits.memory = BUDGET;
    let mut bench = crowded(config);
    let (mut turns, mut gone) = (0, 0);
    loop {
        // The honest connection is served in each turn, and is not among the heaviest.
        let text = format!("honest {turns}");
        bench.kernel.push(Event::Bytes(0, masked(&text)));
        bench.turn();
        assert_eq!(bench::frames(&bench.kernel.received(0)), [text]);
        turns += 1;
        let now = reset(&bench);
        assert!(now - gone <= MOST, "{} resets in one turn", now - gone);
        gone = now;
        if bench.shard.counters().memory() <= BUDGET as u64 {
            break;
        }
        assert!(turns < 100, "{:?}", bench.shard.counters());
    }
    // Each is told first, and reset if it does not read even that: two visits of each, 64 in a turn.
    assert!(turns <= 2 * OFFENDERS as usize / MOST + 2, "{turns} turns");
    let closed = &bench.shard.handler().closed;
    assert!(closed.iter().all(|closed| matches!(closed.cause, Cause::OutOfMemory)));
    let kept = OFFENDERS as usize - closed.len();
    // No more are closed than needed: the budget has room for 69 such echoes.
    assert!((50..=69).contains(&kept), "{kept} are kept");
    // Within the budget, a turn does not look at it again.
    let before = bench.shard.counters();
    (0..10).for_each(|_| bench.turn());
    assert_eq!(bench.shard.counters().memory_closed, before.memory_closed);
}

#[test]
fn the_heaviest_of_all_shards_with_one_budget_is_closed() {
    let budget = MemoryBudget::new(1 << 30);
    let mut config = Config::default();
    config.limits.memory = 1;
    config.limits.max_message = 8 << 20;
    config.limits.shared_memory = Some(budget.clone());
    let (mut one, mut two) = (Bench::new(config.clone()), Bench::new(config));
    one.kernel.push(Event::Bytes(0, part(8 << 20, 3 << 20)));
    one.turn();
    let first = one.shard.counters().memory();
    assert!((3 << 20..9 << 20).contains(&first) && budget.used() - first < 64 << 10, "{first}");
    // From now on there is room for what the first shard holds, and for 1 MiB beside it.
    assert!(budget.bound(usize::try_from(first).unwrap() + (1 << 20)));
    two.kernel.push(Event::Bytes(0, part(2 << 20, 3 << 19)));
    two.turn();
    one.turn();
    assert_eq!(two.shard.counters().memory_closed, 0, "the lighter one");
    assert_eq!(one.shard.counters().memory_closed, 1, "its own `limits.memory` does not hold");
    assert!(budget.counters().memory_partial >= 3 << 19 && budget.used() <= budget.bytes() as u64);
    drop(two);
    assert_eq!(budget.used(), one.shard.counters().memory(), "a shard that has ended takes no part");
}

/// The beginning of a message of `whole` bytes.
fn part(whole: u64, len: usize) -> Vec<u8> {
    [&[0x82, 0x80 | 127][..], &whole.to_be_bytes(), &[0; 4], &vec![0; len]].concat()
}
