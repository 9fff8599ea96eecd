//! Lines on their way to a descriptor that may be stuck, closed or full.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tautline::layers::metrics::prometheus_client::metrics::counter::Counter;

/// Most bytes that wait.
const MOST: usize = 1 << 20;

/// Most bytes of several lines that are written at once. Pipes take so many from one process without those of another between.
const AT_ONCE: usize = 4096;

/// Memory that the buffers keep while nothing waits.
const KEPT: usize = 64 << 10;

/// The time after which a report of lost lines is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// The place to which lines are written.
pub(crate) trait Target: Send + 'static {
    /// Writes whole lines. It may block.
    ///
    /// # Errors
    /// The lines, or some of them, are lost.
    fn write(&mut self, lines: &[u8]) -> io::Result<()>;

    /// Opens a file at the same path again, after another program has moved it away.
    fn reopen(&mut self) {}

    /// Says that lines were lost. False if that has to wait.
    fn report(&mut self, lost: u64, why: &str) -> bool;
}

/// A bounded queue of lines, and a thread that writes them. Adding a line waits for no descriptor. Clones are the same queue.
#[derive(Clone)]
pub(crate) struct Lines(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// The thread has something to do.
    news: Condvar,
    /// The thread has done it.
    done: Condvar,
    /// Lines that were lost.
    lost: Counter,
}

#[derive(Default)]
struct State {
    /// Whole lines, one behind the other.
    waiting: Vec<u8>,
    /// Lines that did not fit since the thread has looked last.
    dropped: u64,
    reopens: bool,
    /// Whether the thread writes.
    is_writing: bool,
    /// The target, until the thread has it.
    target: Option<Box<dyn Target>>,
}

impl Lines {
    /// A queue whose lines wait until [`begin`](Self::begin).
    pub(crate) fn new(target: impl Target, lost: Counter) -> Self {
        let state = State { target: Some(Box::new(target)), ..State::default() };
        Self(Arc::new(Inner { state: Mutex::new(state), news: Condvar::new(), done: Condvar::new(), lost }))
    }

    /// Starts the thread, unless it runs. Without it lines wait, and those that do not fit are lost.
    pub(crate) fn begin(&self) {
        let Some(target) = self.0.lock().target.take() else { return };
        let inner = Arc::clone(&self.0);
        let thread = thread::Builder::new().name("output".to_owned()).spawn(move || inner.write_all(target));
        if thread.is_err() {
            self.0.lock().waiting = Vec::new();
        }
    }

    /// Adds a line, which ends with a newline. If it does not fit, it is counted instead.
    pub(crate) fn add(&self, line: &[u8]) {
        let mut state = self.0.lock();
        if state.waiting.len() + line.len() > MOST {
            state.dropped += 1;
            self.0.lost.inc();
        } else {
            state.waiting.extend_from_slice(line);
        }
        let is_news = !state.is_writing;
        drop(state);
        if is_news {
            self.0.news.notify_one();
        }
    }

    /// Has the target opened again, behind the lines that wait.
    pub(crate) fn reopen(&self) {
        self.0.lock().reopens = true;
        self.0.news.notify_one();
    }

    /// Waits until all lines are written, but no longer than until `deadline`.
    pub(crate) fn finish(&self, deadline: Instant) {
        self.begin();
        let mut state = self.0.lock();
        while state.is_writing || !state.waiting.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.0.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes lines for as long as the process lives.
    fn write_all(&self, mut target: Box<dyn Target>) {
        let (mut lines, mut lost, mut why) = (Vec::new(), 0, String::new());
        loop {
            let (dropped, reopens) = self.next(&mut lines, lost > 0);
            for piece in pieces(&lines) {
                if let Err(error) = target.write(piece) {
                    let count = piece.iter().filter(|byte| **byte == b'\n').count() as u64;
                    self.lost.inc_by(count);
                    lost += count;
                    why = error.to_string();
                }
            }
            lines.clear();
            lines.shrink_to(KEPT);
            if reopens {
                target.reopen();
            }
            if dropped > 0 {
                lost += dropped;
                "their reader is too slow".clone_into(&mut why);
            }
            if lost > 0 && target.report(lost, &why) {
                lost = 0;
            }
        }
    }

    /// Waits for lines and takes them. Returns the number of those that did not fit behind them, and whether to reopen.
    fn next(&self, lines: &mut Vec<u8>, owes_report: bool) -> (u64, bool) {
        let mut state = self.lock();
        state.is_writing = false;
        self.done.notify_all();
        while state.waiting.is_empty() && state.dropped == 0 && !state.reopens {
            if owes_report {
                let (woken, waited) = self.news.wait_timeout(state, AGAIN).unwrap_or_else(PoisonError::into_inner);
                state = woken;
                if waited.timed_out() {
                    break;
                }
            } else {
                state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        std::mem::swap(&mut state.waiting, lines);
        state.is_writing = true;
        (std::mem::take(&mut state.dropped), std::mem::take(&mut state.reopens))
    }
}

/// The lines in pieces of whole lines, each of at most [`AT_ONCE`] bytes or one line.
fn pieces(mut lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let last = lines.iter().take(AT_ONCE).rposition(|byte| *byte == b'\n');
        let end = last.or_else(|| lines.iter().position(|byte| *byte == b'\n')).map_or(lines.len(), |at| at + 1);
        let (piece, rest) = lines.split_at(end);
        lines = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::{AT_ONCE, Lines, MOST, Target, pieces};
    use std::io;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::{Duration, Instant};
    use tautline::layers::metrics::prometheus_client::metrics::counter::Counter;

    /// A target that takes a piece for each permit, and fails for each permit that is false.
    struct Gate {
        permits: Receiver<bool>,
        told: Sender<String>,
    }

    impl Target for Gate {
        fn write(&mut self, lines: &[u8]) -> io::Result<()> {
            if !self.permits.recv().unwrap_or(true) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let _ = self.told.send(String::from_utf8_lossy(lines).into_owned());
            Ok(())
        }

        fn reopen(&mut self) {
            let _ = self.told.send("reopened".to_owned());
        }

        fn report(&mut self, lost: u64, why: &str) -> bool {
            self.told.send(format!("{lost} lost: {why}")).is_ok()
        }
    }

    fn gate() -> (Lines, Counter, Sender<bool>, Receiver<String>) {
        let ((permit, permits), (told, heard)) = (channel(), channel());
        let counter = Counter::default();
        (Lines::new(Gate { permits, told }, counter.clone()), counter, permit, heard)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    #[test]
    fn lines_that_do_not_fit_are_counted_and_reported_once() {
        let (lines, counter, permit, heard) = gate();
        lines.begin();
        let line = vec![b'x'; 1023].into_iter().chain([b'\n']).collect::<Vec<_>>();
        // The thread may take some of them before it is stuck in its first write.
        (0..4 * MOST / line.len()).for_each(|_| lines.add(&line));
        let lost = counter.get();
        assert!(lost >= (2 * MOST / line.len()) as u64, "{lost}");
        lines.finish(soon());
        drop(permit);
        lines.finish(Instant::now() + Duration::from_mins(1));
        let patience = Duration::from_mins(1);
        let report = loop {
            let told = heard.recv_timeout(patience).unwrap();
            if told.contains("lost") {
                break told;
            }
        };
        assert!(report.ends_with("lost: their reader is too slow"), "{report}");
        assert_eq!(counter.get(), lost, "those that wait are written");
    }

    #[test]
    fn a_target_without_room_loses_lines_and_nothing_else() {
        let (lines, counter, permit, heard) = gate();
        lines.add(b"first\n");
        lines.add(b"second\n");
        permit.send(false).unwrap();
        lines.finish(Instant::now() + Duration::from_mins(1));
        assert!(heard.recv().unwrap().starts_with("2 lost: "));
        permit.send(true).unwrap();
        lines.add(b"third\n");
        lines.reopen();
        assert_eq!(heard.recv().unwrap(), "third\n");
        assert_eq!(heard.recv().unwrap(), "reopened");
        assert_eq!(counter.get(), 2);
    }

    #[test]
    fn the_end_waits_for_lines_and_no_longer_than_its_deadline() {
        let (lines, _, permit, heard) = gate();
        lines.add(b"a line\n");
        lines.finish(soon());
        assert!(heard.try_recv().is_err());
        permit.send(true).unwrap();
        lines.finish(Instant::now() + Duration::from_mins(1));
        assert_eq!(heard.try_recv().unwrap(), "a line\n");
    }

    #[test]
    fn pieces_are_whole_lines() {
        let long = "y".repeat(AT_ONCE + 1);
        let text = format!("{}{long}\nshort\n", "0123456\n".repeat(AT_ONCE / 8 + 1));
        let found: Vec<_> = pieces(text.as_bytes()).collect();
        assert_eq!(found.concat(), text.as_bytes());
        assert!(found.iter().all(|piece| piece.ends_with(b"\n") && piece.len() <= AT_ONCE + 2));
        assert_eq!(found.len(), 4);
        assert_eq!(pieces(b"").count(), 0);
    }
}
