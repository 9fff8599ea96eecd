use super::echo_case::{self, EchoCase, Shape, add_lines, beside};
use super::{Lab, Outcome, Suite};
use crate::stats::Ratio;
use crate::table::{Table, bytes, number, optional};
use crate::{Error, Metric, Protocol};
use std::time::Duration;

/// From where the kernel costs most to where the bytes do.
const SHAPES: [Shape; 5] = [
    Shape { size: 64, connections: 100, pipeline: 1 },
    Shape { size: 1024, connections: 100, pipeline: 1 },
    Shape { size: 16_384, connections: 100, pipeline: 1 },
    Shape { size: 65_536, connections: 100, pipeline: 1 },
    Shape { size: 64, connections: 100, pipeline: 16 },
];

/// What the rounds may take.
const BUDGET: Duration = Duration::from_secs(150);

pub(super) fn run(lab: &mut Lab<'_>) -> Result<Outcome, Error> {
    let servers = lab.servers(&echo_case::kinds(true))?;
    let mut cases = echo_case::cases(&SHAPES, true);
    echo_case::measure(lab, &servers, &mut cases, BUDGET, 1.0)?;
    let mut outcome = Outcome { text: table(&cases), ..Outcome::default() };
    add_lines(&mut outcome, Suite::Limits, &cases);
    outcome.warnings.extend(undecided(&cases));
    Ok(outcome)
}

pub(super) fn table(cases: &[EchoCase]) -> String {
    let mut table =
        Table::new(&["<size", "flight", "<", "CPU us/msg", "± %", "x tcp", "95 %", "x ws", "95 %", "p99 us"]);
    for case in cases {
        let cpu = case.summary(Metric::ServerCpuPerMsg);
        let to = |protocol| beside(cases, case, protocol).and_then(|other| case.cpu_over(other));
        let [(limit, limit_interval), (plain, plain_interval)] = [to(Protocol::Tcp), to(Protocol::Ws)].map(cells);
        table.row([
            bytes(case.shape.size as u64),
            case.shape.pipeline.to_string(),
            case.kind.name(),
            optional(cpu.map(|summary| summary.median)),
            optional(cpu.map(|summary| summary.spread() * 100.0)),
            limit,
            limit_interval,
            plain,
            plain_interval,
            optional(case.median(Metric::LatencyP99)),
        ]);
    }
    format!(
        "Limits: {} connections; messages in flight on each; server CPU per message.\n\
         x tcp: over a bare TCP echo. x ws: over plain WebSocket. 95 %: confidence interval of the ratio.\n\n{table}",
        SHAPES[0].connections
    )
}

fn cells(ratio: Option<Ratio>) -> (String, String) {
    ratio.map_or_else(
        || ("-".to_owned(), String::new()),
        |ratio| {
            let summary = ratio.summary;
            (number(summary.median), format!("{:.2}-{:.2}", summary.interval.low, summary.interval.high))
        },
    )
}

/// Pairs of engines that cannot be told apart.
fn undecided(cases: &[EchoCase]) -> Vec<String> {
    let pairs = cases
        .windows(2)
        .filter(|pair| pair.iter().all(|case| case.kind.protocol() == Protocol::Wss) && pair[0].shape == pair[1].shape);
    pairs
        .filter_map(|pair| {
            let name = |case: &EchoCase| format!("{} at {}", case.kind.name(), bytes(case.shape.size as u64));
            pair[1].cpu_over(&pair[0])?.warning(&name(&pair[1]), &name(&pair[0]))
        })
        .collect()
}
