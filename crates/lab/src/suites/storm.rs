//! Thousands of clients lose their server at once: how long until all are back at another one, and what its own clients notice.

use super::check::{self, Check};
use super::{Certificates, Effort, Kind, Lab, Outcome, Process};
use crate::load::{Echo, Returned, Returning, Storm};
use crate::payload::Content;
use crate::stats::{Ratio, median};
use crate::table::{Table, number};
use crate::{Case, Error, Metric, Span, Target};
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Most time until all are back, and greatest p99 of others, over those of clients that nobody tells when to return and of a
/// quiet server.
const MOST_TIME: f64 = 0.5;
const MOST_SLOWER: f64 = 2.0;

/// Connections of the clients that stay, and their messages per second.
const STAYING: usize = 50;
const RATE: f64 = 5_000.0;

/// Time of messages that are not measured.
const WARMUP: Duration = Duration::from_millis(300);

/// A way to lose a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// It is killed, and each client returns by its own waits.
    Killed,
    /// It drains for a restart, and tells each client when to return.
    Drained,
}

impl Loss {
    const ALL: [Self; 2] = [Self::Killed, Self::Drained];

    const fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Drained => "drained",
        }
    }
}

/// The figures of one run.
#[derive(Clone, Copy, Debug)]
struct Figures {
    quiet: f64,
    p99: f64,
    returned: Returned,
}

/// Clients, rounds, and time for which the others are measured, from the loss on.
const fn size(effort: Effort) -> (usize, usize, Duration) {
    match effort {
        Effort::Thorough => (10_000, 5, Duration::from_secs(3)),
        Effort::Quick => (2_000, 3, Duration::from_millis(600)),
        Effort::Smoke => (40, 1, Duration::from_millis(300)),
    }
}

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let (clients, rounds, span) = size(lab.effort);
    let kind = Kind::Crowd { loops: 1, driver: lab.drivers[0] };
    let mut runs = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for (loss, runs) in Loss::ALL.into_iter().zip(&mut runs) {
            if lab.stop.load(Ordering::Relaxed) {
                break;
            }
            (lab.progress)(round as f64 / rounds as f64, &format!("round {}: {}", round + 1, loss.name()));
            runs.push(measure(lab, kind, loss, (clients, span))?);
        }
    }
    report(outcome, &kind.case().connections(clients), &runs);
    Ok(())
}

fn measure(lab: &Lab<'_>, kind: Kind, loss: Loss, (clients, span): (usize, Duration)) -> Result<Figures, Error> {
    let certificates = Certificates::new(&[kind.key()])?;
    let mut lost = Process::start_with(lab, kind, &certificates, None, &["--back-in", "0"])?;
    let other = Process::start(lab, kind, &certificates, None)?;
    drop(certificates);
    let echo = Echo {
        server: other.server()?,
        connections: STAYING,
        size: 64,
        content: Content::Bytes,
        pipeline: 1,
        rate: Some(RATE),
        span: Span { warmup: WARMUP, duration: span },
    };
    let others = Storm { echo, newcomers: 0 };
    let quiet = others.run()?.p99;
    let returning = Returning { lost: lost.server()?, other: other.address.into(), clients };
    let (connected, all) = channel();
    std::thread::scope(|scope| {
        let lose = move || {
            // Fails only if the others have failed.
            let _ = connected.send(());
            std::thread::sleep(WARMUP);
            match loss {
                Loss::Killed => lost.kill(),
                Loss::Drained => lost.stop(),
            }
            lost
        };
        let returned = scope.spawn(move || returning.run(lose));
        // Without a message the clients have failed, and say why.
        let p99 = all.recv().ok().map(|()| others.run().map(|latency| latency.p99));
        let returned =
            returned.join().map_err(|_| Error::Failed("the thread of the clients panicked".to_owned()))??;
        let p99 = p99.transpose()?.unwrap_or_default();
        Ok(Figures { quiet, p99, returned })
    })
}

fn report(outcome: &mut Outcome, case: &Case, runs: &[Vec<Figures>; 2]) {
    let mut table = Table::new(&["<server", "all back ms", "failed attempts", "resumed", "p99 of others us", "quiet"]);
    for (loss, runs) in Loss::ALL.into_iter().zip(runs) {
        let of = |figure: fn(&Figures) -> f64| runs.iter().map(figure).collect::<Vec<_>>();
        let case = case.clone().setup(loss.name());
        let all: [fn(&Figures) -> f64; 5] = [
            |run| run.returned.after.as_secs_f64() * 1e6,
            |run| run.returned.failed as f64,
            |run| run.returned.resumed as f64,
            |run| run.p99,
            |run| run.quiet,
        ];
        let [back, failed, resumed, p99, quiet] = all.map(|figure| median(&of(figure)).unwrap_or_default());
        outcome.add(&case, Metric::ReturnTime, &of(all[0]));
        outcome.add(&case, Metric::LatencyP99, &of(all[3]));
        let cells = [number(back / 1e3), number(failed), number(resumed), number(p99), number(quiet)];
        table.row([loss.name().to_owned()].into_iter().chain(cells));
    }
    outcome.text = format!(
        "Storm: a server loses its clients at once, and they return to another one on its CPU.\n\
         It is killed, or it drains and tells each client when to return. Meanwhile {STAYING} clients\n\
         of the other one echo 64 B, {RATE} a second.\n\n{table}"
    );
    check::report(outcome, checks(case, runs));
}

fn checks(case: &Case, [killed, drained]: &[Vec<Figures>; 2]) -> impl IntoIterator<Item = Check> {
    let of = |runs: &[Figures], figure: fn(&Figures) -> f64| runs.iter().map(figure).collect::<Vec<_>>();
    let time = |runs| of(runs, |run| run.returned.after.as_secs_f64());
    let case = case.clone().setup(Loss::Drained.name());
    let sooner = Ratio::paired(&time(drained), &time(killed));
    let slower = Ratio::paired(&of(drained, |run| run.p99), &of(drained, |run| run.quiet));
    let time = "drained: time until all are back, over killed".to_owned();
    let p99 = "drained: p99 of others over quiet".to_owned();
    let time = Check::ratio(time, case.clone(), (Metric::RatioToKilled, sooner), Target::AtMost(MOST_TIME));
    let p99 = Check::ratio(p99, case, (Metric::RatioToQuiet, slower), Target::AtMost(MOST_SLOWER));
    time.into_iter().chain(p99)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DriverKind;

    #[test]
    fn a_storm_is_judged_by_its_length_and_by_what_others_notice() {
        let run = |millis, p99| Figures {
            quiet: 50.0,
            p99,
            returned: Returned { after: Duration::from_millis(millis), failed: 3, resumed: 0 },
        };
        let killed = vec![run(4_000, 900.0), run(4_200, 800.0)];
        for (millis, p99, expected) in [(1_900, 90.0, [true, true]), (2_500, 120.0, [false, false])] {
            let mut outcome = Outcome::of("storm");
            let case = Kind::Crowd { loops: 1, driver: DriverKind::Epoll }.case().connections(2_000);
            report(&mut outcome, &case, &[killed.clone(), vec![run(millis, p99), run(millis, p99)]]);
            assert!(outcome.text.lines().all(|line| line.chars().count() <= crate::table::WIDTH), "{}", outcome.text);
            let judged = outcome.lines.iter().filter_map(|line| Some(line.target?.is_met_by(line.value)));
            assert_eq!(judged.collect::<Vec<_>>(), expected);
            let names = outcome.lines.iter().filter(|line| line.metric == Metric::ReturnTime);
            assert_eq!(names.map(|line| line.value).collect::<Vec<_>>(), [4_100_000.0, millis as f64 * 1e3]);
        }
    }
}
