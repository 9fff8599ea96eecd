use super::echo_case::{self, EchoCase, EchoRow, Shape, add_lines, limit_of, plain_of};
use super::{ENGINES, Effort, Kind, Lab, Outcome, Servers};
use crate::rounds::Runs;
use crate::table::{Table, bytes, optional};
use crate::{DriverKind, Error, Metric};
use std::time::Duration;

/// Time for the echo rounds, and for those of broadcasts.
const BUDGETS: [Duration; 2] = [Duration::from_secs(900), Duration::from_secs(120)];

const SIZES: [usize; 5] = [64, 1024, 4096, 16_384, 65_536];

/// Most bytes in flight over all connections. The load holds as many, and a server at most as many again.
const MOST: usize = 128 << 20;

/// Sizes of broadcasts, and whether they are compressed.
const BROADCASTS: [(usize, bool); 3] = [(64, false), (1024, false), (1024, true)];

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let kinds = echo_case::kinds(&lab.drivers);
    let mut rows = echo_case::rows(&shapes(lab.effort), &kinds);
    let servers = Servers::start(lab, kinds)?;
    echo_case::measure(lab, &servers, &mut rows, BUDGETS[0], 0.0..0.9)?;
    drop(servers);
    let mut broadcasts = broadcasts(lab.effort, &lab.drivers);
    let servers = Servers::start(lab, broadcasts.iter().map(|row| row.subject.kind))?;
    echo_case::measure(lab, &servers, &mut broadcasts, BUDGETS[1], 0.9..1.0)?;
    outcome.text = table(&rows) + &broadcast_table(&broadcasts);
    add_lines(outcome, &rows);
    add_lines(outcome, &broadcasts);
    Ok(())
}

/// Every size over 1, 100 and 500 connections, with 1 and 16 messages in flight if they fit; a choice of these for a
/// first look.
fn shapes(effort: Effort) -> Vec<Shape> {
    let shape = |size, connections, pipeline| Shape { size, connections, pipeline };
    if effort != Effort::Thorough {
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

/// Broadcasts by the default engine on every driver; in a thorough run also by the other engines on the first driver.
pub(super) fn broadcasts(effort: Effort, drivers: &[DriverKind]) -> Vec<EchoRow> {
    let connections = effort.pick(1_000, 1_000, 20);
    let others = if effort == Effort::Thorough { &ENGINES[1..] } else { &[] };
    let ours = drivers.iter().map(|&driver| (ENGINES[0], driver));
    let theirs = others.iter().filter_map(|&engine| Some((engine, *drivers.first()?)));
    let servers: Vec<_> = ours.chain(theirs).collect();
    let row = |(size, deflate), &(engine, driver): &(&'static str, DriverKind)| {
        EchoCase::row(Kind::Broadcast(engine, deflate, driver), Shape { size, connections, pipeline: 1 })
    };
    let broadcasts = BROADCASTS.into_iter().skip(usize::from(effort == Effort::Quick));
    broadcasts.flat_map(|broadcast| servers.iter().map(move |server| row(broadcast, server))).collect()
}

pub(super) fn table(rows: &[EchoRow]) -> String {
    let table = Table::of(rows.iter().map(|row| {
        let EchoCase { kind, shape, .. } = row.subject;
        [
            ("<load", shape.name()),
            ("<", kind.name()),
            ("<driver", kind.driver_name().to_owned()),
            ("msg/s ", row.rate()),
            ("p50 us", optional(row.median(Metric::LatencyP50))),
            ("p99 us", optional(row.median(Metric::LatencyP99))),
            ("us/msg", optional(row.median(Metric::ServerCpuPerMsg))),
            ("x tcp", optional(row.cpu_times(limit_of(rows, row)))),
            ("x ws", optional(row.cpu_times(plain_of(rows, row)))),
            ("x publ.", optional(row.over_published("echo"))),
        ]
    }));
    format!(
        "Echo: one server loop; 100 connections with one message in flight, or as said (1, x16).\n\
         us/msg: server CPU. Latency from sending to the reply. x tcp: server CPU over the cheapest bare\n\
         TCP echo's. x ws: over plain WebSocket's on the same driver. x publ.: msg/s over the published.\n\n{table}"
    )
}

pub(super) fn broadcast_table(rows: &[EchoRow]) -> String {
    let table = Table::of(rows.iter().map(|row| {
        let EchoCase { kind, shape, .. } = row.subject;
        let compression = if matches!(kind, Kind::Broadcast(_, true, _)) { ", deflate" } else { "" };
        [
            ("<size", bytes(shape.size as u64)),
            ("<", format!("{}{compression}", kind.engine().unwrap_or_default())),
            ("<driver", kind.driver_name().to_owned()),
            ("deliveries/s ", row.rate()),
            ("p50 us", optional(row.median(Metric::LatencyP50))),
            ("p99 us", optional(row.median(Metric::LatencyP99))),
            ("us/delivery", optional(row.median(Metric::ServerCpuPerMsg))),
            ("± %", optional(row.spread_percent(Metric::ServerCpuPerMsg))),
        ]
    }));
    let subscribers = rows.first().map_or(0, |row| row.subject.shape.connections);
    format!(
        "\nBroadcast: one of {subscribers} wss connections publishes, all get it, then the next.\n\
         us/delivery: server CPU. Latency from publishing to each delivery.\n\n{table}"
    )
}
