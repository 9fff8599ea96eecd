//! Connections that wait for their next [visit](crate::turn::visit), behind others that did much.

use crate::handler::Handler;
use crate::link::state::{Awaits, Link};
use crate::turn::core::Core;
use crate::turn::reactor::Reactor;
use crate::turn::visit::RESTING;
use tautline_buf::{Buf, Pool};
use tautline_io::Driver;
use tautline_tls::Engine;

impl<S, T> Link<S, T> {
    /// Keeps plaintext before the bytes that are not opened yet, for the next [`resume`](Core::resume).
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

impl<E: Engine, H: Handler> Reactor<E, H> {
    /// Goes on with connections that rest, in this turn's time. One of them has a visit in each turn, unless what they published
    /// fills the shard.
    #[inline]
    pub(crate) fn go_on_resting(&mut self, driver: &mut dyn Driver) {
        if !self.core.resting.is_empty() {
            self.visit_resting(driver);
        }
    }

    #[inline(never)]
    fn visit_resting(&mut self, driver: &mut dyn Driver) {
        let begun = self.core.clock.elapsed();
        // A connection that rests again has its turn in the next one.
        for _ in 0..self.core.resting.len() {
            if self.core.shared.publications.is_full() {
                return;
            }
            let Some(token) = self.core.resting.pop_front() else { return };
            let Some(mut link) = self.take(token) else { continue };
            link.awaits = Awaits::Nothing;
            // The visit resumes what was held.
            self.visit_link(driver, link, |_, _, _| {});
            if self.core.clock.elapsed().saturating_sub(begun) >= RESTING {
                return;
            }
        }
    }
}

impl<E: Engine, H: Handler> Core<E, H> {
    /// Lets a connection wait for its next visit, behind all that wait for theirs.
    #[cold]
    pub(crate) fn rest(&mut self, link: &mut Link<E::Session, H::State>) {
        if link.awaits == Awaits::Nothing {
            link.awaits = Awaits::Visit;
            self.resting.push_back(link.token);
        }
    }
}

#[cfg(test)]
mod tests;
