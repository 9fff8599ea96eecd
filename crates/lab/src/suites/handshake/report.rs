//! Tables, lines and targets of the suite.

use super::super::check::{self, Check};
use super::super::handshake_case::published;
use super::super::server::{Execution, Key, Kind};
use super::super::{ENGINES, Outcome, Suite};
use super::{AT_ONCE, ESTABLISHED, RATE, Row, What, execution};
use crate::rounds::Runs;
use crate::stats::{Ratio, Summary};
use crate::table::{Table, number, optional};
use crate::{Line, Metric, Target};
use tautline::KeyExchange;

pub(super) fn report(connects: &[Row], storms: &[Row]) -> Outcome {
    let text = connect_table(connects) + &beside_tcp(connects) + &storm_table(storms);
    let mut outcome = Outcome { text, ..Outcome::default() };
    for row in connects.iter().chain(storms) {
        let case = row.case();
        for (&metric, runs) in &row.samples {
            let published = row.published().filter(|_| metric == Metric::CpuPerHandshake);
            let line = Line::new(Suite::Handshake.name(), &case, metric, runs);
            outcome.lines.extend(line.map(|line| Line { published, ..line }));
        }
    }
    check::report(&mut outcome, Suite::Handshake, checks(connects, storms));
    outcome
}

impl Row {
    /// CPU time of both ends, in us, as a report gives it for X25519's kind of key exchange.
    fn published(&self) -> Option<f64> {
        match self.what {
            What::Connect { kind: Kind::Shakes(_, key, ..), resumed, group: KeyExchange::Classical } => {
                published(key, resumed)
            }
            _ => None,
        }
    }
}

fn signature(rows: &[Row], key: Key) -> Option<&Row> {
    rows.iter().find(|row| row.what == What::Sign(key))
}

fn connect_table(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        "<", "<key", "<group", "<session", "<signs", "1/s", "p50 us", "server", "client", "x sign.", "x publ.",
    ]);
    for row in rows {
        let What::Connect { kind, resumed, group } = row.what else { continue };
        let signature = signature(rows, kind.key()).filter(|_| kind.engine().is_some() && !resumed);
        let over = signature.and_then(|signature| {
            Some(
                row.samples.median(Metric::ServerCpuPerHandshake)?
                    / signature.samples.median(Metric::CpuPerSignature)?,
            )
        });
        let compared =
            row.samples.median(Metric::CpuPerHandshake).zip(row.published()).map(|(ours, published)| ours / published);
        let secure = |text: &str| if kind.engine().is_some() { text.to_owned() } else { "-".to_owned() };
        table.row([
            kind.engine().unwrap_or("ws, no TLS").to_owned(),
            secure(kind.key().name()),
            secure(if group == KeyExchange::All { "hybrid" } else { "x25519" }),
            secure(if resumed { "resumed" } else { "full" }),
            secure(execution(kind).unwrap_or("-")),
            optional(row.samples.median(Metric::Handshakes)),
            optional(row.samples.median(Metric::LatencyP50)),
            optional(row.samples.median(Metric::ServerCpuPerHandshake)),
            optional(row.samples.median(Metric::ClientCpuPerHandshake)),
            optional(over),
            optional(compared),
        ]);
    }
    let mut text = format!(
        "Connections: connect, TLS, upgrade, close, {AT_ONCE} at a time, client and server by the same engine.\n\
         server, client: CPU us for each, of the server's process and of the client's thread; x sign.:\n\
         server over the signature alone; x publ.: both over the published (Go 1.8, in memory, without TCP\n\
         and upgrade); gated: expensive signatures beside the loop; hybrid: X25519MLKEM768.\n\n{table}\n"
    );
    for row in rows {
        if let (What::Connect { kind, .. }, Some(refused)) =
            (row.what, row.samples.median(Metric::Refused).filter(|rate| *rate > 0.0))
        {
            text += &format!("{} refused {} more connections a second\n", kind.full_name(), number(refused));
        }
        if let (What::Sign(key), Some(us)) = (row.what, row.samples.median(Metric::CpuPerSignature)) {
            text +=
                &format!("{} signature alone: {} us, {} a second and CPU\n", key.name(), number(us), number(1e6 / us));
        }
    }
    text
}

/// What the handshakes themselves cost: full over resumed once the cost of the same connection without TLS is taken off both.
fn beside_tcp(rows: &[Row]) -> String {
    let plain = rows.iter().find(|row| matches!(row.what, What::Connect { kind: Kind::Ws(_), .. }));
    let cpu = |row: Option<&Row>| {
        let (with, without) =
            (row?.samples.runs(Metric::ServerCpuPerHandshake), plain?.samples.runs(Metric::ServerCpuPerHandshake));
        Some(with.iter().zip(without).map(|(with, without)| with - without).collect::<Vec<_>>())
    };
    let mut text = String::new();
    for execution in [Execution::Inline, Execution::Offload] {
        let of = |resumed| cpu(find(rows, Key::Rsa2048, execution, resumed, KeyExchange::Classical));
        let Some((full, resumed)) = of(false).zip(of(true)) else { continue };
        let (Some(ratio), Some(full), Some(resumed)) =
            (Ratio::paired(&full, &resumed), Summary::of(&full), Summary::of(&resumed))
        else {
            continue;
        };
        text += &format!(
            "{} RSA-2048 without what goes without TLS: full {} us, resumed {} us: {} x\n",
            if execution == Execution::Inline { "inline" } else { "gated" },
            number(full.median),
            number(resumed.median),
            number(ratio.summary.median)
        );
    }
    text
}

fn storm_table(rows: &[Row]) -> String {
    let mut table = Table::new(&["<", "<signs", "p50 us", "p99 us", "p99.9 us", "msg/s", "handshakes/s", "refused/s"]);
    for row in rows {
        let What::Storm { kind, newcomers } = row.what else { continue };
        table.row([
            if newcomers == 0 { "quiet" } else { "storm" }.to_owned(),
            execution(kind).unwrap_or("-").to_owned(),
            optional(row.samples.median(Metric::LatencyP50)),
            optional(row.samples.median(Metric::LatencyP99)),
            optional(row.samples.median(Metric::LatencyP999)),
            optional(row.samples.median(Metric::Throughput)),
            optional(row.samples.median(Metric::Handshakes)),
            optional(row.samples.median(Metric::Refused)),
        ]);
    }
    format!(
        "\nA storm: {ESTABLISHED} connections send {} messages of 64 B a second while {AT_ONCE} others at a time shake\n\
         hands in full with RSA-2048, over and over; their client runs while that of the messages sleeps.\n\
         Latency from sending to the reply's arrival in the kernel; p99: median of each thousand's in a row.\n\
         refused: newcomers that the server had no time for.\n\n{table}",
        number(RATE)
    )
}

fn find(rows: &[Row], key: Key, execution: Execution, resumed: bool, group: KeyExchange) -> Option<&Row> {
    rows.iter().find(|row| {
        matches!(row.what, What::Connect { kind: Kind::Shakes(engine, of, _, how), resumed: is, group: by }
            if engine == ENGINES[0] && of == key && how == execution && is == resumed && by == group)
    })
}

fn checks(connects: &[Row], storms: &[Row]) -> Vec<Check> {
    use Metric::{CpuPerSignature, LatencyP99, RatioToQuiet, RatioToResumed, RatioToSignature, ServerCpuPerHandshake};
    let find = |execution, resumed| find(connects, Key::Rsa2048, execution, resumed, KeyExchange::Classical);
    let ratio = |over: Option<&Row>, under: Option<&Row>, (of, to)| {
        Ratio::paired(over?.samples.runs(of), under?.samples.runs(to))
    };
    let (full, inline) = (find(Execution::Offload, false), find(Execution::Inline, false));
    let resumed = |execution| find(execution, true);
    let case = |row: Option<&Row>| row.map(Row::case).unwrap_or_default();
    // Without newcomers there was no storm.
    let storm = storms.get(1).filter(|row| row.samples.median(Metric::Handshakes).is_some_and(|rate| rate > 0.0));
    let cpu = ServerCpuPerHandshake;
    let signature = signature(connects, Key::Rsa2048);
    [
        Check::ratio(
            "RSA-2048: full inline over resumed".to_owned(),
            case(inline),
            (RatioToResumed, ratio(inline, resumed(Execution::Inline), (cpu, cpu))),
            Target::AtLeast(4.0),
        ),
        Check::ratio(
            "RSA-2048: full beside the loop over resumed".to_owned(),
            case(full),
            (RatioToResumed, ratio(full, resumed(Execution::Offload), (cpu, cpu))),
            Target::AtLeast(4.0),
        ),
        Check::ratio(
            "RSA-2048: full inline over the signature".to_owned(),
            case(inline),
            (RatioToSignature, ratio(inline, signature, (cpu, CpuPerSignature))),
            Target::AtMost(1.35),
        ),
        Check::ratio(
            "RSA-2048: full beside the loop over the signature".to_owned(),
            case(full),
            (RatioToSignature, ratio(full, signature, (cpu, CpuPerSignature))),
            Target::AtMost(1.35),
        ),
        Check::ratio(
            "storm, beside the loop: p99 over quiet".to_owned(),
            case(storms.get(1)),
            (RatioToQuiet, ratio(storm, storms.first(), (LatencyP99, LatencyP99))),
            Target::AtMost(2.0),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::Pace;
    use super::super::{connects, storms};
    use super::*;
    use crate::table::WIDTH;
    use tautline::layers::io::Io;

    /// TCP costs 25 us, a signature 300, key exchange and the rest 40, resuming 60; handing over 50.
    fn fill(rows: &mut [Row]) {
        for row in rows {
            let metrics = match row.what {
                What::Sign(_) => vec![(Metric::CpuPerSignature, 300.0)],
                What::Storm { newcomers, .. } => {
                    vec![(Metric::LatencyP99, 100.0 + newcomers as f64), (Metric::Handshakes, newcomers as f64)]
                }
                What::Connect { kind, resumed, .. } => {
                    let server = match (execution(kind), resumed) {
                        (None, _) => 25.0,
                        (_, true) => 85.0,
                        (Some("inline"), false) => 365.0,
                        _ => 415.0,
                    };
                    let client = (Metric::ClientCpuPerHandshake, 65.0);
                    vec![(Metric::ServerCpuPerHandshake, server), client, (Metric::CpuPerHandshake, server + 65.0)]
                }
            };
            row.samples = metrics.into_iter().map(|(metric, value)| (metric, vec![value; 3])).collect();
        }
    }

    fn reported(pace: Pace) -> Outcome {
        let (mut connects, mut storms) = (connects(Io::Epoll, pace), storms(Io::Epoll));
        fill(&mut connects);
        fill(&mut storms);
        report(&connects, &storms)
    }

    #[test]
    fn both_ends_stand_beside_what_is_published_for_them() {
        for pace in [Pace::Thorough, Pace::Quick] {
            let outcome = reported(pace);
            assert!(outcome.text.lines().all(|line| line.chars().count() <= WIDTH), "{}", outcome.text);
            let published = outcome.lines.iter().filter_map(|line| Some((line, line.published?)));
            let ratios: Vec<_> =
                published.map(|(line, published)| (line.case.resumed, line.value / published)).collect();
            assert!(ratios.contains(&(Some(false), 430.0 / 3_493.016)), "{ratios:?}");
            assert!(ratios.contains(&(Some(true), 150.0 / 81.96)), "{ratios:?}");
            let clients = outcome.lines.iter().filter(|line| line.metric == Metric::ClientCpuPerHandshake).count();
            assert_eq!(clients, connects(Io::Epoll, pace).len() - 4, "all but the signatures");
        }
    }

    #[test]
    fn every_target_is_judged_and_nothing_is_taken_off_both_sides_of_the_first() {
        let outcome = reported(Pace::Quick);
        let targets: Vec<_> =
            outcome.lines.iter().filter(|line| line.target.is_some()).map(|line| line.value).collect();
        assert_eq!(targets, [365.0 / 85.0, 415.0 / 85.0, 365.0 / 300.0, 415.0 / 300.0, 1.08]);
        let line = "inline RSA-2048 without what goes without TLS: full 340 us, resumed 60.0 us: 5.67 x";
        assert!(outcome.text.contains(line), "{}", outcome.text);
    }

    #[test]
    fn all_kinds_of_key_and_groups_are_measured_inline_and_beside_the_loop() {
        let count = |engine: &str, is_wanted: fn(&Row) -> bool| {
            let rows = connects(Io::Epoll, Pace::Thorough);
            let by = |row: &&Row| row.case().tls.as_deref() == Some(engine);
            rows.iter().filter(by).filter(|row| is_wanted(row)).count()
        };
        assert_eq!(count("fused", |_| true), 4 * 2 * 2 * 2);
        assert_eq!(count("fused", |row| row.case().resumed == Some(true)), 16);
        // Without what is as in another row.
        assert_eq!(count("rustls", |_| true), 5 + 2 + 2 + 1);
        assert_eq!(count("rustls", |row| row.case().resumed == Some(true)), 2);
        // Neither Ed25519 nor ML-KEM.
        let has_mbedtls = ENGINES.contains(&"mbedtls");
        assert_eq!(count("mbedtls", |_| true), if has_mbedtls { 3 + 2 + 2 } else { 0 });
    }
}
