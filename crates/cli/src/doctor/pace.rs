//! Settings of the machine for a planned rate of new connections.

use super::crowd::Settings;
use super::finding::{Finding, Verdict, finding, judged};
use tautline_lab::table::number;

/// Seconds for which a closed connection keeps its port at the client (TIME_WAIT), and its entry in the firewall.
const LINGER: u64 = 60;

/// Findings for `rate` new connections a second, whose cryptography takes this time each.
pub(super) fn examine(rate: usize, cores: usize, handshake_us: Option<f64>, settings: &Settings) -> Vec<Finding> {
    let rate = rate as u64;
    let mut findings = Vec::new();
    if let Some(us) = handshake_us {
        let busy = rate as f64 * us / 1e6;
        let (is_good, found) = (busy <= cores as f64 * 0.5, format!("{busy:.1} of {cores} cores"));
        let most = "full handshakes alone take most of the machine: keep tickets on, and add machines";
        let good = "for the cryptography, if no session is resumed";
        findings.push(judged("handshakes", is_good, found, good, (Verdict::Fix, most)));
    }
    // A loop may be busy with other work for half a second, while connections wait to be accepted.
    let burst = rate.div_ceil(2);
    let queue = [settings.backlog, settings.syn_backlog].into_iter().flatten().min();
    findings.extend(queue.map(|queue| {
        let good = format!("may wait, and half a second brings {burst}");
        let more = format!(
            "half a second brings {burst}: sysctl net.core.somaxconn={burst} net.ipv4.tcp_max_syn_backlog={burst}"
        );
        judged("burst", queue >= burst, number(queue as f64), good, (Verdict::Fix, more))
    }));
    findings.extend(settings.tracked.map(|tracked| {
        let needed = rate * LINGER;
        let more = format!("a minute brings {needed}: sysctl net.netfilter.nf_conntrack_max={needed}");
        let good = "the firewall has room for the connections of a minute";
        judged("tracked rate", tracked >= needed, number(tracked as f64), good, (Verdict::Fix, more))
    }));
    findings.extend(settings.ports.map(|ports| {
        let sources = (rate * LINGER).div_ceil(ports.max(1));
        let meaning =
            format!("a load at this rate needs {sources} addresses to come from, since ports rest for a minute");
        finding("port reuse", Verdict::Good, format!("{ports} ports each"), meaning)
    }));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(rate: usize, settings: &Settings) -> Vec<(&'static str, Verdict)> {
        examine(rate, 2, Some(100.0), settings).iter().map(|finding| (finding.what, finding.verdict)).collect()
    }

    #[test]
    fn a_rate_needs_cores_queues_and_ports() {
        let settings = Settings {
            backlog: Some(4096),
            syn_backlog: Some(1024),
            tracked: Some(100_000),
            ports: Some(28_232),
            ..Settings::default()
        };
        let [burst, tracked, ports] = ["burst", "tracked rate", "port reuse"];
        let good =
            [("handshakes", Verdict::Good), (burst, Verdict::Good), (tracked, Verdict::Good), (ports, Verdict::Good)];
        assert_eq!(verdicts(1_000, &settings), good);
        let bad =
            [("handshakes", Verdict::Fix), (burst, Verdict::Fix), (tracked, Verdict::Fix), (ports, Verdict::Good)];
        assert_eq!(verdicts(20_000, &settings), bad);
        assert!(examine(20_000, 2, None, &settings)[2].meaning.contains("43 addresses"), "{settings:?}");
        assert_eq!(verdicts(10, &Settings::default()), [("handshakes", Verdict::Good)]);
    }
}
