use crate::app::{App, LATE};
use crate::driver::{Driver, simulate};
use crate::host::Host;
use crate::ledger::{GOODBYE, Ledger};
use crate::network::{Event, Net};
use crate::plan::{CALM, Plan, Role, proxy_address, server_address};
use crate::trace::{Clock, SECOND, Time};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tautline_engine::{Config, Handler, Holdings, Shard, SharedLimits, Target};
use tautline_io::ListenOptions;
use tautline_proxy::edge::Edge;
use tautline_testkit::Random;
use tautline_tls::Engine;
use tautline_ws::CloseCode;

/// By now, everything that was sent on an open connection has arrived.
const CHECK: Time = 45 * SECOND;
/// By now, all connections have been closed and have ended.
const END: Time = 60 * SECOND;
/// By now, the last entries of timers are gone: they lie at most 66 seconds ahead.
const SILENCE: Time = 140 * SECOND;
/// Turns of one host after which it does not wait any more, but spins.
const MOST_TURNS: u64 = 300_000;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// A hash of every event. It is the same whenever the seed is.
    pub trace: u64,
    /// Number of events.
    pub events: u64,
    /// WebSocket connections, counted at both ends.
    pub opened: u64,
    /// Messages that arrived.
    pub messages: u64,
    /// Breaches of what is promised.
    pub findings: Vec<String>,
}

/// Servers, clients and the network between them.
pub(crate) struct World<E: Engine> {
    pub(crate) plan: Plan,
    pub(crate) net: Rc<RefCell<Net>>,
    pub(crate) ledger: Rc<RefCell<Ledger>>,
    /// Servers, then clients.
    pub(crate) hosts: Vec<Shard<E, App>>,
    /// The hosts behind those.
    pub(crate) proxies: Vec<Shard<E, Edge>>,
    pub(crate) target: Target,
    pub(crate) clock: Clock,
    next_close: Time,
    is_checked: bool,
    is_ended: bool,
}

impl<E: Engine> World<E> {
    /// A world before its first event. `engine` makes the TLS engine of a host.
    pub(crate) fn new(
        plan: Plan,
        (seed, prints): (u64, bool),
        target: Target,
        engine: impl Fn(Role) -> E,
    ) -> io::Result<Self> {
        let clock = Clock::default();
        let net = Net::new(clock.clone(), seed, plan.weather.clone(), prints);
        let net = Rc::new(RefCell::new(net));
        let ledger = Rc::new(RefCell::new(Ledger::new(plan.is_lossy)));
        let mut world = Self {
            hosts: Vec::new(),
            proxies: Vec::new(),
            plan,
            net,
            ledger,
            target,
            clock,
            next_close: CHECK,
            is_checked: false,
            is_ended: false,
        };
        world.target.address = Some(if world.plan.proxies.is_some() { proxy_address() } else { server_address() });
        world.target.deflate = world.plan.deflate;
        for host in 0..world.plan.servers + world.plan.clients {
            let is_server = host < world.plan.servers;
            world.add_host(is_server, engine(if is_server { Role::Server } else { Role::Client }))?;
        }
        world.connect_servers()?;
        world.add_proxies(|| engine(Role::Proxy))?;
        for act in 0..world.plan.actions {
            let at = world.net.borrow_mut().random.next() % CALM;
            // The first connections begin at once.
            let at = if act < 5 { at / 100 } else { at };
            world.net.borrow_mut().schedule(at, Event::Act(act));
        }
        Ok(world)
    }

    fn add_host(&mut self, is_server: bool, engine: E) -> io::Result<()> {
        let host = self.hosts.len();
        let random = Random::new(self.net.borrow_mut().random.next());
        self.net.borrow_mut().hosts.push(Host { due: Some(0), ..Host::default() });
        let driver = Driver { net: self.net.clone(), host };
        let app = App {
            host,
            is_server,
            net: self.net.clone(),
            ledger: self.ledger.clone(),
            random,
            conns: Vec::new(),
            longest: self.plan.longest_message,
            later: self.plan.later,
            tickets: RefCell::default(),
            handles: RefCell::default(),
            beat: Cell::default(),
        };
        let config: Arc<Config> = if is_server { self.plan.server.clone() } else { self.plan.client.clone() };
        let driver: Box<dyn tautline_io::Driver> = Box::new(driver);
        let mut shard = Shard::new(u32::try_from(host).unwrap_or(0), config, engine, driver, app)?;
        simulate(&self.net, &mut shard);
        self.hosts.push(shard);
        Ok(())
    }

    /// Makes the servers loops of one server.
    fn connect_servers(&mut self) -> io::Result<()> {
        let servers = &mut self.hosts[..self.plan.servers];
        let limits = SharedLimits::default();
        let handles: Vec<_> = servers.iter().map(Shard::handle).collect();
        for (number, shard) in servers.iter_mut().enumerate() {
            shard.share_limits(limits.clone());
            let others = handles.iter().enumerate().filter(|(other, _)| *other != number);
            shard.set_others(others.map(|(_, handle)| handle.clone()).collect());
            shard.listen(&server_address(), &ListenOptions::default())?;
        }
        Ok(())
    }

    /// Runs until everything has ended.
    pub(crate) fn run(mut self) -> Outcome {
        while let Some(at) = self.next() {
            self.clock.set(at.max(self.clock.now()));
            self.pass();
            while let Some(event) = self.pop() {
                match event {
                    Event::Act(u32::MAX) => self.resume_all(),
                    Event::Act(_) => self.act(),
                    event => self.net.borrow_mut().handle(event),
                }
            }
            for host in self.runnable() {
                self.turn(host);
            }
        }
        self.outcome()
    }

    fn pop(&self) -> Option<Event> {
        self.net.borrow_mut().pop_due()
    }

    /// The time at which something happens next. `None` if nothing does.
    fn next(&self) -> Option<Time> {
        let net = self.net.borrow();
        if !net.findings.is_empty() {
            return None;
        }
        let turns = (0..net.hosts.len()).filter_map(|host| self.wake_at(&net, host));
        let next = turns.chain(net.next_event()).min();
        let own = if !self.is_checked {
            Some(CHECK)
        } else if !self.is_ended {
            Some(if self.plan.drains { END } else { self.next_close.min(END) })
        } else {
            None
        };
        next.into_iter().chain(own).min().filter(|at| *at < SILENCE)
    }

    fn wake_at(&self, net: &Net, host: usize) -> Option<Time> {
        let is_drained = match self.hosts.get(host) {
            Some(shard) => shard.is_drained(),
            None => self.proxies[host - self.hosts.len()].is_drained(),
        };
        if is_drained {
            return None;
        }
        let now = self.clock.now();
        let host = &net.hosts[host];
        let has_events = !host.ready.is_empty() || host.can_accept() || host.woken.load(Ordering::Relaxed);
        let at = if has_events { Some(now) } else { host.due };
        at.map(|at| at.max(host.busy_until))
    }

    /// The hosts that run now, in any order.
    fn runnable(&self) -> Vec<usize> {
        let mut net = self.net.borrow_mut();
        let now = self.clock.now();
        let is_due = |host: &usize| self.wake_at(&net, *host).is_some_and(|at| at <= now);
        let mut hosts: Vec<usize> = (0..net.hosts.len()).filter(is_due).collect();
        for at in (1..hosts.len()).rev() {
            hosts.swap(at, net.random.below(at + 1));
        }
        hosts
    }

    fn turn(&mut self, host: usize) {
        // A wait of the loop must begin behind everything that other loops have told it.
        let result = match host.checked_sub(self.hosts.len()) {
            None => self.hosts[host].turn(None),
            Some(proxy) => self.proxies[proxy].turn(None),
        };
        let mut guard = self.net.borrow_mut();
        let net = &mut *guard;
        if let Err(error) = result {
            net.find(format!("the loop of host {host} failed: {error}"));
        }
        let cost = 1 + net.random.next() % net.weather.turn;
        let state = &mut net.hosts[host];
        state.busy_until = state.busy_until.max(self.clock.now() + cost);
        if state.turns > MOST_TURNS {
            net.find(format!("host {host} spins: {MOST_TURNS} turns"));
        }
        drop(guard);
        if host < self.plan.servers {
            self.check_limits();
        }
        self.check_bounds(host);
    }

    fn check_limits(&self) {
        let servers = &self.hosts[..self.plan.servers];
        let connections: u64 = servers.iter().map(|shard| shard.counters().connections).sum();
        // Each loop notices only at its next accept that the others have reached the limit.
        let most = self.plan.server.limits.max_connections + self.plan.servers - 1;
        if connections > most as u64 {
            self.net.borrow_mut().find(format!("{connections} connections, but the limit is {most}"));
        }
    }

    /// Checks, and ends things, when their time has come.
    fn pass(&mut self) {
        let now = self.clock.now();
        if now >= CHECK && !self.is_checked {
            self.is_checked = true;
            self.ledger.borrow_mut().check_calm();
            self.check_holes();
            self.check_timers(now);
            self.check_memory();
            if self.plan.drains {
                self.drain_all();
            }
        }
        if now >= self.next_close && !self.plan.drains && !self.is_ended {
            self.next_close = now + SECOND;
            self.close_all();
        }
        if now >= END && !self.is_ended {
            self.is_ended = true;
            self.ledger.borrow_mut().check_end();
            for (host, shard) in self.hosts.iter().enumerate() {
                if let Some(left) = left(shard) {
                    self.net.borrow_mut().find(format!("host {host} has not ended: {left:?}"));
                }
            }
            self.check_proxies_ended();
        }
    }

    /// No timer is late, and none of a shard is left.
    fn check_timers(&mut self, now: Time) {
        for (host, shard) in self.hosts.iter_mut().enumerate() {
            let mut late: Vec<Time> = shard.handler().beat.get().into_iter().collect();
            for id in shard.handler().conns.clone() {
                let timers = shard.with_conn(id, |_, conn| conn.state().timers.clone()).unwrap_or_default();
                late.extend(timers.into_values());
            }
            if let Some(due) = late.into_iter().find(|due| due + LATE < now) {
                self.net.borrow_mut().find(format!("a timer of host {host} was due at {due}, and has not rung"));
            }
        }
    }

    /// Nothing happens any more, so the servers use no more memory than their limit. Unused buffers go when others need
    /// memory, so they may exceed it.
    fn check_memory(&self) {
        let used = |shard: &Shard<E, App>| shard.counters().memory() - shard.counters().memory_pooled;
        let used: u64 = self.hosts[..self.plan.servers].iter().map(used).sum();
        let limit = self.plan.server.limits.memory as u64;
        if used > limit {
            self.net.borrow_mut().find(format!("the servers use {used} bytes, and their limit is {limit}"));
        }
    }

    fn drain_all(&mut self) {
        for host in 0..self.hosts.len() {
            let (code, deadline) = if host < self.plan.servers { (1012, 3) } else { (1001, 6) };
            self.hosts[host].drain(CloseCode::new(code), "the end", Duration::from_secs(deadline));
            self.due_now(host);
        }
        self.drain_proxies();
    }

    /// Has the clients close all connections. Further ones may open, which waited for the server's limit.
    fn close_all(&mut self) {
        for host in self.plan.servers..self.hosts.len() {
            for id in self.hosts[host].handler().conns.clone() {
                self.hosts[host].with_conn(id, |_, conn| conn.close(CloseCode::new(GOODBYE), ""));
            }
            self.due_now(host);
        }
    }

    fn check_holes(&self) {
        let dropped: u64 = self.hosts.iter().map(|shard| shard.counters().messages_dropped).sum();
        let holes = self.ledger.borrow().holes();
        if holes > dropped {
            self.net.borrow_mut().find(format!("{holes} messages are lost, but only {dropped} count as dropped"));
        }
    }

    /// Has a host turn, since its application has done something outside a turn.
    pub(crate) fn due_now(&self, host: usize) {
        self.net.borrow_mut().hosts[host].due = Some(self.clock.now());
    }

    fn outcome(self) -> Outcome {
        let mut findings = self.net.borrow().findings.clone();
        findings.extend(self.ledger.borrow().findings.iter().cloned());
        if findings.is_empty() {
            let most = self.plan.server.limits.pool.max(self.plan.client.limits.pool);
            for (host, shard) in self.hosts.iter().enumerate() {
                if let Some(held) = held(shard, most) {
                    findings.push(format!("host {host} holds {held:?} after everything has ended"));
                }
            }
            findings.extend(self.held_by_proxies());
            let counted: u64 = self.hosts.iter().map(|shard| shard.counters().messages_in).sum();
            let (received, opened) = (self.ledger.borrow().received, self.ledger.borrow().opened);
            let counted_open: u64 = self.hosts.iter().map(|shard| shard.counters().opened).sum();
            // Messages behind our own close frame count, and are not delivered.
            if counted < received || counted_open != opened {
                let opened = format!("{counted_open} opened connections count, and {opened} were reported");
                findings.push(format!("{counted} messages count, and {received} were delivered; {opened}"));
            }
        }
        let (net, ledger) = (self.net.borrow(), self.ledger.borrow());
        Outcome {
            trace: net.trace.hash(),
            events: net.trace.events,
            opened: ledger.opened,
            messages: ledger.received,
            findings,
        }
    }
}

/// The connections that a loop still has at the end, if it has any or still works.
pub(crate) fn left<E: Engine, H: Handler>(shard: &Shard<E, H>) -> Option<[u64; 4]> {
    let counters = shard.counters();
    let left = [counters.connections, counters.handshaking, counters.http, counters.open];
    (left != [0; 4] || !shard.is_idle()).then_some(left)
}

/// The holdings of a loop after everything has ended, if it holds anything but pooled buffers of at most this size.
pub(crate) fn held<E: Engine, H: Handler>(shard: &Shard<E, H>, most_pooled: usize) -> Option<Holdings> {
    let holdings = shard.holdings();
    let mut nothing = Holdings::default();
    nothing.pooled = holdings.pooled;
    if shard.is_drained() {
        // Its loop has ended before its last timers.
        nothing.timers = holdings.timers;
    }
    (holdings != nothing || holdings.pooled > most_pooled).then_some(holdings)
}
