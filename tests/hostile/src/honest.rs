//! Honest connections: they send at a steady rate while others attack, and measure how long the echoes take.

use crate::cpus::Cpus;
use crate::outcome::Result;
use crate::peer::Peer;
use crate::script::Begin;
use crate::server::Server;
use crate::wire::{self, TEXT};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The number of honest connections.
pub(crate) const CONNECTIONS: usize = 100;
const THREADS: usize = 4;
/// Time between two messages of one thread: 500 messages a second in total.
const PACE: Duration = Duration::from_millis(8);

/// Honest connections that run until this is dropped.
pub(crate) struct Honest {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    samples: Mutex<Vec<(Instant, Duration)>>,
    failure: Mutex<Option<String>>,
}

impl Honest {
    /// Opens all connections and begins, on the server's CPU if it has one.
    pub(crate) fn begin(server: &Server, cpus: Option<&Arc<Cpus>>) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut threads = Vec::new();
        for number in 0..THREADS {
            let peers: Result<Vec<Peer>> =
                (0..CONNECTIONS / THREADS).map(|_| Peer::begin(server, Begin::Open)).collect();
            let (peers, own, cpus) = (peers?, shared.clone(), cpus.cloned());
            threads.push(thread::spawn(move || {
                if let Some(cpus) = cpus {
                    cpus.join_server();
                }
                if let Err(error) = converse(peers, &own, number) {
                    let mut failure = own.failure.lock().unwrap_or_else(PoisonError::into_inner);
                    failure.get_or_insert_with(|| error.to_string());
                }
            }));
        }
        Ok(Self { shared, threads })
    }

    /// The number of samples up to now.
    pub(crate) fn samples(&self) -> usize {
        self.shared.samples.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The 99th percentile of the samples from this number on, in milliseconds.
    pub(crate) fn p99_since(&self, first: usize) -> f64 {
        let samples = self.shared.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let mut times: Vec<Duration> = samples.iter().skip(first).map(|(_, time)| *time).collect();
        times.sort_unstable();
        times.get((times.len() * 99 / 100).min(times.len().saturating_sub(1))).map_or(0.0, Duration::as_secs_f64) * 1e3
    }

    /// The reason why an honest connection failed, if one did.
    pub(crate) fn failure(&self) -> Option<String> {
        self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Honest {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Sends on each connection in turn. A latency counts from the time at which the message was due, so that a stall counts for
/// every message that it delays.
fn converse(mut peers: Vec<Peer>, shared: &Shared, number: usize) -> Result<()> {
    let mut due = Instant::now();
    for turn in 0.. {
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
        due += PACE;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let which = turn % peers.len();
        let peer = &mut peers[which];
        let text = format!("honest {number} {turn}");
        peer.send(&wire::masked(TEXT, text.as_bytes()))?;
        let frame = loop {
            let frame = peer.frame().map_err(|error| format!("an honest connection waits in vain: {error}"))?;
            match frame.first {
                // The server pings connections that say nothing; these do not answer, but send soon.
                wire::PING => {}
                _ => break frame,
            }
        };
        if frame.first != TEXT || frame.payload != text.as_bytes() {
            return Err(format!("an honest connection got {frame:?} for {text:?}").into());
        }
        let now = Instant::now();
        let time = now.saturating_duration_since(due);
        shared.samples.lock().unwrap_or_else(PoisonError::into_inner).push((now, time));
    }
    Ok(())
}
