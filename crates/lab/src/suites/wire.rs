//! AF_XDP beside the kernel's TCP, on both ends of a pair of virtual interfaces.

use super::namespaces::{self, Namespaces};
use super::{Certificates, Check, Effort, Key, Kind, Lab, Outcome, Process, Row, Site, Subject, check, row};
use crate::load::Echo;
use crate::rounds::Runs;
use crate::table::{Table, number, optional};
use crate::{Case, Content, DriverKind, Error, Metric, Span, Target};
use std::time::Duration;
use tautline::DriverConfig;

/// Time for the rounds.
const BUDGET: Duration = Duration::from_secs(120);

/// Rounds of `--quick`: single rounds of a busy server differ by a fifth, and their ratio is judged.
const QUICK_ROUNDS: usize = 9;

const SIZE: usize = 64;

/// Connections of a busy server.
const BUSY: usize = 100;

/// Greatest CPU time per message of a busy server over AF_XDP, over that of one over the kernel's TCP.
const MOST: f64 = 0.75;

/// TCP implementation of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stack {
    Kernel,
    Xdp,
}

/// One server and one load.
#[derive(Clone, Copy, Debug)]
struct Link {
    server: Stack,
    client: Stack,
    /// Whether there is one connection whose ends never sleep; otherwise there are many, and ends sleep.
    spins: bool,
}

impl Link {
    /// The driver of one of its ends.
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

    /// The driver of the load.
    fn load_driver(&self) -> Result<DriverConfig, Error> {
        match self.client {
            Stack::Kernel => Ok(if self.spins { DriverKind::Spin } else { DriverKind::Epoll }.config()),
            #[cfg(feature = "xdp")]
            Stack::Xdp => {
                let mut config = tautline::layers::xdp::Config::new(namespaces::INTERFACE);
                config.spin = if self.spins { Duration::from_secs(1) } else { Duration::ZERO };
                Ok(config.into())
            }
            #[cfg(not(feature = "xdp"))]
            Stack::Xdp => Err(Error::Usage("this build has no AF_XDP: build it with the feature `xdp`".to_owned())),
        }
    }

    /// The server's argument `--driver`.
    const fn argument(&self) -> &'static str {
        match (self.server, self.spins) {
            (Stack::Xdp, false) => "xdp:feed1",
            (Stack::Xdp, true) => "xdp-spin:feed1",
            (Stack::Kernel, _) => self.driver(self.server),
        }
    }

    /// The metric that it is judged by.
    const fn judged(&self) -> Metric {
        if self.spins { Metric::LatencyP50 } else { Metric::ServerCpuPerMsg }
    }
}

impl Subject for Link {
    fn name(&self) -> String {
        format!("{} from {}", self.driver(self.server), self.driver(self.client))
    }

    fn case(&self) -> Case {
        Kind::Wire(self.argument())
            .case()
            .driver(self.driver(self.server))
            .size(SIZE)
            .connections(self.connections())
            .pipeline(1)
            .transport(if self.server == Stack::Xdp { "xdp" } else { "kernel" })
            .setup(format!("over veth, client {}", self.driver(self.client)).as_str())
    }
}

/// All rows, with both servers of each comparison side by side.
fn rows() -> Vec<Row<Link>> {
    let mut rows = Vec::new();
    for spins in [false, true] {
        for client in [Stack::Kernel, Stack::Xdp] {
            rows.extend([Stack::Kernel, Stack::Xdp].map(|server| Row::new(Link { server, client, spins })));
        }
    }
    rows
}

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let mut rows = rows();
    rows.iter().try_for_each(|row| row.subject.load_driver().map(drop))?;
    let namespaces = Namespaces::new().map_err(Error::Usage)?;
    let certificates = Certificates::new(&[Key::P256])?;
    let mut plan = lab.plan(BUDGET);
    if lab.effort == Effort::Quick {
        plan.rounds = QUICK_ROUNDS;
    }
    row::measure(lab, &mut rows, &plan, 0.0..1.0, |lab, link, _| {
        let site = Site { command: namespaces.command(), address: namespaces::SERVER };
        // A new server for each row, because an interface serves one at a time.
        let process = Process::start(lab, Kind::Wire(link.argument()), &certificates, Some(site))?;
        let mut server = process.server()?;
        server.driver = link.load_driver()?;
        let Span { warmup, duration } = lab.span();
        let (connections, span) = (link.connections(), Span { warmup: 2 * warmup, duration });
        let echo = Echo { server, connections, size: SIZE, content: Content::Bytes, pipeline: 1, rate: None, span };
        Ok(namespaces.at_client(|| echo.run(&mut |_| {}))?.message_metrics(SIZE))
    })?;
    report(outcome, &rows);
    Ok(())
}

fn report(outcome: &mut Outcome, rows: &[Row<Link>]) {
    outcome.text = table(rows);
    rows.iter().for_each(|row| outcome.add_row(row));
    outcome.warn_if_noisy(rows, Link::judged);
    check::report(outcome, rows.as_chunks().0.iter().filter_map(check));
}

fn table(rows: &[Row<Link>]) -> String {
    let pairs = rows.as_chunks::<2>().0.iter();
    let table = Table::of(pairs.flat_map(|pair| pair.iter().map(move |row| (&pair[0], row))).map(|(kernel, row)| {
        let link = row.subject;
        let over = |is_wanted: bool| {
            let times = row.times(kernel, link.judged());
            optional(times.filter(|_| is_wanted && link.server == Stack::Xdp))
        };
        [
            ("<server", link.driver(link.server).to_owned()),
            ("<client", link.driver(link.client).to_owned()),
            ("conns", number(link.connections() as f64)),
            ("msg/s", optional(row.median(Metric::Throughput))),
            ("p50 us", optional(row.median(Metric::LatencyP50))),
            ("p99 us", optional(row.median(Metric::LatencyP99))),
            ("us/msg", optional(row.median(Metric::ServerCpuPerMsg))),
            ("x kernel's us", over(!link.spins)),
            ("x p50", over(link.spins)),
        ]
    }));
    format!(
        "Wire: wss echo of {SIZE} B over a pair of virtual interfaces between two network namespaces, by a\n\
         server over AF_XDP and by one over the kernel's TCP. {BUSY} connections with ends that sleep, and\n\
         one with ends that spin. us/msg: server CPU, with what the kernel does there for the client: a\n\
         veth pair has the sender do the receiver's work.\n\n{table}"
    )
}

/// Target of AF_XDP beside the kernel.
fn check([kernel, xdp]: &[Row<Link>; 2]) -> Option<Check> {
    let link = xdp.subject;
    let (most, what) = if link.spins { (1.0, "p50") } else { (MOST, "server CPU") };
    let name = format!("{}, x {}: {what}", link.name(), kernel.subject.driver(Stack::Kernel));
    Check::ratio(name, link.case(), (Metric::RatioToKernel, xdp.over(kernel, link.judged())), Target::AtMost(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::WIDTH;

    #[test]
    fn servers_are_judged_by_the_kernel_under_the_same_load() {
        let mut rows = rows();
        for row in &mut rows {
            let (cpu, p50) = if row.subject.server == Stack::Xdp { (3.0, 6.0) } else { (5.0, 8.0) };
            row.samples.insert(Metric::ServerCpuPerMsg, vec![cpu; 3]);
            row.samples.insert(Metric::LatencyP50, vec![p50; 3]);
            row.samples.insert(Metric::Throughput, vec![200_000.0; 3]);
        }
        let mut outcome = Outcome::of("wire");
        report(&mut outcome, &rows);
        assert!(outcome.text.lines().all(|line| line.chars().count() <= WIDTH), "{}", outcome.text);
        let judged: Vec<_> = outcome.lines.iter().filter(|line| line.target.is_some()).collect();
        let found: Vec<_> = judged.iter().map(|line| (line.value, line.target, line.case.connections)).collect();
        let [busy, spinning] =
            [(0.6, Some(Target::AtMost(MOST)), Some(100)), (0.75, Some(Target::AtMost(1.0)), Some(1))];
        assert_eq!(found, [busy, busy, spinning, spinning]);
        assert!(judged.iter().all(|line| line.metric == Metric::RatioToKernel), "{judged:?}");
    }

    #[test]
    fn servers_are_started_on_the_interface_of_the_namespace() {
        for row in rows() {
            let link = row.subject;
            let driver = link.driver(link.server);
            let of_the_interface = format!("{driver}:{}", namespaces::SERVER_INTERFACE);
            assert_eq!(link.argument(), if link.server == Stack::Xdp { of_the_interface.as_str() } else { driver });
        }
    }
}
