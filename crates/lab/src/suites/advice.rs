use super::echo_case::EchoRow;
use super::{ENGINES, Kind};
use crate::DriverKind;
use crate::table::bytes;

/// The configuration to run on this machine: the cheapest engine and driver, and the kind of key if it matters.
pub(super) fn overview(rows: &[EchoRow], rsa_over_p256: Option<f64>) -> Option<String> {
    let engine = cheapest(rows, |kind| kind.engine(), |a, b| a.driver() == b.driver())?;
    let engine = engine.unwrap_or_else(|| format!("{} (no engine is clearly cheaper here)", ENGINES[0]));
    let driver = cheapest(rows, |kind| kind.driver().map(DriverKind::name), |a, b| a.engine() == b.engine())?;
    let driver = driver.map_or_else(String::new, |driver| format!(" --driver {driver}"));
    let key = match rsa_over_p256 {
        Some(ratio) if ratio > 1.2 => {
            format!("with a P-256 key (handshakes {ratio:.1} x cheaper than RSA-2048)")
        }
        _ => "with either kind of key".to_owned(),
    };
    Some(format!("run --tls {engine}{driver} {key}"))
}

/// The name of the wss compositions that cost the least server CPU among those that differ only in `name`, with its
/// greatest gain.
///
/// The inner option is `None` if no difference exceeds noise, or if different names win in different rows.
fn cheapest(
    rows: &[EchoRow],
    name: impl Fn(Kind) -> Option<&'static str>,
    is_alike: impl Fn(Kind, Kind) -> bool,
) -> Option<Option<String>> {
    let wss = || rows.iter().filter(|row| matches!(row.subject.kind, Kind::Wss(..)));
    let mut best: Option<(f64, String)> = None;
    let mut winners = Vec::new();
    wss().next()?;
    for (number, row) in wss().enumerate() {
        for other in wss().skip(number + 1) {
            let (kind, other_kind, shape) = (row.subject.kind, other.subject.kind, row.subject.shape);
            let names = (name(kind)?, name(other_kind)?);
            if other.subject.shape != shape || names.0 == names.1 || !is_alike(kind, other_kind) {
                continue;
            }
            // Rows without a ratio, as when a server did not run in some round, are left out.
            let Some(ratio) = other.cpu_over(row) else { continue };
            let gain = ratio.summary.median.max(1.0 / ratio.summary.median);
            if ratio.is_undecided() {
                continue;
            }
            let (winner, loser) = if ratio.summary.median > 1.0 { names } else { (names.1, names.0) };
            winners.push(winner);
            if best.as_ref().is_some_and(|(most, _)| *most >= gain) {
                continue;
            }
            let less = (1.0 - 1.0 / gain) * 100.0;
            let size = bytes(shape.size as u64);
            best = Some((gain, format!("{winner} ({less:.0} % less CPU than {loser} at {size})")));
        }
    }
    let is_clear = winners.iter().all(|winner| *winner == winners[0]);
    Some(best.filter(|_| is_clear).map(|(_, text)| text))
}

#[cfg(test)]
mod tests {
    use super::super::echo_case::{self, Shape};
    use super::*;
    use crate::Metric;

    /// Rows of one size with these CPU times for limit, plain and each engine on one driver.
    fn rows(cpu: [[f64; 4]; 4]) -> Vec<EchoRow> {
        let kinds = echo_case::kinds(&[DriverKind::Epoll]);
        let mut rows = echo_case::rows(&[Shape { size: 1024, connections: 1, pipeline: 1 }], &kinds);
        // Builds with more engines have more rows.
        rows.truncate(cpu.len());
        for (row, runs) in rows.iter_mut().zip(cpu) {
            row.samples.insert(Metric::ServerCpuPerMsg, runs.to_vec());
        }
        rows
    }

    #[test]
    fn the_cheapest_engine_is_named_with_its_gain() {
        let rows = rows([[1.0; 4], [2.0; 4], [4.0, 4.1, 3.9, 4.0], [5.0, 5.1, 4.9, 5.0]]);
        let advice = overview(&rows, Some(4.0)).unwrap();
        assert_eq!(
            advice,
            "run --tls fused (20 % less CPU than rustls at 1 KiB) with a P-256 key (handshakes 4.0 x cheaper than RSA-2048)"
        );
    }

    #[test]
    fn noise_has_no_winner() {
        let rows = rows([[1.0; 4], [2.0; 4], [4.0, 5.1, 3.9, 5.0], [5.0, 4.1, 4.9, 4.0]]);
        let advice = overview(&rows, Some(1.1)).unwrap();
        assert_eq!(advice, "run --tls fused (no engine is clearly cheaper here) with either kind of key");
    }

    #[test]
    fn another_engine_than_the_default_can_win() {
        let rows = rows([[1.0; 4], [2.0; 4], [5.0, 5.1, 4.9, 5.0], [4.0, 4.1, 3.9, 4.0]]);
        assert!(overview(&rows, None).unwrap().starts_with("run --tls rustls (20 % less CPU than fused"));
    }

    #[test]
    fn the_cheaper_driver_is_named_too() {
        let kinds = echo_case::kinds(&[DriverKind::Epoll, DriverKind::Uring]);
        let mut rows = echo_case::rows(&[Shape::of(64)], &kinds);
        for row in &mut rows {
            let us = if row.subject.kind.driver() == Some(DriverKind::Uring) { 4.0 } else { 5.0 };
            row.samples.insert(Metric::ServerCpuPerMsg, vec![us, us * 1.01, us * 0.99, us]);
        }
        let advice = overview(&rows, None).unwrap();
        let elsewhere = echo_case::rows(&[Shape::of(16_384)], &kinds).into_iter().map(|mut row| {
            let us = if row.subject.kind.driver() == Some(DriverKind::Uring) { 9.0 } else { 8.0 };
            row.samples.insert(Metric::ServerCpuPerMsg, vec![us, us * 1.01, us * 0.99, us]);
            row
        });
        rows.extend(elsewhere);
        assert!(!overview(&rows, None).unwrap().contains("--driver"));
        let expected = "run --tls fused (no engine is clearly cheaper here) --driver uring (20 % less CPU than epoll at \
                        64 B) with either kind of key";
        assert_eq!(advice, expected);
    }
}
