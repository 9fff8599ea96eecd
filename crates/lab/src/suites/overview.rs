use super::echo_case::{self, EchoRow, Shape, add_lines, limit_of, plain_of};
use super::{ENGINES, Key, Kind, Lab, Outcome, Servers, advice, handshake_case};
use crate::rounds::Runs;
use crate::table::{Table, bytes, optional};
use crate::{Error, Metric};
use std::time::Duration;

/// Messages of applications: small, medium, and a full TLS record.
const SIZES: [usize; 3] = [64, 1024, 16_384];

/// Time for the echo rounds and for the handshakes; with starting and stopping, the suite takes at most two minutes.
const BUDGETS: [Duration; 2] = [Duration::from_secs(80), Duration::from_secs(20)];

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let kinds = echo_case::kinds(&lab.drivers);
    let driver = lab.drivers[0];
    let rsa = Kind::Wss(ENGINES[0], Key::Rsa2048, driver);
    let servers = Servers::start(lab, kinds.iter().copied().chain([rsa]))?;
    let mut echoes = echo_case::rows(&SIZES.map(Shape::of), &kinds);
    echo_case::measure(lab, &servers, &mut echoes, BUDGETS[0], 0.0..0.8)?;
    let mut handshakes = handshake_case::rows(driver);
    handshake_case::measure(lab, &servers, &mut handshakes, BUDGETS[1], 0.8..1.0)?;

    outcome.text = echo_table(&echoes);
    add_lines(outcome, &echoes);
    handshake_case::report(outcome, &handshakes);
    outcome.advice = advice::overview(&echoes, handshake_case::rsa_over_p256(&handshakes));
    Ok(())
}

pub(super) fn echo_table(rows: &[EchoRow]) -> String {
    let table = Table::of(rows.iter().map(|row| {
        let kind = row.subject.kind;
        [
            ("<size", bytes(row.subject.shape.size as u64)),
            ("<", kind.name()),
            ("<driver", kind.driver_name().to_owned()),
            ("msg/s ", row.rate()),
            ("p50 us", optional(row.median(Metric::LatencyP50))),
            ("p99 us", optional(row.median(Metric::LatencyP99))),
            ("us/msg", optional(row.median(Metric::ServerCpuPerMsg))),
            ("± %", optional(row.spread_percent(Metric::ServerCpuPerMsg))),
            ("x tcp", optional(row.cpu_times(limit_of(rows, row)))),
            ("x ws", optional(row.cpu_times(plain_of(rows, row)))),
            ("publ./s", optional(row.published("overview"))),
            ("x publ.", optional(row.over_published("overview"))),
        ]
    }));
    let rounds = rows.first().map_or(0, |row| row.runs(Metric::Throughput).len());
    format!(
        "Echo: {} connections, one message in flight on each, one server loop; medians of {rounds} rounds.\n\
         us/msg: server CPU per message; x tcp: over that of the cheapest bare TCP echo; x ws: over that of\n\
         plain WebSocket on the same driver; publ.: published msg/s.\n\n{table}",
        Shape::of(0).connections
    )
}
