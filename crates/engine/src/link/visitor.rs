//! The receiver of a loop's messages.

use crate::conn::Conn;
use crate::handler::{Chunk, Handler};
use crate::turn::visit::MESSAGE;
use core::ops::ControlFlow;
use tautline_buf::Pool;
use tautline_conn::frames::Visitor;
use tautline_conn::tick::Tick;
use tautline_conn::verdict::Stop;
use tautline_ws::Event;

/// The visitor of a loop: it calls the handler.
pub(crate) struct Visited<'v, 'c, H: Handler> {
    pub(crate) conn: &'v mut Conn<'c, H::State>,
    pub(crate) handler: &'v mut H,
    /// When the last message arrived.
    pub(crate) last_message: &'v mut Tick,
    /// [`Link::answered`](crate::link::state::Link).
    pub(crate) answered: &'v mut u64,
    /// Whether plaintext can be held back amid a read. A record of TLS is visited as a whole.
    pub(crate) may_hold_back: bool,
    /// Whether the [visit](crate::turn::visit) is over.
    pub(crate) is_over: bool,
}

impl<H: Handler> Visitor for Visited<'_, '_, H> {
    #[inline]
    fn pool(&mut self) -> &mut Pool {
        &mut self.conn.outlet.shared.pool
    }

    #[inline]
    fn wants_frame(&mut self, used: usize) -> bool {
        let shared = &mut *self.conn.outlet.shared;
        if used > 0 && shared.visit.is_over(&shared.clock) {
            self.is_over = true;
            return false;
        }
        if self.may_hold_back && self.conn.holds_back(*self.answered) {
            return false;
        }
        let shared = &mut *self.conn.outlet.shared;
        if let Some(probe) = &mut shared.probe {
            shared.times = None;
            probe.decoding();
        }
        true
    }

    #[inline]
    fn decoded(&mut self) {
        if let Some(probe) = &mut self.conn.outlet.shared.probe {
            probe.parsed();
        }
    }

    #[inline]
    fn visit(&mut self, event: Event<'_>) -> Result<ControlFlow<()>, Stop> {
        let Self { conn, handler, .. } = self;
        let taken = conn.out.taken();
        // After our close frame, messages are no longer delivered.
        let open = conn.transport.phase.takes_messages();
        conn.outlet.shared.visit.spend(MESSAGE + len_of(&event));
        match event {
            Event::Message(message) => {
                let shared = &mut *conn.outlet.shared;
                shared.counters.messages_in.add(1);
                if open {
                    *self.last_message = shared.now;
                    if let Some(probe) = &mut shared.probe {
                        shared.times = probe.calling(conn.info.dial);
                    }
                    handler.on_message(conn, message);
                }
            }
            Event::Chunk { kind, data, first, last } => {
                let shared = &mut *conn.outlet.shared;
                shared.counters.messages_in.add(u64::from(last));
                if open {
                    *self.last_message = shared.now;
                    if last && let Some(probe) = &mut shared.probe {
                        shared.times = probe.calling(conn.info.dial);
                    }
                    handler.on_chunk(conn, Chunk { kind, data, first, last });
                }
            }
            Event::Ping(payload) if open => conn.out.pong(payload, conn.transport.wire, conn.outlet.shared.means())?,
            Event::Pong(payload) if open => handler.on_pong(conn, payload),
            Event::Ping(_) | Event::Pong(_) | Event::Close(_) => {}
        }
        if conn.out.taken() != taken {
            *self.answered = conn.out.taken();
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Bytes of a message or chunk, as the handler gets them.
#[inline]
const fn len_of(event: &Event<'_>) -> usize {
    match event {
        Event::Message(message) => message.data().len(),
        Event::Chunk { data, .. } => data.len(),
        _ => 0,
    }
}
