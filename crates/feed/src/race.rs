//! The connection that was first with a number.

use crate::Time;
use crate::ids::LinkId;
use std::time::Duration;

/// Numbers that are remembered.
const RECENT: usize = 64;

/// Remembers which connection brought the last numbers first, and when.
#[derive(Debug)]
pub(crate) struct Race(Box<[Recent; RECENT]>);

#[derive(Clone, Copy, Debug)]
struct Recent {
    number: u64,
    link: LinkId,
    at: Time,
}

impl Race {
    pub(crate) fn new() -> Self {
        Self(Box::new([Recent { number: u64::MAX, link: LinkId(0), at: Time::ZERO }; RECENT]))
    }

    /// A number has come for the first time.
    pub(crate) fn first(&mut self, number: u64, link: LinkId, at: Time) {
        self.0[place(number)] = Recent { number, link, at };
    }

    /// A number has come again: the connection that was first, and the time since, if it was another one.
    pub(crate) fn second(&self, number: u64, link: LinkId, now: Time) -> Option<(LinkId, Duration)> {
        let recent = self.0[place(number)];
        (recent.number == number && recent.link != link).then(|| (recent.link, now.saturating_sub(recent.at)))
    }
}

fn place(number: u64) -> usize {
    usize::try_from(number % RECENT as u64).unwrap_or(0)
}
