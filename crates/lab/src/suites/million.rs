//! A million connections, or as many as were asked for: memory, handshakes, echoes, a message to all, and the end.

use super::namespaces::Alone;
use super::{Certificates, Check, Effort, Kind, Lab, Outcome, Process, check};
use crate::load::crowd::{Crowd, RunningCrowd, loops, room};
use crate::load::{self, Progress};
use crate::table::{Table, bytes, number};
use crate::{Case, Error, Latencies, Metric, Span, Target, cpu};
use std::fs;
use std::time::Duration;
use tautline::KeyExchange;
use tautline::layers::io::machine::OwnDescriptors;

/// Echoes per second, whatever the number of connections.
const RATE: f64 = 10_000.0;

/// Greatest resident memory of the server, and greatest p99 of an echo over that of the first step.
const MOST_RESIDENT: f64 = 1e9;
const MOST_SLOWER: f64 = 3.0;

/// Time for the server's end after the last connection's.
const END: Duration = Duration::from_secs(20);

/// Memory in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    /// Resident memory of the server and of the load.
    server: u64,
    load: u64,
    /// Memory of the kernel for both: slabs, page tables, stacks, and what it maps for itself.
    kernel: u64,
}

impl Memory {
    fn now(server: u32) -> Result<Self, Error> {
        let failed = |error| Error::io("read how much memory is in use", error);
        let text = fs::read_to_string("/proc/meminfo").map_err(failed)?;
        let server = cpu::resident(server).map_err(failed)?;
        let load = cpu::resident(std::process::id()).map_err(failed)?;
        Ok(Self { server, load, kernel: kernel(&text) })
    }
}

/// Memory of the kernel that grows with connections, from `/proc/meminfo`.
fn kernel(meminfo: &str) -> u64 {
    let of = |line: &str| {
        let (name, amount) = line.split_once(':')?;
        let kib: u64 = amount.trim().strip_suffix("kB")?.trim().parse().ok()?;
        ["Slab", "PageTables", "KernelStack", "VmallocUsed", "Percpu"].contains(&name).then_some(kib * 1024)
    };
    meminfo.lines().filter_map(of).sum()
}

/// Figures of one step.
struct Step {
    connections: usize,
    /// Connections opened in this step per second.
    handshakes: f64,
    /// Growth of memory for each connection since before the first.
    server: f64,
    load: f64,
    kernel: f64,
    resident: u64,
    echoes: Latencies,
}

/// All figures.
struct Figures {
    loops: usize,
    threads: usize,
    resumed: usize,
    steps: Vec<Step>,
    echo_on_each: Duration,
    /// Resident memory of the server after one echo on each.
    used: u64,
    broadcast: Latencies,
    end: Duration,
}

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let size = lab.crowd;
    let most = room()?.min(size.per_table.unwrap_or(usize::MAX));
    let loops = loops(size.connections, most);
    let Some(own) = size.own else {
        return Err(Error::Usage("this program does not let threads have descriptors of their own".to_owned()));
    };
    let alone = Alone::enter();
    if let Err(why) = &alone {
        outcome.warnings.push(format!("this machine's own network and its settings were used: {why}"));
    }
    let figures = measure(lab, loops, most, own)?;
    drop(alone);
    let case = Kind::Crowd { loops, driver: lab.drivers[0] }.case();
    report(outcome, &case, &figures);
    Ok(())
}

fn measure(lab: &mut Lab<'_>, loops: usize, most: usize, own: OwnDescriptors) -> Result<Figures, Error> {
    let size = lab.crowd;
    let kind = Kind::Crowd { loops, driver: lab.drivers[0] };
    let certificates = Certificates::new(&[kind.key()])?;
    let mut process = Process::start(lab, kind, &certificates, None)?;
    drop(certificates);
    let mut server = process.server()?;
    // The handshakes are to be cheap: a million of them take minutes even so.
    server.tls.key_exchange = KeyExchange::Classical;
    let crowd = Crowd { server, connections: size.connections, per_thread: most, sources: Vec::new(), own };
    let mut crowd = crowd.start()?;
    // The first connections make both sides touch code and tables that all connections share; they are not counted.
    let (steps, first) = (size.steps(), crowd.threads());
    show(lab, 0.0, "first connections", |watch| crowd.open(first.min(steps[0]), watch))?;
    let before = Memory::now(process.pid())?;
    let mut measured = Vec::new();
    let mut open = first.min(steps[0]);
    for &step in &steps {
        let name = format!("{step} connections");
        let opening = show(lab, 0.05, &name, |watch| crowd.open(step, watch))?;
        crowd.hold(settle(lab.effort), &mut |_| {})?;
        let memory = Memory::now(process.pid())?;
        let each = |after: u64, before: u64| (after as f64 - before as f64) / (step - first.min(step - 1)) as f64;
        let (rate, span) = echoes(lab.effort, step == size.connections);
        let echoes = show(lab, 0.3, &name, |watch| crowd.echo(rate, span, watch))?;
        measured.push(Step {
            connections: step,
            handshakes: (step - open) as f64 / opening.as_secs_f64(),
            server: each(memory.server, before.server),
            load: each(memory.load, before.load),
            kernel: each(memory.kernel, before.kernel),
            resident: memory.server,
            echoes,
        });
        open = step;
    }
    let (echo_on_each, used, broadcast) = all_of_them(lab, &mut crowd, process.pid())?;
    let end = crowd.await_end(|| process.stop())?;
    if !process.ends_within(END) {
        return Err(Error::Failed("the server did not end after its last connection".to_owned()));
    }
    let (threads, resumed) = (crowd.threads(), crowd.resumed());
    Ok(Figures { loops, threads, resumed, steps: measured, echo_on_each, used, broadcast, end })
}

/// One echo on each connection, after which the server's memory is read again, and a message to all.
fn all_of_them(lab: &mut Lab<'_>, crowd: &mut RunningCrowd, server: u32) -> Result<(Duration, u64, Latencies), Error> {
    (lab.progress)(0.8, "one echo on each");
    let each = crowd.echo_on_each()?;
    crowd.hold(settle(lab.effort), &mut |_| {})?;
    let used = Memory::now(server)?.server;
    (lab.progress)(0.9, "a message to all");
    let broadcast = crowd.broadcast()?;
    (lab.progress)(0.95, "the server closes all");
    Ok((each, used, broadcast))
}

/// Runs `act` with a watch that shows how far it is.
fn show<T>(
    lab: &mut Lab<'_>,
    share: f64,
    name: &str,
    act: impl FnOnce(load::Watch<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let progress = &mut *lab.progress;
    act(&mut |stage| match stage {
        Progress::Connecting(open, count) => progress(share, &format!("connecting: {open} of {count}")),
        Progress::Interval(_) => {}
        Progress::Running(_) => progress(share, &format!("echoes over {name}")),
    })
}

/// Time between the last handshake and reading the memory.
const fn settle(effort: Effort) -> Duration {
    Duration::from_millis(effort.pick(1_000, 1_000, 50))
}

/// Rate and time of echoes over random connections.
const fn echoes(effort: Effort, is_last: bool) -> (f64, Span) {
    let thorough = Span::millis(3_000, if is_last { 60_000 } else { 20_000 });
    effort.pick((RATE, thorough), (RATE, Span::millis(500, 3_000)), (500.0, Span::millis(50, 300)))
}

fn report(outcome: &mut Outcome, case: &Case, figures: &Figures) {
    let table = Table::of(figures.steps.iter().map(|step| {
        let case = case.clone().connections(step.connections);
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|quantile| step.echoes.quantile_us(quantile));
        for (metric, value) in [
            (Metric::Handshakes, step.handshakes),
            (Metric::RssPerConnection, step.server),
            (Metric::LoadRssPerConnection, step.load),
            (Metric::KernelPerConnection, step.kernel),
            (Metric::LatencyP50, p50),
            (Metric::LatencyP99, p99),
            (Metric::LatencyP999, p999),
        ] {
            outcome.add(&case, metric, &[value]);
        }
        [
            ("conns", number(step.connections as f64)),
            ("opened 1/s", number(step.handshakes)),
            ("server B", number(step.server)),
            ("load B", number(step.load)),
            ("kernel B", number(step.kernel)),
            ("server RSS", bytes(step.resident)),
            ("echo p50", number(p50)),
            ("p99", number(p99)),
            ("p99.9 us", number(p999)),
        ]
    }));
    let Some((first, last)) = figures.steps.first().zip(figures.steps.last()) else { return };
    let case = case.clone().connections(last.connections);
    let all = [0.5, 1.0].map(|quantile| figures.broadcast.quantile_us(quantile));
    outcome.add(&case.clone().setup("message to all"), Metric::LatencyP50, &[all[0]]);
    outcome.add(&case.clone().setup("message to all"), Metric::LatencyMax, &[all[1]]);
    outcome.add(&case.clone().setup("one echo on each"), Metric::Rss, &[figures.used as f64]);
    outcome.add(&case, Metric::DrainTime, &[figures.end.as_secs_f64() * 1e6]);
    let Figures { loops, threads, resumed, echo_on_each, end, .. } = figures;
    let (connections, seconds) = (number(last.connections as f64), |us: f64| number(us / 1e6));
    let share = *resumed as f64 * 100.0 / last.connections as f64;
    outcome.text = format!(
        "Crowd: one server process with {loops} loops on one CPU, one load process with {threads} threads on another.\n\
         Echoes of 64 B over random connections, {} a second, timed since they were due. Bytes are\n\
         those of a connection, the kernel's those of both ends. {share:.1} % of the handshakes resumed a session.\n\n{table}\n\
         one echo on each of {connections}: {:.1} s; then the server's RSS is {}\n\
         a message to all: {} s until half had it, {} s until everybody had it\n\
         the server's close: {:.1} s until all connections had ended\n",
        number(RATE),
        echo_on_each.as_secs_f64(),
        bytes(figures.used),
        seconds(all[0]),
        seconds(all[1]),
        end.as_secs_f64(),
    );
    check::report(outcome, checks(&case, first, last, figures.used));
}

/// The targets, which are those of a million connections.
fn checks(case: &Case, first: &Step, last: &Step, used: u64) -> Vec<Check> {
    let [few, many] = [first, last].map(|step| step.echoes.quantile_us(0.99));
    let resident = [last.resident.max(used) as f64];
    let ratio = [many / few];
    let mut checks = Vec::new();
    if last.connections >= 1_000_000 {
        let name = "the server's RSS, B".to_owned();
        checks.push(Check::of(name, case.clone(), (Metric::Rss, &resident), Target::AtMost(MOST_RESIDENT)));
    }
    if last.connections > first.connections {
        let name = format!("p99 over that with {}", number(first.connections as f64));
        checks.push(Check::of(name, case.clone(), (Metric::RatioToFew, &ratio), Target::AtMost(MOST_SLOWER)));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DriverKind;

    #[test]
    fn memory_of_the_kernel_is_summed_by_name() {
        let meminfo = "MemTotal: 100 kB\nSlab:   10 kB\nSReclaimable: 9 kB\nPageTables: 2 kB\nHugePages_Total: 0\n";
        assert_eq!(kernel(meminfo), 12 * 1024);
    }

    #[test]
    fn a_million_is_judged_and_fewer_only_by_their_latency() {
        let step = |connections| {
            let mut echoes = Latencies::new();
            echoes.record(Duration::from_micros(connections as u64 / 10));
            let (handshakes, server, load, kernel) = (5e3, 900.0, 950.0, 6_000.0);
            Step { connections, handshakes, server, load, kernel, resident: 950_000_000, echoes }
        };
        let figures = |steps: &[usize]| Figures {
            loops: 54,
            threads: 51,
            resumed: steps.last().map_or(0, |connections| connections * 99 / 100),
            steps: steps.iter().map(|&connections| step(connections)).collect(),
            echo_on_each: Duration::from_secs(50),
            used: 960_000_000,
            broadcast: Latencies::new(),
            end: Duration::from_secs(30),
        };
        let verdicts = |steps: &[usize]| {
            let mut outcome = Outcome::of("million");
            report(&mut outcome, &Kind::Crowd { loops: 54, driver: DriverKind::Epoll }.case(), &figures(steps));
            assert!(outcome.text.lines().all(|line| line.chars().count() <= crate::table::WIDTH), "{}", outcome.text);
            let judged =
                outcome.lines.iter().filter_map(|line| Some((line.metric, line.target?.is_met_by(line.value))));
            judged.collect::<Vec<_>>()
        };
        let expected = [(Metric::Rss, true), (Metric::RatioToFew, false)];
        assert_eq!(verdicts(&[1_000, 100_000, 1_000_000]), expected);
        assert_eq!(verdicts(&[1_000, 2_000]), [(Metric::RatioToFew, true)]);
        assert_eq!(verdicts(&[500]), []);
    }
}
