//! The interfaces of other languages, each beside what its users have today.

mod programs;

use super::certificates::Certificates;
use super::echo_case::{self, EchoRow, Shape, add_lines, cheapest};
use super::worker::Worker;
use super::{Check, ENGINES, Effort, Key, Kind, Lab, Metrics, Outcome, Row, Servers, Subject, check, row};
use crate::cpu::Pinned;
use crate::published;
use crate::rounds::Runs;
use crate::stats::Ratio;
use crate::table::{Table, optional};
use crate::{Case, DriverKind, Error, Metric, Target};
use programs::Programs;
pub(super) use programs::{Python, echo_in_c, make_venv, python};
use std::process::Command;
use std::time::Duration;
use tautline_measure::named;

const SHAPES: [Shape; 3] = [Shape::of(64), Shape::of(4096), Shape::of(65_536)];

/// Time for the rounds of echoes, and for those of TLS.
const BUDGETS: [Duration; 2] = [Duration::from_secs(90), Duration::from_secs(270)];

named! {
    /// A language whose programs are measured by a worker.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Language {
        Java = "java",
        Python = "python",
    }
}

named! {
    /// The work of a row, by its name for the worker.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Work {
        /// Wrap and unwrap of 64 B.
        Small = "memory-64",
        /// Wrap and unwrap of 16 KiB.
        Large = "memory-16384",
        /// Both directions of a connection at once, with buffers of 32 KiB.
        Duplex = "duplex",
        /// Full handshakes.
        Handshake = "handshake",
        /// Handshakes on contexts that connected before.
        Resumed = "resumed",
        /// Requests for 16 KiB on connections that are kept.
        Get = "get",
        /// Requests for 16 KiB, each on a connection of its own.
        GetClose = "get-close",
        /// Small reads beside large ones.
        Mixed = "mixed",
    }
}

impl Language {
    /// Engines of this language, ours first.
    const fn engines(self) -> &'static [&'static str] {
        match self {
            Self::Java => &["tautline", "jdk", "netty-tcnative"],
            Self::Python => &["tautline", "asyncio+tautline", "asyncio", "uvloop+tautline", "uvloop"],
        }
    }

    /// Whether its worker measures this work. In Python nothing is sealed without a connection.
    const fn has(self, work: Work) -> bool {
        matches!(self, Self::Java) || !matches!(work, Work::Small | Work::Large)
    }
}

/// One engine at one work.
struct Task {
    language: Language,
    engine: &'static str,
    work: Work,
    /// The other direction of [`Work::Duplex`], as `Metric::Transfer`.
    written: Vec<f64>,
}

impl Subject for Task {
    fn name(&self) -> String {
        format!("{} {}: {}", self.language.name(), self.engine, self.work.name())
    }

    fn case(&self) -> Case {
        let case = Case::default().model(self.language.name()).peer(self.engine).setup(self.work.name());
        match self.work {
            Work::Small => case.size(64),
            Work::Large | Work::Get | Work::GetClose => case.size(16_384),
            Work::Duplex => case.size(32_768).direction("read"),
            Work::Handshake => case.resumed(false),
            Work::Resumed => case.resumed(true),
            Work::Mixed => case,
        }
    }
}

impl Task {
    /// Measures one round.
    fn run(&mut self, workers: &mut [EngineWorker], time: Duration) -> Result<Metrics, Error> {
        let wanted = (self.language, self.engine);
        let worker = workers.iter_mut().find(|(language, engine, _)| (*language, *engine) == wanted);
        let (_, _, worker) = worker.ok_or_else(|| Error::Failed("there is no worker".to_owned()))?;
        let mut metrics = Vec::new();
        for (name, value) in worker.measure(self.work.name(), self.engine, time)? {
            metrics.push((
                match (name.as_str(), self.work) {
                    ("read", _) => Metric::Transfer,
                    ("write", _) => {
                        self.written.push(value);
                        continue;
                    }
                    ("per_cpu", _) => Metric::TransferPerCpu,
                    ("rate", _) => Metric::Throughput,
                    ("cpu_us", Work::Handshake | Work::Resumed) => Metric::CpuPerHandshake,
                    ("cpu_us", _) => Metric::CpuPerMsg,
                    _ => return Err(Error::Failed(format!("the worker knows no {name:?}"))),
                },
                value,
            ));
        }
        Ok(metrics)
    }
}

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let programs = Programs::find(lab.effort != Effort::Smoke, lab.progress);
    outcome.warnings.extend(programs.missing.iter().map(|missing| format!("not measured: {missing}")));
    let kinds: Vec<Kind> = kinds(&programs.servers, programs.has_c);
    let mut echoes = echo_case::rows(&SHAPES, &kinds);
    let servers = Servers::start(lab, kinds)?;
    echo_case::measure(lab, &servers, &mut echoes, BUDGETS[0], 0.0..0.4)?;
    drop(servers);
    let certificates = Certificates::new(&[Key::P256])?;
    let mut workers = workers(lab, programs, &certificates, outcome)?;
    let mut languages: Vec<_> = workers.iter().map(|(language, _, _)| *language).collect();
    languages.dedup();
    let mut rows = rows(&languages);
    let time = lab.span().duration;
    row::measure_tolerant(lab, &mut rows, &lab.plan(BUDGETS[1]), 0.4..1.0, |_, task, _| task.run(&mut workers, time))?;
    outcome.text = [echo_table(&echoes), memory_table(&rows), duplex_table(&rows), request_table(&rows)].concat();
    add_lines(outcome, &echoes);
    for row in &rows {
        outcome.add_row(row);
        outcome.add(&row.subject.case().direction("write"), Metric::Transfer, &row.subject.written);
    }
    check::report(outcome, echo_checks(&echoes).into_iter().chain(tls_checks(&rows)));
    Ok(())
}

/// The handler in Rust, which others are compared with.
fn rust() -> Kind {
    Kind::Wss(ENGINES[0], Key::P256, DriverKind::Epoll)
}

/// The handler in Rust, and every server of another language.
fn kinds(servers: &[Python], has_c: bool) -> Vec<Kind> {
    let servers = servers.iter().map(|&server| Kind::Python(server));
    [rust()].into_iter().chain(has_c.then_some(Kind::C)).chain(servers).collect()
}

/// A process that measures one engine of a language.
type EngineWorker = (Language, &'static str, Worker);

/// Starts the workers: Python on the server's CPU, Java on both, because it has a thread for each end.
///
/// Each engine has a process of its own, as in its users' programs: in a JVM with several, the compiler inlines none.
fn workers(
    lab: &Lab<'_>,
    programs: Programs,
    certificates: &Certificates,
    outcome: &mut Outcome,
) -> Result<Vec<EngineWorker>, Error> {
    let (server, load) = (lab.placement.server, lab.placement.load);
    let mut commands = Vec::new();
    if let Some(java) = programs.java {
        commands.push((Language::Java, java, Pinned::to_any(&[server, load])?));
    }
    if let Some((python, script)) = python().zip(programs::tls_script()).filter(|_| !programs.servers.is_empty()) {
        let mut command = Command::new(python);
        let (chain, key) = certificates.paths(Key::P256);
        command.arg(script).args([chain, key, certificates.write_authority()?]);
        commands.push((Language::Python, command, Pinned::to(server)?));
    }
    let mut workers = Vec::new();
    for (language, mut command, pinned) in commands {
        for &engine in language.engines() {
            match Worker::start(&mut command) {
                Ok(worker) => workers.push((language, engine, worker)),
                Err(error) => outcome.warnings.push(format!("not measured: {}: {error}", language.name())),
            }
        }
        drop(pinned);
    }
    Ok(workers)
}

fn rows(languages: &[Language]) -> Vec<Row<Task>> {
    let works = |language: Language| Work::ALL.into_iter().filter(move |&work| language.has(work));
    let tasks = languages.iter().flat_map(|&language| {
        works(language).flat_map(move |work| {
            language.engines().iter().map(move |&engine| Task { language, engine, work, written: Vec::new() })
        })
    });
    tasks.map(Row::new).collect()
}

fn find<'a>(rows: &'a [Row<Task>], language: Language, engine: &str, work: Work) -> Option<&'a Row<Task>> {
    rows.iter().find(|row| {
        let task = &row.subject;
        task.language == language && task.engine == engine && task.work == work
    })
}

fn echo_table(rows: &[EchoRow]) -> String {
    let table = Table::of(rows.iter().map(|row| {
        let cpu = row.summary(Metric::ServerCpuPerMsg);
        let base = cheapest(rows, row.subject.shape, |kind| kind == Kind::Python(Python::Websockets));
        let ratio = base.and_then(|base| base.cpu_over(row)).map(|ratio| ratio.summary);
        [
            ("<load", row.subject.shape.name()),
            ("<server", row.subject.kind.full_name()),
            ("msg/s ", row.rate()),
            ("us/msg", optional(cpu.map(|cpu| cpu.median))),
            ("± %", optional(cpu.map(|cpu| cpu.spread() * 100.0))),
            ("x websockets", optional(ratio.map(|ratio| ratio.median))),
        ]
    }));
    format!(
        "Echoes over wss: 100 connections, one message in flight on each; the server on one CPU.\n\
         us/msg: server CPU. x websockets: messages per CPU second over those of that package.\n\n{table}"
    )
}

fn memory_table(rows: &[Row<Task>]) -> String {
    let of = |work| rows.iter().filter(move |row| row.subject.work == work);
    let table = Table::of(of(Work::Small).map(|row| {
        let engine = row.subject.engine;
        let large = find(rows, row.subject.language, engine, Work::Large);
        let us = |row: Option<&Row<Task>>| optional(row.and_then(|row| row.median(Metric::CpuPerMsg)));
        [
            ("<language", row.subject.language.name().to_owned()),
            ("<engine", engine.to_owned()),
            ("64 B us", us(Some(row))),
            ("16 KiB us", us(large)),
        ]
    }));
    table.below("\nRecords in memory: wrap and unwrap of a message, direct buffers.")
}

fn duplex_table(rows: &[Row<Task>]) -> String {
    let published = |engine: &str, direction: &str| {
        let strategy = if engine == "tautline" { "window-bio+direct-decrypt" } else { "memory-bio" };
        let text = format!("duplex 32KiB buffers TLS1.3 1 connection {direction} strategy={strategy}");
        optional(published::by_text("windows", &text, None))
    };
    let table = Table::of(rows.iter().filter(|row| row.subject.work == Work::Duplex).map(|row| {
        let engine = row.subject.engine;
        [
            ("<language", row.subject.language.name().to_owned()),
            ("<engine", engine.to_owned()),
            ("read MB/s", optional(row.median(Metric::Transfer))),
            ("published", published(engine, "read")),
            ("write MB/s", optional(crate::stats::median(&row.subject.written))),
            ("published", published(engine, "write")),
            ("MB/CPU s", optional(row.median(Metric::TransferPerCpu))),
        ]
    }));
    table.below(
        "\nDuplex: one connection over loopback, both ends in one process write 32 KiB at a time and read.\n\
         MB/CPU s: of both ends. Published: .NET's SslStream with memory BIOs, and with direct reads.",
    )
}

fn request_table(rows: &[Row<Task>]) -> String {
    let table = Table::of(rows.iter().filter(|row| row.subject.work == Work::Get).map(|row| {
        let task = &row.subject;
        let of =
            |work, metric| optional(find(rows, task.language, task.engine, work).and_then(|row| row.median(metric)));
        [
            ("<language", task.language.name().to_owned()),
            ("<engine", task.engine.to_owned()),
            ("kept 1/s", of(Work::Get, Metric::Throughput)),
            ("us", of(Work::Get, Metric::CpuPerMsg)),
            ("close 1/s", of(Work::GetClose, Metric::Throughput)),
            ("us", of(Work::GetClose, Metric::CpuPerMsg)),
            ("mixed us", of(Work::Mixed, Metric::CpuPerMsg)),
            ("full us", of(Work::Handshake, Metric::CpuPerHandshake)),
            ("again us", of(Work::Resumed, Metric::CpuPerHandshake)),
        ]
    }));
    let gets = ["HTTP/1.1 keep-alive c=32 strategy=memory-bio", "connection-close strategy=memory-bio"]
        .map(|case| optional(published::by_text("windows", &format!("HTTPS GET 16KiB {case}"), None)));
    table.below(&format!(
        "\nHTTPS GET of 16 KiB, kept alive and closed; frames of 100 B and 64 KiB by turns (mixed); full\n\
         handshakes, and those of contexts that connected before (again). us: CPU of both ends.\n\
         Published, .NET on 56 cores: kept {} 1/s, close {} 1/s.",
        gets[0], gets[1]
    ))
}

/// Targets of the servers: messages per CPU second, ours over theirs, and the CPU time in C over that in Rust.
fn echo_checks(rows: &[EchoRow]) -> Vec<Check> {
    let targets = [
        (SHAPES[0], Python::Coroutines, Python::Websockets, 4.0),
        (SHAPES[0], Python::Callbacks, Python::Picows, 1.2),
        (SHAPES[2], Python::Coroutines, Python::Websockets, 2.0),
    ];
    let one = |shape, wanted: Kind| cheapest(rows, shape, move |kind| kind == wanted);
    let of = |shape, server| one(shape, Kind::Python(server));
    let in_c = one(SHAPES[0], Kind::C).zip(one(SHAPES[0], rust())).and_then(|(ours, base)| {
        let name = format!("{}: C over Rust, CPU time per message", SHAPES[0].name());
        Check::ratio(name, ours.subject.case(), (Metric::RatioToPeer, ours.cpu_over(base)), Target::AtMost(1.03))
    });
    let checks = targets.into_iter().filter_map(|(shape, ours, theirs, least)| {
        let (ours, theirs) = (of(shape, ours)?, of(shape, theirs)?);
        let name = format!(
            "{}: {} over {}, messages per CPU second",
            shape.name(),
            ours.subject.kind.name(),
            theirs.subject.kind.name()
        );
        let ratio = (Metric::RatioToPeer, theirs.cpu_over(ours));
        Check::ratio(name, theirs.subject.case(), ratio, Target::AtLeast(least))
    });
    in_c.into_iter().chain(checks).collect()
}

/// Targets of TLS: how much of a metric ours has over theirs.
fn tls_checks(rows: &[Row<Task>]) -> Vec<Check> {
    use Metric::{CpuPerHandshake, CpuPerMsg, TransferPerCpu};
    let (java, python) = (Language::Java, Language::Python);
    let mut targets = vec![
        (java, Work::Small, "jdk", CpuPerMsg, Target::AtMost(1.0 / 5.0)),
        (java, Work::Large, "jdk", CpuPerMsg, Target::AtMost(1.0 / 2.0)),
        (java, Work::Duplex, "jdk", TransferPerCpu, Target::AtLeast(1.3)),
        (java, Work::Duplex, "netty-tcnative", TransferPerCpu, Target::AtLeast(1.1)),
        (python, Work::Duplex, "asyncio", TransferPerCpu, Target::AtLeast(1.5)),
    ];
    for engine in ["jdk", "netty-tcnative"] {
        targets.extend([
            (java, Work::Get, engine, CpuPerMsg, Target::AtMost(1.0)),
            (java, Work::Handshake, engine, CpuPerHandshake, Target::AtMost(1.0)),
            (java, Work::Resumed, engine, CpuPerHandshake, Target::AtMost(1.0)),
        ]);
    }
    let checks = targets.into_iter().filter_map(|(language, work, engine, metric, target)| {
        let ours = find(rows, language, "tautline", work)?;
        let theirs = find(rows, language, engine, work)?;
        let ratio = Ratio::paired(ours.runs(metric), theirs.runs(metric));
        let name = format!("{} {}: {} over {engine}", language.name(), work.name(), metric.name());
        Check::ratio(name, theirs.subject.case(), (Metric::RatioToPeer, ratio), target)
    });
    checks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::WIDTH;

    #[test]
    fn every_target_is_checked() {
        let mut echoes = echo_case::rows(&SHAPES, &kinds(&Python::ALL, true));
        for row in &mut echoes {
            let us = match row.subject.kind {
                Kind::Python(server) if server.is_ours() => 5.0,
                Kind::Python(Python::Websockets) => 25.0,
                // A seventh more than in Rust is too much.
                Kind::C => 8.0,
                _ => 7.0,
            };
            row.samples.insert(Metric::ServerCpuPerMsg, vec![us; 3]);
            row.samples.insert(Metric::Throughput, vec![111_111.0; 3]);
        }
        let mut rows = rows(&Language::ALL);
        for row in &mut rows {
            let us = if row.subject.engine.ends_with("tautline") { 0.5 } else { 1.5 };
            for metric in [Metric::CpuPerMsg, Metric::CpuPerHandshake] {
                row.samples.insert(metric, vec![us; 3]);
            }
            for metric in [Metric::Transfer, Metric::TransferPerCpu, Metric::Throughput] {
                row.samples.insert(metric, vec![1234.5 / us; 3]);
            }
        }
        let mut outcome = Outcome::of("bindings");
        check::report(&mut outcome, echo_checks(&echoes).into_iter().chain(tls_checks(&rows)));
        assert_eq!(outcome.lines.len(), 4 + 11);
        // A third of the JDK's time for 64 B is not a fifth.
        assert_eq!(outcome.text.matches("missed").count(), 2, "{}", outcome.text);
        let text = [echo_table(&echoes), memory_table(&rows), duplex_table(&rows), request_table(&rows)].concat();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        for figure in ["x websockets", "published", "Published, .NET"] {
            assert!(text.contains(figure), "{figure}: {text}");
        }
    }

    #[test]
    fn without_programs_the_handler_in_rust_alone_is_measured() {
        assert_eq!(kinds(&[], false), [rust()]);
        assert!(rows(&[]).is_empty() && tls_checks(&[]).is_empty());
        assert!(memory_table(&[]).is_empty() && duplex_table(&[]).is_empty() && request_table(&[]).is_empty());
    }
}
