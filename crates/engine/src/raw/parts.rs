use crate::link::state::Link;
use crate::raw::slots::{Parts, Slots};
use crate::turn::links::Links;
use tautline_io::Token;
use tautline_tls::Session;

impl<S: Session, T> Slots<T> for Links<S, T> {
    fn parts(&mut self, token: Token) -> Option<Parts<'_, T>> {
        let link = self.get_mut(token)?;
        (link.phase.takes_messages() || link.phase.is_raw()).then(|| Parts::of(link))
    }
}

impl<'a, T> Parts<'a, T> {
    pub(crate) fn of<S: Session>(link: &'a mut Link<S, T>) -> Self {
        let Link { phase, wire, session, out, state, paused, held, dirty, decoder, clock, cold, info, kernel, .. } =
            link;
        Self {
            phase,
            wire,
            session,
            out,
            state,
            paused,
            held,
            dirty,
            decoder,
            phase_end: &mut clock.phase_end,
            cold,
            is_outgoing: info.dial.is_some(),
            in_kernel: kernel.in_kernel(),
        }
    }
}
