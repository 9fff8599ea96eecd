mod crowd;
mod finding;
mod probe;

use crate::amount;
use crate::failure::Failure;
use crate::output;
use finding::{Finding, Verdict, finding};
use probe::{Kernel, Support};
use serde_json::json;
use tautline::layers::io::kernel;
use tautline::layers::tls_records::aead::{self, Cell, Direction, Provider};
use tautline::{Capabilities, TlsEngine};
use tautline_lab::table::{Table, number};
use tautline_lab::{DriverKind, Machine, cpu};

/// Report the machine's features, and a suitable command.
///
/// It changes nothing. Each line has a finding and its meaning.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taut doctor
  taut doctor --connections 1000000
  taut doctor --json | jq .run")]
pub(crate) struct Arguments {
    /// Also report what must be set for this number of connections.
    #[arg(long, value_name = "N", value_parser = amount::count)]
    connections: Option<usize>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let machine = Machine::here();
    let kernel = Kernel::probe();
    let mut findings = examine(&machine, &kernel);
    if let Some(connections) = arguments.connections {
        let settings = crowd::Settings::probe(kernel.descriptors.1, kernel.ports);
        findings.extend(crowd::examine(connections, &settings));
    }
    let advice = Advice::new(&machine, cpu::allowed().len(), DriverKind::Auto.here());
    if arguments.json {
        return output::print(format_args!("{}\n", to_json(&machine, &findings, &advice)));
    }
    let mut table = Table::new(&["<", "<what", "<found", "<meaning"]);
    for finding in &findings {
        let (found, meaning) = (finding.found.clone(), finding.meaning.clone());
        table.row([finding.verdict.name().to_owned(), finding.what.to_owned(), found, meaning]);
    }
    let Advice { command, reason, .. } = &advice;
    let (aeads, engines) = (aeads(), engines());
    output::print(format_args!("{machine}\n\n{table}\n{aeads}\n{engines}\nRun:     {command}\nBecause: {reason}\n"))
}

/// The times of all providers of AEADs, and the fastest of each row.
fn aeads() -> String {
    let mut titles = vec!["<AEAD".to_owned(), "<record".to_owned()];
    for direction in ["seal", "open"] {
        titles.extend(Provider::ALL.map(|provider| format!("{provider} {direction}")));
        titles.push(format!("<{direction}s"));
    }
    let mut table = Table::new(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    let measured = aead::measured();
    for pair in measured.cells().chunks(Direction::ALL.len()) {
        let mut row = vec![pair[0].suite.aead_name().to_owned(), pair[0].class.name().to_owned()];
        for cell in pair {
            row.extend(Provider::ALL.map(|provider| cell.ns(provider).map_or_else(|| "-".to_owned(), number)));
            row.push(measured.fastest(cell.suite, cell.class, cell.direction).name().to_owned());
        }
        table.row(row);
    }
    format!("AEAD of records opened and sealed in place: ns per record, and the choice of --aead auto\n{table}")
}

fn aead_to_json(cell: &Cell) -> serde_json::Value {
    let ns: serde_json::Map<_, _> =
        Provider::ALL.into_iter().map(|provider| (provider.name().to_owned(), json!(cell.ns(provider)))).collect();
    let direction = if cell.direction == Direction::Seal { "seal" } else { "open" };
    json!({
        "suite": cell.suite.aead_name(),
        "record": cell.class.name(),
        "direction": direction,
        "ns": ns,
        "choice": aead::measured().fastest(cell.suite, cell.class, cell.direction).name(),
    })
}

/// The table of TLS engines in this program, and the names of the others.
fn engines() -> String {
    let built_in: Vec<_> = TlsEngine::all().map(TlsEngine::capabilities).collect();
    let missing = TlsEngine::OPTIONAL.iter().filter(|(engine, _)| engine.parse::<TlsEngine>().is_err());
    let missing: Vec<_> = missing.map(|(engine, feature)| format!("{engine} (feature {feature})")).collect();
    let others =
        if missing.is_empty() { String::new() } else { format!("not in this program: {}\n", missing.join(", ")) };
    format!("{}TLS engines {others}", Capabilities::table(&built_in))
}

fn to_json(machine: &Machine, findings: &[Finding], advice: &Advice) -> serde_json::Value {
    let findings: Vec<_> = findings
        .iter()
        .map(|finding| {
            let verdict = finding.verdict.name();
            json!({"what": finding.what, "verdict": verdict, "found": finding.found, "meaning": finding.meaning})
        })
        .collect();
    let engines: Vec<_> = TlsEngine::all().map(TlsEngine::name).collect();
    let aeads: Vec<_> = aead::measured().cells().iter().map(aead_to_json).collect();
    json!({
        "machine": machine,
        "engines": engines,
        "findings": findings,
        "aead": aeads,
        "run": advice.command,
        "reason": advice.reason,
    })
}

fn examine(machine: &Machine, kernel: &Kernel) -> Vec<Finding> {
    let mut findings = vec![aes(machine), vectors(machine), clock(kernel.clocksource.as_deref())];
    findings.extend(placement(machine));
    findings.extend(kernel.drivers.iter().map(|(io, support)| driver(*io, support)));
    findings.extend([
        ktls(kernel.ktls.as_ref()),
        feature("AF_XDP", &kernel.xdp, "packets past the kernel's TCP"),
        descriptors(kernel.descriptors),
    ]);
    findings.extend(kernel.backlog.map(backlog));
    findings.extend(kernel.ports.map(ports));
    findings
}

/// Hardware for AES-GCM, which nearly every TLS connection uses.
fn aes(machine: &Machine) -> Finding {
    const WHAT: &str = "AES-GCM";
    if machine.has("vaes") && machine.has("vpclmulqdq") {
        finding(WHAT, Verdict::Good, "vaes vpclmulqdq", "several blocks an instruction: large messages are cheap")
    } else if machine.has("aes") && (machine.has("pclmulqdq") || machine.has("pmull")) {
        finding(WHAT, Verdict::Good, "aes, carry-less multiply", "in hardware")
    } else {
        finding(WHAT, Verdict::Fix, "no hardware", "slow, and ChaCha20-Poly1305 is used; choose another machine")
    }
}

/// Vector instructions, for masks and UTF-8.
fn vectors(machine: &Machine) -> Finding {
    let widest = ["avx512f", "avx2", "asimd"].into_iter().find(|name| machine.has(name));
    match widest {
        Some(name) => finding("vectors", Verdict::Good, name, "masks and UTF-8 checks run wide"),
        None => finding("vectors", Verdict::Note, "none wider than the baseline", "large messages cost somewhat more"),
    }
}

fn clock(source: Option<&str>) -> Finding {
    match source {
        Some(name @ ("tsc" | "kvm-clock" | "arch_sys_counter")) => {
            finding("clock", Verdict::Good, name, "read without a system call")
        }
        Some(name) => finding("clock", Verdict::Note, name, "reading it may cost a system call"),
        None => finding("clock", Verdict::Note, "unknown", "reading it may cost a system call"),
    }
}

fn placement(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    let cores = machine.cores.to_string();
    findings.push(if machine.cores > 1 {
        finding("cores", Verdict::Good, cores, "one loop on each; bench runs server and load apart")
    } else {
        finding("cores", Verdict::Note, cores, "server and load of bench share it: its figures mean less")
    });
    if let Some(governor) = &machine.governor {
        findings.push(if governor == "performance" {
            finding("governor", Verdict::Good, governor, "steady frequency")
        } else {
            finding("governor", Verdict::Note, governor, "`performance` is steadier: cpupower frequency-set")
        });
    }
    if let Some(name) = &machine.hypervisor {
        findings.push(finding("hypervisor", Verdict::Note, name, "neighbours disturb measurements: trust ratios"));
    }
    if let Some(load) = machine.load_1min {
        let is_busy = load > machine.cores as f64 * 0.5;
        let (verdict, meaning) = if is_busy {
            (Verdict::Note, "busy: measure when it is idle")
        } else {
            (Verdict::Good, "quiet enough to measure")
        };
        findings.push(finding("load", verdict, format!("{load:.1}"), meaning));
    }
    findings
}

/// The effect of `--ktls`.
fn ktls(support: Result<&kernel::Support, &String>) -> Finding {
    const WHAT: &str = "kernel TLS";
    match support {
        Ok(kernel::Support { rekeys: true, .. }) => {
            finding(WHAT, Verdict::Good, "available", "--ktls: for network cards that encrypt")
        }
        Ok(_) => {
            let meaning = "--ktls only for sending; receiving needs Linux 6.14";
            finding(WHAT, Verdict::Note, "keys cannot be replaced", meaning)
        }
        Err(reason) => finding(WHAT, Verdict::Note, "not available", reason.clone()),
    }
}

fn feature(what: &'static str, support: &Support, meaning: &str) -> Finding {
    match support {
        Support::Yes => finding(what, Verdict::Good, "available", meaning),
        Support::No(reason) => finding(what, Verdict::Note, "not available", reason.clone()),
    }
}

/// A driver, by the name that `--driver` takes.
fn driver(io: DriverKind, support: &Support) -> Finding {
    let (what, meaning) = match io {
        DriverKind::Uring => ("driver uring", "a few percent less CPU time for many small messages"),
        DriverKind::Select => ("driver select", "for comparison: only descriptors below 1024"),
        DriverKind::Spin => ("driver spin", "never sleeps: low latency at the cost of a whole CPU"),
        DriverKind::UringSpin => ("driver uring-spin", "io_uring that never sleeps"),
        _ => ("driver epoll", "the default (auto): good at everything"),
    };
    match support {
        Support::Yes => finding(what, Verdict::Good, "works", meaning),
        Support::No(reason) => {
            finding(what, Verdict::Note, reason.clone(), "does not work here: epoll is used instead")
        }
    }
}

/// The limit of descriptors. Every connection takes one, and the program raises its soft limit itself.
fn descriptors((soft, hard): (u64, u64)) -> Finding {
    let found = if hard == u64::MAX { format!("{soft}, no maximum") } else { format!("{soft}, at most {hard}") };
    if hard < 65_536 {
        let verdict = if hard < 8_192 { Verdict::Fix } else { Verdict::Note };
        finding("descriptors", verdict, found, "one per connection: raise the limit, ulimit -Hn 1048576")
    } else {
        finding("descriptors", Verdict::Good, found, "one per connection; taut raises its limit to the maximum")
    }
}

fn backlog(length: u64) -> Finding {
    if length < 1024 {
        let meaning = "bursts of connections are dropped: sysctl net.core.somaxconn=4096";
        finding("backlog", Verdict::Fix, length.to_string(), meaning)
    } else {
        finding("backlog", Verdict::Good, length.to_string(), "connections may wait to be accepted")
    }
}

fn ports(count: u64) -> Finding {
    finding("local ports", Verdict::Good, count.to_string(), "most connections of a client to one address and port")
}

/// The command to run, and the reason for it.
#[derive(Debug, PartialEq, Eq)]
struct Advice {
    command: String,
    reason: String,
}

impl Advice {
    fn new(machine: &Machine, cpus: usize, io: DriverKind) -> Self {
        let aes = if machine.has("aes") { "the fastest AES-GCM for this CPU" } else { "ChaCha20 for CPUs without AES" };
        let mut command = format!("taut serve --driver {io} --tls fused --shards {cpus}");
        let driver = if io == DriverKind::Uring {
            "io_uring needs the fewest system calls"
        } else {
            "epoll runs on every Linux"
        };
        let mut reason = format!("aws-lc has {aes}; records are opened in place; {driver}; ");
        if cpus > 1 {
            command.push_str(" --pin");
            reason.push_str("pinned loops share nothing");
        } else {
            reason.push_str("one loop fills one core");
        }
        Self { command, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_has_a_meaning_that_fits_the_table() {
        let machine = Machine::here();
        let findings = examine(&machine, &Kernel::probe());
        assert!(findings.len() >= 8);
        for finding in &findings {
            assert!(!finding.found.is_empty() && !finding.meaning.is_empty(), "{finding:?}");
            assert!(finding.meaning.len() <= 60, "{finding:?} is cut in a table of 100 columns");
        }
    }

    #[test]
    fn the_docs_have_the_same_table_of_engines() {
        let document = include_str!("../../../docs/engines.md");
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let document: Vec<String> = document.lines().map(words).collect();
        let built_in: Vec<_> = TlsEngine::all().map(TlsEngine::capabilities).collect();
        let table = Capabilities::table(&built_in);
        for line in table.lines().filter(|line| !line.starts_with("| -")) {
            assert!(document.contains(&words(line)), "put into docs/engines.md: {line}");
        }
    }

    #[test]
    fn slow_cryptography_and_low_limits_need_a_fix() {
        let mut machine = Machine::here();
        machine.features.clear();
        assert_eq!(aes(&machine).verdict, Verdict::Fix);
        assert_eq!(descriptors((1024, 4096)).verdict, Verdict::Fix);
        assert_eq!(descriptors((1024, 1 << 20)).verdict, Verdict::Good);
        assert_eq!(backlog(128).verdict, Verdict::Fix);
    }

    #[test]
    fn a_single_loop_is_not_pinned() {
        let machine = Machine::here();
        assert!(!Advice::new(&machine, 1, DriverKind::Epoll).command.contains("--pin"));
        assert!(Advice::new(&machine, 4, DriverKind::Epoll).command.ends_with("--shards 4 --pin"));
    }

    #[test]
    fn json_holds_everything() {
        let machine = Machine::here();
        let json =
            to_json(&machine, &examine(&machine, &Kernel::probe()), &Advice::new(&machine, 2, DriverKind::Epoll));
        assert!(json["run"].as_str().unwrap().starts_with("taut serve"));
        assert_eq!(json["findings"][0]["what"], "AES-GCM");
        assert!(json["machine"]["cpu"].is_string());
    }
}
