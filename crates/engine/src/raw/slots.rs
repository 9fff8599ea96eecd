use crate::link::info::Cold;
use crate::link::phase::Phase;
use crate::raw::terms::Terms;
use crate::turn::shared::Shared;
use crate::turn::timer::Tick;
use tautline_conn::frames;
use tautline_conn::outbound::Outbound;
use tautline_conn::wire::Wire;
use tautline_io::Token;
use tautline_tls::Session;
use tautline_ws::{Decoder, Role};

/// The raw and open connections of a loop, of which one may be taken out at the moment.
pub(crate) trait Slots<T> {
    /// The parts of a connection, if it is raw or open.
    fn parts(&mut self, token: Token) -> Option<Parts<'_, T>>;
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
    pub(crate) decoder: &'a mut Decoder,
    /// [`Clock::phase_end`](crate::link::state::Clock).
    pub(crate) phase_end: &'a mut Tick,
    pub(crate) cold: &'a mut Option<Box<Cold>>,
    pub(crate) is_outgoing: bool,
    pub(crate) in_kernel: bool,
}

impl<T> Parts<'_, T> {
    /// Makes a WebSocket of a raw connection. The next flush notes it, and reads the bytes that were held back.
    pub(crate) fn become_open(self, terms: &Terms, shared: &Shared) {
        let role = if self.is_outgoing { Role::Client } else { Role::Server };
        *self.decoder = frames::decoder(role, terms.max_message, terms.deflate.as_ref());
        self.decoder.set_streaming(shared.config.streaming);
        if let Some((params, config)) = &terms.deflate {
            self.out.set_deflate(*params, config);
        }
        let notes = match self.phase {
            Phase::Raw(raw) => raw.head.as_mut().map(|head| std::mem::take(&mut head.notes)),
            _ => None,
        };
        *self.phase = Phase::Open;
        *self.phase_end = shared.now;
        shared.counters.open.add(1);
        shared.counters.opened.add(1);
        let more = self.cold.get_or_insert_default().more();
        (more.begins, more.notes) = (true, notes.filter(|notes| !notes.is_empty()).map(Box::new));
        (*self.held, *self.paused) = (true, false);
    }
}
