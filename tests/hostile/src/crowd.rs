//! A thousand attackers at once: they must not cost the server much memory, nor the honest their latency.

use crate::cpus::Cpus;
use crate::honest::Honest;
use crate::http2;
use crate::outcome::Result;
use crate::peer::Peer;
use crate::report::Row;
use crate::script::{Act, Begin, Expect, Over, Script, Step};
use crate::scripts::http2::{WINDOW, bomb, echo, streams};
use crate::server::{Material, Server, Target};
use crate::tls;
use crate::wire::{self, BINARY, CONTINUES, PING, RSV1, TEXT, TEXT_BEGINS, deflated, header, masked, upgrade};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tautline_testkit::raw_peer::kind::HANDSHAKE;

/// The number of attackers of a crowd.
const ATTACKERS: usize = 1_000;
/// The number of attackers that have connections with HTTP/2 and stay within their limits: each has up to 100 streams.
const CARRIERS: usize = 50;
/// Most growth of the server's resident memory.
const MOST_GROWTH: u64 = 64 << 20;
/// How many times the quiet latency an attack may make of the honest one.
const MOST_TIMES: f64 = 3.0;
/// Milliseconds that an amplifier, or an attack by HTTP/2, may add to it, if that is more.
const MOST_MORE: f64 = 2.0;
/// Measurements of one attack: a stall of the machine does not last for all of them.
const ROUNDS: usize = 3;
/// Time between two attackers' beginnings, so that a thousand begin within a second.
const PACE: Duration = Duration::from_millis(1);
/// Time between two connections of one attacker: 500 handshakes a second by all. More is a matter of the server's CPU
/// alone.
const SELDOM: Duration = Duration::from_secs(2);
/// Time between two looks of an attacker whether it is to end, while it only holds its connection. Fifty thousand looks a second
/// by all of them would themselves delay the honest.
const LOOK: Duration = Duration::from_millis(250);
/// Longest wait for one write of an attacker. Then it only holds its connection.
const WRITE_PATIENCE: Duration = Duration::from_secs(1);
/// Longest wait until every attacker has begun.
const PATIENCE: Duration = Duration::from_secs(30);

const BUDGET: &str = "--memory-budget";

/// An attack by many.
struct Crowd {
    script: Script,
    /// The attack is begun anew when its steps are done, and not held.
    again: bool,
    /// It holds as much as the limits for each connection permit: only the budget of the process bounds the sum.
    needs_budget: bool,
    /// The number of attackers. One that asks for much, as fast as it is answered, is an amplifier.
    attackers: usize,
}

/// The attacks over all protocols.
fn crowds() -> Vec<Crowd> {
    let mut all = over_http1();
    all.extend(over_http2());
    all.extend(within_limits());
    all
}

/// The floods of HTTP/2, each by one attacker who comes again as soon as the server has ended its connection.
fn over_http2() -> impl Iterator<Item = Crowd> {
    crate::scripts::http2::floods().into_iter().map(|(name, bytes)| {
        let crowd = amplifier(name, Begin::Http2, bytes);
        Crowd { script: Script { group: "HTTP/2", ..crowd.script.over(Over::Http2) }, ..crowd }
    })
}

/// Attackers with HTTP/2 that stay below the limits of a connection, so that the server ends none of them.
fn within_limits() -> Vec<Crowd> {
    let crowd = |name: &str, steps: Vec<Step>| {
        let script = Script::new("HTTP/2", name, steps, Expect::Gone).begin(Begin::Http2).over(Over::Http2);
        Crowd { script, again: false, needs_budget: false, attackers: CARRIERS }
    };
    let each = |number: u32, frames: &dyn Fn(u32) -> Vec<u8>| Step::Send(streams(number).flat_map(frames).collect());
    let (often, seldom) = (Duration::from_millis(100), Duration::from_millis(500));
    // 18 streams a second, of 20 that may be reset.
    let streams_at_pace = |frames: &dyn Fn(u32) -> Vec<u8>| {
        let numbers: Vec<u32> = streams(9 * 60).collect();
        let turns = numbers.chunks(9).map(|some| Step::Send(some.iter().copied().flat_map(frames).collect()));
        turns.flat_map(|turn| [turn, Step::Discard, Step::Pause(seldom)]).collect::<Vec<_>>()
    };
    let one_byte = Step::Send([http2::window(1, 1), http2::window(0, 1)].concat());
    vec![
        crowd("100 requests on each connection whose bodies never come", vec![each(100, &http2::post)]),
        crowd("100 WebSockets on each connection that say nothing", vec![each(100, &http2::websocket)]),
        crowd(
            "echoes to windows that open byte by byte",
            vec![
                Step::Send(http2::setting(WINDOW, 1)),
                each(50, &echo),
                Step::Times(300, vec![one_byte, Step::Pause(often)]),
            ],
        )
        .needs_budget(),
        crowd("resets within the limit", streams_at_pace(&|one| [http2::get(one), http2::reset(one)].concat())),
        crowd("bombs of compressed fields within the limit", streams_at_pace(&|one| bomb(one, 700))),
        crowd(
            "pings within the limit",
            vec![Step::Times(60, vec![Step::Send(http2::ping().repeat(90)), Step::Discard, Step::Pause(seldom)])],
        ),
    ]
}

fn over_http1() -> Vec<Crowd> {
    let crowd = |name: &str, begin: Begin, steps: Vec<Step>| {
        let script = Script::new("1,000 attackers", name, steps, Expect::Gone).begin(begin);
        Crowd { script, again: false, needs_budget: false, attackers: ATTACKERS }
    };
    let slowly = Duration::from_millis(100);
    let hello = tls::hello().unwrap_or_default();
    let part = |len: usize| Step::Send([header(BINARY, 0x80, 1 << 20), vec![1; len]].concat());
    let bomb = Step::Send(masked(BINARY | RSV1, &deflated(&vec![0; 16 << 20])));
    let update = vec![Step::Record(HANDSHAKE, vec![24, 0, 0, 1, 1], 0), Step::NextKeys, Step::Pause(slowly)];
    vec![
        crowd("silence", Begin::Tcp, Vec::new()),
        crowd("half a request", Begin::Secure, vec![Step::Send(b"GET / HTTP/1.1\r\nHost:".to_vec())]),
        crowd("a byte of a request every 100 ms", Begin::Secure, vec![Step::Drip(upgrade(""), slowly)]),
        crowd("half a hello", Begin::Tcp, vec![Step::Wire(hello[..100.min(hello.len())].to_vec())]).tls(),
        crowd("a byte of a hello every 100 ms", Begin::Tcp, vec![Step::Drip(hello.clone(), slowly)]).tls(),
        crowd(
            "hellos with 256 KiB behind them",
            Begin::Tcp,
            vec![Step::Wire([hello.clone(), vec![0; 256 << 10]].concat()), Step::Pause(SELDOM)],
        )
        .tls()
        .again(),
        crowd(
            "a stall before Finished",
            Begin::Tcp,
            vec![Step::Handshake(|flight, wire| if flight == 0 { wire } else { Vec::new() })],
        )
        .tls(),
        crowd("reconnecting", Begin::Open, vec![Step::Pause(SELDOM), Step::Reset]).again(),
        crowd(
            "plain requests",
            Begin::Secure,
            vec![Step::Send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()), Step::Pause(SELDOM)],
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
        crowd("deflate bombs", Begin::Deflate, vec![bomb, Step::Pause(SELDOM)]).again(),
        crowd("KeyUpdates with request", Begin::Open, vec![Step::Times(100, update)]).tls(),
        crowd("invalid frames", Begin::Open, vec![Step::Send(wire::unmasked(TEXT, b"bare")), Step::Pause(SELDOM)])
            .again(),
        crowd("1,000 KiB of a message of 1 MiB", Begin::Open, vec![part(1_000 << 10)]).needs_budget(),
        crowd(
            "echoes that nobody reads",
            Begin::Open,
            vec![Step::Times(100, vec![Step::Send(masked(BINARY, &[1; 16_000]))])],
        )
        .needs_budget(),
        amplifier("echoes of 125 bytes", Begin::Open, masked(BINARY, &[1; 125]).repeat(1_000)),
        amplifier("echoes of 1,000 KiB", Begin::Open, masked(BINARY, &vec![1; 1_000 << 10])),
        amplifier("pings without a pause", Begin::Open, masked(PING, b"ping").repeat(2_000)),
        amplifier(
            "messages that inflate a hundredfold",
            Begin::Deflate,
            masked(BINARY | RSV1, &deflated(&vec![0; 64 << 10])).repeat(100),
        ),
        amplifier("requests without a pause", Begin::Secure, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(200)),
    ]
}

/// One attacker that sends this again and again, and reads the answers.
fn amplifier(name: &str, begin: Begin, bytes: Vec<u8>) -> Crowd {
    let steps = vec![Step::Send(bytes), Step::Discard];
    let script = Script::new("amplifiers", name, steps, Expect::Gone).begin(begin);
    Crowd { script, again: true, needs_budget: false, attackers: 1 }
}

impl Crowd {
    fn again(self) -> Self {
        Self { again: true, ..self }
    }

    /// The highest honest latency beside it, in milliseconds.
    fn most(&self, quiet: f64) -> f64 {
        let more = if self.may_add() { MOST_MORE } else { 0.0 };
        (MOST_TIMES * quiet).max(quiet + more)
    }

    /// The rest of the expectation.
    fn or_more(&self) -> String {
        if self.may_add() { format!(", or {MOST_MORE} ms more") } else { String::new() }
    }

    fn may_add(&self) -> bool {
        self.attackers == 1 || self.script.over == Over::Http2
    }

    fn needs_budget(self) -> Self {
        Self { needs_budget: true, ..self }
    }

    fn tls(self) -> Self {
        Self { script: self.script.over(Over::Tls), ..self }
    }
}

/// Runs every attack by 1,000 against a server, for this long each and after as long a quiet time, and reports each. Returns
/// a reason for each left out.
pub(crate) fn run(
    taut: &Path,
    material: &Material,
    target: &Target,
    time: Duration,
    (wanted, mut report): (impl Fn(&Script) -> bool, impl FnMut(Row)),
) -> Result<Vec<String>> {
    let (budget, cpus) = (budget(taut), Cpus::divide()?);
    let mut left_out = Vec::new();
    let chosen =
        (1..).zip(crowds()).filter(|(_, crowd)| crate::attack::applies(&crowd.script, target) && wanted(&crowd.script));
    for (number, crowd) in chosen {
        let further = match (crowd.needs_budget, budget) {
            (false, _) => vec!["--pin", "--deflate"],
            (true, Some(option)) => vec!["--pin", "--deflate", option, "32MiB"],
            (true, None) => {
                left_out.push(format!("{target}: {}: `taut serve` has no budget of memory", crowd.script.name));
                continue;
            }
        };
        let server = Server::start(taut, material, target, &further)?;
        let mut row = Row::new(target.to_string(), format!("1.{number}"), &crowd.script);
        row.expected = format!("growth below 64 MiB, p99 below {MOST_TIMES} times quiet{}", crowd.or_more());
        for _ in 0..ROUNDS {
            if let Err(error) = measure((&server, &cpus), &crowd, time, &mut row) {
                (row.outcome, row.passed) = (error.to_string(), false);
            }
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
    crate::server::offers(taut, BUDGET).then_some(BUDGET)
}

/// Measures one attack.
fn measure((server, cpus): (&Server, &Cpus), crowd: &Crowd, time: Duration, row: &mut Row) -> Result<()> {
    let begun = Instant::now();
    let descriptors = server.descriptors();
    let honest = Honest::begin(server, true)?;
    thread::sleep(time);
    let quiet = honest.p99(1)?;
    let (before, _) = server.memory();
    server.forget_peak();
    let (stop, begun_by) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| -> Result<()> {
        for number in 0..crowd.attackers {
            let (stop, begun_by) = (&stop, &begun_by);
            // Threads that mostly wait. Their stacks hold a handshake.
            let builder = thread::Builder::new().stack_size(512 << 10);
            builder.spawn_scoped(scope, move || {
                // One that stays would be counted as missing.
                if cpus.leave_server().is_ok() {
                    attacker(server, crowd, number, (stop, begun_by));
                }
            })?;
        }
        // On a busy machine the attackers, which come last, need longer to begin.
        while begun_by.load(Ordering::Relaxed) < crowd.attackers && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    row.growth = server.memory().1.saturating_sub(before);
    row.seconds = begun.elapsed().as_secs_f64();
    let p99 = honest.p99(1)?;
    row.p99 = Some(p99);
    row.outcome = format!("p99 {p99:.2} ms, {:.1} times the quiet {quiet:.2} ms", p99 / quiet);
    row.passed = row.growth <= MOST_GROWTH && p99 <= crowd.most(quiet);
    let attackers = begun_by.into_inner();
    if attackers < crowd.attackers {
        (row.outcome, row.passed) = (format!("only {attackers} attackers began within {PATIENCE:?}"), false);
    }
    drop(honest);
    if !server.settles_at(descriptors, Duration::from_secs(20)) {
        row.outcome = format!("{} descriptors, {descriptors} before", server.descriptors());
        row.passed = false;
    }
    Ok(())
}

/// One attacker of many, until it is told to stop. It counts itself once it has begun, or was refused.
fn attacker(server: &Server, crowd: &Crowd, number: usize, (stop, begun_by): (&AtomicBool, &AtomicUsize)) {
    // The honest come first where the machine has one CPU, and the server's other threads where it has more.
    let _ = tautline::layers::io::machine::run_when_idle();
    thread::sleep(PACE * u32::try_from(number).unwrap_or(0));
    let Act::Steps(steps) = &crowd.script.act else { return };
    let mut is_first = true;
    while !stop.load(Ordering::Relaxed) {
        let peer = Peer::begin(server, crowd.script.begin);
        if std::mem::take(&mut is_first) {
            begun_by.fetch_add(1, Ordering::Relaxed);
        }
        let Ok(mut peer) = peer else {
            // It comes again, but no more often than those that are let in.
            thread::sleep(SELDOM);
            continue;
        };
        let patient = peer.stream.set_write_timeout(Some(WRITE_PATIENCE)).is_ok();
        if crowd.attackers == 1 {
            // A connection that the server ends is begun anew.
            while !stop.load(Ordering::Relaxed) && peer.act(server, steps, stop).unwrap_or(false) {}
            continue;
        }
        if !patient || peer.act(server, steps, stop).is_err() {
            return;
        }
        while !crowd.again && !stop.load(Ordering::Relaxed) {
            thread::sleep(LOOK);
        }
    }
}
