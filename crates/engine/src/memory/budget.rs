//! A budget of memory that loops share, of one server or of several in a process.

use crate::counts::counters::Counters;
use crate::threads::sync::{AtomicBool, AtomicUsize, Ordering, PoisonError, RwLock};
use std::fmt;
use std::sync::Arc;

/// Bytes of memory that several servers and clients of one process may hold together. Clones share them.
///
/// A [`Config`](crate::Config) with one in [`Limits::shared_memory`](crate::Limits::shared_memory) ignores its own
/// [`memory`](crate::Limits::memory).
///
/// ```
/// # mod tautline { pub use tautline_engine::{Config, MemoryBudget}; }
/// use tautline::{Config, MemoryBudget};
///
/// let budget = MemoryBudget::new(512 << 20);
/// let (mut public, mut internal) = (Config::untrusted_internet(), Config::low_latency());
/// public.limits.shared_memory = Some(budget.clone());
/// internal.limits.shared_memory = Some(budget.clone());
/// // Start a server with each, and ask at any time:
/// println!("{} of {} bytes, {} wait for peers", budget.used(), budget.bytes(), budget.counters().memory_sending);
/// ```
#[derive(Clone)]
pub struct MemoryBudget(Arc<Inner>);

struct Inner {
    bytes: AtomicUsize,
    /// Whether connections are closed to make room for new ones, although the budget is not exceeded.
    makes_room: AtomicBool,
    /// The lock is taken for new members and for looks at the memory, which no message causes.
    members: RwLock<Vec<Entry>>,
}

/// A loop that takes part in a budget.
pub(crate) trait Member: Send + Sync {
    /// Its counters, without waiting for it.
    fn counters(&self) -> Counters;

    /// Has it look at its limits soon.
    fn check_limits(&self);
}

struct Entry {
    /// The weight of its connections that could be closed. Also tells entries apart.
    weight: Arc<AtomicUsize>,
    member: Box<dyn Member>,
}

impl MemoryBudget {
    /// A budget of this many bytes. `usize::MAX` is no limit.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Inner {
            bytes: AtomicUsize::new(bytes),
            makes_room: AtomicBool::new(false),
            members: RwLock::default(),
        }))
    }

    /// The bytes that all may hold together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Lowers the budget to `most` bytes if it is larger. Returns whether it was.
    ///
    /// `Server` does so with three quarters of the memory that the machine or its control group has.
    pub fn bound(&self, most: usize) -> bool {
        self.0.bytes.fetch_min(most, Ordering::Relaxed) > most
    }

    /// The bytes that all hold at present, as of the last turn of each loop.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.sum(|entry| entry.member.counters().memory())
    }

    /// The counters of all loops that run with this budget, among them the memory by use. Nothing waits for a loop.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.each(|entry| sum.merge(&entry.member.counters()));
        sum
    }

    /// Whether connections are closed to make room for new ones.
    pub(crate) fn makes_room(&self) -> bool {
        self.0.makes_room.load(Ordering::Relaxed)
    }

    /// Begins or ends to make room.
    pub(crate) fn make_room(&self, yes: bool) {
        self.0.makes_room.store(yes, Ordering::Relaxed);
    }

    /// Has a loop take part until the membership is dropped.
    pub(crate) fn join(&self, member: impl Member + 'static) -> Membership {
        let weight = Arc::<AtomicUsize>::default();
        let entry = Entry { weight: weight.clone(), member: Box::new(member) };
        self.0.members.write().unwrap_or_else(PoisonError::into_inner).push(entry);
        Membership { budget: self.clone(), weight }
    }

    fn each(&self, mut act: impl FnMut(&Entry)) {
        self.0.members.read().unwrap_or_else(PoisonError::into_inner).iter().for_each(&mut act);
    }

    fn sum(&self, of: impl Fn(&Entry) -> u64) -> u64 {
        let mut sum = 0_u64;
        self.each(|entry| sum = sum.saturating_add(of(entry)));
        sum
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBudget").field("bytes", &self.bytes()).field("used", &self.used()).finish()
    }
}

/// A loop's part in a budget.
pub(crate) struct Membership {
    pub(crate) budget: MemoryBudget,
    weight: Arc<AtomicUsize>,
}

impl Membership {
    /// Reports the weight of this loop's connections that could be closed.
    pub(crate) fn report(&self, weight: usize) {
        self.weight.store(weight, Ordering::Relaxed);
    }

    /// Whether this loop has at least an equal part of what could be closed. One loop always has.
    pub(crate) fn has_its_part(&self) -> bool {
        let (mut loops, mut all) = (0_usize, 0_usize);
        self.budget.each(|entry| {
            loops += 1;
            all = all.saturating_add(entry.weight.load(Ordering::Relaxed));
        });
        self.weight.load(Ordering::Relaxed) >= all / loops.max(1)
    }

    /// Has all other loops of the budget look at their limits.
    pub(crate) fn check_others(&self) {
        self.budget.each(|entry| {
            if !Arc::ptr_eq(&entry.weight, &self.weight) {
                entry.member.check_limits();
            }
        });
    }
}

/// A loop that ends, also by a panic, takes part no more.
impl Drop for Membership {
    fn drop(&mut self) {
        let mut members = self.budget.0.members.write().unwrap_or_else(PoisonError::into_inner);
        members.retain(|entry| !Arc::ptr_eq(&entry.weight, &self.weight));
    }
}

#[cfg(test)]
mod tests {
    use super::{Member, MemoryBudget};
    use crate::counts::counters::Counters;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Loop {
        sending: u64,
        asked: Arc<AtomicUsize>,
    }

    impl Member for Loop {
        fn counters(&self) -> Counters {
            Counters { memory_sending: self.sending, open: 1, ..Counters::default() }
        }

        fn check_limits(&self) {
            self.asked.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn sums_all_members_until_they_leave() {
        let (budget, asked) = (MemoryBudget::new(1_000), Arc::<AtomicUsize>::default());
        let one = budget.join(Loop { sending: 300, asked: asked.clone() });
        let two = budget.join(Loop { sending: 500, asked: asked.clone() });
        assert_eq!((budget.used(), budget.counters().memory_sending, budget.counters().open), (800, 800, 2));
        two.check_others();
        assert_eq!(asked.load(Ordering::Relaxed), 1, "the other, and not itself");
        drop(one);
        assert_eq!((budget.used(), budget.counters().open), (500, 1));
        two.check_others();
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_loop_whose_connections_weigh_most_has_its_part() {
        let budget = MemoryBudget::new(1_000);
        let join = || budget.join(Loop { sending: 0, asked: Arc::default() });
        let (idle, one, two) = (join(), join(), join());
        one.report(40);
        two.report(20);
        assert!(one.has_its_part() && two.has_its_part() && !idle.has_its_part());
        two.report(19);
        two.report(10);
        assert!(one.has_its_part() && !two.has_its_part());
        drop((one, two));
        assert!(idle.has_its_part(), "alone");
    }

    #[test]
    fn a_bound_lowers_and_never_raises() {
        let budget = MemoryBudget::new(1_000);
        assert!(!budget.bound(2_000) && !budget.bound(1_000));
        assert!(budget.bound(400));
        assert_eq!(budget.bytes(), 400);
    }
}
