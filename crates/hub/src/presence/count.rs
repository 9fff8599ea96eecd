//! Members that are counted and not listed, and the loops that want to know the number.

use super::users::{Users, Who};
use crate::mailbox::Mailbox;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Members for which a second passes between two numbers of a topic, and the most seconds.
const PER_SECOND: usize = 1_000;
const MOST_SECONDS: u64 = 10;

/// The members of a topic that this host counts, and the loops that want the number of all.
#[derive(Default)]
pub(super) struct Count {
    users: Users,
    /// Members without a user.
    conns: usize,
    /// Loops with subscribers that want the number.
    pub(super) loops: Vec<Arc<Mailbox>>,
    /// Whether the number may be another one than was told or passed.
    pub(super) is_changed: bool,
    /// Whether the topic waits for the next time at which numbers are told.
    pub(super) is_queued: bool,
    /// The number that other hosts know, and the one that the loops know; `None` if some know another one.
    pub(super) passed: usize,
    pub(super) told: Option<usize>,
    /// The time from which on another number may be told.
    due: Option<Instant>,
}

/// The result of a member that joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// There are too many members on this host.
    Full,
    First,
    /// The user is a member by another connection.
    Again,
}

impl Count {
    /// The members of this host.
    pub(super) fn own(&self) -> usize {
        self.users.len() + self.conns
    }

    pub(super) fn is_unused(&self) -> bool {
        self.own() == 0 && self.loops.is_empty()
    }

    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.users.memory() + self.loops.capacity() * size_of::<Arc<Mailbox>>()
    }

    pub(super) fn join(&mut self, who: &Who<'_>, most: usize) -> Joined {
        if let Who::User(user) = who
            && self.users.again(user)
        {
            return Joined::Again;
        }
        if self.own() >= most {
            return Joined::Full;
        }
        match who {
            Who::Conn(_) => self.conns += 1,
            Who::User(user) => self.users.add(user),
        }
        self.is_changed = true;
        Joined::First
    }

    /// Whether a member has left.
    pub(super) fn leave(&mut self, who: &Who<'_>) -> bool {
        let leaves = match who {
            Who::Conn(_) => {
                let is_there = self.conns > 0;
                self.conns -= usize::from(is_there);
                is_there
            }
            Who::User(user) => self.users.contains(user) && self.users.leave(user),
        };
        self.is_changed |= leaves;
        leaves
    }

    /// The number of this host, if the others know another one.
    pub(super) fn unpassed(&mut self) -> Option<usize> {
        let own = self.own();
        (std::mem::replace(&mut self.passed, own) != own).then_some(own)
    }

    /// Whether the loops are told `number` now. `None` if they are later.
    pub(super) fn tells(&mut self, number: usize, now: Instant) -> Option<bool> {
        if self.loops.is_empty() || self.told == Some(number) {
            return Some(false);
        }
        if self.due.is_some_and(|due| now < due) {
            return None;
        }
        self.told = Some(number);
        self.due = Some(now + pause(number));
        Some(true)
    }
}

/// The shortest time between two numbers of a topic with this number of members, since many of them may want it.
fn pause(number: usize) -> Duration {
    let seconds = u64::try_from(number / PER_SECOND).unwrap_or(MOST_SECONDS);
    // Loops look once in a second.
    Duration::from_secs(seconds.clamp(1, MOST_SECONDS)) - Duration::from_millis(500)
}

#[cfg(test)]
mod tests {
    use super::{Count, Joined, pause};
    use crate::presence::users::Who;
    use std::time::Duration;

    #[test]
    fn users_are_counted_once_and_connections_each() {
        let mut count = Count::default();
        assert_eq!(count.join(&Who::User("ann"), 3), Joined::First);
        assert_eq!(count.join(&Who::User("ann"), 3), Joined::Again);
        assert_eq!(count.join(&Who::Conn("1"), 3), Joined::First);
        assert_eq!(count.join(&Who::Conn("2"), 3), Joined::First);
        assert_eq!(count.join(&Who::Conn("3"), 3), Joined::Full);
        assert_eq!((count.own(), count.unpassed(), count.unpassed()), (3, Some(3), None));
        assert!(!count.leave(&Who::User("ann")) && count.leave(&Who::User("ann")) && !count.leave(&Who::User("ann")));
        assert!(count.leave(&Who::Conn("1")) && count.leave(&Who::Conn("2")) && !count.leave(&Who::Conn("3")));
        assert_eq!((count.own(), count.unpassed(), count.is_unused()), (0, Some(0), true));
    }

    #[test]
    fn numbers_of_many_are_told_less_often() {
        let times = [0, 999, 5_000, 100_000].map(|number| pause(number).as_millis());
        assert_eq!(times, [500, 500, 4_500, 9_500]);
        assert!(pause(usize::MAX) < Duration::from_secs(10));
    }
}
