//! Sums of a soak, and its figures over time: memory, descriptors and latency.

use crate::outcome::Result;
use crate::server::{Server, memory_of};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Most growth of a process' memory between the quarters of a soak.
const MEMORY_SLACK: u64 = 32 << 20;
/// Most growth of the 99th percentile between them: a soak shares the CPUs with its load.
const LATENCY_SLACK: Duration = Duration::from_millis(250);
/// The greatest latency that is told from greater ones, in microseconds.
const MOST_LATENCY: u64 = 60_000_000;
/// Parts into which the time is divided.
const PARTS: usize = 4;

/// Sums of all workers.
pub(super) struct Totals {
    pub(super) stop: AtomicBool,
    /// The number of the last storm.
    pub(super) storm: AtomicU32,
    /// Connections that a worker has at present.
    pub(super) open: AtomicUsize,
    pub(super) connected: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    /// Messages on connections that a worker has reset.
    pub(super) given_up: AtomicU64,
    pub(super) corrupted: AtomicU64,
    failures: Mutex<Vec<String>>,
    /// Latencies in microseconds. A list of them would grow by 16 MB in each quarter of half an hour.
    latencies: Mutex<Histogram<u64>>,
}

impl Totals {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            stop: AtomicBool::default(),
            storm: AtomicU32::default(),
            open: AtomicUsize::default(),
            connected: AtomicU64::default(),
            sent: AtomicU64::default(),
            received: AtomicU64::default(),
            given_up: AtomicU64::default(),
            corrupted: AtomicU64::default(),
            failures: Mutex::default(),
            latencies: Mutex::new(Histogram::new_with_bounds(1, MOST_LATENCY, 3)?),
        })
    }

    pub(super) fn fail(&self, reason: String) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(reason);
    }

    pub(super) fn failures(&self) -> usize {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(super) fn latency(&self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(micros);
    }

    pub(super) fn forget_latencies(&self) {
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner).reset();
    }
}

/// The highest values within a part of the time.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    server_memory: u64,
    load_memory: u64,
    descriptors: usize,
    p50: Duration,
    p99: Duration,
}

/// Figures over time.
pub(super) struct Figures {
    time: Duration,
    parts: [Part; PARTS],
    part: usize,
}

impl Figures {
    pub(super) fn new(time: Duration) -> Self {
        Self { time, parts: [Part::default(); PARTS], part: 0 }
    }

    /// Looks at both processes.
    pub(super) fn sample(&mut self, server: &Server, totals: &Totals, at: Duration) {
        let share = at.as_secs_f64() / self.time.as_secs_f64();
        let now = (1..PARTS).filter(|part| share >= f64::from(u32::try_from(*part).unwrap_or(0)) / 4.0).count();
        if now > self.part {
            self.end_part(totals);
            self.part = now;
        }
        let part = &mut self.parts[now];
        part.server_memory = part.server_memory.max(server.memory().0);
        part.load_memory = part.load_memory.max(memory_of(std::process::id()).0);
        part.descriptors = part.descriptors.max(server.descriptors());
    }

    fn end_part(&mut self, totals: &Totals) {
        let mut latencies = totals.latencies.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |quantile: f64| Duration::from_micros(latencies.value_at_quantile(quantile));
        (self.parts[self.part].p50, self.parts[self.part].p99) = (of(0.5), of(0.99));
        latencies.reset();
    }

    /// The reasons why the soak has failed.
    pub(super) fn judge(&mut self, totals: &Totals) -> Vec<String> {
        self.end_part(totals);
        let mut wrong = totals.failures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        wrong.truncate(10);
        let lost = lost(totals);
        if lost > 0 {
            wrong.push(format!("{lost} messages are lost"));
        }
        // The first part begins while buffers grow to their size.
        let [_, early, .., late] = self.parts;
        if late.server_memory > early.server_memory + MEMORY_SLACK {
            wrong.push(format!("the server's memory grows: {early:?}, then {late:?}"));
        }
        if late.descriptors > early.descriptors + early.descriptors / 10 {
            wrong.push(format!("the server's descriptors grow: {early:?}, then {late:?}"));
        }
        if late.p99 > early.p99 * 2 + LATENCY_SLACK {
            wrong.push(format!("latency grows: {early:?}, then {late:?}"));
        }
        wrong
    }

    pub(super) fn print(&self, totals: &Totals, leaked: usize) {
        println!("{:<10}{:>16}{:>16}{:>14}{:>12}{:>12}", "quarter", "server", "load", "descriptors", "p50", "p99");
        for (number, part) in (1..).zip(&self.parts) {
            let Part { server_memory, load_memory, descriptors, p50, p99 } = part;
            let (server, load) = (server_memory >> 20, load_memory >> 20);
            let (p50, p99) = (p50.as_secs_f64() * 1e3, p99.as_secs_f64() * 1e3);
            println!("{number:<10}{server:>12} MiB{load:>12} MiB{descriptors:>14}{p50:>9.1} ms{p99:>9.1} ms");
        }
        let value = |of: &AtomicU64| of.load(Ordering::Relaxed);
        println!(
            "{} connections opened, {} messages sent, {} echoed, {} given up by resets",
            value(&totals.connected),
            value(&totals.sent),
            value(&totals.received),
            value(&totals.given_up)
        );
        println!("{} lost, {} corrupted, {leaked} leaked", lost(totals), value(&totals.corrupted));
    }
}

/// Messages without an echo, on connections that were not reset.
fn lost(totals: &Totals) -> u64 {
    let value = |of: &AtomicU64| of.load(Ordering::Relaxed);
    value(&totals.sent).saturating_sub(value(&totals.received) + value(&totals.given_up))
}
