//! Runs many seeds on all processors, and prints how to replay those with a finding.
//!
//! `simulate --seeds N [--from S] [--proxied] [--trace]`
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tautline_sim::{Outcome, SECONDS, run, run_proxied};

const USAGE: &str = "simulate --seeds N [--from S] [--proxied] [--trace]";
/// Seeds with a finding after which no more are run.
const MOST_FAILURES: u64 = 5;

struct Arguments {
    seeds: u64,
    from: u64,
    /// With proxies between clients and servers.
    proxied: bool,
    prints: bool,
}

fn arguments() -> Option<Arguments> {
    let mut arguments = Arguments { seeds: 0, from: 0, proxied: false, prints: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seeds" => arguments.seeds = words.next()?.parse().ok()?,
            "--from" => arguments.from = words.next()?.parse().ok()?,
            "--proxied" => arguments.proxied = true,
            "--trace" => arguments.prints = true,
            _ => return None,
        }
    }
    (arguments.seeds > 0).then_some(arguments)
}

#[derive(Default)]
struct Totals {
    next: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    events: AtomicU64,
    opened: AtomicU64,
    messages: AtomicU64,
}

impl Totals {
    fn add(&self, outcome: &Outcome) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.events.fetch_add(outcome.events, Ordering::Relaxed);
        self.opened.fetch_add(outcome.opened, Ordering::Relaxed);
        self.messages.fetch_add(outcome.messages, Ordering::Relaxed);
    }
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let (totals, start) = (Totals::default(), Instant::now());
    let threads = if arguments.prints { 1 } else { std::thread::available_parallelism().map_or(1, usize::from) };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(&arguments, &totals));
        }
    });
    let read = |total: &AtomicU64| total.load(Ordering::Relaxed);
    let (done, failed, seconds) = (read(&totals.done), read(&totals.failed), start.elapsed().as_secs_f64());
    let [events, opened, messages] = [&totals.events, &totals.opened, &totals.messages].map(read);
    #[expect(clippy::cast_precision_loss, reason = "a speed for people")]
    let speed = done as f64 / seconds;
    println!(
        "{done} seeds from {} on, {} simulated seconds, {failed} with findings, in {seconds:.1} s: {speed:.0} seeds per \
         second on {threads} threads; {opened} ends of connections, {messages} messages, {events} events",
        arguments.from,
        done * SECONDS
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn work(arguments: &Arguments, totals: &Totals) {
    while totals.failed.load(Ordering::Relaxed) < MOST_FAILURES {
        let number = totals.next.fetch_add(1, Ordering::Relaxed);
        if number >= arguments.seeds {
            return;
        }
        let seed = arguments.from + number;
        let run = if arguments.proxied { run_proxied } else { run };
        let outcome = run(seed, None, arguments.prints);
        totals.add(&outcome);
        if arguments.prints {
            println!("trace {:016x}", outcome.trace);
        }
        if !outcome.findings.is_empty() {
            totals.failed.fetch_add(1, Ordering::Relaxed);
            println!("seed {seed}, trace {:016x}:", outcome.trace);
            outcome.findings.iter().for_each(|finding| println!("  {finding}"));
            let proxied = if arguments.proxied { " --proxied" } else { "" };
            println!("  replay: cargo xtask simulate --from {seed} --seeds 1{proxied} --trace");
        }
    }
}
