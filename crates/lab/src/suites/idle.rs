use super::check::{self, Check};
use super::server::{Key, Kind};
use super::{ENGINES, Lab, Outcome, Pace, Suite};
use crate::rounds::{Plan, Samples, interleave};
use crate::stats::Summary;
use crate::table::{Table, number, optional};
use crate::{Case, Error, Line, Metric, Target, load};
use std::time::Duration;

/// What the rounds may take beyond the least of them, with little time.
const BUDGET: Duration = Duration::from_secs(40);

/// What a connection by our default engine may take, in bytes, with as many of them.
const TARGET: (usize, f64) = (10_000, 1024.0);

/// Connections that a server holds.
const fn connections(pace: Pace) -> &'static [usize] {
    match pace {
        Pace::Thorough => &[2_000, 10_000],
        Pace::Quick => &[2_000],
        Pace::Glance => &[20],
    }
}

/// One server with so many connections.
struct IdleCase {
    kind: Kind,
    connections: usize,
    /// Memory per connection once they are open, and after one echo on each, by round.
    samples: Samples,
    echoed: Vec<f64>,
    /// Connections opened per second, by round.
    opening: Vec<f64>,
}

impl IdleCase {
    fn case(&self, setup: Option<&str>) -> Case {
        Case {
            protocol: self.kind.protocol(),
            tls: self.kind.engine().map(str::to_owned),
            driver: self.kind.driver().map(|driver| driver.name().to_owned()),
            connections: Some(self.connections as u64),
            setup: setup.map(str::to_owned),
            ..Case::default()
        }
    }
}

/// A server keeps memory that it once needed, so each round has servers of its own.
pub(super) fn run(lab: &mut Lab<'_>) -> Result<Outcome, Error> {
    let mut kinds: Vec<Kind> = lab.drivers.iter().map(|&driver| Kind::Ws(driver)).collect();
    for &engine in ENGINES.iter() {
        kinds.extend(lab.drivers.iter().map(|&driver| Kind::Wss(engine, Key::P256, driver)));
    }
    let mut cases: Vec<IdleCase> = Vec::new();
    for &connections in connections(lab.pace) {
        cases.extend(kinds.iter().map(|&kind| IdleCase {
            kind,
            connections,
            samples: Samples::new(),
            echoed: Vec::new(),
            opening: Vec::new(),
        }));
    }
    let (rounds, least_rounds) = match lab.pace {
        Pace::Thorough => (5, 5),
        Pace::Quick => (2, 1),
        Pace::Glance => (1, 1),
    };
    let plan = Plan { rounds, least_rounds, budget: Some(BUDGET) };
    let names: Vec<String> =
        cases.iter().map(|case| format!("{}, {} connections", case.kind.full_name(), case.connections)).collect();
    let samples = interleave(
        &mut cases,
        &plan,
        |_| {},
        |case, step| {
            (lab.progress)(step.done as f64 / step.total as f64, &names[step.case]);
            let servers = lab.servers(&[case.kind])?;
            let (server, connections) = (servers[0].server()?, case.connections);
            let held = load::Idle { server, connections, duration: Duration::ZERO, echo: true }.run(&mut |_| {})?;
            case.opening.push(connections as f64 / held.opening.as_secs_f64());
            case.echoed.extend(held.rss_per_used_connection());
            Ok(held.rss_per_connection().map(|bytes| (Metric::RssPerConnection, bytes)).into_iter().collect())
        },
    )?;
    for (case, samples) in cases.iter_mut().zip(samples) {
        case.samples = samples;
    }
    Ok(report(&cases))
}

fn report(cases: &[IdleCase]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut table =
        Table::new(&["conns", "<", "<driver", "RSS B/connection", "least", "most", "after an echo", "opened 1/s"]);
    for case in cases {
        outcome.add_samples(Suite::Idle, &case.case(None), &case.samples);
        let echoed = case.case(Some("one echo on each"));
        outcome.lines.extend(Line::new(Suite::Idle.name(), &echoed, Metric::RssPerConnection, &case.echoed));
        let memory = case.samples.get(&Metric::RssPerConnection).and_then(|runs| Summary::of(runs));
        let median = |runs: &[f64]| Summary::of(runs).map(|summary| summary.median);
        table.row([
            number(case.connections as f64),
            case.kind.name(),
            case.kind.driver_name().to_owned(),
            optional(memory.map(|summary| summary.median)),
            optional(memory.map(|summary| summary.min)),
            optional(memory.map(|summary| summary.max)),
            optional(median(&case.echoed)),
            optional(median(&case.opening)),
        ]);
    }
    outcome.text = format!(
        "Idle: what open connections add to the server's resident memory, and after one echo of 64 B on each.\n\
         The kernel's sockets are not in it.\n\n{table}"
    );
    check::report(&mut outcome, Suite::Idle, checks(cases));
    outcome
}

/// Our default engine on whichever driver takes least.
fn checks(cases: &[IdleCase]) -> Option<Check> {
    let (connections, most) = TARGET;
    let runs = |case: &IdleCase| case.samples.get(&Metric::RssPerConnection).cloned().unwrap_or_default();
    let judged = cases.iter().filter(|case| case.kind.is_wss_by(ENGINES[0]) && case.connections == connections);
    let known = judged.filter_map(|case| Some((Summary::of(&runs(case))?.median, case)));
    let (_, best) = known.min_by(|(a, _), (b, _)| a.total_cmp(b))?;
    let what = format!("{} connections: {}, B each", number(connections as f64), best.kind.full_name());
    Some(Check::of(what, best.case(None), (Metric::RssPerConnection, &runs(best)), Target::AtMost(most)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline::layers::io::Io;

    #[test]
    fn the_default_engine_is_judged_where_it_holds_enough_connections() {
        let case = |kind, connections, bytes: f64| IdleCase {
            kind,
            connections,
            samples: [(Metric::RssPerConnection, vec![bytes; 5])].into(),
            echoed: vec![bytes; 5],
            opening: vec![1.0; 5],
        };
        let wss = |engine, driver| Kind::Wss(engine, Key::P256, driver);
        let cases = [
            case(Kind::Ws(Io::Epoll), 10_000, 600.0),
            case(wss("fused", Io::Epoll), 2_000, 900.0),
            case(wss("fused", Io::Epoll), 10_000, 1050.0),
            case(wss("fused", Io::Uring), 10_000, 950.0),
            case(wss("rustls", Io::Epoll), 10_000, 9000.0),
        ];
        let outcome = report(&cases);
        let judged: Vec<_> = outcome.lines.iter().filter(|line| line.target.is_some()).collect();
        assert_eq!(judged.len(), 1);
        assert_eq!((judged[0].value, judged[0].target), (950.0, Some(Target::AtMost(1024.0))));
        assert!(outcome.text.contains("10,000 connections: wss fused uring, B each"), "{}", outcome.text);
        assert!(report(&cases[..2]).lines.iter().all(|line| line.target.is_none()));
    }
}
