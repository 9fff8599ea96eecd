use crate::link::phase::Phase;
use crate::link::state::Link;
use crate::turn::slot::Slot;
use tautline_conn::outbound::Outbound;
use tautline_conn::wire::Wire;
use tautline_io::Token;
use tautline_tls::Session;

/// The raw connections of a loop, of which one may be taken out at the moment.
pub(crate) trait Slots<T> {
    /// The parts of a connection, if it is raw.
    fn raw(&mut self, token: Token) -> Option<Parts<'_, T>>;
}

/// The parts of a link that another connection's event may use.
pub(crate) struct Parts<'a, T> {
    pub(crate) phase: &'a mut Phase,
    pub(crate) wire: &'a mut Wire,
    pub(crate) session: &'a mut dyn Session,
    pub(crate) out: &'a mut Outbound,
    pub(crate) state: &'a mut T,
    pub(crate) paused: &'a mut bool,
    /// [`Link::held`]. It also has the next flush grant a wish.
    pub(crate) held: &'a mut bool,
    pub(crate) dirty: &'a mut bool,
    pub(crate) in_kernel: bool,
}

impl<S: Session, T> Slots<T> for Vec<Slot<S, T>> {
    fn raw(&mut self, token: Token) -> Option<Parts<'_, T>> {
        let Slot::Link(link) = self.get_mut(token.index as usize)? else { return None };
        if link.token != token || !link.phase.is_raw() {
            return None;
        }
        let Link { phase, wire, session, out, state, paused, held, dirty, kernel, .. } = &mut **link;
        Some(Parts { phase, wire, session, out, state, paused, held, dirty, in_kernel: kernel.in_kernel() })
    }
}
