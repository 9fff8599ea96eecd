//! Resolves names on a few threads, which end when the queue is empty.

use crate::dial::resolver::Lookup;
use crate::dial::target;
use crate::ids::DialId;
use crate::threads::command::Command;
use crate::threads::remote::{ShardHandle, ShardHandleError};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tautline_conn::closed::ConnectError;

/// Most threads of one shard. A lookup may take half a minute if no name server answers, so there are several. The bound keeps
/// thousands of connection attempts from starting thousands of threads.
const MAX_THREADS: usize = 8;

/// Attempts to report a result while the shard's command queue is full, 100 ms apart.
const RESOLVED_ATTEMPTS: usize = 100;

/// A name to resolve.
pub(crate) struct Name {
    pub(crate) dial: DialId,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The deadline, after which the result is not needed; `None` if there is no deadline.
    pub(crate) until: Option<Instant>,
    /// The shard that gets the result.
    pub(crate) shard: ShardHandle,
}

/// Most lookups of a shard that resolvers of the application may hold at a time. Further attempts fail until some are answered.
const MOST_LOOKUPS: usize = 4096;

/// A lookup by the application, for a dial. `None` if its resolvers hold too many, which `held` counts.
pub(crate) fn lookup(
    dial: DialId,
    (host, port): (&str, u16),
    until: Option<Instant>,
    shard: ShardHandle,
    held: &Arc<AtomicUsize>,
) -> Option<Lookup> {
    if held.fetch_add(1, Ordering::Relaxed) >= MOST_LOOKUPS {
        held.fetch_sub(1, Ordering::Relaxed);
        return None;
    }
    let held = held.clone();
    Some(Lookup::new(host, port, until, move |result| {
        held.fetch_sub(1, Ordering::Relaxed);
        // Taken even if the queue is full, since the number of lookups is bounded. A shard that has stopped needs no answer.
        let _ = shard.force(Command::Resolved { dial, result });
    }))
}

/// The queue of names, and the threads that resolve them.
#[derive(Default)]
pub(crate) struct SystemResolver(Arc<Mutex<Queue<Name>>>);

struct Queue<T> {
    waiting: VecDeque<T>,
    threads: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), threads: 0 }
    }
}

impl SystemResolver {
    /// Resolves `name`. The result arrives as [`Command::Resolved`].
    ///
    /// # Errors
    /// If no thread runs, and the system starts none.
    pub(crate) fn resolve(&self, name: Name) -> io::Result<()> {
        put(&self.0, name, Name::resolve)
    }
}

/// Queues `next` for `work`, and starts one more thread if there are fewer than [`MAX_THREADS`].
fn put<T: Send + 'static>(queue: &Arc<Mutex<Queue<T>>>, next: T, work: fn(T)) -> io::Result<()> {
    let mut held = queue.lock().unwrap_or_else(PoisonError::into_inner);
    held.waiting.push_back(next);
    if held.threads == MAX_THREADS {
        return Ok(());
    }
    let shared = queue.clone();
    match std::thread::Builder::new().name("resolver".into()).spawn(move || drain(&shared, work)) {
        Ok(_) => held.threads += 1,
        Err(error) if held.threads == 0 => {
            held.waiting.pop_back();
            return Err(error);
        }
        // The running threads will do it.
        Err(_) => {}
    }
    Ok(())
}

/// Does all queued work, then ends the thread.
fn drain<T>(queue: &Mutex<Queue<T>>, work: fn(T)) {
    loop {
        let next = {
            let mut held = queue.lock().unwrap_or_else(PoisonError::into_inner);
            let next = held.waiting.pop_front();
            if next.is_none() {
                held.threads -= 1;
            }
            next
        };
        let Some(next) = next else { return };
        work(next);
    }
}

impl Name {
    fn resolve(self) {
        let Self { dial, host, port, until, shard } = self;
        for attempt in 0..RESOLVED_ATTEMPTS {
            if attempt > 0 {
                std::thread::sleep(Duration::from_millis(100));
            }
            // The dial has missed its deadline and failed.
            if until.is_some_and(|until| Instant::now() >= until) {
                return;
            }
            let result: Result<Vec<SocketAddr>, ConnectError> = target::resolve(&host, port);
            if !matches!(shard.command(Command::Resolved { dial, result }), Err(ShardHandleError::Full)) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_THREADS, Queue, put};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    #[test]
    fn many_names_share_a_few_threads_which_end() {
        static AT_ONCE: AtomicUsize = AtomicUsize::new(0);
        static PEAK: AtomicUsize = AtomicUsize::new(0);
        let work = |done: Sender<()>| {
            PEAK.fetch_max(AT_ONCE.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(2));
            AT_ONCE.fetch_sub(1, Ordering::Relaxed);
            done.send(()).unwrap();
        };
        let queue = Arc::new(Mutex::new(Queue::default()));
        for _ in 0..2 {
            let (done, each) = channel();
            for _ in 0..5 * MAX_THREADS {
                put(&queue, done.clone(), work).unwrap();
            }
            drop(done);
            assert_eq!(each.iter().count(), 5 * MAX_THREADS);
            assert!((1..=MAX_THREADS).contains(&PEAK.load(Ordering::Relaxed)));
            while queue.lock().unwrap().threads > 0 {
                std::thread::yield_now();
            }
        }
    }
}
