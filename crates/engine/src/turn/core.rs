//! The part of a shard that serves one connection at a time.

use crate::accept::admission::Admission;
use crate::accept::openings::Openings;
use crate::close::carrier_ends::CarrierEnds;
use crate::dial::dialing::Dialer;
use crate::handler::Handler;
use crate::http::accessing::Accessing;
use crate::link::state::Link;
use crate::memory::batch_alloc::BatchAlloc;
use crate::offload::Offloading;
use crate::turn::links::Links;
use crate::turn::panics::Application;
use crate::turn::shared::Shared;
use crate::turn::timer::Wheel;
use tautline_io::KernelTls;
use tautline_tls::Engine;

/// The state of a shard that serves one connection at a time. It only lends the others to the
/// handler, and knows none of the driver's events.
pub(crate) struct Core<E: Engine, H: Handler> {
    pub(crate) engine: E,
    pub(crate) application: Application<H>,
    pub(crate) links: Links<E::Session, H::State>,
    pub(crate) batch_alloc: BatchAlloc<Link<E::Session, H::State>>,
    pub(crate) shared: Shared,
    pub(crate) wheel: Wheel,
    pub(crate) dialer: Dialer,
    pub(crate) offloading: Offloading<E::Session>,
    /// The directions whose records go to the kernel.
    pub(crate) kernel_tls: KernelTls,
    pub(crate) admission: Admission,
    pub(crate) access: Accessing,
    /// Connections that open, and a turn's time for them.
    pub(crate) openings: Openings,
    /// The causes for which connections that carry others have ended.
    pub(crate) carrier_ends: CarrierEnds,
}

impl<E: Engine, H: Handler> Core<E, H> {
    /// Puts a link's next deadline into the wheel, unless an earlier entry will look at it.
    pub(crate) fn schedule(&mut self, link: &mut Link<E::Session, H::State>) {
        let (at, _) = self.dialer.next_deadline(link, &self.shared.config.deadlines);
        link.clock.scheduled = self.wheel.schedule(link.token, at, link.clock.scheduled);
    }
}
