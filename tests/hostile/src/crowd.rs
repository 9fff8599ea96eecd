//! A thousand attackers at once: they must not cost the server much memory, nor the honest their latency.

use crate::honest::Honest;
use crate::outcome::Result;
use crate::peer::Peer;
use crate::report::Row;
use crate::script::{Act, Begin, Expect, Over, Script, Step};
use crate::server::{Material, Server, Target};
use crate::tls;
use crate::wire::{self, BINARY, CONTINUES, PING, RSV1, TEXT, TEXT_BEGINS, deflated, header, masked, upgrade};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tautline_testkit::raw_peer::kind::HANDSHAKE;

/// The number of attackers.
const ATTACKERS: usize = 1_000;
/// Most growth of the server's resident memory.
const MOST_GROWTH: u64 = 64 << 20;
/// How many times the quiet latency an attack may make of the honest one.
const MOST_TIMES: f64 = 3.0;
/// A 99th percentile below this is good beside any quiet one: attackers and honest connections have the CPUs in common.
const FLOOR_MS: f64 = 100.0;
/// Measurements of one attack: a stall of the machine does not last for all of them.
const ROUNDS: usize = 3;
/// Time between two attackers' beginnings, so that a thousand begin within a second.
const PACE: Duration = Duration::from_millis(1);

const BUDGET: &str = "--memory-budget";

/// An attack by many.
struct Crowd {
    script: Script,
    /// The attack is begun anew when its steps are done, and not held.
    again: bool,
    /// It holds as much as the limits for each connection permit: only the budget of the process bounds the sum.
    needs_budget: bool,
}

fn crowds() -> Vec<Crowd> {
    let crowd = |name: &str, begin: Begin, steps: Vec<Step>| {
        let script = Script::new("1,000 attackers", name, steps, Expect::Gone).begin(begin);
        Crowd { script, again: false, needs_budget: false }
    };
    let slowly = Duration::from_millis(100);
    // 500 handshakes a second by all: more is a matter of the CPUs alone, which attackers and server have in common here.
    let seldom = Duration::from_secs(2);
    let hello = tls::hello().unwrap_or_default();
    let part = |len: usize| Step::Send([header(BINARY, 0x80, 1 << 20), vec![1; len]].concat());
    let bomb = Step::Send(masked(BINARY | RSV1, &deflated(&vec![0; 16 << 20])));
    let update = vec![Step::Record(HANDSHAKE, vec![24, 0, 0, 1, 1], 0), Step::NextKeys, Step::Pause(slowly)];
    vec![
        crowd("silence", Begin::Tcp, Vec::new()),
        crowd("half a request", Begin::Secure, vec![Step::Send(b"GET / HTTP/1.1\r\nHost:".to_vec())]),
        crowd("a byte of a request every 100 ms", Begin::Secure, vec![Step::Drip(upgrade(""), slowly)]),
        crowd("half a hello", Begin::Tcp, vec![Step::Wire(hello[..100.min(hello.len())].to_vec())]).tls(),
        crowd(
            "a stall before Finished",
            Begin::Tcp,
            vec![Step::Handshake(|flight, wire| if flight == 0 { wire } else { Vec::new() })],
        )
        .tls(),
        crowd("reconnecting", Begin::Open, vec![Step::Pause(seldom), Step::Reset]).again(),
        crowd(
            "plain requests",
            Begin::Secure,
            vec![Step::Send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()), Step::Pause(seldom)],
        )
        .again(),
        crowd("nine bytes of a message of 1 MiB", Begin::Open, vec![part(0)]),
        crowd("16 KiB of a message of 1 MiB", Begin::Open, vec![part(16 << 10)]),
        crowd("half a record", Begin::Open, vec![Step::Wire([&[23, 3, 3, 0x40, 0][..], &[0; 8_000]].concat())]).tls(),
        crowd(
            "empty fragments",
            Begin::Open,
            vec![
                Step::Send(masked(TEXT_BEGINS, b"")),
                Step::Times(100, vec![Step::Send(masked(CONTINUES, b"").repeat(20)), Step::Pause(slowly)]),
            ],
        ),
        crowd(
            "pings",
            Begin::Open,
            vec![Step::Times(100, vec![Step::Send(masked(PING, b"ping")), Step::Pause(slowly)])],
        ),
        crowd("deflate bombs", Begin::Deflate, vec![bomb, Step::Pause(seldom)]).again(),
        crowd("KeyUpdates with request", Begin::Open, vec![Step::Times(100, update)]).tls(),
        crowd("invalid frames", Begin::Open, vec![Step::Send(wire::unmasked(TEXT, b"bare")), Step::Pause(seldom)])
            .again(),
        crowd("1,000 KiB of a message of 1 MiB", Begin::Open, vec![part(1_000 << 10)]).needs_budget(),
        crowd(
            "echoes that nobody reads",
            Begin::Open,
            vec![Step::Times(100, vec![Step::Send(masked(BINARY, &[1; 16_000]))])],
        )
        .needs_budget(),
    ]
}

impl Crowd {
    fn again(self) -> Self {
        Self { again: true, ..self }
    }

    fn needs_budget(self) -> Self {
        Self { needs_budget: true, ..self }
    }

    fn tls(self) -> Self {
        Self { script: self.script.over(Over::Tls), ..self }
    }
}

/// Runs every attack by 1,000 against a server, for this long each, and reports each. Returns a reason for each left out.
pub(crate) fn run(
    taut: &Path,
    material: &Material,
    target: &Target,
    time: Duration,
    (wanted, mut report): (impl Fn(&Script) -> bool, impl FnMut(Row)),
) -> Result<Vec<String>> {
    let budget = budget(taut);
    let mut left_out = Vec::new();
    let chosen =
        (1..).zip(crowds()).filter(|(_, crowd)| crate::attack::applies(&crowd.script, target) && wanted(&crowd.script));
    for (number, crowd) in chosen {
        let further = match (crowd.needs_budget, budget) {
            (false, _) => vec!["--deflate"],
            (true, Some(option)) => vec!["--deflate", option, "32MiB"],
            (true, None) => {
                left_out.push(format!("{target}: {}: `taut serve` has no budget of memory", crowd.script.name));
                continue;
            }
        };
        let server = Server::start(taut, material, target, &further)?;
        let mut row = Row::new(target.to_string(), format!("1.{number}"), &crowd.script);
        row.expected = format!("growth below 64 MiB, p99 below {FLOOR_MS} ms or 3 times quiet");
        for _ in 0..ROUNDS {
            measure(&server, &crowd, time, &mut row)?;
            if row.passed {
                break;
            }
        }
        if let Err(error) = server.stop() {
            (row.outcome, row.passed) = (error.to_string(), false);
        }
        report(row);
    }
    Ok(left_out)
}

/// The option of `taut serve` for its budget of memory, if it has one.
fn budget(taut: &Path) -> Option<&'static str> {
    let help = Command::new(taut).args(["serve", "--help"]).output().ok()?;
    String::from_utf8_lossy(&help.stdout).contains(BUDGET).then_some(BUDGET)
}

/// Measures one attack.
fn measure(server: &Server, crowd: &Crowd, time: Duration, row: &mut Row) -> Result<()> {
    let begun = Instant::now();
    let descriptors = server.descriptors();
    let honest = Honest::begin(server)?;
    thread::sleep(Duration::from_secs(1));
    let quiet = honest.p99_since(0);
    let (before, _) = server.memory();
    server.forget_peak();
    let first = honest.samples();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        for number in 0..ATTACKERS {
            let stop = &stop;
            // Threads that mostly wait. Their stacks hold a handshake.
            let builder = thread::Builder::new().stack_size(512 << 10);
            builder.spawn_scoped(scope, move || attacker(server, crowd, number, stop))?;
        }
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    let p99 = honest.p99_since(first);
    row.p99 = Some(p99);
    row.growth = server.memory().1.saturating_sub(before);
    row.seconds = begun.elapsed().as_secs_f64();
    row.outcome = format!("p99 {p99:.1} ms, quiet {quiet:.1} ms");
    row.passed = row.growth <= MOST_GROWTH && p99 <= (MOST_TIMES * quiet).max(FLOOR_MS);
    if let Some(failure) = honest.failure() {
        (row.outcome, row.passed) = (failure, false);
    }
    drop(honest);
    if !server.settles_at(descriptors, Duration::from_secs(20)) {
        row.outcome = format!("{} descriptors, {descriptors} before", server.descriptors());
        row.passed = false;
    }
    Ok(())
}

/// One attacker of many, until it is told to stop.
fn attacker(server: &Server, crowd: &Crowd, number: usize, stop: &AtomicBool) {
    // The server and the honest come first: the attackers of the internet have CPUs of their own.
    let _ = rustix::process::nice(10);
    thread::sleep(PACE * u32::try_from(number).unwrap_or(0));
    let Act::Steps(steps) = &crowd.script.act else { return };
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut peer) = Peer::begin(server, crowd.script.begin) else { continue };
        if peer.act(server, steps, stop).is_err() {
            return;
        }
        while !crowd.again && !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20));
        }
    }
}
