//! Connections that wait for their next [visit](crate::turn::visit), behind others that did much.

use crate::link::state::{Awaits, Link};
use crate::turn::shared::Shared;
use tautline_buf::{Buf, Pool};

impl<S, T> Link<S, T> {
    /// Keeps plaintext before the bytes that are not opened yet, for the next `resume`.
    pub(crate) fn keep_plain(&mut self, mut plain: Buf, pool: &mut Pool) {
        let len = plain.len();
        if len > 0 {
            pool.reserve(&mut plain, self.carry.len());
            plain.put(self.carry.filled());
            pool.give(std::mem::replace(&mut self.carry, plain));
            self.set_plain(self.plain() + len);
            self.held = true;
        }
    }
}

impl Shared {
    /// Lets a connection wait for its next visit, behind all that wait for theirs.
    #[cold]
    pub(crate) fn rest<S, T>(&mut self, link: &mut Link<S, T>) {
        if link.awaits == Awaits::Nothing {
            link.awaits = Awaits::Visit;
            self.resting.push_back(link.token);
        }
    }
}

#[cfg(test)]
mod tests;
