//! Connections that wait for their next [visit](crate::turn::visit), behind others that did much.

use crate::handler::Handler;
use crate::link::state::{Awaits, Link};
use crate::turn::core::Core;
use tautline_buf::{Buf, Pool};
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
