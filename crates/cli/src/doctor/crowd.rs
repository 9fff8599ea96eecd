//! Settings of the machine for a planned number of connections.

use super::finding::{Finding, Verdict, finding, judged};
use std::fs;
use tautline_lab::load::crowd::loops;
use tautline_lab::table::{bytes, number};

/// Bytes of an idle wss connection at a server: in the program, and in the kernel.
const BYTES: u64 = 1_000 + 3_500;

/// Descriptors of a table that are not connections.
const SPARE: u64 = 300;

/// Settings of the kernel that bound connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    /// Hard limit of descriptors in a table.
    pub(super) descriptors: u64,
    pub(super) files: Option<u64>,
    pub(super) memory: Option<u64>,
    /// Most pages that the queues of all TCP sockets may take.
    pub(super) tcp_pages: Option<u64>,
    pub(super) backlog: Option<u64>,
    pub(super) syn_backlog: Option<u64>,
    pub(super) tracked: Option<u64>,
    pub(super) orphans: Option<u64>,
    pub(super) ports: Option<u64>,
    /// Bytes that a socket may queue in each direction when memory is short.
    pub(super) least_queues: Option<u64>,
}

impl Settings {
    pub(super) fn probe(descriptors: u64, ports: Option<u64>) -> Self {
        let at = |path: &str, field: usize| -> Option<u64> {
            let text = fs::read_to_string(format!("/proc/sys/{path}")).ok()?;
            text.split_ascii_whitespace().nth(field)?.parse().ok()
        };
        let memory = fs::read_to_string("/proc/meminfo").ok();
        Self {
            descriptors,
            files: at("fs/file-max", 0),
            memory: memory.as_deref().and_then(available),
            tcp_pages: at("net/ipv4/tcp_mem", 2),
            backlog: at("net/core/somaxconn", 0),
            syn_backlog: at("net/ipv4/tcp_max_syn_backlog", 0),
            tracked: at("net/netfilter/nf_conntrack_max", 0),
            orphans: at("net/ipv4/tcp_max_orphans", 0),
            ports,
            least_queues: at("net/ipv4/tcp_rmem", 0).max(at("net/ipv4/tcp_wmem", 0)),
        }
    }
}

/// Bytes of memory that programs may still take.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Findings for `connections` of a server on this machine, and of a load beside it.
pub(super) fn examine(connections: usize, settings: &Settings) -> Vec<Finding> {
    let count = connections as u64;
    let mut findings = vec![tables(connections, settings.descriptors)];
    let mut add = |what, value: Option<u64>, least: u64, (good, bad): (&str, String), worst| {
        findings.extend(value.map(|value| judged(what, value >= least, number(value as f64), good, (worst, bad))));
    };
    let both = 2 * count;
    let more = format!("sysctl fs.file-max={both}");
    add("open files", settings.files, both, ("enough for both ends of each connection", more), Verdict::Fix);
    let more = format!("bytes to all may be dropped: sysctl net.ipv4.tcp_mem=\"{0} {0} {0}\"", both.max(1));
    add("TCP queues", settings.tcp_pages, count, ("pages: one for each connection", more), Verdict::Note);
    let more = "bursts are dropped: sysctl net.core.somaxconn=4096".to_owned();
    add("accept queue", settings.backlog, 4096, ("connections may wait to be accepted", more), Verdict::Fix);
    let more = "bursts wait: sysctl net.ipv4.tcp_max_syn_backlog=4096".to_owned();
    add("SYN queue", settings.syn_backlog, 1024, ("handshakes of TCP may wait", more), Verdict::Note);
    let more = format!("sysctl net.netfilter.nf_conntrack_max={both}");
    add("tracked", settings.tracked, both, ("the firewall has room for all", more), Verdict::Fix);
    let more = "a drain may reset some: sysctl net.ipv4.tcp_max_orphans".to_owned();
    add("orphans", settings.orphans, count / 4, ("closed sockets may send their rest", more), Verdict::Note);
    findings.extend(settings.least_queues.map(|bytes| {
        let verdict = if bytes <= 4096 { Verdict::Good } else { Verdict::Note };
        finding("least queue", verdict, number(bytes as f64), "bytes that a socket keeps when memory is short")
    }));
    findings.extend(settings.memory.map(|memory| {
        let needed = count * BYTES;
        let verdict = if memory >= needed { Verdict::Good } else { Verdict::Fix };
        finding("memory", verdict, format!("{} free", bytes(memory)), format!("the server takes {}", bytes(needed)))
    }));
    findings.extend(settings.ports.map(|ports| {
        let sources = count.div_ceil(ports.max(1));
        let meaning = format!("a load of one machine needs {sources} addresses to come from");
        finding("sources", Verdict::Good, format!("{ports} ports each"), meaning)
    }));
    findings
}

/// Whether one table of descriptors has room, or how many loops must have their own.
fn tables(connections: usize, limit: u64) -> Finding {
    const WHAT: &str = "tables";
    let room = usize::try_from(limit.saturating_sub(SPARE)).unwrap_or(usize::MAX).max(1);
    if connections <= room {
        return finding(WHAT, Verdict::Good, "one is enough", "every connection takes a descriptor");
    }
    let loops = loops(connections, room);
    let meaning = format!("taut serve --shards {loops} --own-descriptors");
    finding(WHAT, Verdict::Note, format!("{loops} of {limit}"), meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(findings: &[Finding], what: &str) -> Verdict {
        findings.iter().find(|finding| finding.what == what).unwrap().verdict
    }

    fn large() -> Settings {
        let most = Some(u64::MAX / 8);
        Settings {
            descriptors: u64::MAX,
            files: most,
            memory: most,
            tcp_pages: most,
            backlog: most,
            syn_backlog: most,
            tracked: most,
            orphans: most,
            ports: Some(28_232),
            least_queues: Some(4096),
        }
    }

    #[test]
    fn a_machine_without_bounds_is_fit_for_a_million() {
        let findings = examine(1_000_000, &large());
        assert!(findings.iter().all(|finding| finding.verdict == Verdict::Good), "{findings:?}");
        assert!(findings.iter().any(|finding| finding.meaning.contains("36 addresses")), "{findings:?}");
    }

    #[test]
    fn each_bound_is_found() {
        let small = Some(1_000);
        let settings = Settings {
            descriptors: 20_000,
            files: small,
            memory: small,
            tcp_pages: small,
            backlog: small,
            syn_backlog: small,
            tracked: small,
            orphans: small,
            ports: small,
            least_queues: Some(8192),
        };
        let findings = examine(1_000_000, &settings);
        for what in ["open files", "accept queue", "tracked", "memory"] {
            assert_eq!(verdict(&findings, what), Verdict::Fix, "{what}");
        }
        for what in ["tables", "TCP queues", "SYN queue", "orphans", "least queue"] {
            assert_eq!(verdict(&findings, what), Verdict::Note, "{what}");
        }
        assert_eq!(verdict(&examine(10_000, &Settings { descriptors: 20_000, ..large() }), "tables"), Verdict::Good);
    }

    #[test]
    fn unknown_settings_are_left_out() {
        assert_eq!(examine(1_000, &Settings::default()).len(), 1);
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   2 kB\n"), Some(2048));
    }
}
