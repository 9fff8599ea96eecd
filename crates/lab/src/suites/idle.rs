use super::server::{Key, Kind};
use super::{ENGINES, Lab, Outcome, Suite};
use crate::rounds::{Plan, interleave};
use crate::stats::Summary;
use crate::table::{Table, number, optional};
use crate::{Case, Error, Metric, load};
use std::time::Duration;

/// Connections that a server holds.
const CONNECTIONS: usize = 2_000;

/// Fewer, for a first look.
const FEW: usize = 500;

/// What a server was before it ever had so many connections, it never is again; so each round has a server of its own.
pub(super) fn run(lab: &mut Lab<'_>) -> Result<Outcome, Error> {
    let connections = if lab.quick { FEW } else { CONNECTIONS };
    let mut kinds = vec![Kind::Ws];
    kinds.extend(ENGINES.map(|engine| Kind::Wss(engine, Key::P256)));
    let plan = Plan { budget: Some(Duration::from_secs(100)), ..Plan::quick() };
    let mut opening = vec![Vec::new(); kinds.len()];
    let mut steps = Vec::new();
    let samples = interleave(
        &mut kinds.clone(),
        &plan,
        |step| steps.push(step),
        |kind, step| {
            (lab.progress)(
                step.done as f64 / step.total as f64,
                &format!("{}, {connections} connections", kind.name()),
            );
            let servers = lab.servers(&[*kind])?;
            let server = servers[0].server()?;
            let held = load::Idle { server, connections, duration: Duration::ZERO }.run(&mut |_| {})?;
            opening[step.case].push(connections as f64 / held.opening.as_secs_f64());
            let bytes = held.rss_per_connection();
            Ok(bytes.map(|bytes| (Metric::RssPerConnection, bytes)).into_iter().collect())
        },
    )?;
    let mut outcome = Outcome::default();
    let mut table = Table::new(&["<", "RSS B/connection", "least", "most", "opened 1/s"]);
    for (at, kind) in kinds.iter().enumerate() {
        let case = Case {
            protocol: Some(kind.protocol()),
            tls: kind.engine().map(str::to_owned),
            driver: Some("epoll".to_owned()),
            connections: Some(connections as u64),
            ..Case::default()
        };
        outcome.add_samples(Suite::Idle, &case, &samples[at]);
        let memory = samples[at].get(&Metric::RssPerConnection).and_then(|runs| Summary::of(runs));
        let rate = Summary::of(&opening[at]).map(|summary| summary.median);
        let [median, least, most] = [
            memory.map(|summary| summary.median),
            memory.map(|summary| summary.min),
            memory.map(|summary| summary.max),
        ];
        table.row([kind.name(), optional(median), optional(least), optional(most), optional(rate)]);
    }
    outcome.text = format!(
        "Idle: what {} open connections add to the server's resident memory; the kernel's sockets are not in it.\n\n{table}",
        number(connections as f64)
    );
    Ok(outcome)
}
