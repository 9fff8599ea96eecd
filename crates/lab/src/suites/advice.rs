use super::ENGINES;
use super::echo_case::EchoCase;
use super::server::Kind;
use crate::table::bytes;
use tautline::layers::io::Io;

/// What to run on this machine, from what was measured: the cheapest engine and driver, and the key if it matters.
pub(super) fn overview(cases: &[EchoCase], rsa_over_p256: Option<f64>) -> Option<String> {
    let engine = cheapest(cases, |kind| kind.engine(), |a, b| a.driver() == b.driver())?;
    let engine = engine.unwrap_or_else(|| format!("{} (no engine is clearly cheaper here)", ENGINES[0]));
    let driver = cheapest(cases, |kind| kind.driver().map(Io::name), |a, b| a.engine() == b.engine())?;
    let driver = driver.map_or_else(String::new, |driver| format!(" --driver {driver}"));
    let key = match rsa_over_p256 {
        Some(ratio) if ratio > 1.2 => {
            format!("with a P-256 key (handshakes {ratio:.1} x cheaper than RSA-2048)")
        }
        _ => "with either kind of key".to_owned(),
    };
    Some(format!("run --tls {engine}{driver} {key}"))
}

/// The name, among those that `name` gives, of wss compositions that are alike but for it, that costs the least server CPU,
/// and by how much where they differ most; none where no difference can be told from noise, or another one wins elsewhere.
fn cheapest(
    cases: &[EchoCase],
    name: impl Fn(Kind) -> Option<&'static str>,
    is_alike: impl Fn(Kind, Kind) -> bool,
) -> Option<Option<String>> {
    let wss = || cases.iter().filter(|case| matches!(case.kind, Kind::Wss(..)));
    let mut best: Option<(f64, String)> = None;
    let mut winners = Vec::new();
    wss().next()?;
    for (number, case) in wss().enumerate() {
        for other in wss().skip(number + 1) {
            let names = (name(case.kind)?, name(other.kind)?);
            if other.shape != case.shape || names.0 == names.1 || !is_alike(case.kind, other.kind) {
                continue;
            }
            // A round in which a server did not run at all has no ratio; the others still do.
            let Some(ratio) = other.cpu_over(case) else { continue };
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
            let size = bytes(case.shape.size as u64);
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

    /// One size, with these CPU times for limit, plain and each engine on one driver.
    fn cases(cpu: [[f64; 4]; 4]) -> Vec<EchoCase> {
        let kinds = echo_case::kinds(&[Io::Epoll]);
        let mut cases = echo_case::cases(&[Shape { size: 1024, connections: 1, pipeline: 1 }], &kinds);
        // Builds with more engines have more cases.
        cases.truncate(cpu.len());
        for (case, runs) in cases.iter_mut().zip(cpu) {
            case.samples.insert(Metric::ServerCpuPerMsg, runs.to_vec());
        }
        cases
    }

    #[test]
    fn the_cheapest_engine_is_named_with_its_gain() {
        let cases = cases([[1.0; 4], [2.0; 4], [4.0, 4.1, 3.9, 4.0], [5.0, 5.1, 4.9, 5.0]]);
        let advice = overview(&cases, Some(4.0)).unwrap();
        assert_eq!(
            advice,
            "run --tls fused (20 % less CPU than rustls at 1 KiB) with a P-256 key (handshakes 4.0 x cheaper than RSA-2048)"
        );
    }

    #[test]
    fn noise_gives_no_winner() {
        let cases = cases([[1.0; 4], [2.0; 4], [4.0, 5.1, 3.9, 5.0], [5.0, 4.1, 4.9, 4.0]]);
        let advice = overview(&cases, Some(1.1)).unwrap();
        assert_eq!(advice, "run --tls fused (no engine is clearly cheaper here) with either kind of key");
    }

    #[test]
    fn the_default_can_lose() {
        let cases = cases([[1.0; 4], [2.0; 4], [5.0, 5.1, 4.9, 5.0], [4.0, 4.1, 3.9, 4.0]]);
        assert!(overview(&cases, None).unwrap().starts_with("run --tls rustls (20 % less CPU than fused"));
    }

    #[test]
    fn the_cheaper_driver_is_named_too() {
        let kinds = echo_case::kinds(&[Io::Epoll, Io::Uring]);
        let mut cases = echo_case::cases(&[Shape::of(64)], &kinds);
        for case in &mut cases {
            let us = if case.kind.driver() == Some(Io::Uring) { 4.0 } else { 5.0 };
            case.samples.insert(Metric::ServerCpuPerMsg, vec![us, us * 1.01, us * 0.99, us]);
        }
        let advice = overview(&cases, None).unwrap();
        let elsewhere = echo_case::cases(&[Shape::of(16_384)], &kinds).into_iter().map(|mut case| {
            let us = if case.kind.driver() == Some(Io::Uring) { 9.0 } else { 8.0 };
            case.samples.insert(Metric::ServerCpuPerMsg, vec![us, us * 1.01, us * 0.99, us]);
            case
        });
        cases.extend(elsewhere);
        assert!(!overview(&cases, None).unwrap().contains("--driver"));
        let expected = "run --tls fused (no engine is clearly cheaper here) --driver uring (20 % less CPU than epoll at \
                        64 B) with either kind of key";
        assert_eq!(advice, expected);
    }
}
