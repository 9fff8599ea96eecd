//! Market data of a simulated venue: from the venue's stamp to the decision, and CPU time per message, beside what others use.

use super::bindings::{make_venv, python};
use super::peer::checkout;
use super::worker::Worker;
use super::{Certificates, Effort, Kind, Lab, Metrics, Outcome, Row, Subject, row};
use crate::rounds::Runs;
use crate::suites::server::Process;
use crate::table::{Table, optional};
use crate::{Case, DriverKind, Error, Metric};
use std::process::Command;
use std::time::Duration;
use tautline_measure::named;

/// Symbols of a connection, each with its trades and its book.
const SYMBOLS: [usize; 3] = [1, 100, 500];

/// Time for all rounds.
const BUDGET: Duration = Duration::from_secs(240);

named! {
    /// A client of market data. The name is also its engine's in `peers/python/feed.py`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Program {
        Ours = "tautline",
        /// tokio-tungstenite with serde_json.
        Tungstenite = "tungstenite",
        /// picows with orjson.
        Picows = "picows",
        /// websockets with json.
        Websockets = "websockets",
    }
}

/// One client at one number of symbols.
struct Following {
    program: Program,
    symbols: usize,
    worker: Option<Worker>,
}

impl Subject for Following {
    fn name(&self) -> String {
        format!("{}, {} symbols", self.program.name(), self.symbols)
    }

    fn case(&self) -> Case {
        let case = Case::default().setup(format!("{} symbols", self.symbols).as_str());
        case.peer(self.program.name())
    }
}

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let builds = lab.effort != Effort::Smoke;
    if builds {
        (lab.progress)(0.0, "fetching the clients in Python");
        outcome.warnings.extend(make_venv().err().map(|error| format!("not measured: Python: {error}")));
    }
    let certificates = Certificates::new(&[])?;
    let mut venues = Vec::new();
    for symbols in SYMBOLS {
        // Each round fetches the snapshots of its books: the venue would ban us in the second one.
        let further = ["--app", "venue", "--no-limits", "--symbols", &symbols.to_string()];
        venues.push(Process::start_with(lab, Kind::Ws(DriverKind::Epoll), &certificates, None, &further)?);
    }
    let mut rows = Vec::new();
    for program in Program::ALL {
        for (venue, symbols) in venues.iter().zip(SYMBOLS) {
            let Some(mut command) = command(lab, program, builds) else { continue };
            command.arg(format!("ws://{}", venue.address));
            match Worker::start(&mut command) {
                Ok(worker) => rows.push(Row::new(Following { program, symbols, worker: Some(worker) })),
                Err(error) => outcome.warnings.push(format!("not measured: {}: {error}", program.name())),
            }
        }
    }
    let (time, plan) = (lab.span().duration, lab.plan(BUDGET));
    row::measure_tolerant(lab, &mut rows, &plan, 0.0..1.0, |_, Following { program, symbols, worker }, _| {
        let worker = worker.as_mut().ok_or_else(|| Error::Failed("there is no worker".to_owned()))?;
        metrics(&worker.measure(&symbols.to_string(), program.name(), time)?)
    })?;
    outcome.text = table(&rows);
    rows.iter().for_each(|row| outcome.add_row(row));
    Ok(())
}

/// The command of a worker, without the URL of its venue.
fn command(lab: &Lab<'_>, program: Program, builds: bool) -> Option<Command> {
    let mut command;
    match program {
        Program::Ours => {
            command = Command::new(&lab.program);
            command.arg("feed-worker");
        }
        Program::Tungstenite => {
            command = Command::new(lab.peers.as_ref().filter(|_| builds)?);
            command.arg("feed-client");
        }
        Program::Picows | Program::Websockets => {
            command = Command::new(python().filter(|_| builds)?);
            command.arg(checkout()?.join("peers/python/feed.py"));
        }
    }
    Some(command)
}

/// The figures of a worker as metrics.
fn metrics(figures: &[(String, f64)]) -> Result<Metrics, Error> {
    let metric = |name: &str| match name {
        "rate" => Ok(Metric::Throughput),
        "cpu_us" => Ok(Metric::CpuPerMsg),
        "p50" => Ok(Metric::LatencyP50),
        "p99" => Ok(Metric::LatencyP99),
        "p999" => Ok(Metric::LatencyP999),
        _ => Err(Error::Failed(format!("the worker knows no {name:?}"))),
    };
    figures.iter().map(|(name, value)| Ok((metric(name)?, *value))).collect()
}

fn table(rows: &[Row<Following>]) -> String {
    let table = Table::of(rows.iter().filter(|row| !row.runs(Metric::CpuPerMsg).is_empty()).map(|row| {
        let median = |metric| optional(row.median(metric));
        [
            ("<symbols", row.subject.symbols.to_string()),
            ("<client", row.subject.program.name().to_owned()),
            ("msg/s", median(Metric::Throughput)),
            ("us/msg", median(Metric::CpuPerMsg)),
            ("msg/s a core", optional(row.median(Metric::CpuPerMsg).map(|us| 1e6 / us))),
            ("p50 us", median(Metric::LatencyP50)),
            ("p99 us", median(Metric::LatencyP99)),
            ("p99.9 us", median(Metric::LatencyP999)),
        ]
    }));
    format!(
        "Market data of a simulated venue as Binance sends it (ws, JSON): trades and books of all symbols\n\
         on one connection, about 6,000 messages a second in bursts. us/msg: CPU time of the client. p50 to\n\
         p99.9: from the venue's stamp of a trade to the decision, the venue's own work included. Ours\n\
         keeps whole books, with snapshots and checks; the others decode all fields, and keep the last\n\
         levels alone.\n\n{table}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::WIDTH;

    #[test]
    fn rows_show_the_rate_of_a_core() {
        let mut rows = Program::ALL.map(|program| Row::new(Following { program, symbols: 500, worker: None }));
        let figures = [("rate", 6000.0), ("cpu_us", 4.0), ("p50", 100.0), ("p99", 900.5), ("p999", 12_345.6)];
        let figures = figures.map(|(name, value)| (name.to_owned(), value));
        rows.iter_mut().for_each(|row| row::add(&mut row.samples, metrics(&figures).unwrap()));
        let text = table(&rows);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let ours = text.lines().find(|line| line.contains("tautline ")).unwrap();
        assert!(ours.contains("250000") || ours.contains("250,000") || ours.contains("250k"), "{ours}");
        assert!(metrics(&[("speed".to_owned(), 1.0)]).is_err());
    }
}
