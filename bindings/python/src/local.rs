//! Loops in the thread of an event loop, which turns them: no other thread, and no wake-up between the two.

use crate::crossing::{LocalLoop, Orders, Outbox, Shared, Turn};
use crate::fork;
use crate::relay::Relay;
use crate::worker::{self, Plan, apply, look, send_one};
use pyo3::pyfunction;
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::layers::engine::HandshakePool;
use tautline::layers::tls::Engine;
use tautline::{Address, DriverConfig, Kind, Shard};

/// Connections that a turn receives from. Python handles their messages before the next turn, while the cache has them.
pub(crate) const EVENTS: usize = 8;

/// The error of a loop's deadlines, which are whole milliseconds.
const TICK: Duration = Duration::from_millis(2);

thread_local! {
    /// The loops of this thread.
    static LOOPS: RefCell<Vec<(Arc<Outbox>, LocalLoop)>> = const { RefCell::new(Vec::new()) };
}

struct Local<E: Engine> {
    shard: Shard<E, Relay>,
    outbox: Arc<Outbox>,
    orders: Orders,
    /// Whether the caller of a turn is delivering its events, and asks for the next alarm behind them.
    delivers: bool,
    /// When Python will call again.
    alarm: Option<Instant>,
    /// Whether its end has been reported.
    has_stopped: bool,
}

impl<E: Engine> Turn for Local<E> {
    fn descriptor(&self) -> io::Result<RawFd> {
        Ok(self.shard.poll_fd()?.as_raw_fd())
    }

    fn turn(&mut self, timed_out: bool) -> io::Result<()> {
        if timed_out {
            self.alarm = None;
        }
        self.outbox.take(&mut self.orders);
        apply(&mut self.shard, &mut self.orders);
        self.shard.turn(Some(Duration::ZERO))?;
        // The caller takes the events of this turn at once.
        self.delivers = true;
        self.shard.handler().skip_wake();
        Ok(())
    }

    fn obey(&mut self) {
        self.outbox.take(&mut self.orders);
        apply(&mut self.shard, &mut self.orders);
        self.shard.handler().wake();
        if !self.delivers && (self.shard.is_drained() || self.is_sooner()) {
            // The next turn reports the end, or returns the time.
            self.outbox.wake();
        }
    }

    fn send(&mut self, to: &Shared, kind: Kind, payload: &[u8]) {
        self.outbox.take(&mut self.orders);
        apply(&mut self.shard, &mut self.orders);
        send_one(&mut self.shard, to, kind, payload);
        self.shard.flush();
        // Otherwise the sender would wait for bytes that the kernel has.
        look(&mut self.shard, to);
        self.shard.handler().wake();
        if !self.delivers && self.is_sooner() {
            self.outbox.wake();
        }
    }

    fn has_more(&mut self) -> bool {
        self.shard.next_deadline() == Some(Duration::ZERO)
    }

    fn alarm(&mut self) -> Option<Duration> {
        self.delivers = false;
        if self.shard.is_drained() && !self.has_stopped {
            self.has_stopped = true;
            self.shard.handler().stopped();
        }
        let wait = self.shard.next_deadline()?;
        let at = Instant::now() + wait;
        if self.alarm.is_some_and(|alarm| alarm <= at + TICK) {
            return None;
        }
        self.alarm = Some(at);
        Some(wait)
    }
}

impl<E: Engine> Local<E> {
    fn is_sooner(&mut self) -> bool {
        let wait = self.shard.next_deadline();
        wait.is_some_and(|wait| self.alarm.is_none_or(|alarm| Instant::now() + wait + TICK < alarm))
    }
}

/// Makes a loop in this thread. Returns the addresses at which it listens, with actual ports.
pub(crate) fn start<E: Engine>(
    plan: Plan,
    engine: E,
    pool: Option<HandshakePool<E::Session>>,
) -> io::Result<Vec<Address>> {
    let outbox = plan.outbox.clone();
    let mut driver = DriverConfig::default();
    if let DriverConfig::Epoll(config) = &mut driver {
        config.events_per_turn = EVENTS;
    }
    let (shard, addresses) = worker::made(plan, engine, pool, &driver)?;
    outbox.connect_here(shard.handle(), worker::wake, find);
    let local = Local {
        shard,
        outbox: outbox.clone(),
        orders: Orders::default(),
        delivers: false,
        alarm: None,
        has_stopped: false,
    };
    LOOPS.with_borrow_mut(|loops| loops.push((outbox, Rc::new(RefCell::new(local)))));
    Ok(addresses)
}

/// The loop of this thread that takes the operations of `outbox`.
pub(crate) fn find(outbox: &Outbox) -> Option<LocalLoop> {
    let is_it = |one: &&(Arc<Outbox>, LocalLoop)| std::ptr::eq(Arc::as_ptr(&one.0), outbox);
    // The value is gone while the thread ends.
    LOOPS.try_with(|loops| loops.borrow().iter().find(is_it).map(|(_, local)| local.clone())).ok().flatten()
}

/// Drops the loop of this thread that takes the operations of `outbox`, with its connections.
pub(crate) fn end(outbox: &Outbox) {
    let removed = LOOPS.try_with(|loops| {
        let mut loops = loops.borrow_mut();
        let at = loops.iter().position(|one| std::ptr::eq(Arc::as_ptr(&one.0), outbox))?;
        Some(loops.swap_remove(at))
    });
    drop(removed);
}

/// Notes that this process is a new child of fork(2). The package has Python call it.
///
/// The child shares the sockets of the parent's loops, and leaves these loops alone.
#[pyfunction]
pub(crate) fn forked() {
    fork::advance();
    std::mem::forget(LOOPS.take());
}
