//! The part of a shard that serves one connection at a time.

use crate::accept::admission::Admission;
use crate::accept::openings::Openings;
use crate::close::carrier_ends::CarrierEnds;
use crate::context::ShardContext;
use crate::dial::address_memory::AddressMemory;
use crate::dial::target::Dial;
use crate::handler::Handler;
use crate::http::accessing::Accessing;
use crate::http::date::DateCache;
use crate::ids::DialId;
use crate::link::state::Link;
use crate::memory::batch_alloc::BatchAlloc;
use crate::offload::Handshakes;
use crate::probe::{Probe, Stages};
use crate::turn::clock::Clock;
use crate::turn::shared::Shared;
use crate::turn::slot::Slot;
use crate::turn::timer::{Tick, Wheel};
use http::HeaderValue;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use tautline_conn::due::Due;
use tautline_io::{KernelTls, Token};
use tautline_tls::Engine;

/// The state of a shard that serves one connection at a time. It only lends the others to the
/// handler, and knows none of the driver's events.
pub(crate) struct Core<E: Engine, H: Handler> {
    pub(crate) probe: Option<Box<dyn Probe>>,
    pub(crate) engine: E,
    pub(crate) handler: H,
    /// All connections. That which is served has been taken out of its slot. Others are lent to the handler with it.
    pub(crate) slots: Vec<Slot<E::Session, H::State>>,
    pub(crate) batch_alloc: BatchAlloc<Link<E::Session, H::State>>,
    pub(crate) shared: Shared,
    pub(crate) wheel: Wheel,
    pub(crate) dials: HashMap<DialId, Dial>,
    /// The addresses at which outgoing connections failed recently.
    pub(crate) addresses: AddressMemory,
    pub(crate) dial_timers: BinaryHeap<Reverse<(Tick, DialId)>>,
    /// The end of a drain, once one has begun.
    pub(crate) drain_end: Option<Tick>,
    /// The pool for expensive handshakes.
    pub(crate) handshakes: Option<Handshakes<E::Session>>,
    /// The end of the time during which tickets do not keep handshakes in the loop.
    pub(crate) distrust_end: Tick,
    /// The directions whose records go to the kernel.
    pub(crate) kernel_tls: KernelTls,
    /// Whether a panic ends the loop.
    pub(crate) is_ending: bool,
    pub(crate) admission: Admission,
    /// The number of the next ticket.
    pub(crate) next_ticket: u64,
    pub(crate) access: Accessing,
    pub(crate) clock: Clock,
    /// The `Date` of responses.
    pub(crate) dates: DateCache,
    /// Connections that open, and a turn's time for them.
    pub(crate) openings: Openings,
    /// Connections that wait for their next [visit](crate::turn::visit), in their order. Some may have ended.
    pub(crate) resting: VecDeque<Token>,
    /// The causes for which connections that carry others have ended.
    pub(crate) carrier_ends: CarrierEnds,
}

impl<E: Engine, H: Handler> Core<E, H> {
    /// Reads the clock. Once per turn is enough, since deadlines are exact only to 64 ms.
    pub(crate) fn refresh(&mut self) {
        self.shared.now = self.clock.read();
    }

    /// The value of `Date` in this turn's responses.
    pub(crate) fn date(&mut self) -> HeaderValue {
        self.dates.of_turn(self.shared.now, &self.clock)
    }

    /// The results of the probe so far, if there is one.
    pub(crate) fn stages(&self) -> Option<Box<Stages>> {
        let mut stages = self.probe.as_ref()?.stages()?;
        if let Some(sends) = &self.shared.sends {
            stages.set_sends(sends.results());
        }
        Some(stages)
    }

    /// Passes the times of sends to the application.
    pub(crate) fn report_sends(&mut self) {
        while let Some(times) = self.shared.sends.as_mut().and_then(|sends| sends.next_ended()) {
            self.guard(format_args!("the times of a send"), |core| {
                core.handler.on_sent(&mut ShardContext { shared: &mut core.shared }, &times);
            });
        }
    }

    /// A link's next deadline, and the action that is then due.
    pub(crate) fn next_due(&self, link: &Link<E::Session, H::State>) -> (Tick, Due) {
        let deadlines = &self.shared.config.deadlines;
        match link.info.dial.and_then(|dial| self.dials.get(&dial)?.target.silence) {
            None => link.next_due(deadlines),
            silence => {
                let mut own = deadlines.clone();
                own.silence = silence;
                link.next_due(&own)
            }
        }
    }

    /// Puts a link's next deadline into the wheel, unless an earlier entry will look at it.
    pub(crate) fn schedule(&mut self, link: &mut Link<E::Session, H::State>) {
        let (at, _) = self.next_due(link);
        link.clock.scheduled = self.wheel.schedule(link.token, at, link.clock.scheduled);
    }
}
