//! The lines of a run on standard output.

use super::ended::Ended;
use crate::failure::Failure;
use crate::output::{self, Lines};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use tautline::layers::metrics::prometheus_client::metrics::counter::Counter;
use tautline_feed::Time;

/// The time between two notes about lines that were lost.
const BETWEEN_NOTES: Time = Time::from_secs(10);

/// Prints lines. A replay waits for the reader. A feed does not: what its reader leaves for long is dropped and counted.
pub(super) struct Printer {
    /// The queue of a feed, and the lines that did not fit.
    queue: Option<(Lines, Counter)>,
    /// Whether a write has failed, which ends the run.
    has_failed: Arc<AtomicBool>,
    ended: Sender<Ended>,
    /// Lost lines that the user was told of, and when.
    told: u64,
    told_at: Option<Time>,
}

impl Printer {
    /// Prints without waiting for the reader.
    pub(super) fn live(ended: &Sender<Ended>) -> Self {
        let mut printer = Self::waiting(ended);
        let (ended, has_failed) = (ended.clone(), Arc::clone(&printer.has_failed));
        printer.queue = Some(output::results(move |error| {
            if !has_failed.swap(true, Ordering::Relaxed) {
                // The main thread ends the run.
                let _ = ended.send(Ended::Output(Failure::output(error)));
            }
        }));
        printer
    }

    /// Waits for the reader.
    pub(super) fn waiting(ended: &Sender<Ended>) -> Self {
        Self { queue: None, has_failed: Arc::default(), ended: ended.clone(), told: 0, told_at: None }
    }

    /// Prints lines, which end with newlines.
    pub(super) fn print(&mut self, lines: &mut Vec<String>, now: Time) {
        let Some((queue, _)) = &self.queue else {
            for line in lines.drain(..) {
                if let Err(failure) = output::print(line) {
                    let _ = self.ended.send(Ended::Output(failure));
                    return;
                }
            }
            return;
        };
        lines.drain(..).for_each(|line| queue.add(line.as_bytes()));
        if self.told_at.is_none_or(|at| now.saturating_sub(at) >= BETWEEN_NOTES) {
            self.tell_losses(now);
        }
    }

    /// Tells of lines that were lost since the last note.
    pub(super) fn tell_losses(&mut self, now: Time) {
        let lost = self.queue.as_ref().map_or(0, |(_, lost)| lost.get());
        if lost == self.told || self.has_failed.load(Ordering::Relaxed) {
            return;
        }
        output::note(format_args!(
            "{:10.3} {lost} lines were not printed so far: the reader of standard output is too slow",
            now.as_secs_f64()
        ));
        (self.told, self.told_at) = (lost, Some(now));
    }
}
