//! Thousands of clients lose their server at once: how long until all are back at another one, and what its own clients notice.

use super::check::{self, Check};
use super::peer::Peer;
use super::{Certificates, Effort, Kind, Lab, Outcome, Process};
use crate::cpu::Placement;
use crate::load::{Echo, Returned, Returning, typical_p99};
use crate::stats::{Ratio, median};
use crate::table::{Table, number};
use crate::{Case, Error, Metric, Protocol, Span, Target};
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

/// Servers of other projects that are lost too.
const PEERS: [Peer; 2] = [Peer::Uwebsockets, Peer::Gorilla];

/// A way to lose a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// It is killed, and each client returns by its own waits. Its successor cannot open its tickets.
    Killed,
    /// It drains for a restart, and tells each client when to return. Both servers have the same ticket keys.
    Drained,
    /// It drains on the CPU of the clients.
    DrainedBesideClients,
    /// Another project's server is killed.
    Peer(Peer),
}

impl Loss {
    const fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Drained => "drained",
            Self::DrainedBesideClients => "drained beside clients",
            Self::Peer(peer) => peer.name(),
        }
    }

    fn kind(self, lab: &Lab<'_>) -> Kind {
        match self {
            Self::Killed | Self::Drained | Self::DrainedBesideClients => {
                Kind::Crowd { loops: 1, driver: lab.drivers[0] }
            }
            Self::Peer(peer) => Kind::Peer(peer, Protocol::Wss),
        }
    }

    const fn is_drained(self) -> bool {
        matches!(self, Self::Drained | Self::DrainedBesideClients)
    }

    /// The CPU of the lost server. It stands for another host, but has to share a CPU of this one: either its end takes time from
    /// the server that stays, or from the clients.
    const fn cpu(self, Placement { server, load }: Placement) -> usize {
        if let Self::DrainedBesideClients = self { load } else { server }
    }

    /// Its facts in results.
    fn case(self, lab: &Lab<'_>) -> Case {
        let setup = if let Self::Peer(_) = self { Self::Killed } else { self };
        self.kind(lab).case().setup(setup.name())
    }
}

/// The figures of one run.
#[derive(Clone, Copy, Debug)]
struct Figures {
    quiet: f64,
    p99: f64,
    returned: Returned,
}

/// A way to lose a server, and what was measured of it.
struct Row {
    loss: Loss,
    case: Case,
    runs: Vec<Figures>,
}

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    // The others are measured for this many milliseconds, from the loss on.
    let (clients, rounds, millis) = lab.effort.pick((10_000, 5, 3_000), (2_000, 3, 600), (40, 1, 300));
    let span = Duration::from_millis(millis);
    let mut losses = vec![Loss::Killed, Loss::Drained, Loss::DrainedBesideClients];
    if lab.effort != Effort::Smoke {
        for (peer, why) in lab.build_peers(&PEERS) {
            outcome.warnings.push(format!("{} is missing: {}", peer.name(), why.why()));
        }
        losses.extend(lab.available(&PEERS).into_iter().map(Loss::Peer));
    }
    let row = |loss: Loss| Row { loss, case: loss.case(lab).connections(clients), runs: Vec::new() };
    let mut rows: Vec<Row> = losses.into_iter().map(row).collect();
    for round in 0..rounds {
        for row in &mut rows {
            if lab.stop.load(Ordering::Relaxed) {
                break;
            }
            (lab.progress)(round as f64 / rounds as f64, &format!("round {}: {}", round + 1, row.loss.name()));
            row.runs.push(measure(lab, row.loss, (clients, span))?);
        }
    }
    report(outcome, &rows);
    Ok(())
}

fn measure(lab: &Lab<'_>, loss: Loss, (clients, span): (usize, Duration)) -> Result<Figures, Error> {
    let kind = loss.kind(lab);
    let certificates = Certificates::new(&[kind.key()])?;
    let secret = certificates.write_ticket_secret()?;
    let secret = secret.to_string_lossy();
    // The kit of a restart: a hint for each client, and tickets that the successor can open.
    let kit = ["--ticket-secret", &*secret, "--back-in", "0"];
    let kit = if loss.is_drained() { &kit[..] } else { &[] };
    let mut lost = Process::start_with(lab, kind, &certificates, None, kit)?;
    lost.give_way_on(loss.cpu(lab.placement))?;
    let other = Process::start_with(lab, kind, &certificates, None, kit)?;
    let others = Echo::small(other.server()?, STAYING, Some(RATE), Span { warmup: WARMUP, duration: span });
    let quiet = typical_p99(others.run_stamped(&mut |_| {})?.1);
    let returning = Returning { lost: lost.server()?, other: other.address.into(), clients };
    let (connected, all) = channel();
    std::thread::scope(|scope| {
        let lose = move || {
            // Fails only if the others have failed.
            let _ = connected.send(());
            std::thread::sleep(WARMUP);
            match loss {
                Loss::Drained | Loss::DrainedBesideClients => lost.stop(),
                Loss::Killed | Loss::Peer(_) => lost.kill(),
            }
            lost
        };
        let returned = scope.spawn(move || returning.run(lose));
        // Without a message the clients have failed, and say why.
        let latencies = all.recv().ok().map(|()| others.run_stamped(&mut |_| {}).map(|(_, latencies)| latencies));
        let returned =
            returned.join().map_err(|_| Error::Failed("the thread of the clients panicked".to_owned()))??;
        let mut latencies = latencies.transpose()?.unwrap_or_default();
        latencies.truncate(messages(returned.after));
        Ok(Figures { quiet, p99: typical_p99(latencies), returned })
    })
}

/// Messages of the others until all clients are back.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few thousand")]
fn messages(after: Duration) -> usize {
    (after.as_secs_f64() * RATE) as usize
}

fn report(outcome: &mut Outcome, rows: &[Row]) {
    let mut table = Table::new(&["<server", "all back ms", "failed attempts", "resumed", "p99 of others us", "quiet"]);
    for Row { loss, case, runs } in rows {
        let of = |figure: fn(&Figures) -> f64| runs.iter().map(figure).collect::<Vec<_>>();
        let all: [fn(&Figures) -> f64; 5] = [
            |run| run.returned.after.as_secs_f64() * 1e6,
            |run| run.returned.failed as f64,
            |run| run.returned.resumed as f64,
            |run| run.p99,
            |run| run.quiet,
        ];
        let [back, failed, resumed, p99, quiet] = all.map(|figure| median(&of(figure)).unwrap_or_default());
        outcome.add(case, Metric::ReturnTime, &of(all[0]));
        outcome.add(case, Metric::LatencyP99, &of(all[3]));
        let cells = [number(back / 1e3), number(failed), number(resumed), number(p99), number(quiet)];
        table.row([loss.name().to_owned()].into_iter().chain(cells));
    }
    outcome.text = format!(
        "Storm: a server loses its clients at once, and they return to another one.\n\
         Ours is killed, or it drains, tells each client when to return, and shares its ticket keys.\n\
         It gives way on the CPU of the other server, or on that of the clients.\n\
         Those of other projects are killed. Until all are back, {STAYING} clients of the other one\n\
         echo 64 B, {RATE} a second.\n\n{table}"
    );
    check::report(outcome, checks(rows));
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let row = |loss| rows.iter().find(|row| row.loss == loss);
    let [Some(killed), Some(drained), Some(beside)] =
        [Loss::Killed, Loss::Drained, Loss::DrainedBesideClients].map(row)
    else {
        return Vec::new();
    };
    let of = |row: &Row, figure: fn(&Figures) -> f64| row.runs.iter().map(figure).collect::<Vec<_>>();
    let time = |row| of(row, |run| run.returned.after.as_secs_f64());
    let sooner = Ratio::paired(&time(drained), &time(killed));
    let slower = Ratio::paired(&of(beside, |run| run.p99), &of(beside, |run| run.quiet));
    let time = "drained: time until all are back, over killed".to_owned();
    let p99 = "drained beside clients: p99 of others over quiet".to_owned();
    let (time_case, p99_case) = (drained.case.clone(), beside.case.clone());
    let time = Check::ratio(time, time_case, (Metric::RatioToKilled, sooner), Target::AtMost(MOST_TIME));
    let p99 = Check::ratio(p99, p99_case, (Metric::RatioToQuiet, slower), Target::AtMost(MOST_SLOWER));
    time.into_iter().chain(p99).collect()
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
        let case =
            |setup: &str| Kind::Crowd { loops: 1, driver: DriverKind::Epoll }.case().connections(2_000).setup(setup);
        let row = |loss: Loss, runs: Vec<Figures>| Row { loss, case: case(loss.name()), runs };
        for (millis, p99, expected) in [(1_900, 90.0, [true, true]), (2_500, 120.0, [false, false])] {
            let mut outcome = Outcome::of("storm");
            let killed = row(Loss::Killed, vec![run(4_000, 900.0), run(4_200, 800.0)]);
            let drained = row(Loss::Drained, vec![run(millis, p99), run(millis, p99)]);
            let peer = row(Loss::Peer(Peer::Gorilla), vec![run(5_000, 9_000.0)]);
            let beside = row(Loss::DrainedBesideClients, vec![run(2_100, p99), run(2_100, p99)]);
            report(&mut outcome, &[killed, drained, beside, peer]);
            assert!(outcome.text.lines().all(|line| line.chars().count() <= crate::table::WIDTH), "{}", outcome.text);
            let judged = outcome.lines.iter().filter_map(|line| Some(line.target?.is_met_by(line.value)));
            assert_eq!(judged.collect::<Vec<_>>(), expected);
            let names = outcome.lines.iter().filter(|line| line.metric == Metric::ReturnTime);
            assert_eq!(
                names.map(|line| line.value).collect::<Vec<_>>(),
                [4_100_000.0, millis as f64 * 1e3, 2_100_000.0, 5_000_000.0]
            );
        }
    }

    #[test]
    fn the_others_are_measured_until_all_are_back() {
        assert_eq!(messages(Duration::from_millis(500)), 2_500);
        assert_eq!(messages(Duration::ZERO), 0);
    }
}
