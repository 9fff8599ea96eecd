use super::echo_case::{self, EchoCase, Shape, add_lines, beside, rate};
use super::server::{Key, Kind};
use super::{ENGINES, Lab, Outcome, Suite, advice, handshake_case};
use crate::table::{Table, bytes, optional};
use crate::{Error, Metric, Protocol, published};
use std::time::Duration;

/// Messages that applications send: small, medium, and a full TLS record.
const SIZES: [usize; 3] = [64, 1024, 16_384];

/// As many connections as the published figures have.
const CONNECTIONS: usize = 100;

/// What the echo rounds may take, and the handshakes after them; with starting and stopping two minutes at most.
const BUDGETS: [Duration; 2] = [Duration::from_secs(75), Duration::from_secs(25)];

pub(super) fn run(lab: &mut Lab<'_>) -> Result<Outcome, Error> {
    let mut kinds = echo_case::kinds(true);
    kinds.push(Kind::Wss(ENGINES[0], Key::Rsa2048));
    let servers = lab.servers(&kinds)?;
    let shapes = SIZES.map(|size| Shape { size, connections: CONNECTIONS, pipeline: 1 });
    let mut echoes = echo_case::cases(&shapes, true);
    echo_case::measure(lab, &servers, &mut echoes, BUDGETS[0], 0.8)?;
    let mut handshakes = handshake_case::cases();
    handshake_case::measure(lab, &servers, &mut handshakes, BUDGETS[1], 0.8)?;

    let mut outcome = Outcome { text: echo_table(&echoes), ..Outcome::default() };
    add_lines(&mut outcome, Suite::Overview, &echoes);
    handshake_case::report(&mut outcome, Suite::Overview, &handshakes);
    outcome.advice = advice::overview(&echoes, handshake_case::rsa_over_p256(&handshakes));
    Ok(outcome)
}

pub(super) fn echo_table(cases: &[EchoCase]) -> String {
    let mut table = Table::new(&[
        "<size",
        "<",
        "msg/s ",
        "p50 us",
        "p99 us",
        "CPU us/msg",
        "± %",
        "x tcp",
        "x ws",
        "publ. msg/s",
        "x publ.",
    ]);
    for case in cases {
        let cpu = case.summary(Metric::ServerCpuPerMsg);
        let ratio = |protocol| {
            let other = beside(cases, case, protocol)?;
            Some(case.cpu_over(other)?.summary.median)
        };
        let published = published::lookup("overview", &case.case(), Metric::Throughput);
        let compared = case.median(Metric::Throughput).zip(published).map(|(ours, theirs)| ours / theirs);
        table.row([
            bytes(case.shape.size as u64),
            case.kind.name(),
            rate(case),
            optional(case.median(Metric::LatencyP50)),
            optional(case.median(Metric::LatencyP99)),
            optional(cpu.map(|summary| summary.median)),
            optional(cpu.map(|summary| summary.spread() * 100.0)),
            optional(ratio(Protocol::Tcp)),
            optional(ratio(Protocol::Ws)),
            optional(published),
            optional(compared),
        ]);
    }
    let rounds = cases.first().and_then(|case| case.summary(Metric::Throughput)).map_or(0, |summary| summary.count);
    format!(
        "Echo: {CONNECTIONS} connections, one message in flight on each, one server loop; medians of {} rounds.\n\
         x tcp, x ws: server CPU per message over that of a bare TCP echo, of plain WebSocket.\n\n{table}",
        rounds
    )
}
