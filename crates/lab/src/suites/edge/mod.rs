//! The proxy beside those of other projects: nginx, HAProxy and Caddy.
//!
//! All stand in front of the same server, a plain echo of ours, on the CPU of the load. Each proxy has one thread and the other
//! CPU.

mod case;
mod change;
mod program;
mod report;
mod site;
mod turn;

use super::echo_case::Shape;
use super::guest::{Installed, find_all};
use super::running::{self, BODY, Live, PATH};
use super::{Certificates, ENGINES, Effort, Key, Kind, Lab, Metrics, Outcome, Process, Row, row};
use crate::load::{self, Echo, Get, Handshakes, Storm};
use crate::rounds::Plan;
use crate::{Content, DriverKind, Error, Metric, Span, limit};
use case::{CONNECTIONS, EdgeCase, EdgeRow, RATE, RETURNS, Who, Work, everyone};
use program::Program;
use site::Site;
use std::time::Duration;
use turn::Change;

/// Time for the rounds beyond the least number of them.
const BUDGET: Duration = Duration::from_secs(420);

/// Handshakes at a time.
const AT_ONCE: usize = 8;

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let installed = find(lab, outcome);
    let certificates = Certificates::new(&[Key::P256])?;
    let files = running::files(&certificates)?;
    let arguments = ["--files", &files.to_string_lossy()];
    let backend = Process::start_with(lab, Kind::Ws(lab.drivers[0]), &certificates, None, &arguments)?;
    backend.run_on(lab.placement.load)?;
    let mut rows = rows(lab.effort, &lab.drivers, &installed);
    let site = Site { certificates, backend, installed };
    let mut all: Vec<(Who, Live)> = Vec::new();
    for who in everyone(&rows) {
        match site.start(lab, who) {
            Ok(live) => all.push((who, live)),
            Err(error) if matches!(who, Who::Other(_)) => outcome.warnings.push(format!("not measured: {error}")),
            Err(error) => return Err(error),
        }
    }
    rows.retain(|row| all.iter().any(|(who, _)| *who == row.subject.who));
    let plan = Plan { least_rounds: if lab.effort == Effort::Thorough { 5 } else { 1 }, ..lab.plan(BUDGET) };
    row::measure_tolerant(lab, &mut rows, &plan, 0.0..1.0, |lab, case, _| {
        match case.work {
            Work::Idle(connections) => return idle(lab, &site, case, connections),
            Work::Change(change) => return change::measure(lab, &site, case.who, change),
            _ => {}
        }
        let live = all.iter().find(|(who, _)| *who == case.who).map(|(_, live)| live);
        let live = live.ok_or_else(|| Error::Failed("it does not run".to_owned()))?;
        measure(lab, live, case)
    })?;
    report::report(outcome, &rows, &site.installed);
    Ok(())
}

/// The programs of others. A smoke run has none.
fn find(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Vec<Installed<Program>> {
    if lab.effort != Effort::Smoke {
        (lab.progress)(0.0, "installing nginx and Caddy of PyPI");
        outcome.warnings.extend(program::install().err().map(|why| format!("PyPI: {why}")));
    }
    find_all(lab, Program::ALL, |program| (program.name(), program.find()), outcome)
}

/// Each work with each server, so that those that are compared are measured one after the other.
fn rows(effort: Effort, drivers: &[DriverKind], installed: &[Installed<Program>]) -> Vec<EdgeRow> {
    let mut proxies: Vec<Who> = drivers.iter().map(|&driver| Who::Ours(Kind::Proxy(driver))).collect();
    proxies.extend(installed.iter().map(|installed| Who::Other(installed.program)));
    let mut shapes: Vec<Shape> = [64, 4096, 65_536].map(Shape::of).into();
    shapes.push(Shape { pipeline: 16, ..Shape::of(64) });
    let mut works: Vec<Work> = shapes.into_iter().map(Work::Echo).collect();
    works.extend([
        Work::Get,
        Work::Rate,
        Work::Handshake { resumed: false },
        Work::Handshake { resumed: true },
        Work::Returns,
    ]);
    works.extend(Change::ALL.map(Work::Change));
    works.push(Work::Idle(effort.pick(1_000, 300, 20)));
    let mut rows = Vec::new();
    for work in works {
        let direct = drivers.iter().map(|&driver| Who::Ours(Kind::Wss(ENGINES[0], Key::P256, driver)));
        let messages = drivers.iter().map(|&driver| Who::Messages(driver));
        let others: Vec<Who> = match work {
            Work::Echo(_) => messages.chain(direct).chain([Who::Ours(Kind::Tcp(DriverKind::Epoll))]).collect(),
            Work::Idle(_) => messages.collect(),
            Work::Rate => direct.collect(),
            _ => Vec::new(),
        };
        let all = proxies.iter().copied().filter(|who| work.is_known_to(*who)).chain(others);
        rows.extend(all.map(|who| Row::new(EdgeCase { who, work, unused: Vec::new() })));
    }
    rows
}

fn measure(lab: &Lab<'_>, live: &Live, case: &EdgeCase) -> Result<Metrics, Error> {
    let span = lab.span();
    match case.work {
        Work::Echo(Shape { size, connections, pipeline }) => {
            if let (Who::Ours(Kind::Tcp(_)), Live::Ours(process)) = (case.who, live) {
                let (address, server_pid) = (process.address, Some(process.pid()));
                let load = limit::Load { address, connections, size, pipeline, span, server_pid };
                return Ok(load.run()?.message_metrics(size));
            }
            let server = live.server()?;
            let echo = Echo { server, connections, size, content: Content::Bytes, pipeline, rate: None, span };
            Ok(echo.run(&mut |_| {})?.message_metrics(size))
        }
        Work::Get => {
            let get = Get { server: live.http()?, connections: CONNECTIONS, path: PATH, body: running::body(), span };
            Ok(get.run()?.answer_metrics(BODY))
        }
        Work::Rate => Ok(at_rate(lab, live)?.run(&mut |_| {})?.message_metrics(64)),
        Work::Returns => {
            let storm = Storm { echo: at_rate(lab, live)?, newcomers: AT_ONCE, returning: Some(RETURNS) };
            let storm = storm.run()?;
            Ok(vec![(Metric::LatencyP99, storm.p99), (Metric::Handshakes, storm.handshakes)])
        }
        Work::Handshake { resumed } => {
            let server = live.server()?;
            let load = Handshakes { server, at_once: AT_ONCE, resumed, may_refuse: false, rate: None, span };
            let counts = load.run(&mut |_| {})?;
            if resumed && counts.resumed * 10 < counts.measured.count * 9 {
                let (resumed, all) = (counts.resumed, counts.measured.count);
                return Err(Error::Failed(format!("it resumed {resumed} of {all} sessions")));
            }
            Ok(counts.measured.handshake_metrics())
        }
        Work::Idle(_) | Work::Change(_) => Err(Error::Failed("this needs a new process".to_owned())),
    }
}

/// Messages of 64 B at the fixed rate. A p99 needs some thousand of them.
fn at_rate(lab: &Lab<'_>, live: &Live) -> Result<Echo, Error> {
    let Span { warmup, duration } = lab.span();
    let span = Span { warmup, duration: 2 * duration };
    Ok(Echo::small(live.server()?, CONNECTIONS, Some(RATE), span))
}

/// Measures memory with a new process, because an old one has memory to reuse.
fn idle(lab: &Lab<'_>, site: &Site, case: &mut EdgeCase, connections: usize) -> Result<Metrics, Error> {
    let live = site.start(lab, case.who)?;
    let load = load::Idle { server: live.server()?, connections, duration: Duration::ZERO, echo: true };
    let memory = load.run(&mut |_| {})?;
    case.unused.extend(memory.rss_per_connection());
    Ok(memory.rss_per_used_connection().map(|bytes| (Metric::RssPerConnection, bytes)).into_iter().collect())
}
