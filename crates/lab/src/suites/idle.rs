use super::server::{Key, Kind};
use super::{ENGINES, Lab, Outcome, Pace, Suite};
use crate::rounds::{Plan, Samples, interleave};
use crate::stats::Summary;
use crate::table::{Table, number, optional};
use crate::{Case, Error, Line, Metric, load};
use std::time::Duration;

/// What the rounds may take, and with little time.
const BUDGETS: [Duration; 2] = [Duration::from_secs(240), Duration::from_secs(40)];

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
    let (rounds, budget) = match lab.pace {
        Pace::Thorough => (3, BUDGETS[0]),
        Pace::Quick => (2, BUDGETS[1]),
        Pace::Glance => (1, BUDGETS[1]),
    };
    let plan = Plan { rounds, least_rounds: 1, budget: Some(budget) };
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
    outcome
}
