//! WebSockets and requests over HTTP/2, beside HTTP/1.1 and servers of other projects.
//!
//! Each server has one thread and a CPU of its own. HAProxy stands in front of a plain echo of ours, on the CPU of the load.

mod case;
mod program;
mod report;

use super::echo_case::Shape;
use super::guest::{Installed, find_all};
use super::running::{self, BODY, Live, PATH, Place, Running};
use super::{Certificates, Effort, Key, Kind, Lab, Metrics, Outcome, Process, Row, row};
use crate::load::{self, Echo, Get};
use crate::rounds::Plan;
use crate::{Content, DriverKind, Error, Metric};
use case::{Http2Case, Http2Row, IN_FLIGHT, Over, SHARED, Who, Work, everyone};
use program::Program;
use std::time::Duration;

/// Time for the rounds beyond the least number of them.
const BUDGET: Duration = Duration::from_secs(240);

/// A server for clients over `over`.
fn over(server: Result<load::Server, Error>, over: Over) -> Result<load::Server, Error> {
    Ok(load::Server { http2: over.streams(), ..server? })
}

/// The parts that all servers of the suite share.
struct Site {
    certificates: Certificates,
    /// The server behind HAProxy.
    backend: Process,
    /// The folder with the page.
    files: String,
    installed: Vec<Installed<Program>>,
}

impl Site {
    fn start(&self, lab: &Lab<'_>, who: Who) -> Result<Live, Error> {
        match who {
            Who::Ours(kind) => {
                let further: &[&str] = if kind.peer().is_none() { &["--files", &self.files] } else { &[] };
                Ok(Live::Ours(Process::start_with(lab, kind, &self.certificates, None, further)?))
            }
            Who::Other(program) => {
                let installed = self.installed.iter().find(|installed| installed.program == program);
                let installed = installed.ok_or_else(|| Error::Failed(format!("{} is missing", program.name())))?;
                let make = |place: &Place<'_>| installed.command(place, &self.files);
                Running::start(lab, installed, &self.certificates, self.backend.address, make).map(Live::Other)
            }
        }
    }
}

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    if !cfg!(feature = "http2") {
        let why = "this program was built without HTTP/2; build it with `--features http2`";
        return Err(Error::Usage(why.to_owned()));
    }
    let installed = find_all(lab, Program::ALL, |program| (program.name(), program.find()), outcome);
    let certificates = Certificates::new(&[Key::P256])?;
    let files = running::files(&certificates)?;
    let backend = Process::start_with(lab, Kind::Ws(lab.drivers[0]), &certificates, None, &[])?;
    backend.run_on(lab.placement.load)?;
    let mut rows = rows(lab, &installed);
    let site = Site { certificates, backend, files: files.to_string_lossy().into_owned(), installed };
    let mut all: Vec<(Who, Live)> = Vec::new();
    for who in everyone(&rows) {
        match site.start(lab, who) {
            Ok(live) => all.push((who, live)),
            Err(error) if !who.is_ours() => outcome.warnings.push(format!("not measured: {error}")),
            Err(error) => return Err(error),
        }
    }
    rows.retain(|row| all.iter().any(|(who, _)| *who == row.subject.who));
    let plan = Plan { least_rounds: if lab.effort == Effort::Thorough { 5 } else { 1 }, ..lab.plan(BUDGET) };
    row::measure_tolerant(lab, &mut rows, &plan, 0.0..1.0, |lab, case, _| {
        if let Work::Idle(connections, over) = case.work {
            return idle(lab, &site, case.who, (connections, over));
        }
        let live = all.iter().find(|(who, _)| *who == case.who).map(|(_, live)| live);
        let live = live.ok_or_else(|| Error::Failed("it does not run".to_owned()))?;
        measure(lab, live, case)
    })?;
    report::report(outcome, &rows, &site.installed);
    Ok(())
}

/// Each work with each server, so that those that are compared are measured one after the other.
fn rows(lab: &Lab<'_>, installed: &[Installed<Program>]) -> Vec<Http2Row> {
    let drivers: &[DriverKind] = &lab.drivers;
    let axum = lab.peers.is_some().then_some(Who::AXUM);
    let is_there = |program: Program| installed.iter().any(|one| one.program == program).then_some(Who::Other(program));
    let idle = lab.effort.pick(2_000, 600, 20);
    let (small, large) = (Shape::of(64), Shape::of(65_536));
    let one = Over::Http2(1);
    let mut rows = Vec::new();
    let mut add = |work: Work, whos: &mut dyn Iterator<Item = Who>| {
        rows.extend(whos.map(|who| Row::new(Http2Case { who, work })));
    };
    for (shape, over) in
        [(small, Over::Http1), (small, one), (small, Over::Http2(SHARED)), (large, Over::Http1), (large, one)]
    {
        // HTTP/1.1 is that of a server without HTTP/2.
        let ours = drivers.iter().map(|&driver| Who::ours(over, driver));
        let others = [axum, is_there(Program::Haproxy)].into_iter().flatten();
        add(Work::Echo(shape, over), &mut ours.chain(others));
    }
    let others = [is_there(Program::Nginx), is_there(Program::H2o)].into_iter().flatten();
    add(Work::Get, &mut drivers.iter().map(|&driver| Who::ours(one, driver)).chain(others));
    for over in [Over::Http1, one, Over::Http2(SHARED)] {
        add(Work::Idle(idle, over), &mut drivers.iter().map(|&driver| Who::ours(over, driver)).chain(axum));
    }
    rows
}

fn measure(lab: &Lab<'_>, live: &Live, case: &Http2Case) -> Result<Metrics, Error> {
    let span = lab.span();
    match case.work {
        Work::Echo(Shape { size, connections, pipeline }, by) => {
            let server = over(live.server(), by)?;
            let echo = Echo { server, connections, size, content: Content::Bytes, pipeline, rate: None, span };
            Ok(echo.run(&mut |_| {})?.message_metrics(size))
        }
        Work::Get => {
            let server = over(live.http(), Over::Http2(IN_FLIGHT))?;
            let get = Get { server, connections: IN_FLIGHT, path: PATH, body: running::body(), span };
            Ok(get.run()?.answer_metrics(BODY))
        }
        Work::Idle(..) => Err(Error::Failed("idle connections need a new process".to_owned())),
    }
}

/// Measures memory with a new process, because an old one has memory to reuse.
fn idle(lab: &Lab<'_>, site: &Site, who: Who, (connections, by): (usize, Over)) -> Result<Metrics, Error> {
    let live = site.start(lab, who)?;
    let load = load::Idle { server: over(live.server(), by)?, connections, duration: Duration::ZERO, echo: true };
    let memory = load.run(&mut |_| {})?;
    Ok(memory.rss_per_used_connection().map(|bytes| (Metric::RssPerConnection, bytes)).into_iter().collect())
}
