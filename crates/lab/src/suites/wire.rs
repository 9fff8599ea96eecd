//! AF_XDP beside the kernel's TCP, on both ends of one pair of virtual interfaces.

use super::check::{self, Check};
use super::echo_case::in_case;
use super::server::{Key, Kind, Process, Site};
use super::space::{self, Space};
use super::{Certificates, ENGINES, Lab, Outcome, Pace, Suite};
use crate::load::Echo;
use crate::rounds::{Runs, Samples, interleave};
use crate::stats::{Ratio, Summary};
use crate::table::{Table, number, optional};
use crate::{Case, Error, Metric, Target};
use std::time::Duration;
use tautline::Way;
use tautline::layers::io::{Io, Spin};

/// What the rounds may take.
const BUDGET: Duration = Duration::from_secs(120);

/// Rounds of `--quick`: single ones of a busy server differ by a fifth, and what is judged is their ratio.
const QUICK_ROUNDS: usize = 9;

const SIZE: usize = 64;

/// Connections of busy servers.
const BUSY: usize = 100;

/// What a busy server over AF_XDP may take of what one over the kernel's TCP takes, in CPU time for each message.
const MOST: f64 = 0.75;

/// Whose TCP an end speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stack {
    Kernel,
    Xdp,
}

/// One server and one load.
#[derive(Clone, Debug)]
struct Row {
    server: Stack,
    client: Stack,
    /// One connection, and neither end sleeps; else many, and ends sleep.
    spins: bool,
    samples: Samples,
}

impl Row {
    /// The driver of an end of this row.
    const fn driver(&self, stack: Stack) -> &'static str {
        match (stack, self.spins) {
            (Stack::Kernel, false) => "epoll",
            (Stack::Kernel, true) => "spin",
            (Stack::Xdp, false) => "xdp",
            (Stack::Xdp, true) => "xdp-spin",
        }
    }

    const fn connections(&self) -> usize {
        if self.spins { 1 } else { BUSY }
    }

    fn name(&self) -> String {
        format!("{} from {}", self.driver(self.server), self.driver(self.client))
    }

    fn case(&self) -> Case {
        Case {
            protocol: Some(crate::Protocol::Wss),
            tls: Some(ENGINES[0].to_owned()),
            driver: Some(self.driver(self.server).to_owned()),
            size: Some(SIZE as u64),
            connections: Some(self.connections() as u64),
            pipeline: Some(1),
            transport: Some(if self.server == Stack::Xdp { "xdp" } else { "kernel" }.to_owned()),
            setup: Some(format!("over veth, client {}", self.driver(self.client))),
            ..Case::default()
        }
    }

    /// The way of the load.
    fn way(&self) -> Result<Way, Error> {
        match self.client {
            Stack::Kernel => Ok(Way::new(if self.spins { Io::Spin } else { Io::Epoll }, Spin::default())),
            #[cfg(feature = "xdp")]
            Stack::Xdp => {
                let spin = if self.spins { Duration::from_secs(1) } else { Duration::ZERO };
                let config = tautline::layers::xdp::Config::new(space::INTERFACE);
                Ok(Way::xdp(tautline::layers::xdp::Config { spin, ..config }))
            }
            #[cfg(not(feature = "xdp"))]
            Stack::Xdp => Err(Error::Usage("this build has no AF_XDP: build it with the feature `xdp`".to_owned())),
        }
    }

    /// What the server is started with.
    const fn argument(&self) -> &'static str {
        match (self.server, self.spins) {
            (Stack::Xdp, false) => "xdp:feed1",
            (Stack::Xdp, true) => "xdp-spin:feed1",
            (Stack::Kernel, _) => self.driver(self.server),
        }
    }
}

/// Both servers of each comparison stand side by side.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for spins in [false, true] {
        for client in [Stack::Kernel, Stack::Xdp] {
            let row = |server| Row { server, client, spins, samples: Samples::new() };
            rows.extend([Stack::Kernel, Stack::Xdp].map(row));
        }
    }
    rows
}

pub(super) fn run(lab: &mut Lab<'_>) -> Result<Outcome, Error> {
    let mut rows = rows();
    rows.iter().try_for_each(|row| row.way().map(drop))?;
    let space = Space::new().map_err(Error::Usage)?;
    let certificates = Certificates::new(&[Key::P256])?;
    let (span, mut plan) = (lab.span(), lab.plan(BUDGET));
    if lab.pace == Pace::Quick {
        plan.rounds = QUICK_ROUNDS;
    }
    let names: Vec<String> = rows.iter().map(Row::name).collect();
    let samples = interleave(
        &mut rows,
        &plan,
        |_| {},
        |row, step| {
            (lab.progress)(step.done as f64 / step.total as f64, &names[step.case]);
            let site = Site { command: space.command(), address: space::SERVER };
            // An interface serves one at a time.
            let process = Process::start_at(lab, Kind::Wire(row.argument()), &certificates, Some(site))?;
            let mut server = process.server()?;
            server.way = row.way()?;
            let (connections, warmup, duration) = (row.connections(), 2 * span.warmup, span.duration);
            let echo = Echo { server, connections, size: SIZE, pipeline: 1, rate: None, warmup, duration };
            let measured = space.at_client(|| echo.run(&mut |_| {}));
            Ok(measured.map_err(|error| in_case(&names[step.case], error))?.message_metrics(SIZE))
        },
    )?;
    for (row, samples) in rows.iter_mut().zip(samples) {
        row.samples = samples;
    }
    Ok(report(&rows))
}

fn report(rows: &[Row]) -> Outcome {
    let mut outcome = Outcome { text: table(rows), ..Outcome::default() };
    for row in rows {
        outcome.add_samples(Suite::Wire, &row.case(), &row.samples);
    }
    let names: Vec<String> = rows.iter().map(Row::name).collect();
    let summaries = rows.iter().map(|row| Summary::of(row.samples.runs(row.judged())));
    outcome.warn_if_noisy(names.iter().map(String::as_str).zip(summaries));
    check::report(&mut outcome, Suite::Wire, rows.chunks_exact(2).filter_map(check));
    outcome
}

impl Row {
    /// What it is judged by.
    const fn judged(&self) -> Metric {
        if self.spins { Metric::LatencyP50 } else { Metric::ServerCpuPerMsg }
    }

    fn over(&self, other: &Self) -> Option<Ratio> {
        Ratio::paired(self.samples.runs(self.judged()), other.samples.runs(self.judged()))
    }
}

fn table(rows: &[Row]) -> String {
    let mut table =
        Table::new(&["<server", "<client", "conns", "msg/s", "p50 us", "p99 us", "us/msg", "x kernel's us", "x p50"]);
    for pair in rows.chunks_exact(2) {
        for row in pair {
            let over = |is_wanted: bool| {
                let ratio = row.over(&pair[0]).filter(|_| is_wanted && row.server == Stack::Xdp);
                optional(ratio.map(|ratio| ratio.summary.median))
            };
            table.row([
                row.driver(row.server).to_owned(),
                row.driver(row.client).to_owned(),
                number(row.connections() as f64),
                optional(row.samples.median(Metric::Throughput)),
                optional(row.samples.median(Metric::LatencyP50)),
                optional(row.samples.median(Metric::LatencyP99)),
                optional(row.samples.median(Metric::ServerCpuPerMsg)),
                over(!row.spins),
                over(row.spins),
            ]);
        }
    }
    format!(
        "Wire: wss echo of {SIZE} B over a pair of virtual interfaces between two network namespaces, by a\n\
         server over AF_XDP and by one over the kernel's TCP. {BUSY} connections with ends that sleep, and\n\
         one with ends that spin. us/msg: server CPU, with what the kernel does there for the client: a\n\
         veth pair has the sender do the receiver's work.\n\n{table}"
    )
}

/// What AF_XDP must save.
fn check(pair: &[Row]) -> Option<Check> {
    let [kernel, xdp] = pair else { return None };
    let (most, what) = if xdp.spins { (1.0, "p50") } else { (MOST, "server CPU") };
    let what = format!("{}, x {}: {what}", xdp.name(), kernel.driver(kernel.server));
    Check::ratio(what, xdp.case(), (Metric::RatioToKernel, xdp.over(kernel)), Target::AtMost(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::WIDTH;

    #[test]
    fn servers_are_judged_by_the_kernels_under_the_same_load() {
        let mut rows = rows();
        for row in &mut rows {
            let is_xdp = row.server == Stack::Xdp;
            let (cpu, p50) = if is_xdp { (3.0, 6.0) } else { (5.0, 8.0) };
            row.samples.insert(Metric::ServerCpuPerMsg, vec![cpu; 3]);
            row.samples.insert(Metric::LatencyP50, vec![p50; 3]);
            row.samples.insert(Metric::Throughput, vec![200_000.0; 3]);
        }
        let outcome = report(&rows);
        assert!(outcome.text.lines().all(|line| line.chars().count() <= WIDTH), "{}", outcome.text);
        let judged: Vec<_> = outcome.lines.iter().filter(|line| line.target.is_some()).collect();
        let found: Vec<_> = judged.iter().map(|line| (line.value, line.target, line.case.connections)).collect();
        let [busy, spinning] =
            [(0.6, Some(Target::AtMost(MOST)), Some(100)), (0.75, Some(Target::AtMost(1.0)), Some(1))];
        assert_eq!(found, [busy, busy, spinning, spinning]);
        assert!(judged.iter().all(|line| line.metric == Metric::RatioToKernel), "{judged:?}");
    }

    #[test]
    fn servers_are_started_on_the_interface_that_there_is() {
        for row in rows() {
            let driver = row.driver(row.server);
            let of_the_interface = format!("{driver}:{}", space::SERVER_INTERFACE);
            assert_eq!(row.argument(), if row.server == Stack::Xdp { of_the_interface.as_str() } else { driver });
        }
    }
}
