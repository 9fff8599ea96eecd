use super::echo_case::{self, EchoCase, Shape, add_lines, limit_of, plain_of, rate};
use super::server::{Key, Kind};
use super::{ENGINES, Lab, Outcome, Suite, advice, handshake_case};
use crate::table::{Table, bytes, optional};
use crate::{Error, Metric, published};
use std::time::Duration;

/// Messages that applications send: small, medium, and a full TLS record.
const SIZES: [usize; 3] = [64, 1024, 16_384];

/// What the echo rounds may take, and the handshakes after them; with starting and stopping two minutes at most.
const BUDGETS: [Duration; 2] = [Duration::from_secs(80), Duration::from_secs(20)];

pub(super) fn run(lab: &mut Lab<'_>) -> Result<Outcome, Error> {
    let kinds = echo_case::kinds(&lab.drivers);
    let driver = lab.drivers[0];
    let mut started = kinds.clone();
    started.push(Kind::Wss(ENGINES[0], Key::Rsa2048, driver));
    let servers = lab.servers(&started)?;
    let mut echoes = echo_case::cases(&SIZES.map(Shape::of), &kinds);
    echo_case::measure(lab, &servers, &mut echoes, BUDGETS[0], (0.0, 0.8))?;
    let mut handshakes = handshake_case::cases(driver);
    handshake_case::measure(lab, &servers, &mut handshakes, BUDGETS[1], 0.8)?;

    let mut outcome = Outcome { text: echo_table(&echoes), ..Outcome::default() };
    add_lines(&mut outcome, Suite::Overview, &echoes);
    handshake_case::report(&mut outcome, Suite::Overview, &handshakes);
    outcome.advice = advice::overview(&echoes, handshake_case::rsa_over_p256(&handshakes));
    Ok(outcome)
}

pub(super) fn echo_table(cases: &[EchoCase]) -> String {
    let mut table = Table::new(&[
        "<size", "<", "<driver", "msg/s ", "p50 us", "p99 us", "us/msg", "± %", "x tcp", "x ws", "publ./s", "x publ.",
    ]);
    for case in cases {
        let cpu = case.summary(Metric::ServerCpuPerMsg);
        let over = |other: Option<&EchoCase>| Some(case.cpu_over(other?)?.summary.median);
        let published = published::lookup("overview", &case.case(), Metric::Throughput);
        let compared = case.median(Metric::Throughput).zip(published).map(|(ours, theirs)| ours / theirs);
        table.row([
            bytes(case.shape.size as u64),
            case.kind.name(),
            case.kind.driver_name().to_owned(),
            rate(case),
            optional(case.median(Metric::LatencyP50)),
            optional(case.median(Metric::LatencyP99)),
            optional(cpu.map(|summary| summary.median)),
            optional(cpu.map(|summary| summary.spread() * 100.0)),
            optional(over(limit_of(cases, case))),
            optional(over(plain_of(cases, case))),
            optional(published),
            optional(compared),
        ]);
    }
    let rounds = cases.first().and_then(|case| case.summary(Metric::Throughput)).map_or(0, |summary| summary.count);
    format!(
        "Echo: {} connections, one message in flight on each, one server loop; medians of {rounds} rounds.\n\
         us/msg: server CPU per message; x tcp: over that of the cheapest bare TCP echo; x ws: over that of\n\
         plain WebSocket on the same driver; publ.: published msg/s.\n\n{table}",
        Shape::of(0).connections
    )
}
