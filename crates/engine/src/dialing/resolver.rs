//! Looking names up, on a few threads that end when they have nothing to do.

use crate::closed::ConnectError;
use crate::conn::DialId;
use crate::dial;
use crate::remote::{Command, Remote, RemoteError};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lookups at a time, for one loop. A lookup may take half a minute where no server answers, so there are several; whoever
/// connects thousands of times at once does not get thousands of threads.
const MOST: usize = 8;

/// A resolver whose shard's queue is full tries again so often, a tenth of a second apart.
const RESOLVED_ATTEMPTS: usize = 100;

/// A name to look up.
pub(crate) struct Name {
    pub(crate) dial: DialId,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// From then on nobody waits for it, if ever.
    pub(crate) until: Option<Instant>,
    pub(crate) remote: Remote,
}

/// The names that wait, and the threads that look them up.
#[derive(Default)]
pub(crate) struct Resolver(Arc<Mutex<Queue<Name>>>);

struct Queue<T> {
    waiting: VecDeque<T>,
    threads: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), threads: 0 }
    }
}

impl Resolver {
    /// Looks `name` up; the result comes as a command.
    ///
    /// # Errors
    /// The system has no thread left, and none runs.
    pub(crate) fn resolve(&self, name: Name) -> io::Result<()> {
        put(&self.0, name, Name::resolve)
    }
}

/// Has `work` done by one of the threads, or by one more where there are fewer than [`MOST`].
fn put<T: Send + 'static>(queue: &Arc<Mutex<Queue<T>>>, next: T, work: fn(T)) -> io::Result<()> {
    let mut held = queue.lock().unwrap_or_else(PoisonError::into_inner);
    held.waiting.push_back(next);
    if held.threads == MOST {
        return Ok(());
    }
    let shared = queue.clone();
    match std::thread::Builder::new().name("resolver".into()).spawn(move || drain(&shared, work)) {
        Ok(_) => held.threads += 1,
        Err(error) if held.threads == 0 => {
            held.waiting.pop_back();
            return Err(error);
        }
        // Those that run come to it.
        Err(_) => {}
    }
    Ok(())
}

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
        let Self { dial, host, port, until, remote } = self;
        for attempt in 0..RESOLVED_ATTEMPTS {
            if attempt > 0 {
                std::thread::sleep(Duration::from_millis(100));
            }
            // Its dial has failed by now.
            if until.is_some_and(|until| Instant::now() >= until) {
                return;
            }
            let result: Result<Vec<SocketAddr>, ConnectError> = dial::resolve(&host, port);
            if !matches!(remote.command(Command::Resolved { dial, result }), Err(RemoteError::Full)) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Queue, put};
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
            for _ in 0..5 * MOST {
                put(&queue, done.clone(), work).unwrap();
            }
            drop(done);
            assert_eq!(each.iter().count(), 5 * MOST);
            assert!((1..=MOST).contains(&PEAK.load(Ordering::Relaxed)));
            while queue.lock().unwrap().threads > 0 {
                std::thread::yield_now();
            }
        }
    }
}
