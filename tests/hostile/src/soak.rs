//! Soak: thousands of connections for long, with churn, slow readers, reconnect storms and certificate reloads.
//!
//! Every message has a number and a checksum. Each echo is compared with what was sent, in order. At the end nothing may be
//! lost, corrupted or leaked, and memory, descriptors and latency must be flat.

mod figures;
mod worker;

use crate::outcome::Result;
use crate::server::{Material, Server, Target};
use figures::{Figures, Totals};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use worker::Worker;

/// Connections of one worker.
const PER_WORKER: usize = 100;
/// Time between two reloads of certificates.
const RELOAD: Duration = Duration::from_secs(10);

/// A soak of one server.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) target: Target,
    pub(crate) connections: usize,
    pub(crate) time: Duration,
    pub(crate) seed: u64,
}

/// Runs a soak, and returns whether nothing was lost, corrupted or leaked.
pub(crate) fn run(taut: &Path, material: &Material, plan: &Plan) -> Result<bool> {
    let server = Arc::new(Server::start(taut, material, &plan.target, &["--shards", "2", "--deflate"])?);
    let before = server.descriptors();
    let totals = Arc::new(Totals::new()?);
    let workers = plan.connections.div_ceil(PER_WORKER);
    let begun = Instant::now();
    let threads: Vec<_> = (0..workers)
        .map(|number| {
            let (server, totals) = (server.clone(), totals.clone());
            let connections = PER_WORKER.min(plan.connections - number * PER_WORKER);
            let seed = plan.seed.wrapping_add(number as u64);
            thread::spawn(move || Worker::new(&server, &totals, number, seed).run(connections))
        })
        .collect();
    while totals.open.load(Ordering::Relaxed) < plan.connections && totals.failures() == 0 {
        if begun.elapsed() > Duration::from_secs(120) {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    let open = totals.open.load(Ordering::Relaxed);
    eprintln!("{}: {open} connections after {:.1} s", plan.target, begun.elapsed().as_secs_f64());
    totals.forget_latencies();
    let mut figures = Figures::new(plan.time);
    let begun = Instant::now();
    let (mut reloads, mut storms) = (1, 1);
    while begun.elapsed() < plan.time && totals.failures() == 0 {
        thread::sleep(Duration::from_millis(500));
        figures.sample(&server, &totals, begun.elapsed());
        if plan.target.tls.is_some() && begun.elapsed() >= RELOAD * reloads {
            reload(&server, material, reloads)?;
            reloads += 1;
        }
        // Six storms: each lets a tenth of all connections begin anew at once.
        if begun.elapsed() >= plan.time * storms / 7 {
            totals.storm.store(storms, Ordering::Relaxed);
            storms += 1;
        }
    }
    totals.stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| drop(thread.join()));
    let settled = server.settles_at(before, Duration::from_secs(30));
    let leaked = server.descriptors().saturating_sub(before);
    let mut wrong = figures.judge(&totals);
    if !settled {
        wrong.push(format!("{leaked} descriptors are leaked"));
    }
    if totals.open.load(Ordering::Relaxed) < plan.connections && open < plan.connections {
        wrong.push(format!("only {open} of {} connections were opened", plan.connections));
    }
    let log = server.log.clone();
    match Arc::into_inner(server).map(Server::stop) {
        Some(Ok(())) => {}
        Some(Err(error)) => wrong.push(error.to_string()),
        None => wrong.push("a worker has not ended".to_owned()),
    }
    if plan.target.tls.is_some() && reloads > 1 {
        let text = fs::read_to_string(log)?;
        let line = text.lines().rfind(|line| line.starts_with("certificates: reloaded")).unwrap_or_default();
        eprintln!("{line}");
        if !line.ends_with("refused 0 times") {
            wrong.push("a reload of certificates was refused, or there was none".to_owned());
        }
    }
    figures.print(&totals, leaked);
    wrong.iter().for_each(|reason| eprintln!("FAILED {}: {reason}", plan.target));
    Ok(wrong.is_empty())
}

/// Puts the other certificate in place, and has the server read it. The old files are replaced in one step each, as
/// certificate managers do it, and SIGHUP comes when both fit.
fn reload(server: &Server, material: &Material, count: u32) -> Result<()> {
    let (chain, key) = if count % 2 == 1 { ("cert-2.pem", "key-2.pem") } else { ("cert-1.pem", "key-1.pem") };
    for (from, to) in [(chain, "cert.pem"), (key, "key.pem")] {
        fs::copy(material.file(from), material.file("new.pem"))?;
        fs::rename(material.file("new.pem"), material.file(to))?;
    }
    server.signal(Signal::HUP)
}
