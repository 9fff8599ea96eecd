use super::echo_case::{self, EchoCase, Shape, add_lines, limit_of, plain_of, rate};
use super::server::{Kind, Process};
use super::{ENGINES, Lab, Outcome, Pace, Suite};
use crate::table::{Table, bytes, optional};
use crate::{Error, Metric, published};
use std::time::Duration;
use tautline::layers::io::Io;

/// What the echo rounds may take, and those of broadcasts after them.
const BUDGETS: [Duration; 2] = [Duration::from_secs(900), Duration::from_secs(120)];

const SIZES: [usize; 5] = [64, 1024, 4096, 16_384, 65_536];

/// Bytes in flight, over all connections: what a load holds, and a server at most again.
const MOST: usize = 128 << 20;

/// Broadcasts: sizes, each with and without compression where it is worth it.
const BROADCASTS: [(usize, bool); 3] = [(64, false), (1024, false), (1024, true)];

/// Connections that a broadcast goes to.
const fn subscribers(pace: Pace) -> usize {
    match pace {
        Pace::Thorough | Pace::Quick => 1_000,
        Pace::Glance => 20,
    }
}

pub(super) fn run(lab: &mut Lab<'_>) -> Result<Outcome, Error> {
    let kinds = echo_case::kinds(&lab.drivers);
    let mut cases = echo_case::cases(&shapes(lab.pace), &kinds);
    let servers = lab.servers(&kinds)?;
    echo_case::measure(lab, &servers, &mut cases, BUDGETS[0], (0.0, 0.9))?;
    drop(servers);
    let mut broadcasts = broadcasts(lab.pace, &lab.drivers);
    let servers = broadcast_servers(lab, &broadcasts)?;
    echo_case::measure(lab, &servers, &mut broadcasts, BUDGETS[1], (0.9, 1.0))?;
    let mut outcome = Outcome { text: table(&cases) + &broadcast_table(&broadcasts), ..Outcome::default() };
    add_lines(&mut outcome, Suite::Echo, &cases);
    add_lines(&mut outcome, Suite::Echo, &broadcasts);
    Ok(outcome)
}

/// Every size over one, a hundred and five hundred connections, also with sixteen in flight but for the largest on most
/// connections; a choice of these for a first look.
fn shapes(pace: Pace) -> Vec<Shape> {
    let shape = |size, connections, pipeline| Shape { size, connections, pipeline };
    if pace != Pace::Thorough {
        return vec![
            shape(64, 100, 1),
            shape(4096, 100, 1),
            shape(65_536, 100, 1),
            shape(64, 1, 1),
            shape(64, 100, 16),
        ];
    }
    let over = |connections| {
        let single = SIZES.map(|size| shape(size, connections, 1));
        let many = SIZES.map(|size| shape(size, connections, 16));
        let fits = |shape: &Shape| shape.size * shape.connections * shape.pipeline <= MOST;
        single.into_iter().chain(many.into_iter().filter(fits))
    };
    [100, 1, 500].into_iter().flat_map(over).collect()
}

/// By the default engine on every driver; with time also by the others, on the first.
pub(super) fn broadcasts(pace: Pace, drivers: &[Io]) -> Vec<EchoCase> {
    let connections = subscribers(pace);
    let others = if pace == Pace::Thorough { &ENGINES[1..] } else { &[] };
    let ours = drivers.iter().map(|&driver| (ENGINES[0], driver));
    let theirs = others.iter().filter_map(|&engine| Some((engine, *drivers.first()?)));
    let servers: Vec<_> = ours.chain(theirs).collect();
    let case = |(size, deflate), &(engine, driver): &(&'static str, Io)| {
        EchoCase::new(Kind::Broadcast(engine, deflate, driver), Shape { size, connections, pipeline: 1 })
    };
    let broadcasts = BROADCASTS.into_iter().skip(usize::from(pace == Pace::Quick));
    broadcasts.flat_map(|broadcast| servers.iter().map(move |server| case(broadcast, server))).collect()
}

fn broadcast_servers(lab: &Lab<'_>, cases: &[EchoCase]) -> Result<Vec<Process>, Error> {
    let mut kinds: Vec<Kind> = Vec::new();
    for case in cases {
        if !kinds.contains(&case.kind) {
            kinds.push(case.kind);
        }
    }
    lab.servers(&kinds)
}

pub(super) fn table(cases: &[EchoCase]) -> String {
    let mut table =
        Table::new(&["<load", "<", "<driver", "msg/s ", "p50 us", "p99 us", "us/msg", "x tcp", "x ws", "x publ."]);
    for case in cases {
        let over = |other: Option<&EchoCase>| Some(case.cpu_over(other?)?.summary.median);
        let published =
            published::lookup("echo", &case.case(), Metric::Throughput).filter(|_| case.shape.pipeline == 1);
        let compared = case.median(Metric::Throughput).zip(published).map(|(ours, theirs)| ours / theirs);
        table.row([
            case.shape.name(),
            case.kind.name(),
            case.kind.driver_name().to_owned(),
            rate(case),
            optional(case.median(Metric::LatencyP50)),
            optional(case.median(Metric::LatencyP99)),
            optional(case.median(Metric::ServerCpuPerMsg)),
            optional(over(limit_of(cases, case))),
            optional(over(plain_of(cases, case))),
            optional(compared),
        ]);
    }
    format!(
        "Echo: one server loop; 100 connections with one message in flight, or as said (1, x16).\n\
         us/msg: server CPU. Latency from sending to the reply. x tcp: server CPU over the cheapest bare\n\
         TCP echo's. x ws: over plain WebSocket's on the same driver. x publ.: msg/s over the published.\n\n{table}"
    )
}

pub(super) fn broadcast_table(cases: &[EchoCase]) -> String {
    let mut table = Table::new(&["<size", "<", "<driver", "deliveries/s ", "p50 us", "p99 us", "us/delivery", "± %"]);
    for case in cases {
        let cpu = case.summary(Metric::ServerCpuPerMsg);
        let compression = if matches!(case.kind, Kind::Broadcast(_, true, _)) { ", deflate" } else { "" };
        table.row([
            bytes(case.shape.size as u64),
            format!("{}{compression}", case.kind.engine().unwrap_or_default()),
            case.kind.driver_name().to_owned(),
            rate(case),
            optional(case.median(Metric::LatencyP50)),
            optional(case.median(Metric::LatencyP99)),
            optional(cpu.map(|summary| summary.median)),
            optional(cpu.map(|summary| summary.spread() * 100.0)),
        ]);
    }
    let subscribers = cases.first().map_or(0, |case| case.shape.connections);
    format!(
        "\nBroadcast: one of {subscribers} wss connections publishes, all get it, then the next.\n\
         us/delivery: server CPU. Latency from publishing to each delivery.\n\n{table}"
    )
}
