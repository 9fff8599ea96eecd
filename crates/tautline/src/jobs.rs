//! Work for a loop's thread, between two turns.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tautline_engine::probe::{Probe, Stages};
use tautline_engine::{ConnId, Handler, Movers, Shard, ShardHandle, Staying, Target, Totals};
use tautline_io::{Address, ListenOptions};
use tautline_tls::Engine;

/// A [`Shard`] without the types of its engine and application, so that its callers are compiled once.
pub(crate) trait Loop {
    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<Address>;
    fn listen_on(&mut self, socket: OwnedFd) -> io::Result<Address>;
    fn connect(&mut self, target: Arc<Target>);
    fn handle(&self) -> ShardHandle;
    fn set_others(&mut self, others: Vec<ShardHandle>);
    fn set_probe(&mut self, probe: Box<dyn Probe>);
    fn stages(&self) -> Option<Box<Stages>>;
    fn watch_turns(&mut self);
    fn turn(&mut self) -> io::Result<()>;
    fn is_idle(&self) -> bool;
    fn is_drained(&self) -> bool;
    fn settle(&mut self);
    fn hold_still(&mut self) -> io::Result<()>;
    fn begin_move(&mut self);
    fn save_ahead<'s>(&'s mut self, from: usize, give: &mut GiveAhead<'_, 's>) -> io::Result<Option<usize>>;
    fn save<'s>(&'s mut self, give: &mut Give<'_, 's>) -> io::Result<Staying>;
    fn give_away(&mut self, conns: &[ConnId]);
    fn listening(&self) -> io::Result<Vec<OwnedFd>>;
    fn give_listening_away(&mut self);
    fn restore(&mut self, sockets: Vec<OwnedFd>, saved: &[u8]) -> io::Result<usize>;
    fn restore_again(&mut self, number: usize, saved: &[u8]) -> io::Result<()>;
    fn undo_restore(&mut self, number: usize);
    fn begin_restored(&mut self);
    fn totals(&self) -> Totals;
    fn add_totals(&mut self, totals: &Totals);
}

/// Takes connections that move together, with their sockets, which the loop keeps open for `'s`, and their bytes.
pub(crate) type Give<'g, 's> = dyn FnMut(Movers, &[BorrowedFd<'s>], &[u8]) -> io::Result<()> + 'g;

/// Takes connections as [`Give`] does, or `None` for a slot without any. It breaks if that is enough for now.
pub(crate) type GiveAhead<'g, 's> =
    dyn FnMut(Option<(Movers, &[BorrowedFd<'s>], &[u8])>) -> io::Result<ControlFlow<()>> + 'g;

impl<E: Engine, H: Handler> Loop for Shard<E, H> {
    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<Address> {
        self.listen(address, options)
    }

    fn listen_on(&mut self, socket: OwnedFd) -> io::Result<Address> {
        self.listen_on(socket)
    }

    fn connect(&mut self, target: Arc<Target>) {
        self.connect(target);
    }

    fn handle(&self) -> ShardHandle {
        self.handle()
    }

    fn set_others(&mut self, others: Vec<ShardHandle>) {
        self.set_others(others);
    }

    fn set_probe(&mut self, probe: Box<dyn Probe>) {
        self.set_probe(probe);
    }

    fn stages(&self) -> Option<Box<Stages>> {
        self.stages()
    }

    fn watch_turns(&mut self) {
        self.watch_turns();
    }

    fn turn(&mut self) -> io::Result<()> {
        self.turn(None)
    }

    fn is_idle(&self) -> bool {
        self.is_idle()
    }

    fn is_drained(&self) -> bool {
        self.is_drained()
    }

    fn settle(&mut self) {
        self.settle();
    }

    fn hold_still(&mut self) -> io::Result<()> {
        self.hold_still()
    }

    fn begin_move(&mut self) {
        self.begin_move();
    }

    fn save_ahead<'s>(&'s mut self, from: usize, give: &mut GiveAhead<'_, 's>) -> io::Result<Option<usize>> {
        self.save_ahead(from, give)
    }

    fn save<'s>(&'s mut self, give: &mut Give<'_, 's>) -> io::Result<Staying> {
        self.save(give)
    }

    fn give_away(&mut self, conns: &[ConnId]) {
        self.give_away(conns);
    }

    fn listening(&self) -> io::Result<Vec<OwnedFd>> {
        self.listening()
    }

    fn give_listening_away(&mut self) {
        self.give_listening_away();
    }

    fn restore(&mut self, sockets: Vec<OwnedFd>, saved: &[u8]) -> io::Result<usize> {
        self.restore(sockets, saved)
    }

    fn restore_again(&mut self, number: usize, saved: &[u8]) -> io::Result<()> {
        self.restore_again(number, saved)
    }

    fn undo_restore(&mut self, number: usize) {
        self.undo_restore(number);
    }

    fn begin_restored(&mut self) {
        self.begin_restored();
    }

    fn totals(&self) -> Totals {
        self.totals()
    }

    fn add_totals(&mut self, totals: &Totals) {
        self.add_totals(totals);
    }
}

/// Work for a loop's thread.
type Job = Box<dyn FnOnce(&mut dyn Loop) + Send>;

/// The work that waits for a loop.
#[derive(Clone, Default)]
pub(crate) struct Jobs(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// Whether some waits. A loop looks at it once a turn.
    wait: AtomicBool,
    jobs: Mutex<Vec<Job>>,
}

impl Jobs {
    /// Has the loop of `shard` do this after its turn.
    pub(crate) fn push(&self, shard: &ShardHandle, job: impl FnOnce(&mut dyn Loop) + Send + 'static) {
        self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(job));
        self.0.wait.store(true, Ordering::Release);
        shard.wake();
    }

    /// Does the work that waits.
    #[inline]
    pub(crate) fn run(&self, shard: &mut dyn Loop) {
        if self.0.wait.load(Ordering::Relaxed) {
            self.run_all(shard);
        }
    }

    #[cold]
    fn run_all(&self, shard: &mut dyn Loop) {
        self.0.wait.store(false, Ordering::Relaxed);
        let jobs = std::mem::take(&mut *self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner));
        jobs.into_iter().for_each(|job| job(shard));
    }
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Jobs")
    }
}
