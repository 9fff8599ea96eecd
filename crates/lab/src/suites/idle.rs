use super::server::{Key, Kind};
use super::{ENGINES, Lab, Outcome, Pace, Suite};
use crate::rounds::{Plan, interleave};
use crate::stats::Summary;
use crate::table::{Table, optional};
use crate::{Case, Error, Metric, load};
use std::time::Duration;

/// Connections that a server holds.
const fn connections(pace: Pace) -> usize {
    match pace {
        Pace::Thorough => 2_000,
        Pace::Quick => 500,
        Pace::Glance => 20,
    }
}

/// A server keeps memory that it once needed, so each round has servers of its own.
pub(super) fn run(lab: &mut Lab<'_>) -> Result<Outcome, Error> {
    let connections = connections(lab.pace);
    let mut kinds = vec![Kind::Ws];
    kinds.extend(ENGINES.map(|engine| Kind::Wss(engine, Key::P256)));
    let rounds = if lab.pace == Pace::Glance { 1 } else { 3 };
    let plan = Plan { rounds, least_rounds: 1, budget: Some(Duration::from_secs(100)) };
    let mut opening = vec![Vec::new(); kinds.len()];
    let samples = interleave(
        &mut kinds.clone(),
        &plan,
        |_| {},
        |kind, step| {
            let what = format!("{}, {connections} connections", kind.name());
            (lab.progress)(step.done as f64 / step.total as f64, &what);
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
        "Idle: what {connections} open connections add to the server's resident memory.\n\
         The kernel's sockets are not in it.\n\n{table}"
    );
    Ok(outcome)
}
