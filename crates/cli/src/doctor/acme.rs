//! Certificates that `taut serve --acme` orders: what the folder says.

use super::finding::{Finding, Verdict, finding};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tautline::acme::Report;

const WHAT: &str = "certificate";

/// Time before the end of a certificate at which a renewal must have succeeded: even those of six days have more left then.
const SOON: Duration = Duration::from_secs(24 * 60 * 60);

/// Findings about a folder; none if there is no such folder and nobody has `named` it.
pub(super) fn examine(folder: &Path, named: bool) -> Vec<Finding> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    match Report::of(folder) {
        Ok(report) => findings(&report, now),
        Err(_) if !named => Vec::new(),
        Err(error) => {
            let found = format!("{} cannot be read", folder.display());
            vec![finding(WHAT, Verdict::Fix, found, format!("{error}; run as the server's user"))]
        }
    }
}

fn findings(report: &Report, now: Duration) -> Vec<Finding> {
    let names = report.names.join(", ");
    let certificate = match (report.expiry, &report.unusable) {
        (_, Some(why)) => finding(WHAT, Verdict::Fix, "certificate.pem cannot be used", why.clone()),
        (None, _) => finding(WHAT, Verdict::Note, "none yet", "clients do not trust the server before the first one"),
        (Some(end), _) if end <= now => {
            finding(WHAT, Verdict::Fix, format!("{names} has expired"), "clients reject it; the failures say why")
        }
        (Some(end), _) => {
            let left = end - now;
            let verdict = if left < SOON && report.failures > 0 { Verdict::Fix } else { Verdict::Good };
            finding(WHAT, verdict, format!("{names}, {} left", time(left)), "`taut serve --acme` renews it in time")
        }
    };
    let mut findings = vec![certificate];
    findings.extend(response(report, now));
    if let Some(last) = &report.last_failure {
        let next = report.paused_until.map(|until| time(until.saturating_sub(now))).unwrap_or_default();
        let found = format!("{} since the last success", report.failures);
        let meaning = format!("the latest: {last}; the next attempt is in {next}");
        findings.push(finding("failed orders", Verdict::Fix, found, meaning));
    }
    if report.is_ordering {
        findings.push(finding("order", Verdict::Note, "in progress", "a server goes on with it, also after a restart"));
    }
    if !report.is_kept {
        findings.push(finding("renewal", Verdict::Note, "no server runs", "nobody renews the certificate"));
    }
    findings
}

/// The OCSP response, if the certificate's authority has them.
fn response(report: &Report, now: Duration) -> Option<Finding> {
    const WHAT: &str = "OCSP response";
    report.names_responder.then(|| match report.response_expiry.filter(|end| *end > now) {
        Some(end) => {
            let found = format!("stapled, {} left", time(end.saturating_sub(now)));
            finding(WHAT, Verdict::Good, found, "`taut serve --acme` renews it at half of its validity")
        }
        None if report.must_be_stapled => finding(
            WHAT,
            Verdict::Fix,
            "none, or expired",
            "clients reject this certificate without one: the log says why the responder does not answer",
        ),
        None => {
            let meaning = "some clients ask the authority instead; the log says why the responder does not answer, and \
                           wolfSSL, mbedTLS and LibreSSL staple none";
            finding(WHAT, Verdict::Note, "none, or expired", meaning)
        }
    })
}

/// A time in its largest whole unit.
fn time(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_whole_units() {
        let times = [0, 119, 120, 7199, 7200, 172_800, 90 * 86_400].map(|seconds| time(Duration::from_secs(seconds)));
        assert_eq!(times, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 days", "90 days"]);
    }

    #[test]
    fn a_folder_is_only_missed_if_it_was_named() {
        let nowhere = Path::new("/proc/no/such/folder");
        assert!(examine(nowhere, false).is_empty());
        let told = examine(nowhere, true);
        assert!(told[0].verdict == Verdict::Fix && told[0].found.contains("/proc/no"), "{told:?}");
    }
}
