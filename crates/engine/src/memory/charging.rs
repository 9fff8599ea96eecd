//! A connection's part in the account of memory, as its events change it.

use crate::http::accessing::Accessing;
use crate::link::state::Link;
use crate::memory::account::{Held, Kept};
use crate::turn::shared::Shared;
use tautline_tls::Session;

impl Shared {
    /// Notes what a connection holds after an event.
    #[inline]
    pub(crate) fn charge<S: Session, T>(&mut self, link: &mut Link<S, T>, access: &mut Accessing) {
        if link.may_hold() {
            self.charge_slowly(link, access);
        }
    }

    #[inline(never)]
    fn charge_slowly<S: Session, T>(&mut self, link: &mut Link<S, T>, access: &mut Accessing) {
        let mut held = link.held();
        held.heads += access.note_traffic(link, self);
        let is_holder = self.account.set(link.token, held, link.kept().weight());
        link.charged = is_holder || link.out.deflate().is_some() || link.phase.is_handshaking();
    }

    /// A connection has ended, and its buffers are given back.
    pub(crate) fn discharge<S, T>(&mut self, link: &Link<S, T>) {
        let kept = link.kept();
        if link.charged {
            self.account.set(link.token, Held::default(), kept.weight());
        }
        self.account.keep(link.token, &kept, &Kept::default());
    }

    /// The application has nothing for a connection any more.
    pub(crate) fn forget_application<S, T>(&mut self, link: &mut Link<S, T>) {
        let Some(cold) = link.cold.as_mut().filter(|cold| cold.more.is_some()) else { return };
        let before = cold.kept();
        cold.more().application = (0, 0);
        self.account.keep(link.token, &before, &cold.kept());
    }
}
