//! A shard: one thread's loop with its driver, connections, timers and commands.

use crate::accept::admission::{Admission, SharedLimits};
use crate::accept::openings::Openings;
use crate::close::carrier_ends::CarrierEnds;
use crate::close::draining::Draining;
use crate::close::restart::Restart;
use crate::config::Config;
use crate::conn::Conn;
use crate::counts::counters::{Counters, LiveCounters};
use crate::dial::dialing::Dialer;
use crate::dial::target::Target;
use crate::handler::Handler;
use crate::http::access_table::AccessTable;
use crate::http::accessing::Accessing;
use crate::http::date::DateCache;
use crate::ids::{ConnId, DialId};
use crate::link::phase::Phase;
use crate::memory::account::Account;
use crate::memory::batch_alloc::BatchAlloc;
use crate::moving::restored::Moving;
use crate::offload::{HandshakePool, Offloading, RecordPool};
use crate::peer_log::PeerLog;
use crate::probe::{Probe, Sends, Stages};
use crate::raw::joining::Joining;
use crate::threads::remote::{InTurn, ShardHandle};
use crate::topics::broker::Bridge;
use crate::topics::closings::Closings;
use crate::topics::joining::Joined;
use crate::topics::letters::Letters;
use crate::topics::publications::Publications;
use crate::topics::topic::Topics;
use crate::turn::clock::Clock;
use crate::turn::core::Core;
use crate::turn::links::Links;
use crate::turn::panics::Application;
use crate::turn::reactor::Reactor;
use crate::turn::shared::{Passing, Shared};
use crate::turn::slow::SlowTurns;
use crate::turn::stall::Stall;
use crate::turn::timer::Wheel;
use crate::turn::timers::Timers;
use crate::turn::visit::Visit;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tautline_buf::Pool;
use tautline_conn::keys::Keys;
use tautline_io::{Address, Driver, KernelTls, ListenOptions};
use tautline_tls::Engine;
use tautline_ws::CloseCode;
use tautline_ws::deflate::SharedDeflater;

/// A loop that owns its sockets, TLS sessions, buffers and timers, and shares nothing on the message path.
///
/// [`run`](Self::run) runs it, and [`turn`](Self::turn) runs one turn. With a [`Probe`] it measures the stages of messages.
///
/// TLS engine and application are type parameters, since calls per record and per message are worth inlining. The driver is
/// not. Its virtual calls, one per system call, have no measurable cost (`docs/experiments.md`). A loop per driver would
/// multiply the code.
///
/// ```
/// # mod tautline {
/// #     pub use tautline_engine::{Config, Conn, Handler, Shard};
/// #     pub use tautline_io::{DriverConfig, ListenOptions};
/// #     pub use tautline_ws::Message;
/// #     pub mod layers { pub use tautline_tls as tls; }
/// # }
/// use std::{sync::Arc, time::Duration};
/// use tautline::layers::tls::plain;
/// use tautline::{Config, Conn, DriverConfig, Handler, ListenOptions, Message, Shard};
///
/// struct Echo;
///
/// impl Handler for Echo {
///     type State = ();
///     fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
///         conn.send((&message).into());
///     }
/// }
///
/// let driver = DriverConfig::default().open()?;
/// let mut shard = Shard::new(0, Arc::new(Config::default()), plain::Engine, driver, Echo)?;
/// println!("ws://{}", shard.listen(&"127.0.0.1:0".parse()?, &ListenOptions::default())?);
/// shard.turn(Some(Duration::ZERO))?; // or `run`, which turns until the shard is drained
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Shard<E: Engine, H: Handler> {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) reactor: Reactor<E, H>,
}

impl<E: Engine, H: Handler> Shard<E, H> {
    /// A shard without sockets. `number` identifies it among the shards of a server.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(
        number: u32,
        config: Arc<Config>,
        engine: E,
        driver: impl Into<Box<dyn Driver>>,
        handler: H,
    ) -> io::Result<Self> {
        let driver = driver.into();
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| io::Error::other(format!("no random numbers: {error}")))?;
        let counters = Arc::<LiveCounters>::default();
        let (remote, commands) = ShardHandle::new::<H>(number, driver.waker(), counters.clone());
        let admission = Admission::new(SharedLimits::default(), &config.limits, remote.clone());
        let clock = Clock::default();
        let shared = Shared {
            shard: number,
            pool: Pool::new(config.limits.pool),
            shared_deflater: SharedDeflater::new(config.upgrade.deflate.map_or(0, |deflate| deflate.level)),
            config,
            scratch: None,
            keys: Keys::new(seed),
            counters,
            published: remote.published().clone(),
            records: None,
            peer_log: PeerLog::default(),
            topics: Topics::default(),
            timers: Timers::new(),
            letters: Letters::default(),
            closings: Closings::default(),
            publications: Publications::default(),
            dirty: Vec::new(),
            passing: Passing::default(),
            remote,
            others: Vec::new(),
            bridge: None,
            now: clock.read(),
            clock,
            dates: DateCache::default(),
            drain_end: None,
            probe: None,
            resting: VecDeque::new(),
            visit: Visit::default(),
            times: None,
            sends: None,
            amid_pieces: false,
            joining: Joining::default(),
            budget: admission.budget().clone(),
            account: Account::default(),
        };
        let log = shared.config.access_log.clone().map(|log| Box::new(AccessTable::new(log, &shared.counters)));
        let core = Core {
            kernel_tls: if engine.is_plain() { KernelTls::Off } else { driver.kernel_tls() },
            engine,
            application: Application::new(handler),
            links: Links::new(),
            batch_alloc: BatchAlloc::new(),
            shared,
            wheel: Wheel::new(),
            admission,
            access: Accessing { table: log },
            dialer: Dialer::default(),
            offloading: Offloading::new(),
            openings: Openings::default(),
            carrier_ends: CarrierEnds::default(),
        };
        let reactor = Reactor {
            core,
            due: Vec::new(),
            commands,
            commands_left: false,
            draining: None,
            walk: Vec::new(),
            joined: Joined::default(),
            is_started: false,
            unserved: 0,
            slow_turns: SlowTurns::new(),
            stall: Stall::default(),
            moving: Moving::new(),
        };
        Ok(Self { driver, reactor })
    }

    /// Sets the probe that observes messages. It works without times of arrival if the driver does not know them.
    pub fn set_probe(&mut self, mut probe: Box<dyn Probe>) {
        if let Err(error) = probe.begin(&mut *self.driver) {
            log::info!("the driver does not tell the time at which bytes arrived: {error}");
        }
        if self.reactor.core.engine.is_plain() {
            probe.without_tls();
        }
        self.reactor.core.shared.sends = probe.times_sends().then(Sends::new);
        self.reactor.core.shared.probe = Some(probe);
    }

    /// Listens at `address`, and returns the actual address, with its port.
    ///
    /// # Errors
    /// The error of `socket(2)`, `bind(2)` or `listen(2)`.
    pub fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<Address> {
        self.driver.listen(address, options).map(|(_, bound)| bound)
    }

    /// Begins to connect to `target`. [`Handler::on_open`] or [`Handler::on_connect_failed`] follows in a later turn.
    pub fn connect(&mut self, target: Arc<Target>) -> DialId {
        self.reactor.core.shared.refresh();
        let id = self.reactor.core.shared.remote.dials().begin();
        self.reactor.begin_dial(&mut *self.driver, id, target);
        id
    }

    /// A handle to this shard, for other threads.
    #[must_use]
    pub fn handle(&self) -> ShardHandle {
        self.reactor.core.shared.remote.clone()
    }

    /// Sets the other shards of the same server, which get messages published here.
    pub fn set_others(&mut self, others: Vec<ShardHandle>) {
        self.reactor.core.shared.others = others;
    }

    /// Extends the topics to other hosts, before the first connection.
    pub fn set_bridge(&mut self, bridge: Bridge) {
        bridge.add_shard(self.handle());
        self.reactor.core.shared.bridge = Some(bridge);
        self.reactor.core.shared.topics.are_bridged = true;
    }

    /// Counts connections for limits together with other shards, before the first connection.
    pub fn share_limits(&mut self, limits: SharedLimits) {
        self.reactor.core.admission = Admission::new(limits, &self.reactor.core.shared.config.limits, self.handle());
        self.reactor.core.shared.budget = self.reactor.core.admission.budget().clone();
    }

    /// Sets the pool for expensive handshakes; see [`Offload`](crate::Offload).
    pub fn set_handshake_pool(&mut self, pool: HandshakePool<E::Session>) {
        self.reactor.core.offloading.set_pool(pool, self.driver.waker());
    }

    /// Sets the pool that helps to seal large messages; see [`Records`](crate::Records).
    pub fn set_record_pool(&mut self, pool: RecordPool) {
        self.reactor.core.shared.records = Some(pool);
    }

    /// The shard's application.
    pub const fn handler(&mut self) -> &mut H {
        &mut self.reactor.core.application.handler
    }

    /// The results of the probe so far, if there is one.
    #[must_use]
    pub fn stages(&self) -> Option<Box<Stages>> {
        self.reactor.core.shared.stages()
    }

    /// The probe's results for one outgoing connection, if it has some.
    #[must_use]
    pub fn stages_of(&self, dial: DialId) -> Option<Box<Stages>> {
        self.reactor.core.shared.probe.as_ref().and_then(|probe| probe.stages_of(dial))
    }

    /// The shard's counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.reactor.core.shared.remote.counters()
    }

    /// Calls `act` with the application and an open connection; `None` if the connection is not open.
    ///
    /// Messages sent by `act` leave in the next [`turn`](Self::turn), or at [`flush`](Self::flush).
    pub fn with_conn<R>(&mut self, conn: ConnId, act: impl FnOnce(&mut H, &mut Conn<'_, H::State>) -> R) -> Option<R> {
        let Core { links, shared, application, .. } = &mut self.reactor.core;
        let link = links.get_mut(conn.token)?;
        if !matches!(link.phase, Phase::Open | Phase::Overrun | Phase::CloseQueued) {
            return None;
        }
        // The connection stays in its slot, so the others cannot be lent.
        let mut nobody = Links::<E::Session, H::State>::new();
        let handler = &mut application.handler;
        let result = link.lend(Some(&mut *self.driver), shared, &mut nobody, |conn| act(handler, conn));
        shared.dirty.push(conn.token);
        Some(result)
    }

    /// Sends messages that were sent or published outside a turn.
    pub fn flush(&mut self) {
        self.reactor.deliver_most(&mut *self.driver, usize::MAX);
    }

    /// Waits at most `longest` for events, handles them, and sends the resulting output.
    ///
    /// # Errors
    /// If the driver itself fails.
    pub fn turn(&mut self, longest: Option<Duration>) -> io::Result<()> {
        let _turn = InTurn::begin(&self.reactor.core.shared.remote);
        let woke = self.reactor.core.shared.now;
        self.reactor.core.shared.refresh();
        self.reactor.slow_turns.watch(woke, &self.reactor.core.shared, &self.reactor.core.links);
        if !self.reactor.is_started {
            self.reactor.is_started = true;
            let Core { application, shared, .. } = &mut self.reactor.core;
            application.guard_shard(shared, format_args!("the begin of the shard"), H::on_start);
        }
        if self.reactor.draining.is_some() {
            self.reactor.go_on_draining(&mut *self.driver);
        }
        self.reactor.deliver(&mut *self.driver);
        let wait = self.reactor.wait(longest);
        let (began, bytes) = (self.reactor.core.shared.now, self.reactor.core.shared.counters.bytes_in.get());
        self.driver.turn(wait, &mut self.reactor)?;
        let Reactor { stall, core: Core { shared, .. }, .. } = &mut self.reactor;
        stall.look(woke, began, wait, shared.now);
        if !stall.goes_on(shared.counters.bytes_in.get() != bytes, shared.now) {
            self.reactor.expire_links(&mut *self.driver);
        }
        self.reactor.expire(&mut *self.driver);
        if self.reactor.core.shared.timers.is_due(self.reactor.core.shared.now) {
            self.reactor.expire_timers(&mut *self.driver);
        }
        self.reactor.deliver(&mut *self.driver);
        if self.reactor.core.openings.are_waiting() {
            self.reactor.step_oldest(&mut *self.driver, Openings::go_on);
        }
        self.reactor.go_on_resting(&mut *self.driver);
        if self.reactor.core.admission.has_reason(&self.reactor.core.shared) {
            self.reactor.keep_limits(&mut *self.driver);
        }
        let Core { application, shared, .. } = &mut self.reactor.core;
        if shared.sends.is_some() {
            application.report_sends(shared);
        }
        Ok(())
    }

    /// Counts and logs turns that take [`Config::slow_turn`](crate::Config::slow_turn) or longer, from now on.
    ///
    /// A turn lasts until the next one begins, so the program must call [`turn`](Self::turn) again at once.
    /// [`run`](Self::run) does both.
    pub fn watch_turns(&mut self) {
        self.reactor.core.shared.refresh();
        self.reactor.slow_turns.begin(self.reactor.core.shared.config.slow_turn);
    }

    /// Runs turns until a [drain](ShardHandle::drain) has ended.
    ///
    /// # Errors
    /// If the driver itself fails.
    pub fn run(&mut self) -> io::Result<()> {
        self.watch_turns();
        while !self.is_drained() {
            self.turn(None)?;
        }
        Ok(())
    }

    /// Whether there is no connection and no attempt to connect.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.reactor.core.dialer.dials.is_empty() && self.reactor.core.shared.counters.connections.get() == 0
    }

    /// Ends the shard at once, with a reset of its connections, and returns the application.
    pub fn into_handler(self) -> H {
        self.reactor.core.application.handler
    }

    /// Whether a drain has begun and no connection is left.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.reactor.core.shared.drain_end.is_some() && self.reactor.core.shared.counters.connections.get() == 0
    }

    /// Begins a drain like [`ShardHandle::drain`], from this thread.
    pub fn drain(&mut self, code: CloseCode, reason: &str, deadline: Duration) {
        self.reactor.core.shared.refresh();
        self.reactor.begin_drain(&mut *self.driver, Draining::new(code, reason), deadline);
    }

    /// Begins a drain like [`ShardHandle::drain_for_restart`], from this thread.
    pub fn drain_for_restart(&mut self, restart: &Restart, deadline: Duration) {
        self.reactor.core.shared.refresh();
        let Core { openings, shared, .. } = &self.reactor.core;
        let draining = Draining::for_restart(restart, deadline, shared, &openings.pace);
        self.reactor.begin_drain(&mut *self.driver, draining, deadline);
    }
}

impl<E: Engine, H: Handler> std::fmt::Debug for Shard<E, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard")
            .field("number", &self.reactor.core.shared.shard)
            .field("driver", &self.driver.name())
            .finish()
    }
}
