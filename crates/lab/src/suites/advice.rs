use super::ENGINES;
use super::echo_case::EchoCase;
use crate::table::bytes;

/// What to run on this machine, from what was measured: the cheapest engine, and the key if it matters.
pub(super) fn overview(cases: &[EchoCase], rsa_over_p256: Option<f64>) -> Option<String> {
    let engine = cheapest(cases)?;
    let key = match rsa_over_p256 {
        Some(ratio) if ratio > 1.2 => {
            format!("with a P-256 key (handshakes {ratio:.1} x cheaper than RSA-2048)")
        }
        _ => "with either kind of key".to_owned(),
    };
    Some(format!("run --tls {engine} {key}"))
}

/// The engine that costs the least server CPU where engines differ most, and by how much; the default where no
/// difference can be told from noise.
fn cheapest(cases: &[EchoCase]) -> Option<String> {
    let mut best: Option<(f64, String)> = None;
    for case in cases.iter().filter(|case| case.kind.engine() == Some(ENGINES[0])) {
        let others = cases.iter().filter(|other| {
            other.shape == case.shape && other.kind.engine().is_some_and(|engine| engine != ENGINES[0])
        });
        for other in others {
            let ratio = other.cpu_over(case)?;
            let gain = ratio.summary.median.max(1.0 / ratio.summary.median);
            if ratio.is_undecided() || best.as_ref().is_some_and(|(most, _)| *most >= gain) {
                continue;
            }
            let (winner, loser) = if ratio.summary.median > 1.0 { (case, other) } else { (other, case) };
            let (Some(winner), Some(loser)) = (winner.kind.engine(), loser.kind.engine()) else { continue };
            let less = (1.0 - 1.0 / gain) * 100.0;
            let size = bytes(case.shape.size as u64);
            best = Some((gain, format!("{winner} ({less:.0} % less CPU than {loser} at {size})")));
        }
    }
    let undecided = || format!("{} (no engine is clearly cheaper here)", ENGINES[0]);
    Some(best.map_or_else(undecided, |(_, text)| text))
}

#[cfg(test)]
mod tests {
    use super::super::echo_case::{self, Shape};
    use super::*;
    use crate::Metric;

    /// One size, with these CPU times for limit, plain and each engine.
    fn cases(cpu: [[f64; 4]; 4]) -> Vec<EchoCase> {
        let mut cases = echo_case::cases(&[Shape { size: 1024, connections: 1, pipeline: 1 }], true);
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
}
