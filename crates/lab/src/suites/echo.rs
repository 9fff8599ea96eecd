use super::echo_case::{self, EchoCase, Shape, add_lines, beside, rate};
use super::{Lab, Outcome, Suite};
use crate::table::{Table, bytes, optional};
use crate::{Error, Metric, Protocol, published};
use std::time::Duration;

/// Sizes over many connections, then few and very many connections, then several messages in flight.
const SHAPES: [Shape; 8] = [
    Shape { size: 64, connections: 100, pipeline: 1 },
    Shape { size: 1024, connections: 100, pipeline: 1 },
    Shape { size: 4096, connections: 100, pipeline: 1 },
    Shape { size: 16_384, connections: 100, pipeline: 1 },
    Shape { size: 65_536, connections: 100, pipeline: 1 },
    Shape { size: 64, connections: 1, pipeline: 1 },
    Shape { size: 64, connections: 500, pipeline: 1 },
    Shape { size: 64, connections: 100, pipeline: 16 },
];

/// What the rounds may take.
const BUDGET: Duration = Duration::from_secs(150);

pub(super) fn run(lab: &mut Lab<'_>) -> Result<Outcome, Error> {
    let servers = lab.servers(&echo_case::kinds(false))?;
    let mut cases = echo_case::cases(&SHAPES, false);
    echo_case::measure(lab, &servers, &mut cases, BUDGET, 1.0)?;
    let mut outcome = Outcome { text: table(&cases), ..Outcome::default() };
    add_lines(&mut outcome, Suite::Echo, &cases);
    Ok(outcome)
}

pub(super) fn table(cases: &[EchoCase]) -> String {
    let mut table = Table::new(&[
        "<size",
        "conns",
        "flight",
        "<",
        "msg/s ",
        "MB/s",
        "p50 us",
        "p99 us",
        "CPU us/msg",
        "x ws",
        "x publ.",
    ]);
    for case in cases {
        let ratio = beside(cases, case, Protocol::Ws).and_then(|plain| case.cpu_over(plain));
        let published =
            published::lookup("echo", &case.case(), Metric::Throughput).filter(|_| case.shape.pipeline == 1);
        let compared = case.median(Metric::Throughput).zip(published).map(|(ours, theirs)| ours / theirs);
        table.row([
            bytes(case.shape.size as u64),
            case.shape.connections.to_string(),
            case.shape.pipeline.to_string(),
            case.kind.name(),
            rate(case),
            optional(case.median(Metric::Transfer)),
            optional(case.median(Metric::LatencyP50)),
            optional(case.median(Metric::LatencyP99)),
            optional(case.median(Metric::ServerCpuPerMsg)),
            optional(ratio.map(|ratio| ratio.summary.median)),
            optional(compared),
        ]);
    }
    format!(
        "Echo: one server loop; messages in flight on each connection; latency from sending to the reply.\n\
         x ws: server CPU per message over that of plain WebSocket. x publ.: msg/s over the published.\n\n{table}"
    )
}
