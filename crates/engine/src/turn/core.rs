//! The state of a shard, without its driver.

use crate::accept::admission::Admission;
use crate::accept::openings::Openings;
use crate::accept::pace::Pace;
use crate::close::schedule::Schedule;
use crate::context::ShardContext;
use crate::dial::address_memory::AddressMemory;
use crate::dial::dialing::SystemResolver;
use crate::dial::target::Dial;
use crate::handler::Handler;
use crate::http::access_table::AccessTable;
use crate::http::date::DateCache;
use crate::ids::DialId;
use crate::link::state::Link;
use crate::memory::batch_alloc::BatchAlloc;
use crate::moving::restored::Restored;
use crate::offload::Handshakes;
use crate::probe::{Probe, Stages};
use crate::threads::remote::Commands;
use crate::turn::clock::Clock;
use crate::turn::shared::Shared;
use crate::turn::stall::Stall;
use crate::turn::timer::{Tick, Wheel};
use http::HeaderValue;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tautline_conn::due::Due;
use tautline_io::{KernelTls, Token};
use tautline_tls::Engine;
use tautline_ws::CloseCode;

/// The state of a shard, which its driver calls back as a [`Sink`](tautline_io::Sink).
pub(crate) struct Core<E: Engine, H: Handler> {
    pub(crate) probe: Option<Box<dyn Probe>>,
    pub(crate) engine: E,
    pub(crate) handler: H,
    pub(crate) slots: Vec<Slot<E::Session, H::State>>,
    pub(crate) batch_alloc: BatchAlloc<Link<E::Session, H::State>>,
    pub(crate) shared: Shared,
    pub(crate) wheel: Wheel,
    pub(crate) due: Vec<Token>,
    pub(crate) commands: Commands,
    /// Whether commands may wait although no wake will be reported for them.
    pub(crate) commands_left: bool,
    pub(crate) dials: HashMap<DialId, Dial>,
    pub(crate) resolver: SystemResolver,
    /// The lookups that resolvers of the application hold.
    pub(crate) lookups: Arc<AtomicUsize>,
    /// The addresses at which outgoing connections failed recently.
    pub(crate) addresses: AddressMemory,
    pub(crate) dial_timers: BinaryHeap<Reverse<(Tick, DialId)>>,
    /// The end of a drain, once one has begun.
    pub(crate) drain_end: Option<Tick>,
    /// The part of a drain that is left.
    pub(crate) draining: Option<Draining>,
    /// The pool for expensive handshakes.
    pub(crate) handshakes: Option<Handshakes<E::Session>>,
    /// The end of the time during which tickets do not keep handshakes in the loop.
    pub(crate) distrust_end: Tick,
    /// The directions whose records go to the kernel.
    pub(crate) kernel_tls: KernelTls,
    /// Memory for the subscribers to whom messages are being sent.
    pub(crate) walk: Vec<Token>,
    /// Whether the application knows that the shard has begun.
    pub(crate) is_started: bool,
    /// The slots that a walk over all connections has still to serve, from the last of them to the first.
    pub(crate) unserved: usize,
    /// Whether a panic ends the loop.
    pub(crate) is_ending: bool,
    pub(crate) admission: Admission,
    /// Requests that wait for the application's answer.
    pub(crate) unanswered: usize,
    /// The number of the next ticket.
    pub(crate) next_ticket: u64,
    /// The access log, if somebody takes it.
    pub(crate) access: Option<Box<AccessTable>>,
    /// Milliseconds from which a turn counts as slow.
    pub(crate) slow_turn: Tick,
    /// When a slow turn may be logged again.
    pub(crate) slow_turn_news: Tick,
    pub(crate) stall: Stall,
    pub(crate) clock: Clock,
    /// The `Date` of responses.
    pub(crate) dates: DateCache,
    /// The cost of handshakes with clients.
    pub(crate) pace: Pace,
    /// Connections that open, and a turn's time for them.
    pub(crate) openings: Openings,
    /// Connections that wait for their next [visit](crate::turn::visit), in their order. Some may have ended.
    pub(crate) resting: VecDeque<Token>,
    /// Connections that have arrived from another process and have not begun, by their numbers. `None` stayed there after all.
    pub(crate) restored: Vec<Option<Restored<E::Session, H::State>>>,
    /// The time up to which times of connections that move count.
    pub(crate) move_began: Option<Tick>,
}

/// A drain that has not reached all connections.
pub(crate) struct Draining {
    pub(crate) code: CloseCode,
    pub(crate) reason: String,
    /// The first slot that it has not looked at.
    pub(crate) next: usize,
    /// When connections are closed before a restart, and their clients return.
    pub(crate) schedule: Option<Schedule>,
}

impl Draining {
    /// When the drain goes on.
    pub(crate) fn due(&self) -> Tick {
        self.schedule.as_ref().map_or(0, Schedule::next_at)
    }
}

pub(crate) enum Slot<S, T> {
    Free,
    Link(Box<Link<S, T>>),
    /// A socket that is still connecting.
    Attempt(Token, DialId),
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

    /// Calls the application before the first turn.
    #[cold]
    pub(crate) fn report_start(&mut self) {
        self.is_started = true;
        self.guard(format_args!("the begin of the shard"), |core| {
            core.handler.on_start(&mut ShardContext { shared: &mut core.shared });
        });
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

    /// Takes a link out of its slot, so that the link and the rest of the shard can be borrowed separately.
    pub(crate) fn take(&mut self, token: Token) -> Option<Box<Link<E::Session, H::State>>> {
        let slot = self.slots.get_mut(token.index as usize)?;
        match slot {
            Slot::Link(link) if link.token == token => match std::mem::replace(slot, Slot::Free) {
                Slot::Link(link) => Some(link),
                _ => None,
            },
            _ => None,
        }
    }

    /// Puts a link into its slot.
    #[inline]
    pub(crate) fn put_link(&mut self, link: Box<Link<E::Session, H::State>>) {
        // Not by `put`: a slot that is made in one place for both cases is written to the stack and read again at once.
        match self.slots.get_mut(link.token.index as usize) {
            Some(place) => *place = Slot::Link(link),
            None => self.put(link.token, Slot::Link(link)),
        }
    }

    #[inline(never)]
    pub(crate) fn put(&mut self, token: Token, slot: Slot<E::Session, H::State>) {
        let index = token.index as usize;
        match self.slots.get_mut(index) {
            Some(place) => *place = slot,
            None => {
                self.slots.resize_with(index, || Slot::Free);
                self.slots.push(slot);
            }
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
