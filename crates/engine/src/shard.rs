//! The turn loop: one thread's driver, connections, timers and commands.

use crate::config::Config;
use crate::conn::{Conn, ConnId, DialId};
use crate::dial::{Dial, Target};
use crate::dialing::Resolver;
use crate::handler::Handler;
use crate::link::{Link, Phase, millis};
use crate::message::Publication;
use crate::nursery::Nursery;
use crate::offload::{HandshakePool, Handshakes, RecordPool};
use crate::outbound::Path;
use crate::probe::{Off, Probe, Stages};
use crate::remote::{Command, Commands, Remote};
use crate::shared::{Counters, Keys, Shared};
use crate::timer::{Tick, Wheel};
use crate::topic::Topics;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline_io::{Address, Driver, End, KernelTls, ListenOptions, Listener, Received, Sink, Token};
use tautline_tls::{Engine, Session};
use tautline_window::{Buf, Pool};
use tautline_ws::CloseCode;
use tautline_ws::deflate::Press;

/// One loop: it owns its sockets, TLS sessions, buffers and timers, and shares nothing on the message path.
///
/// Run it with [`run`](Self::run), or turn by turn with [`turn`](Self::turn). With a [`Probe`] it takes the time of messages.
pub struct Shard<E: Engine, D: Driver, H: Handler, P: Probe = Off> {
    pub(crate) driver: D,
    pub(crate) core: Core<E, H, P>,
}

/// Everything of a shard but the driver, which calls it back.
pub(crate) struct Core<E: Engine, H: Handler, P: Probe> {
    pub(crate) probe: P,
    pub(crate) engine: E,
    pub(crate) handler: H,
    pub(crate) slots: Vec<Slot<E::Session, H::State>>,
    pub(crate) nursery: Nursery<Link<E::Session, H::State>>,
    pub(crate) shared: Shared,
    pub(crate) wheel: Wheel,
    pub(crate) due: Vec<Token>,
    pub(crate) commands: Commands,
    pub(crate) remote: Remote,
    pub(crate) dials: HashMap<DialId, Dial>,
    pub(crate) resolver: Resolver,
    pub(crate) dial_timers: BinaryHeap<Reverse<(Tick, DialId)>>,
    pub(crate) next_dial: u32,
    /// Set once a drain was asked for.
    pub(crate) drain_end: Option<Tick>,
    /// Where expensive handshakes go.
    pub(crate) handshakes: Option<Handshakes<E::Session>>,
    /// Until when tickets keep no handshake in the loop.
    pub(crate) distrust_end: Tick,
    /// What of TLS the driver's kernel is to do.
    pub(crate) kernel_tls: KernelTls,
    /// Subscribers, while something is sent to them.
    walk: Vec<Token>,
    accept_paused: bool,
    /// From when on the log is told again that accepting pauses.
    pause_news: Tick,
    epoch: Instant,
}

/// At the limit accepting pauses with each who comes and goes on with each who goes: one line in this time tells.
const PAUSE_NEWS: Tick = 10_000;

pub(crate) enum Slot<S, T> {
    Free,
    Link(Box<Link<S, T>>),
    /// A socket that is still connecting.
    Attempt(Token, DialId),
}

impl<E: Engine, D: Driver, H: Handler> Shard<E, D, H> {
    /// A shard without sockets. `number` tells the shards of one server apart.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new(number: u32, config: Arc<Config>, engine: E, driver: D, handler: H) -> io::Result<Self> {
        Self::with_probe(number, config, engine, driver, handler, Off)
    }
}

impl<E: Engine, D: Driver, H: Handler, P: Probe> Shard<E, D, H, P> {
    /// As [`new`](Shard::new), with a probe. A driver that does not tell when bytes arrived is no obstacle.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn with_probe(
        number: u32,
        config: Arc<Config>,
        engine: E,
        mut driver: D,
        handler: H,
        mut probe: P,
    ) -> io::Result<Self> {
        if let Err(error) = probe.begin(&mut driver) {
            log::info!("when bytes arrive is not known: {error}");
        }
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| io::Error::other(format!("no random numbers: {error}")))?;
        let (remote, commands) = Remote::new(driver.waker());
        let shared = Shared {
            shard: number,
            pool: Pool::new(config.limits.pool),
            press: Press::new(config.upgrade.deflate.map_or(0, |deflate| deflate.level)),
            config,
            scratch: Buf::new(),
            keys: Keys::new(seed),
            counters: Counters::default(),
            records: None,
            topics: Topics::default(),
            publications: Vec::new(),
            dirty: Vec::new(),
            others: Vec::new(),
            now: 0,
        };
        let kernel_tls = if E::Session::PASSTHROUGH { KernelTls::Off } else { driver.kernel_tls() };
        let core = Core {
            probe,
            engine,
            handler,
            slots: Vec::new(),
            nursery: Nursery::new(),
            shared,
            wheel: Wheel::new(),
            due: Vec::new(),
            commands,
            remote,
            dials: HashMap::new(),
            resolver: Resolver::default(),
            dial_timers: BinaryHeap::new(),
            next_dial: 0,
            drain_end: None,
            handshakes: None,
            distrust_end: 0,
            kernel_tls,
            walk: Vec::new(),
            accept_paused: false,
            pause_news: 0,
            epoch: Instant::now(),
        };
        Ok(Self { driver, core })
    }

    /// Listens for clients; returns the address it got.
    ///
    /// # Errors
    /// What `socket(2)`, `bind(2)` and `listen(2)` say.
    pub fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<Address> {
        self.driver.listen(address, options).map(|(_, bound)| bound)
    }

    /// Begins to connect. [`Handler::on_open`] or [`Handler::on_connect_failed`] follows in a later turn.
    pub fn connect(&mut self, target: Arc<Target>) -> DialId {
        self.core.refresh();
        self.core.dial(&mut self.driver, target)
    }

    /// This shard, for other threads.
    #[must_use]
    pub fn remote(&self) -> Remote {
        self.core.remote.clone()
    }

    /// The other shards of the same server, which get what is published here.
    pub fn set_others(&mut self, others: Vec<Remote>) {
        self.core.shared.others = others;
    }

    /// Has expensive handshakes done there; see [`Offload`](crate::Offload).
    pub fn set_handshake_pool(&mut self, pool: HandshakePool<E::Session>) {
        self.core.handshakes = Some(Handshakes::new(pool, self.driver.waker()));
    }

    /// Has large messages sealed with its help; see [`Records`](crate::Records).
    pub fn set_record_pool(&mut self, pool: RecordPool) {
        self.core.shared.records = Some(pool);
    }

    /// The application.
    pub const fn handler(&mut self) -> &mut H {
        &mut self.core.handler
    }

    /// What the probe found so far, where there is one.
    #[must_use]
    pub fn stages(&self) -> Option<Box<Stages>> {
        self.core.probe.stages()
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.core.shared.counters()
    }

    /// Calls `act` with an open connection and the application; `None` where it is not open (any more). What it sends
    /// leaves in the next [`turn`](Self::turn), or at [`flush`](Self::flush).
    pub fn with_conn<R>(&mut self, conn: ConnId, act: impl FnOnce(&mut H, &mut Conn<'_, H::State>) -> R) -> Option<R> {
        let core = &mut self.core;
        let Some(Slot::Link(link)) = core.slots.get_mut(conn.token.index as usize) else { return None };
        if link.token != conn.token || !matches!(link.phase, Phase::Open) {
            return None;
        }
        let result = link.lend(&mut self.driver, &mut core.shared, |conn| act(&mut core.handler, conn));
        core.shared.dirty.push(conn.token);
        Some(result)
    }

    /// Sends what was made outside a turn.
    pub fn flush(&mut self) {
        self.core.deliver(&mut self.driver);
    }

    /// Waits for events at most `longest`, handles them, and sends what came of it.
    ///
    /// # Errors
    /// Only what makes the driver itself useless.
    pub fn turn(&mut self, longest: Option<Duration>) -> io::Result<()> {
        self.core.refresh();
        self.core.deliver(&mut self.driver);
        let wait = self.core.wait(longest);
        self.driver.turn(wait, &mut self.core)?;
        self.core.expire(&mut self.driver);
        self.core.deliver(&mut self.driver);
        self.core.bound_accepting(&mut self.driver);
        Ok(())
    }

    /// Turns until a [drain](Remote::drain) has ended.
    ///
    /// # Errors
    /// Only what makes the driver itself useless.
    pub fn run(&mut self) -> io::Result<()> {
        while !self.is_drained() {
            self.turn(None)?;
        }
        Ok(())
    }

    /// Whether nothing is connected or tries to be.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.core.dials.is_empty() && self.core.shared.counters.connections == 0
    }

    /// Ends the shard without ceremony; its connections are reset.
    pub fn into_handler(self) -> H {
        self.core.handler
    }

    /// Whether a drain was asked for and no connection is left.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.core.drain_end.is_some() && self.core.shared.counters.connections == 0
    }

    /// Begins what [`Remote::drain`] says, from this thread.
    pub fn drain(&mut self, code: CloseCode, reason: &str, deadline: Duration) {
        self.core.refresh();
        self.core.drain(&mut self.driver, code, reason, deadline);
    }
}

impl<E: Engine, H: Handler, P: Probe> Core<E, H, P> {
    /// Reads the clock. Once a turn: every deadline is good to a few milliseconds.
    pub(crate) fn refresh(&mut self) {
        self.shared.now = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX);
    }

    /// Takes a link out of its slot, so that it and the rest of the shard can change independently.
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

    pub(crate) fn put(&mut self, token: Token, slot: Slot<E::Session, H::State>) {
        let index = token.index as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || Slot::Free);
        }
        self.slots[index] = slot;
    }

    /// Puts a link's next deadline into the wheel, where it is not there already.
    pub(crate) fn schedule(&mut self, link: &mut Link<E::Session, H::State>) {
        let (at, _) = link.next_due(&self.shared.config.deadlines);
        if at < link.clock.scheduled || link.clock.scheduled <= self.shared.now {
            link.clock.scheduled = self.wheel.insert(link.token, at);
        }
    }

    /// Delivers publications and flushes every connection that has output from outside its own turn.
    pub(crate) fn deliver<D: Driver>(&mut self, driver: &mut D) {
        // A handler that publishes in reaction to what is delivered here goes on in the next turn.
        let mut publications = std::mem::take(&mut self.shared.publications);
        let mut rest = &publications[..];
        while let Some(first) = rest.first() {
            // One walk for what was published to a topic in a row.
            let len = rest.iter().take_while(|publication| publication.topic == first.topic).count();
            let (run, behind) = rest.split_at(len);
            self.deliver_run(driver, run, behind.is_empty());
            rest = behind;
        }
        publications.clear();
        if self.shared.publications.is_empty() {
            self.shared.publications = publications;
        }
        let mut dirty = std::mem::take(&mut self.shared.dirty);
        for token in dirty.drain(..) {
            if let Some(mut link) = self.take(token) {
                link.dirty = false;
                self.settle(driver, link);
            }
        }
        if self.shared.dirty.is_empty() {
            self.shared.dirty = dirty;
        }
    }

    /// Sends publications of one topic to its subscribers. After the `last` of a turn each is flushed at once: the next
    /// takes the same buffers over while they are in the cache, however many there are.
    fn deliver_run<D: Driver>(&mut self, driver: &mut D, run: &[Publication], last: bool) {
        let mut walk = std::mem::take(&mut self.walk);
        walk.clear();
        walk.extend_from_slice(run.first().map_or(&[], |first| self.shared.topics.subscribers(&first.topic)));
        for &token in &walk {
            let Some(mut link) = self.take(token) else { continue };
            for publication in run {
                self.shared.publish_to(driver, &mut link, publication);
            }
            if last {
                self.settle(driver, link);
            } else {
                self.shared.mark_dirty(&mut link);
                self.put(token, Slot::Link(link));
            }
        }
        self.walk = walk;
    }

    /// Sends a message of another thread to one connection, with what else this turn brings.
    fn send_to<D: Driver>(&mut self, driver: &mut D, token: Token, publication: &Publication) {
        let Some(mut link) = self.take(token) else { return };
        self.shared.publish_to(driver, &mut link, publication);
        self.shared.mark_dirty(&mut link);
        self.put(token, Slot::Link(link));
    }

    fn wait(&self, longest: Option<Duration>) -> Option<Duration> {
        let now = self.shared.now;
        if !self.shared.dirty.is_empty() || !self.shared.publications.is_empty() {
            return Some(Duration::ZERO);
        }
        let timers = [
            self.wheel.wait(now),
            self.dial_timers.peek().map(|Reverse((at, _))| at.saturating_sub(now)),
            self.drain_end.map(|end| end.saturating_sub(now)),
        ];
        let timer = timers.into_iter().flatten().min().map(Duration::from_millis);
        match (timer, longest) {
            (Some(timer), Some(longest)) => Some(timer.min(longest)),
            (timer, longest) => timer.or(longest),
        }
    }

    /// Leaves new connections in the kernel's backlog while there are too many.
    fn bound_accepting<D: Driver>(&mut self, driver: &mut D) {
        let (limits, counters) = (&self.shared.config.limits, &self.shared.counters);
        let full = counters.connections >= limits.max_connections as u64
            || counters.handshaking >= limits.max_handshakes as u64;
        if full != self.accept_paused {
            self.accept_paused = full;
            driver.pause_accept(full);
            if full && self.shared.now >= self.pause_news {
                self.pause_news = self.shared.now + PAUSE_NEWS;
                log::warn!(
                    "accepting pauses: {} connections, {} of them in their handshake",
                    counters.connections,
                    counters.handshaking
                );
            }
        }
    }

    fn obey<D: Driver>(&mut self, driver: &mut D, command: Command) {
        match command {
            Command::Publish(publication) => self.shared.publications.push(publication),
            Command::Send { to, publication } => self.send_to(driver, to.token, &publication),
            Command::Close { conn, code, reason } => {
                if let Some(Slot::Link(link)) = self.slots.get_mut(conn.token.index as usize)
                    && link.token == conn.token
                    && matches!(link.phase, Phase::Open)
                {
                    link.out.close(code, &reason);
                    self.shared.dirty.push(conn.token);
                }
            }
            Command::Drain { code, reason, deadline } => self.drain(driver, code, &reason, deadline),
            // Whoever asked may have given up waiting.
            Command::Count(reply) => drop(reply.try_send(self.shared.counters())),
            Command::Stages(reply) => drop(reply.try_send(self.probe.stages())),
            Command::Resolved { dial, result } => self.resolved(driver, dial, result),
        }
    }
}

impl Shared {
    fn publish_to<D: Driver, S: Session, T>(
        &mut self,
        driver: &mut D,
        link: &mut Link<S, T>,
        publication: &Publication,
    ) {
        if !matches!(link.phase, Phase::Open) {
            return;
        }
        let Link { token, session, out, .. } = link;
        if out.is_blocked() {
            // However much is published at once: slow is who the kernel takes no more for.
            out.flush(driver, *token, session, self);
        }
        out.publish(publication, &mut Path { driver, token: *token, session }, self);
    }

    fn mark_dirty<S, T>(&mut self, link: &mut Link<S, T>) {
        if !link.dirty {
            link.dirty = true;
            self.dirty.push(link.token);
        }
    }
}

impl<E: Engine, H: Handler, P: Probe, D: Driver> Sink<D> for Core<E, H, P> {
    fn woke(&mut self, _driver: &mut D) {
        self.probe.woke();
        self.refresh();
    }

    fn accepted(&mut self, driver: &mut D, token: Token, _listener: Listener) {
        self.shared.counters.accepted += 1;
        let Some(peer) = driver.peer(token) else {
            // It was reset in the backlog.
            driver.close(token, true);
            return;
        };
        match self.engine.accept() {
            Ok(session) => {
                let phase = if E::Session::PASSTHROUGH { Phase::Request(self.empty_head()) } else { Phase::Tls };
                self.open_link(token, phase, session, peer, None);
                self.bound_accepting(driver);
            }
            Err(error) => {
                log::error!("{peer}: not accepted: {error}");
                driver.close(token, true);
            }
        }
    }

    fn connected(&mut self, driver: &mut D, token: Token) {
        self.attempt_connected(driver, token);
    }

    fn received(&mut self, driver: &mut D, token: Token, data: Received<'_>) {
        self.probe.received(driver);
        let Some(mut link) = self.take(token) else { return };
        self.shared.counters.bytes_in += data.len() as u64;
        link.clock.heard = self.shared.now;
        link.ping_sent = false;
        let mut scratch = std::mem::take(&mut self.shared.scratch);
        let result = self.input(driver, &mut link, data, &mut scratch);
        self.shared.scratch = scratch;
        if let Err(stop) = result {
            self.stop(&mut link, stop);
        }
        self.settle(driver, link);
    }

    fn sent(&mut self, driver: &mut D, token: Token, buf: Buf) {
        let Some(mut link) = self.take(token) else { return };
        link.out.sent(buf, &mut self.shared.pool);
        if matches!(link.phase, Phase::CloseSent | Phase::Linger) {
            link.clock.phase_end = self.shared.now + millis(self.shared.config.deadlines.close);
            self.schedule(&mut link);
        }
        self.settle(driver, link);
    }

    fn ended(&mut self, driver: &mut D, token: Token, end: End) {
        if let Some(Slot::Attempt(attempt, dial)) = self.slots.get(token.index as usize)
            && *attempt == token
        {
            let dial = *dial;
            self.attempt_failed(driver, token, dial, end);
            return;
        }
        let Some(mut link) = self.take(token) else { return };
        self.peer_ended(&mut link, end);
        self.settle(driver, link);
    }

    fn woken(&mut self, driver: &mut D) {
        while let Some(command) = self.commands.next() {
            self.obey(driver, command);
        }
        for done in self.handshakes.as_ref().map(Handshakes::done).unwrap_or_default() {
            self.come_back(driver, done);
        }
    }

    fn accept_failed(&mut self, _driver: &mut D, error: io::Error) {
        log::error!("cannot accept connections: {error}; raise the limit of open files (ulimit -n) or close some");
    }
}

impl<E: Engine, D: Driver, H: Handler, P: Probe> std::fmt::Debug for Shard<E, D, H, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard").field("number", &self.core.shared.shard).field("driver", &D::NAME).finish()
    }
}
