#[cfg(feature = "acme")]
mod acme;
mod crowd;
mod finding;
mod measure;
mod pace;
mod probe;

use crate::failure::Failure;
use crate::output;
use finding::{Finding, Verdict, finding, judged};
use measure::Measured;
use probe::{Kernel, Support};
use serde_json::json;
use tautline::layers::io::kernel;
use tautline::layers::tls_records::aead::{self, Cell, Direction, Provider};
use tautline::{Capabilities, TlsEngine};
use tautline_lab::table::{Table, number};
use tautline_lab::{DriverKind, Machine, cpu};
use tautline_probe::amount;
use tautline_probe::layout::{self, Layout};

/// Report the machine's features, measure what matters, and recommend a command.
///
/// It changes nothing, and takes about two seconds. Each finding stands beside its meaning. The recommendation comes with its
/// reason, and with what would change it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taut doctor
  taut doctor --connections 1000000 --rate 5000
  taut doctor --json | jq .run")]
pub(crate) struct Arguments {
    /// Also report what must be set for this number of connections.
    #[arg(long, value_name = "N", value_parser = amount::count)]
    connections: Option<usize>,
    /// New connections per second to plan for.
    #[arg(long, value_name = "R", value_parser = amount::count)]
    rate: Option<usize>,
    /// Also report the certificates that `taut serve --acme` keeps in this folder. The usual folder is looked at anyway.
    #[cfg(feature = "acme")]
    #[arg(long, value_name = "DIR")]
    acme_folder: Option<std::path::PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let machine = Machine::here();
    let kernel = Kernel::probe();
    let measured = Measured::here(&kernel.measurable(machine.cores));
    let mut findings = examine(&machine, &kernel, &measured);
    let settings = || crowd::Settings::probe(kernel.descriptors.1, kernel.ports);
    if let Some(connections) = arguments.connections {
        findings.extend(crowd::examine(connections, &settings()));
    }
    if let Some(rate) = arguments.rate {
        findings.extend(pace::examine(rate, machine.cores, measured.handshake_us(), &settings()));
    }
    #[cfg(feature = "acme")]
    if let Some(folder) = arguments.acme_folder.clone().or_else(crate::serve::usual_acme_folder) {
        findings.extend(acme::examine(&folder, arguments.acme_folder.is_some()));
    }
    let advice =
        Advice::new(&machine, cpu::allowed().len(), driver_to_use(&measured, DriverKind::Auto.here()), &measured);
    if arguments.json {
        return output::print(format_args!("{}\n", to_json(&machine, &findings, &advice, &measured)));
    }
    let mut out = Layout::new(layout::width());
    for finding in &findings {
        let verdict = if finding.verdict == Verdict::Good { "" } else { &format!("{}: ", finding.verdict.name()) };
        out.row(finding.what, &format!("{verdict}{}: {}", finding.found, finding.meaning));
    }
    let findings = out.into_text();
    let mut out = Layout::new(layout::width());
    out.row("run", &advice.command);
    out.row("because", &advice.reason);
    for otherwise in &advice.otherwise {
        out.row("otherwise", otherwise);
    }
    let (aeads, engines, advice) = (aeads(), engines(), out.into_text());
    output::print(format_args!("{machine}\n\n{findings}\n{aeads}\n{engines}\n{advice}"))
}

/// The driver that is ahead here: io_uring if its echo is at least [`AHEAD`] times that of epoll. If nothing was
/// measured, or if others took the CPUs meanwhile, it is the usual one.
fn driver_to_use(measured: &Measured, usual: DriverKind) -> DriverKind {
    if measured.is_disturbed() {
        return usual;
    }
    let rate = |driver| measured.echo(driver).map(|echoed| echoed.rate);
    match (rate(DriverKind::Uring), rate(DriverKind::Epoll)) {
        (Some(uring), Some(epoll)) if uring >= epoll * AHEAD => DriverKind::Uring,
        (_, Some(_)) => DriverKind::Epoll,
        _ => usual,
    }
}

/// The lead from which another driver than epoll is recommended: shorter ones are within the noise of a short echo.
const AHEAD: f64 = 1.05;

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

fn to_json(machine: &Machine, findings: &[Finding], advice: &Advice, measured: &Measured) -> serde_json::Value {
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
        "measured": {
            "syscall_ns": measured.syscall_ns,
            "clock_ns": measured.clock_ns,
            "copy_gb_s": {"aligned": measured.copy.aligned, "unaligned": measured.copy.unaligned},
            "key_exchange_us": measured.groups.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "signature_us": measured.signature_us,
            "others_share": measured.others,
            "echo": measured.echoes.iter().map(|echoed| {
                json!({"driver": echoed.driver.to_string(), "msg_s": echoed.rate, "p99_us": echoed.p99_us})
            }).collect::<Vec<_>>(),
        },
        "run": advice.command,
        "reason": advice.reason,
        "otherwise": advice.otherwise,
    })
}

fn examine(machine: &Machine, kernel: &Kernel, measured: &Measured) -> Vec<Finding> {
    let mut findings = vec![aes(machine), vectors(machine), clock(kernel.clocksource.as_deref(), measured.clock_ns)];
    findings.extend([system_calls(measured), copies(measured)]);
    findings.extend(handshakes(measured));
    findings.extend(placement(machine, measured));
    findings.extend(kernel.drivers.iter().map(|(io, support)| driver(*io, support, measured)));
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

fn clock(source: Option<&str>, ns: f64) -> Finding {
    let name = source.unwrap_or("unknown");
    let found = format!("{name}, {} to read", nanoseconds(ns));
    let slow = (Verdict::Note, "reading it seems to cost a system call; --stages costs more than elsewhere");
    // A system call takes longer than this on any machine.
    judged("clock", ns < 70.0, found, "it is read without a system call", slow)
}

/// A time with a unit that keeps it short.
fn nanoseconds(ns: f64) -> String {
    if ns < 1e3 { format!("{ns:.0} ns") } else { format!("{:.1} us", ns / 1e3) }
}

/// The cost of entering the kernel, which each read and write pays.
fn system_calls(measured: &Measured) -> Finding {
    let (ns, good) = (measured.syscall_ns, "the least that each read and each write costs");
    let slow = "slow: mitigations or a sandbox intercept calls; batches and io_uring save more than elsewhere";
    judged("system call", ns < 500.0, nanoseconds(ns), good, (Verdict::Note, slow))
}

fn copies(measured: &Measured) -> Finding {
    let measure::Copy { aligned, unaligned } = measured.copy;
    let found = format!("{aligned:.0} GB/s aligned, {unaligned:.0} GB/s not");
    let same = (Verdict::Good, "16 KiB in the cache: alignment hardly counts here");
    let good = "alignment counts here, and buffers begin at multiples of 64 bytes";
    judged("copy", unaligned * 1.5 < aligned, found, good, same)
}

/// Key exchange and signature of a server, by the library of `fused` and `rustls`.
fn handshakes(measured: &Measured) -> Vec<Finding> {
    let groups: Vec<String> = measured.groups.iter().map(|(name, us)| format!("{name} {us:.0} us")).collect();
    let mut findings = vec![finding(
        "key exchange",
        Verdict::Good,
        groups.join(", "),
        "a server's part with aws-lc, of which the client chooses the group",
    )];
    if let (Some(signature), Some(whole)) = (measured.signature_us, measured.handshake_us()) {
        let found = format!("{signature:.0} us with EC P-256");
        let rate = number(1e6 / whole);
        let meaning = format!("with X25519MLKEM768 one core has cryptography for {rate} full handshakes a second");
        findings.push(finding("signature", Verdict::Good, found, meaning));
    }
    findings
}

fn placement(machine: &Machine, measured: &Measured) -> Vec<Finding> {
    let shared = (Verdict::Note, "server and load of bench share it: its figures mean less");
    let apart = "one loop on each; bench runs server and load apart";
    let mut findings = vec![judged("cores", machine.cores > 1, machine.cores.to_string(), apart, shared)];
    if let Some(governor) = &machine.governor {
        let other = (Verdict::Note, "`performance` is steadier: cpupower frequency-set");
        findings.push(judged("governor", governor == "performance", governor, "steady frequency", other));
    }
    if let Some(name) = &machine.hypervisor {
        findings.push(finding("hypervisor", Verdict::Note, name, "neighbours disturb measurements: trust ratios"));
    }
    if let Some(load) = machine.load_1min {
        let is_busy = load > machine.cores as f64 * 0.5;
        let (verdict, meaning) = if measured.is_disturbed() {
            (
                Verdict::Note,
                "the echoes below are too low, most of all those of spinning drivers: repeat this when it is idle",
            )
        } else if is_busy {
            (Verdict::Note, "busy: measure when it is idle")
        } else {
            (Verdict::Good, "quiet enough to measure")
        };
        let others = measured.others.map_or_else(String::new, |share| format!(", others took {:.0} %", share * 100.0));
        findings.push(finding("load", verdict, format!("{load:.1}{others}"), meaning));
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
        Ok(()) => finding(what, Verdict::Good, "available", meaning),
        Err(reason) => finding(what, Verdict::Note, "not available", reason.clone()),
    }
}

/// A driver, by the name that `--driver` takes.
fn driver(io: DriverKind, support: &Support, measured: &Measured) -> Finding {
    let (what, meaning) = match io {
        DriverKind::Uring => ("driver uring", "a few percent less CPU time for many small messages"),
        DriverKind::Select => ("driver select", "for comparison: only descriptors below 1024"),
        DriverKind::Spin => ("driver spin", "never sleeps: low latency at the cost of a whole CPU"),
        DriverKind::UringSpin => ("driver uring-spin", "io_uring that never sleeps"),
        _ => ("driver epoll", "the default (auto): good at everything"),
    };
    match support {
        Ok(()) => {
            let found = measured.echo(io).map_or_else(
                || "works".to_owned(),
                |echoed| format!("works, {} echoes/s, p99 {:.0} us", number(echoed.rate), echoed.p99_us),
            );
            finding(what, Verdict::Good, found, meaning)
        }
        Err(reason) => finding(what, Verdict::Note, reason.clone(), "does not work here: epoll is used instead"),
    }
}

/// The limit of descriptors. Every connection takes one, and the program raises its soft limit itself.
fn descriptors((soft, hard): (u64, u64)) -> Finding {
    let found = if hard == u64::MAX { format!("{soft}, no maximum") } else { format!("{soft}, at most {hard}") };
    let verdict = if hard < 8_192 { Verdict::Fix } else { Verdict::Note };
    let few = (verdict, "one per connection: raise the limit, ulimit -Hn 1048576");
    let good = "one per connection; taut raises its limit to the maximum";
    judged("descriptors", hard >= 65_536, found, good, few)
}

fn backlog(length: u64) -> Finding {
    let short = (Verdict::Fix, "bursts of connections are dropped: sysctl net.core.somaxconn=4096");
    judged("backlog", length >= 1024, length.to_string(), "connections may wait to be accepted", short)
}

fn ports(count: u64) -> Finding {
    finding("local ports", Verdict::Good, count.to_string(), "most connections of a client to one address and port")
}

/// The command to run, the reason for it, and what would change it.
#[derive(Debug, PartialEq, Eq)]
struct Advice {
    command: String,
    reason: String,
    /// Sentences, each with a condition and what it changes.
    otherwise: Vec<String>,
}

impl Advice {
    fn new(machine: &Machine, cpus: usize, io: DriverKind, measured: &Measured) -> Self {
        let mut command = format!("taut serve --driver {io} --tls fused --shards {cpus}");
        let choice = aead::measured();
        let cell = choice.cells().first();
        let provider = cell.map_or("aws-lc", |cell| choice.fastest(cell.suite, cell.class, cell.direction).name());
        let aes = if machine.has("aes") { "AES-GCM runs in hardware" } else { "ChaCha20 suits a CPU without AES" };
        let rate = |io| {
            measured.echo(io).map_or_else(|| "was not measured".to_owned(), |e| format!("{} echoes/s", number(e.rate)))
        };
        let driver = format!("epoll {}, io_uring {}", rate(DriverKind::Epoll), rate(DriverKind::Uring));
        let mut reason =
            format!("{aes}, and {provider} is the fastest for small records; records are opened in place; {driver}; ");
        let mut otherwise = vec![
            format!("io_uring, if it were at least {:.0} % ahead of epoll here.", (AHEAD - 1.0) * 100.0),
            "A spinning driver, if a whole CPU per loop may be spent on latency.".to_owned(),
            "--ktls, if the network card encrypts TLS records (ethtool -k: tls-hw-tx-offload).".to_owned(),
        ];
        if measured.is_disturbed() {
            otherwise[0] = "Another driver, perhaps, if this is repeated while the machine is idle.".to_owned();
        } else if io == DriverKind::Uring {
            otherwise[0] = format!("epoll, if io_uring were less than {:.0} % ahead here.", (AHEAD - 1.0) * 100.0);
        }
        if cpus > 1 {
            command.push_str(" --pin");
            reason.push_str("pinned loops share nothing.");
            otherwise.push("Fewer loops and no --pin, if other programs need these CPUs, too.".to_owned());
        } else {
            reason.push_str("one loop fills one core.");
            otherwise.push("More loops and --pin, if this process had more than one CPU.".to_owned());
        }
        Self { command, reason, otherwise }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_has_a_meaning() {
        let machine = Machine::here();
        let findings = examine(&machine, &Kernel::probe(), &Measured::default());
        assert!(findings.len() >= 8);
        for finding in &findings {
            assert!(!finding.meaning.is_empty(), "{finding:?}");
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
        let advice = |cpus| Advice::new(&Machine::here(), cpus, DriverKind::Epoll, &Measured::default());
        assert!(!advice(1).command.contains("--pin"));
        assert!(advice(4).command.ends_with("--shards 4 --pin"));
        assert!(advice(1).otherwise.last().unwrap().contains("--pin"));
    }

    #[test]
    fn the_driver_that_is_ahead_is_recommended() {
        let echo = |driver, rate| measure::Echoed { driver, rate, p99_us: 1.0 };
        let measured = |uring| Measured {
            echoes: vec![echo(DriverKind::Epoll, 1000.0), echo(DriverKind::Uring, uring)],
            ..Measured::default()
        };
        assert_eq!(driver_to_use(&measured(1100.0), DriverKind::Epoll), DriverKind::Uring);
        assert_eq!(driver_to_use(&measured(1020.0), DriverKind::Uring), DriverKind::Epoll);
        assert_eq!(driver_to_use(&Measured::default(), DriverKind::Select), DriverKind::Select);
    }

    #[test]
    fn echoes_on_a_busy_machine_recommend_nothing() {
        let echo = |driver, rate| measure::Echoed { driver, rate, p99_us: 1.0 };
        let echoes = vec![echo(DriverKind::Epoll, 1000.0), echo(DriverKind::Uring, 3000.0)];
        let measured = Measured { echoes, others: Some(0.4), ..Measured::default() };
        assert_eq!(driver_to_use(&measured, DriverKind::Epoll), DriverKind::Epoll);
        let mut machine = Machine::here();
        machine.load_1min = Some(0.0);
        let load = placement(&machine, &measured).into_iter().find(|finding| finding.what == "load").unwrap();
        assert_eq!(load.verdict, Verdict::Note);
        assert_eq!(load.found, "0.0, others took 40 %");
        let advice = Advice::new(&machine, 2, DriverKind::Epoll, &measured);
        assert!(advice.otherwise[0].contains("idle"), "{:?}", advice.otherwise);
    }

    #[test]
    fn json_holds_everything() {
        let machine = Machine::here();
        let measured = Measured::default();
        let findings = examine(&machine, &Kernel::probe(), &measured);
        let advice = Advice::new(&machine, 2, DriverKind::Epoll, &measured);
        let json = to_json(&machine, &findings, &advice, &measured);
        assert!(json["run"].as_str().unwrap().starts_with("taut serve"));
        assert_eq!(json["findings"][0]["what"], "AES-GCM");
        assert!(json["machine"]["cpu"].is_string() && json["measured"]["syscall_ns"].is_number());
    }
}
