//! Tables, lines and targets of the suite.

use super::super::{Check, ENGINES, Execution, Key, Kind, Outcome, Row, Subject, check};
use super::rows::{AT_ONCE, ESTABLISHED, Load, RATE, Work};
use crate::rounds::Runs;
use crate::stats::{Ratio, Summary};
use crate::table::{Table, number, optional};
use crate::{Metric, Target};
use tautline::KeyExchange;

pub(super) fn report(outcome: &mut Outcome, connects: &[Row<Load>], storms: &[Row<Load>]) {
    outcome.text = connect_table(connects) + &beside_tcp(connects) + &storm_table(storms);
    for row in connects.iter().chain(storms) {
        let published = row.subject.published();
        outcome.add_row_beside(row, |metric| published.filter(|_| metric == Metric::CpuPerHandshake));
    }
    check::report(outcome, checks(connects, storms));
}

fn signature(rows: &[Row<Load>], key: Key) -> Option<&Row<Load>> {
    rows.iter().find(|row| row.subject.work == Work::Sign(key))
}

fn connect_table(rows: &[Row<Load>]) -> String {
    let table = Table::of(rows.iter().filter_map(|row| {
        let Work::Connect { kind, resumed, group } = row.subject.work else { return None };
        let signature = signature(rows, kind.key()).filter(|_| kind.engine().is_some() && !resumed);
        let signature = signature.and_then(|signature| signature.median(Metric::CpuPerSignature));
        let server = row.median(Metric::ServerCpuPerHandshake);
        let both = row.median(Metric::CpuPerHandshake);
        let secure = |text: &str| if kind.engine().is_some() { text.to_owned() } else { "-".to_owned() };
        Some([
            ("<", kind.engine().unwrap_or("ws, no TLS").to_owned()),
            ("<key", secure(kind.key().name())),
            ("<group", secure(if group == KeyExchange::All { "hybrid" } else { "x25519" })),
            ("<session", secure(if resumed { "resumed" } else { "full" })),
            ("<signs", secure(kind.execution().map_or("-", Execution::name))),
            ("1/s", optional(row.median(Metric::Handshakes))),
            ("p50 us", optional(row.median(Metric::LatencyP50))),
            ("server", optional(server)),
            ("client", optional(row.median(Metric::ClientCpuPerHandshake))),
            ("x sign.", optional(server.zip(signature).map(|(server, signature)| server / signature))),
            ("x publ.", optional(both.zip(row.subject.published()).map(|(ours, published)| ours / published))),
        ])
    }));
    let mut text = format!(
        "Connections: connect, TLS, upgrade, close, {AT_ONCE} at a time, client and server by the same engine.\n\
         server, client: CPU us for each, of the server's process and of the client's thread; x sign.:\n\
         server over the signature alone; x publ.: both over the published (Go 1.8, in memory, without TCP\n\
         and upgrade); gated: expensive signatures beside the loop; hybrid: X25519MLKEM768.\n\n{table}\n"
    );
    for row in rows {
        let refused = row.median(Metric::Refused).filter(|rate| *rate > 0.0);
        match (row.subject.work, refused, row.median(Metric::CpuPerSignature)) {
            (Work::Connect { kind, .. }, Some(refused), _) => {
                text += &format!("{} refused {} more connections a second\n", kind.full_name(), number(refused));
            }
            (Work::Sign(key), _, Some(us)) => {
                let (key, us, rate) = (key.name(), number(us), number(1e6 / us));
                text += &format!("{key} signature alone: {us} us, {rate} a second and CPU\n");
            }
            _ => {}
        }
    }
    text
}

/// Cost of handshakes without that of the connection below: full over resumed, each less a connection without TLS.
fn beside_tcp(rows: &[Row<Load>]) -> String {
    let plain = rows.iter().find(|row| matches!(row.subject.work, Work::Connect { kind: Kind::Ws(_), .. }));
    let cpu = |row: Option<&Row<Load>>| {
        let cpu = Metric::ServerCpuPerHandshake;
        let both = row?.runs(cpu).iter().zip(plain?.runs(cpu));
        Some(both.map(|(with, without)| with - without).collect::<Vec<_>>())
    };
    let mut text = String::new();
    for execution in Execution::ALL {
        let of = |resumed| cpu(find(rows, execution, resumed));
        let Some((full, resumed)) = of(false).zip(of(true)) else { continue };
        let (Some(ratio), Some(full), Some(resumed)) =
            (Ratio::paired(&full, &resumed), Summary::of(&full), Summary::of(&resumed))
        else {
            continue;
        };
        text += &format!(
            "{} RSA-2048 without what goes without TLS: full {} us, resumed {} us: {} x\n",
            execution.name(),
            number(full.median),
            number(resumed.median),
            number(ratio.summary.median)
        );
    }
    text
}

fn storm_table(rows: &[Row<Load>]) -> String {
    let table = Table::of(rows.iter().filter_map(|row| {
        let Work::Storm { kind, newcomers } = row.subject.work else { return None };
        Some([
            ("<", if newcomers == 0 { "quiet" } else { "storm" }.to_owned()),
            ("<signs", kind.execution().map_or("-", Execution::name).to_owned()),
            ("p50 us", optional(row.median(Metric::LatencyP50))),
            ("p99 us", optional(row.median(Metric::LatencyP99))),
            ("p99.9 us", optional(row.median(Metric::LatencyP999))),
            ("msg/s", optional(row.median(Metric::Throughput))),
            ("handshakes/s", optional(row.median(Metric::Handshakes))),
            ("refused/s", optional(row.median(Metric::Refused))),
        ])
    }));
    format!(
        "\nA storm: {ESTABLISHED} connections send {} messages of 64 B a second while {AT_ONCE} others at a time do\n\
         full handshakes with RSA-2048, over and over; their client runs while that of the messages sleeps.\n\
         Latency from sending to the reply's arrival in the kernel; p99: median of each thousand's in a row.\n\
         refused: newcomers that the server had no time for.\n\n{table}",
        number(RATE)
    )
}

/// Connections of the default engine with RSA-2048 and X25519.
fn find(rows: &[Row<Load>], execution: Execution, resumed: bool) -> Option<&Row<Load>> {
    rows.iter().find(|row| {
        matches!(row.subject.work, Work::Connect { kind: Kind::Handshake(engine, Key::Rsa2048, _, of), resumed: is, group }
            if engine == ENGINES[0] && of == execution && is == resumed && group == KeyExchange::Classical)
    })
}

fn checks(connects: &[Row<Load>], storms: &[Row<Load>]) -> Vec<Check> {
    use Metric::{CpuPerSignature, LatencyP99, RatioToQuiet, RatioToResumed, RatioToSignature, ServerCpuPerHandshake};
    let mut checks = Vec::new();
    let mut check = |name: String, metric, (over, of): (Option<&Row<Load>>, _), (under, to), target| {
        let (Some(over), Some(under)) = (over, under) else { return };
        let (over, under): (&Row<Load>, &Row<Load>) = (over, under);
        let ratio = Ratio::paired(over.runs(of), under.runs(to));
        checks.extend(Check::ratio(name, over.subject.case(), (metric, ratio), target));
    };
    let cpu = ServerCpuPerHandshake;
    let places = [(Execution::Inline, "inline"), (Execution::Offload, "beside the loop")];
    for (execution, place) in places {
        let (full, resumed) = (find(connects, execution, false), find(connects, execution, true));
        let name = format!("RSA-2048: full {place} over resumed");
        check(name, RatioToResumed, (full, cpu), (resumed, cpu), Target::AtLeast(4.0));
    }
    let signature = signature(connects, Key::Rsa2048);
    for (execution, place) in places {
        let name = format!("RSA-2048: full {place} over the signature");
        let full = find(connects, execution, false);
        check(name, RatioToSignature, (full, cpu), (signature, CpuPerSignature), Target::AtMost(1.35));
    }
    // Without newcomers there was no storm.
    let storm = storms.get(1).filter(|row| row.median(Metric::Handshakes).is_some_and(|rate| rate > 0.0));
    let name = "storm, beside the loop: p99 over quiet".to_owned();
    check(name, RatioToQuiet, (storm, LatencyP99), (storms.first(), LatencyP99), Target::AtMost(2.0));
    checks
}

#[cfg(test)]
mod tests {
    use super::super::super::Effort;
    use super::super::rows::{connects, storms};
    use super::*;
    use crate::Case;
    use crate::DriverKind;
    use crate::table::WIDTH;

    /// TCP costs 25 us, a signature 300, key exchange and the rest 40, resuming 60, and offloading 50.
    fn fill(rows: &mut [Row<Load>]) {
        for row in rows {
            let metrics = match row.subject.work {
                Work::Sign(_) => vec![(Metric::CpuPerSignature, 300.0)],
                Work::Storm { newcomers, .. } => {
                    vec![(Metric::LatencyP99, 100.0 + newcomers as f64), (Metric::Handshakes, newcomers as f64)]
                }
                Work::Connect { kind, resumed, .. } => {
                    let server = match (kind.execution(), resumed) {
                        (None, _) => 25.0,
                        (_, true) => 85.0,
                        (Some(Execution::Inline), false) => 365.0,
                        _ => 415.0,
                    };
                    let client = (Metric::ClientCpuPerHandshake, 65.0);
                    vec![(Metric::ServerCpuPerHandshake, server), client, (Metric::CpuPerHandshake, server + 65.0)]
                }
            };
            row.samples = metrics.into_iter().map(|(metric, value)| (metric, vec![value; 3])).collect();
        }
    }

    fn reported(effort: Effort) -> Outcome {
        let (mut connects, mut storms) = (connects(DriverKind::Epoll, effort), storms(DriverKind::Epoll));
        fill(&mut connects);
        fill(&mut storms);
        let mut outcome = Outcome::of("handshake");
        report(&mut outcome, &connects, &storms);
        outcome
    }

    #[test]
    fn published_figures_stand_beside_the_cpu_of_both_ends() {
        for effort in [Effort::Thorough, Effort::Quick] {
            let outcome = reported(effort);
            assert!(outcome.text.lines().all(|line| line.chars().count() <= WIDTH), "{}", outcome.text);
            let published = outcome.lines.iter().filter_map(|line| Some((line, line.published?)));
            let ratios: Vec<_> =
                published.map(|(line, published)| (line.case.resumed, line.value / published)).collect();
            assert!(ratios.contains(&(Some(false), 430.0 / 3_493.016)), "{ratios:?}");
            assert!(ratios.contains(&(Some(true), 150.0 / 81.96)), "{ratios:?}");
            let clients = outcome.lines.iter().filter(|line| line.metric == Metric::ClientCpuPerHandshake).count();
            assert_eq!(clients, connects(DriverKind::Epoll, effort).len() - 4, "all but the signatures");
        }
    }

    #[test]
    fn every_target_is_judged_without_subtracting_the_connection() {
        let outcome = reported(Effort::Quick);
        let targets: Vec<_> =
            outcome.lines.iter().filter(|line| line.target.is_some()).map(|line| line.value).collect();
        assert_eq!(targets, [365.0 / 85.0, 415.0 / 85.0, 365.0 / 300.0, 415.0 / 300.0, 1.08]);
        let line = "inline RSA-2048 without what goes without TLS: full 340 us, resumed 60.0 us: 5.67 x";
        assert!(outcome.text.contains(line), "{}", outcome.text);
    }

    #[test]
    fn measures_all_kinds_of_key_and_group_inline_and_beside_the_loop() {
        let count = |engine: &str, is_wanted: fn(&Case) -> bool| {
            let cases = connects(DriverKind::Epoll, Effort::Thorough).into_iter().map(|row| row.subject.case());
            cases.filter(|case| case.tls.as_deref() == Some(engine) && is_wanted(case)).count()
        };
        assert_eq!(count("fused", |_| true), 4 * 2 * 2 * 2);
        assert_eq!(count("fused", |case| case.resumed == Some(true)), 16);
        // Without connections whose cost another row shows.
        assert_eq!(count("rustls", |_| true), 5 + 2 + 2 + 1);
        assert_eq!(count("rustls", |case| case.resumed == Some(true)), 2);
        // Neither Ed25519 nor ML-KEM.
        let has_mbedtls = ENGINES.contains(&"mbedtls");
        assert_eq!(count("mbedtls", |_| true), if has_mbedtls { 3 + 2 + 2 } else { 0 });
    }
}
