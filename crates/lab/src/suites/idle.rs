use super::{Check, ENGINES, Key, Kind, Lab, Outcome, Row, Servers, Subject, check, row};
use crate::load;
use crate::rounds::{Plan, Runs};
use crate::stats::median;
use crate::table::{Table, number, optional};
use crate::{Case, Error, Metric, Target};
use std::time::Duration;

/// Time for the rounds beyond the least number of them.
const BUDGET: Duration = Duration::from_secs(40);

/// Greatest memory of a connection by the default engine in bytes, and the number of connections at which it is judged.
const TARGET: (usize, f64) = (10_000, 1024.0);

/// One server with a number of connections.
struct IdleCase {
    kind: Kind,
    connections: usize,
    /// Memory per connection after one echo on each, by round.
    echoed: Vec<f64>,
    /// Connections opened per second, by round.
    opening: Vec<f64>,
}

impl Subject for IdleCase {
    fn name(&self) -> String {
        format!("{}, {} connections", self.kind.full_name(), self.connections)
    }

    fn case(&self) -> Case {
        self.kind.case().connections(self.connections)
    }
}

/// Measures with new servers in each round, because a server keeps memory that it once needed.
pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let mut kinds: Vec<Kind> = lab.drivers.iter().map(|&driver| Kind::Ws(driver)).collect();
    for &engine in ENGINES.iter() {
        kinds.extend(lab.drivers.iter().map(|&driver| Kind::Wss(engine, Key::P256, driver)));
    }
    let row = |kind, connections| Row::new(IdleCase { kind, connections, echoed: Vec::new(), opening: Vec::new() });
    let each = |&connections| kinds.iter().map(move |&kind| row(kind, connections));
    let connections: &[usize] = lab.effort.pick(&[2_000, 10_000], &[2_000], &[20]);
    let mut rows: Vec<_> = connections.iter().flat_map(each).collect();
    let (rounds, least_rounds) = lab.effort.pick((5, 5), (2, 1), (1, 1));
    let plan = Plan { rounds, least_rounds, budget: Some(BUDGET) };
    row::measure(lab, &mut rows, &plan, 0.0..1.0, |lab, case, _| {
        let servers = Servers::start(lab, [case.kind])?;
        let (server, connections) = (servers.of(case.kind)?.server()?, case.connections);
        let memory = load::Idle { server, connections, duration: Duration::ZERO, echo: true }.run(&mut |_| {})?;
        case.opening.push(connections as f64 / memory.opening.as_secs_f64());
        case.echoed.extend(memory.rss_per_used_connection());
        Ok(memory.rss_per_connection().map(|bytes| (Metric::RssPerConnection, bytes)).into_iter().collect())
    })?;
    report(outcome, &rows);
    Ok(())
}

fn report(outcome: &mut Outcome, rows: &[Row<IdleCase>]) {
    let table = Table::of(rows.iter().map(|row| {
        let IdleCase { kind, connections, echoed, opening } = &row.subject;
        outcome.add_row(row);
        outcome.add(&row.subject.case().setup("one echo on each"), Metric::RssPerConnection, echoed);
        let memory = row.summary(Metric::RssPerConnection);
        [
            ("conns", number(*connections as f64)),
            ("<", kind.name()),
            ("<driver", kind.driver_name().to_owned()),
            ("RSS B/connection", optional(memory.map(|summary| summary.median))),
            ("least", optional(memory.map(|summary| summary.min))),
            ("most", optional(memory.map(|summary| summary.max))),
            ("after an echo", optional(median(echoed))),
            ("opened 1/s", optional(median(opening))),
        ]
    }));
    outcome.text = format!(
        "Idle: what open connections add to the server's resident memory, and after one echo of 64 B on each.\n\
         The kernel's sockets are not in it.\n\n{table}"
    );
    check::report(outcome, checks(rows));
}

/// Target of the default engine, on the driver that takes least.
fn checks(rows: &[Row<IdleCase>]) -> Option<Check> {
    let (connections, most) = TARGET;
    let is_judged = |case: &IdleCase| case.kind.is_wss_by(ENGINES[0]) && case.connections == connections;
    let best = row::least(rows.iter().filter(|row| is_judged(&row.subject)), Metric::RssPerConnection)?;
    let name = format!("{} connections: {}, B each", number(connections as f64), best.subject.kind.full_name());
    let runs = (Metric::RssPerConnection, best.runs(Metric::RssPerConnection));
    Some(Check::of(name, best.subject.case(), runs, Target::AtMost(most)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DriverKind;

    #[test]
    fn the_default_engine_is_judged_with_ten_thousand_connections() {
        let row = |kind, connections, bytes: f64| {
            let mut row = Row::new(IdleCase { kind, connections, echoed: vec![bytes; 5], opening: vec![1.0; 5] });
            row.samples.insert(Metric::RssPerConnection, vec![bytes; 5]);
            row
        };
        let wss = |engine, driver| Kind::Wss(engine, Key::P256, driver);
        let rows = [
            row(Kind::Ws(DriverKind::Epoll), 10_000, 600.0),
            row(wss("fused", DriverKind::Epoll), 2_000, 900.0),
            row(wss("fused", DriverKind::Epoll), 10_000, 1050.0),
            row(wss("fused", DriverKind::Uring), 10_000, 950.0),
            row(wss("rustls", DriverKind::Epoll), 10_000, 9000.0),
        ];
        let mut outcome = Outcome::of("idle");
        report(&mut outcome, &rows);
        let judged: Vec<_> = outcome.lines.iter().filter(|line| line.target.is_some()).collect();
        assert_eq!(judged.len(), 1);
        assert_eq!((judged[0].value, judged[0].target), (950.0, Some(Target::AtMost(1024.0))));
        assert!(outcome.text.contains("10,000 connections: wss fused uring, B each"), "{}", outcome.text);
        let mut outcome = Outcome::of("idle");
        report(&mut outcome, &rows[..2]);
        assert!(outcome.lines.iter().all(|line| line.target.is_none()));
    }
}
