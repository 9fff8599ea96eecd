//! Conclusions of the published reports, held against measured figures.
//!
//! A claim is a set of ratios between published figures. It is reproduced here if the ratios of the measured figures at
//! their places go the same way, at least half as far (as logarithms). The whole interval must lie on that side of 1.

use super::places::{Found, Place};
use crate::stats::Summary;
use crate::{Line, published};

/// Result of a comparison or a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Reproduced,
    Contradicted,
    NotHere,
}

impl Verdict {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Contradicted => "contradicted",
            Self::NotHere => "not here",
        }
    }

    /// Class in the page's style.
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::Reproduced => "good",
            Self::Contradicted => "bad",
            Self::NotHere => "open",
        }
    }
}

/// A conclusion of a report.
pub(crate) struct Claim {
    pub(crate) title: &'static str,
    /// Suite that reproduces the report.
    pub(crate) suite: &'static str,
    pub(crate) verdict: Verdict,
    /// Reason of the verdict, in one sentence.
    pub(crate) because: String,
    pub(crate) comparisons: Vec<Comparison>,
}

/// One ratio of a claim.
pub(crate) struct Comparison {
    pub(crate) label: String,
    pub(crate) published: f64,
    /// Median and 95 % interval.
    pub(crate) measured: Option<[f64; 3]>,
    pub(crate) verdict: Verdict,
    /// Why it is not here.
    pub(crate) reason: String,
    /// Lines of the table of published figures, from 1.
    pub(crate) rows: Vec<usize>,
}

/// The ratio that supports a claim.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// On the same side of 1 as the published one, and at least half as far.
    Alike,
    /// On the same side of 1.
    SameSide,
    /// Within a tenth of 1.
    Equal,
    /// At least this.
    AtLeast(f64),
}

/// Figures multiplied, over figures multiplied, by the reports' words (case and metric).
struct Quotient {
    label: String,
    over: Vec<(String, &'static str)>,
    under: Vec<(String, &'static str)>,
}

fn quotient(
    label: impl Into<String>,
    metric: &'static str,
    over: impl Into<String>,
    under: impl Into<String>,
) -> Quotient {
    Quotient { label: label.into(), over: vec![(over.into(), metric)], under: vec![(under.into(), metric)] }
}

/// All claims, judged by the places of a run.
pub(crate) fn claims(places: &[Place<'_>]) -> Vec<Claim> {
    let judge = |suite, (title, expected, quotients): Definition| {
        let comparisons: Vec<_> =
            quotients.iter().filter_map(|quotient| compare(places, suite, expected, quotient)).collect();
        let (verdict, because) = conclude(&comparisons);
        Claim { title, suite, verdict, because, comparisons }
    };
    let suites = [
        ("offload", offload()),
        ("scaling", scaling()),
        ("stages", stages()),
        ("handshake", handshakes()),
        ("windows", windows()),
    ];
    let all = suites.into_iter();
    all.flat_map(|(suite, claims)| claims.into_iter().map(move |claim| judge(suite, claim))).collect()
}

/// Title, the ratio that supports it, and the ratios.
type Definition = (&'static str, Expected, Vec<Quotient>);

fn offload() -> Vec<Definition> {
    let of = |case: &str, execution: &str| format!("wss echo {case} execution={execution}");
    let each = |metric: &'static str| {
        let one = |count: u32| {
            let case = format!("64B connections={count}");
            quotient(format!("{count} connections"), metric, of(&case, "offload-always"), of(&case, "inline"))
        };
        [50, 100, 200, 500].map(one).into()
    };
    let sized = |size: u32, execution: &str| (of(&format!("size={size} connections=100"), execution), "throughput");
    let shrinks = Quotient {
        label: "loss at 64 B over that at 4 KiB".to_owned(),
        over: vec![sized(64, "offload-always"), sized(4096, "inline")],
        under: vec![sized(64, "inline"), sized(4096, "offload-always")],
    };
    vec![
        ("All TLS on a thread pool loses 67 to 70 % of the messages per second", Expected::Alike, each("throughput")),
        ("All TLS on a thread pool makes latency 3 times as long", Expected::Alike, each("latency_mean")),
        ("The loss is a cost of each message: it shrinks as they grow", Expected::SameSide, vec![shrinks]),
    ]
}

fn scaling() -> Vec<Definition> {
    let of = |model: &str, tls: &str, connections: u32, threads: u32| {
        format!("bulk 10MB messages model={model} {tls} connections={connections} threads={threads}")
    };
    let shared = |tls: &'static str, threads: [u32; 2]| -> Vec<Quotient> {
        let one = |connections: u32, threads: u32| {
            let text = |threads| of("shared-loop", tls, connections, threads);
            let label = format!("{connections} connections, {threads} threads over 1");
            quotient(label, "transfer", text(threads), text(1))
        };
        [4, 10, 20].into_iter().flat_map(|count| threads.map(|threads| one(count, threads))).collect()
    };
    let models = [4, 5, 6, 7, 8].map(|threads| {
        let text = |model| of(model, "BoringSSL", 20, threads);
        let label = format!("{threads} threads, per core over shared");
        quotient(label, "transfer", text("loop-per-core"), text("shared-loop"))
    });
    vec![
        (
            "Threads that share a loop collapse with OpenSSL: four do less than half of one",
            Expected::Alike,
            shared("OpenSSL", [4, 8]),
        ),
        ("With BoringSSL, whose errors take no lock, they gain instead", Expected::Alike, shared("BoringSSL", [4, 8])),
        ("A loop per core overtakes the shared loop from four threads on", Expected::SameSide, models.into()),
    ]
}

fn stages() -> Vec<Definition> {
    let text = |mode: usize, detail: &str| format!("mode={mode} detail={detail}");
    let of = |label: String, detail: &str, [over, under]: [usize; 2]| {
        quotient(label, "mean", text(over, detail), text(under, detail))
    };
    let name = |mode: usize| published::compositions()[mode - 1].as_str();
    let pair =
        |detail: &str, modes: [usize; 2]| of(format!("{} over {}", name(modes[0]), name(modes[1])), detail, modes);
    let all = 1..=published::compositions().len();
    // The report's own order, without pairs that it calls similar.
    let mean = |mode| published::by_text("stages", &text(mode, "End-to-End"), Some("mean")).unwrap_or(0.0);
    let pairs = all.clone().flat_map(|slow| all.clone().map(move |fast| [slow, fast]));
    let order = pairs.filter(|&[slow, fast]| mean(slow) > mean(fast) * 1.1).map(|modes| pair("End-to-End", modes));
    let share = all.clone().map(|mode| Quotient {
        label: name(mode).to_owned(),
        over: vec![(text(mode, "Stage_3->4"), "mean")],
        under: vec![(text(mode, "Total"), "mean")],
    });
    vec![
        ("The eleven compositions come in one order, from 25 to 67 us", Expected::SameSide, order.collect()),
        (
            "A TCP stack beside the kernel takes 27 to 63 % off the way of a message",
            Expected::Alike,
            [[1, 10], [2, 11], [3, 9]].map(|modes| pair("End-to-End", modes)).into(),
        ),
        (
            "WolfSSL opens records 22 % faster than LibreSSL, and 39 % faster than OpenSSL",
            Expected::Alike,
            [[1, 2], [1, 3]].map(|modes| pair("Stage_3->4", modes)).into(),
        ),
        (
            "Event loops over the kernel's sockets differ little for one connection",
            Expected::Equal,
            [[7, 9], [8, 9]].map(|modes| pair("End-to-End", modes)).into(),
        ),
        (
            "Kernel TLS shortens the time from the wait to the handler",
            Expected::Alike,
            [[4, 9], [5, 8]].map(|modes| pair("Total", modes)).into(),
        ),
        ("TLS takes 88 to 95 % of the time from the wait to the handler", Expected::AtLeast(0.8), share.collect()),
    ]
}

fn handshakes() -> Vec<Definition> {
    let text = |curves: &str, full: &str, tickets: &str| {
        format!("Go 1.8 RSA-2048 both sides one core {curves}full={full} tickets={tickets}")
    };
    let gain =
        |label: &str, curves: &str| quotient(label, "time", text(curves, "yes", "no"), text(curves, "no", "yes"));
    vec![(
        "Resumption makes a connection with RSA-2048 take 42 times less CPU",
        Expected::Alike,
        vec![gain("full over resumed", ""), gain("full over resumed, curves set", "curves ")],
    )]
}

fn windows() -> Vec<Definition> {
    let duplex = |direction: &str, strategy: &str| {
        format!("duplex 32KiB buffers TLS1.3 1 connection {direction} strategy={strategy}")
    };
    let gain = |label: &str, direction: &str, strategy: &str| {
        quotient(label, "transfer", duplex(direction, strategy), duplex(direction, "memory-bio"))
    };
    let revised = |label: &str, direction: &str| {
        let text = format!("duplex final revision {direction} strategy=window-bio+direct-decrypt gate>=16384");
        quotient(label, "transfer", text, duplex(direction, "memory-bio"))
    };
    let spill = |direction: &str| {
        let text = format!("forced spill 100% {direction}");
        quotient(direction, "transfer", text, duplex(direction, "window-bio+direct-decrypt"))
    };
    let direct = "window-bio+direct-decrypt";
    let handshake = |strategy: &str| format!("handshake strategy={strategy}");
    let get = |strategy: &str| format!("HTTPS GET 16KiB HTTP/1.1 keep-alive c=32 strategy={strategy}");
    vec![
        (
            "Windows in place of memory BIOs move 20 to 33 % more bytes",
            Expected::Alike,
            vec![
                gain("read, window BIO", "read", "window-bio"),
                gain("read, direct", "read", direct),
                gain("write, window BIO", "write", "window-bio"),
                gain("write, direct", "write", direct),
                revised("read, final revision", "read"),
                revised("write, final revision", "write"),
            ],
        ),
        ("Output that misses the window costs 8 to 20 %", Expected::Alike, ["read", "write"].map(spill).into()),
        (
            "Handshakes take as long with windows as without",
            Expected::Equal,
            ["window-bio", direct]
                .map(|strategy| quotient(strategy, "latency_mean", handshake(strategy), handshake("memory-bio")))
                .into(),
        ),
        (
            "Requests over HTTPS gain little",
            Expected::Equal,
            vec![quotient("HTTP/1.1", "rate", get("window-bio+direct-decrypt gate>=16384"), get("memory-bio"))],
        ),
    ]
}

/// Judges one ratio; `None` if the reports have no such figures.
fn compare(places: &[Place<'_>], suite: &str, expected: Expected, quotient: &Quotient) -> Option<Comparison> {
    let find = |(text, metric): &(String, &'static str)| {
        places.iter().enumerate().find(|(_, place)| {
            place.figure.suite == suite && place.figure.text == text && place.figure.metric == *metric
        })
    };
    let [over, under] = [&quotient.over, &quotient.under].map(|all| all.iter().map(find).collect::<Option<Vec<_>>>());
    let (over, under) = (over?, under?);
    let product = |all: &[(usize, &Place<'_>)]| all.iter().map(|(_, place)| place.figure.value).product::<f64>();
    let all = || over.iter().chain(&under);
    let reason =
        all().find_map(|(_, place)| if let Found::Alone(why) = &place.found { Some(why.clone()) } else { None });
    let published = product(&over) / product(&under);
    let measured = measured(&over, &under);
    let verdict = measured.map_or(Verdict::NotHere, |measured| expected.verdict(published, measured));
    Some(Comparison {
        label: quotient.label.clone(),
        published,
        measured,
        verdict,
        reason: reason.unwrap_or_else(|| "no clear difference, or a much smaller one".to_owned()),
        rows: all().map(|(number, _)| number + 1).collect(),
    })
}

/// The ratio of measured figures, round by round if they have as many rounds.
fn measured(over: &[(usize, &Place<'_>)], under: &[(usize, &Place<'_>)]) -> Option<[f64; 3]> {
    let over = over.iter().map(line).collect::<Option<Vec<_>>>()?;
    let under = under.iter().map(line).collect::<Option<Vec<_>>>()?;
    let all = || over.iter().chain(&under);
    let rounds = over.first()?.runs.len();
    let rounds = if all().all(|line| line.runs.len() == rounds) { rounds } else { 0 };
    let ratio = |value: &dyn Fn(&Line) -> f64| {
        let product = |lines: &[&Line]| lines.iter().map(|line| value(line)).product::<f64>();
        product(&over) / product(&under)
    };
    let ratios: Vec<f64> = (0..rounds).map(|round| ratio(&|line| line.runs[round])).collect();
    let summary = Summary::of(&ratios).filter(|summary| summary.count > 2 && summary.median.is_finite());
    if let Some(summary) = summary {
        return Some([summary.median, summary.interval.low, summary.interval.high]);
    }
    let ratio = ratio(&|line| line.value);
    // Without an interval, a twentieth each way stands for one.
    ratio.is_finite().then_some([ratio, ratio / 1.05, ratio * 1.05])
}

fn line<'a>((_, place): &(usize, &Place<'a>)) -> Option<&'a Line> {
    if let Found::Beside(line) = place.found { Some(line) } else { None }
}

impl Expected {
    fn verdict(self, published: f64, [median, low, high]: [f64; 3]) -> Verdict {
        let away = published.ln();
        // Ends of the interval, the weaker one first, as they lie on the published side.
        let (weak, strong) = if away > 0.0 { (low.ln(), high.ln()) } else { (-high.ln(), -low.ln()) };
        let is_far = median.ln() / away >= 0.5;
        let (is_reproduced, is_contradicted) = match self {
            Self::Alike => (weak > 0.0 && is_far, strong < 0.0),
            Self::SameSide => (weak > 0.0, strong < 0.0),
            Self::Equal => (low >= 0.9 && high <= 1.1, low > 1.1 || high < 0.9),
            Self::AtLeast(least) => (low >= least, high < least),
        };
        match (is_reproduced, is_contradicted) {
            (true, _) => Verdict::Reproduced,
            (_, true) => Verdict::Contradicted,
            _ => Verdict::NotHere,
        }
    }
}

/// The verdict on a claim: that of most of its measured ratios.
fn conclude(comparisons: &[Comparison]) -> (Verdict, String) {
    let measured = comparisons.iter().filter(|it| it.measured.is_some()).count();
    let count = |verdict| comparisons.iter().filter(|it| it.measured.is_some() && it.verdict == verdict).count();
    let (good, bad) = (count(Verdict::Reproduced), count(Verdict::Contradicted));
    if measured == 0 {
        let reason = comparisons.first().map_or("the table has no such figures", |it| it.reason.as_str());
        return (Verdict::NotHere, format!("Not measured: {reason}."));
    }
    let of = |number: usize, what: &str| {
        let left = comparisons.len() - measured;
        let rest = if left > 0 { format!("; {left} are not measured here") } else { String::new() };
        format!("{number} of {measured} measured ratios {what}{rest}.")
    };
    if good > bad && 2 * good >= measured {
        (Verdict::Reproduced, of(good, "agree"))
    } else if bad > good && 2 * bad >= measured {
        (Verdict::Contradicted, of(bad, "go the other way"))
    } else {
        (Verdict::NotHere, of(measured - good - bad, "show no clear difference, or a much smaller one"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::places::places;
    use super::*;
    use crate::Results;

    #[test]
    fn every_claim_finds_its_figures() {
        let claims = claims(&places(&Results::default()));
        let counts: Vec<_> = claims.iter().map(|claim| claim.comparisons.len()).collect();
        assert_eq!(counts, [4, 4, 1, 6, 6, 5, counts[6], 3, 2, 2, 2, 11, 2, 6, 2, 2, 1]);
        assert!((40..55).contains(&counts[6]), "{counts:?}");
        for claim in &claims {
            assert_eq!(claim.verdict, Verdict::NotHere, "{}", claim.title);
            assert!(claim.because.starts_with("Not measured: ") && claim.because.len() > 20, "{}", claim.because);
            assert!(claim.comparisons.iter().all(|it| it.published.is_finite() && it.rows.len() >= 2));
        }
        let ratio = |claim: usize, at: usize| claims[claim].comparisons[at].published;
        assert!((ratio(12, 0) - 42.6).abs() < 0.1, "{}", ratio(12, 0));
        assert!((ratio(13, 0) - 1.262).abs() < 0.001 && (ratio(13, 4) - 1.329).abs() < 0.001);
        assert!(ratio(2, 0) < 1.0, "the loss at 64 B is greater: {}", ratio(2, 0));
        assert!((ratio(0, 0) - 0.304).abs() < 0.001 && ratio(3, 0) < 0.5 && ratio(4, 0) > 2.0 && ratio(5, 0) > 1.1);
        // A published ratio of every claim supports the claim itself.
        for claim in [7, 8, 10, 14] {
            assert!(claims[claim].comparisons.iter().all(|it| it.published < 1.0), "{}", claims[claim].title);
        }
        assert!(claims[6].comparisons.iter().all(|it| it.published > 1.1));
        assert!(claims[11].comparisons.iter().all(|it| it.published > 0.8));
    }

    #[test]
    fn verdicts_follow_the_interval() {
        let verdict = |expected: Expected, published, measured| expected.verdict(published, measured);
        assert_eq!(verdict(Expected::Alike, 0.3, [0.5, 0.4, 0.6]), Verdict::Reproduced);
        assert_eq!(verdict(Expected::Alike, 0.3, [0.9, 0.85, 0.95]), Verdict::NotHere, "much smaller");
        assert_eq!(verdict(Expected::Alike, 0.3, [0.5, 0.4, 1.1]), Verdict::NotHere, "contains 1");
        assert_eq!(verdict(Expected::Alike, 0.3, [1.2, 1.1, 1.3]), Verdict::Contradicted);
        assert_eq!(verdict(Expected::Alike, 42.0, [7.0, 6.9, 7.1]), Verdict::Reproduced);
        assert_eq!(verdict(Expected::Alike, 42.0, [6.0, 5.9, 6.1]), Verdict::NotHere);
        assert_eq!(verdict(Expected::SameSide, 42.0, [1.2, 1.1, 1.3]), Verdict::Reproduced);
        assert_eq!(verdict(Expected::SameSide, 42.0, [0.8, 0.7, 0.9]), Verdict::Contradicted);
        assert_eq!(verdict(Expected::Equal, 1.0, [1.0, 0.95, 1.05]), Verdict::Reproduced);
        assert_eq!(verdict(Expected::Equal, 1.0, [1.0, 0.8, 1.2]), Verdict::NotHere);
        assert_eq!(verdict(Expected::Equal, 1.0, [1.3, 1.2, 1.4]), Verdict::Contradicted);
        assert_eq!(verdict(Expected::AtLeast(0.8), 0.9, [0.9, 0.85, 0.95]), Verdict::Reproduced);
        assert_eq!(verdict(Expected::AtLeast(0.8), 0.9, [0.5, 0.4, 0.6]), Verdict::Contradicted);
    }
}
