//! The budget of memory that loops share.

use crate::counts::counters::Counters;
use crate::everywhere;
use crate::memory::budget::{Member, MemoryBudget};
use crate::sync::{Bug, finds};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;

/// A loop, and whether it was asked to look at its limits.
#[derive(Clone, Default)]
struct Loop(Arc<AtomicBool>);

impl Member for Loop {
    fn counters(&self) -> Counters {
        Counters { memory_sending: 100, ..Counters::default() }
    }

    fn check_limits(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn members() {
    let budget = MemoryBudget::new(1_000);
    let first = Loop::default();
    let membership = budget.join(first.clone());
    let threads = [10, 30].map(|weight| {
        let budget = budget.clone();
        thread::spawn(move || {
            let membership = budget.join(Loop::default());
            membership.report(weight);
            assert!(budget.used() >= 200 && budget.used() <= 300, "the first loop and this one, or all");
            membership.check_others();
            membership
        })
    });
    let [light, heavy] = threads.map(|thread| thread.join().unwrap());
    assert!(first.0.load(Ordering::SeqCst), "another loop has asked");
    assert!(heavy.has_its_part() && !light.has_its_part() && !membership.has_its_part());
    drop((light, heavy));
    assert!(membership.has_its_part());
    assert_eq!(budget.used(), 100);
}

fn bounds() {
    let budget = MemoryBudget::new(1_000);
    let threads = [300, 200].map(|most| {
        let budget = budget.clone();
        thread::spawn(move || budget.bound(most))
    });
    let lowered = threads.map(|thread| thread.join().unwrap());
    assert_eq!(budget.bytes(), 200);
    assert!(lowered[1]);
}

#[test]
fn loops_join_and_leave_while_others_count() {
    everywhere(members);
    assert!(finds(Bug::LostStore, || everywhere(members)));
}

#[test]
fn the_lowest_bound_stays() {
    everywhere(bounds);
    assert!(finds(Bug::Torn, || everywhere(bounds)));
}
