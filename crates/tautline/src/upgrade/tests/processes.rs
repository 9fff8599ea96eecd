//! Upgrades between real processes over TLS, while each step is killed, stopped and delayed on either side. Each client knows under
//! which sequence number each record was sealed, and no number may come twice.

use super::super::kind::Kind;
use super::super::{HandOver, HandOverError};
use super::process;
use super::relay::{Between, Deed, Plan, Who};
use crate::{Certificate, Config, Conn, Fused, Handler, Message, Opening, Server, ServerConfig, Tls};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::raw_peer::{RawPeer, kind, read_record};

/// The certificate of the servers, for their processes.
pub(super) const CHAIN: &str = "TAUTLINE_UPGRADE_TEST_CHAIN";
pub(super) const KEY: &str = "TAUTLINE_UPGRADE_TEST_KEY";
/// Connections of each upgrade.
const CLIENTS: usize = 4;
/// Upgrades at once. Most of their time they wait.
const AT_ONCE: usize = 12;
const PATIENCE: Duration = Duration::from_secs(90);

/// Answers, and speaks by itself all the time: both processes would seal whenever they may.
struct Talk;

impl Handler for Talk {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
        conn.set_timer(TICK, 1);
    }

    fn on_timer(&mut self, conn: &mut Conn<'_, ()>, id: u64) {
        conn.text("tick");
        conn.set_timer(TICK, id);
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.text(message.text().unwrap());
    }

    fn save_state(&mut self, (): &mut (), _: &mut Vec<u8>) -> bool {
        true
    }

    fn restore_state(&mut self, _: &[u8]) -> Option<()> {
        Some(())
    }
}

const TICK: Duration = Duration::from_millis(20);

fn server() -> Server<Fused> {
    let variable = |name| std::env::var(name).unwrap().into_bytes();
    let certificate = Certificate::new(variable(CHAIN), variable(KEY));
    let mut config = Config::default();
    config.upgrade.deflate = None;
    Server::new(Tls { engine: Fused, config: ServerConfig::new([certificate]) }).shards(2).config(config)
}

/// The old process: serves, hands over when its standard input says so, and reports.
pub(super) fn old_process(mut stream: UnixStream) {
    let old = server().listen("127.0.0.1:0".parse().unwrap()).start(|_| Talk).unwrap();
    println!("\nsays {}", old.addresses()[0]);
    stream.read_exact(&mut [0]).unwrap();
    match old.hand_over(stream, &HandOver::default()) {
        Ok(_) => {
            println!("\nsays done");
            old.join().unwrap();
        }
        Err(error) => {
            println!("\nsays {}", if matches!(error, HandOverError::Lost { .. }) { "lost" } else { "failed" });
            loop {
                std::thread::park();
            }
        }
    }
}

/// The new process: takes over, and serves or ends.
pub(super) fn new_process(stream: UnixStream) {
    match server().take_over(stream).start(|_| Talk) {
        Ok(server) => {
            println!("\nsays done");
            server.join().unwrap();
        }
        Err(_) => println!("\nsays failed"),
    }
}

/// The lines that a process says, until it ends.
fn words(child: &mut Child) -> Receiver<String> {
    let (tell, told) = channel();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let _ = line.strip_prefix("says ").map(|word| tell.send(word.to_owned()));
        }
    });
    told
}

/// A client that sends and receives all the time.
struct Client {
    stop: Arc<AtomicBool>,
    /// Its messages that were answered.
    answered: Arc<AtomicU64>,
    /// The fault that it saw, or whether its connection has ended.
    thread: JoinHandle<Result<bool, String>>,
}

impl Client {
    fn new(address: &str, roots: &str) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut peer = RawPeer::connect(&mut stream, roots, None);
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(&peer.seal(kind::DATA, request.as_bytes(), 0)).unwrap();
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, count) = (stop.clone(), answered.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                let number = count.load(Ordering::SeqCst);
                let text = format!("m{number:07}");
                let frame = [&[0x81, 0x88, 0, 0, 0, 0], text.as_bytes()].concat();
                if stream.write_all(&peer.seal(kind::DATA, &frame, 0)).is_err() {
                    return receive(&mut stream, &mut peer, "the end");
                }
                if receive(&mut stream, &mut peer, &text)? {
                    return Ok(true);
                }
                count.store(number + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(false)
        });
        Self { stop, answered, thread }
    }

    /// Whether it gets a further answer. False if its connection has ended.
    fn is_served(&self) -> bool {
        // One that is on its way may be of a process that has ended.
        let (goal, start) = (self.answered.load(Ordering::SeqCst) + 2, Instant::now());
        while self.answered.load(Ordering::SeqCst) < goal && !self.thread.is_finished() {
            assert!(start.elapsed() < PATIENCE, "a client is neither served nor closed");
            std::thread::sleep(Duration::from_millis(10));
        }
        !self.thread.is_finished()
    }

    fn finish(self) -> Result<bool, String> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

/// Reads records until one has this text. True if the connection ends before.
fn receive(stream: &mut TcpStream, peer: &mut RawPeer, text: &str) -> Result<bool, String> {
    loop {
        let Ok(record) = read_record(stream) else { return Ok(true) };
        let next = peer.rx.sequence();
        match peer.rx.find(&record) {
            Some((sequence, ..)) if sequence < next => {
                return Err(format!("sequence number {sequence} was used twice: the next one is {next}"));
            }
            Some((_, kind::DATA, content)) if content.windows(text.len()).any(|part| part == text.as_bytes()) => {
                return Ok(false);
            }
            Some((_, kind::ALERT, _)) => return Ok(true),
            Some(_) => {}
            None => return Err(format!("a record was sealed under no sequence number up to {next}")),
        }
    }
}

/// Ends the processes of a plan, also if it fails.
struct Ends(Arc<Between>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Whether somebody has to serve in the end.
fn expected(plan: Plan, between: &Between) -> Option<bool> {
    let is = |flag: &AtomicBool| flag.load(Ordering::SeqCst);
    match (is(&between.killed_old), is(&between.killed_new)) {
        (false, false) => Some(true),
        (false, true) => Some(!is(&between.running)),
        // It gives up if that came late, as it has to.
        (true, _) if is(&between.commit) && matches!(plan.deed, Deed::DelayAndKill(_) | Deed::StopAndKill(_)) => None,
        (true, _) => Some(is(&between.commit)),
    }
}

fn run(plan: Plan, authority: &Authority, (chain, key): (&str, &str)) {
    let variables = [(CHAIN, chain), (KEY, key)];
    let ((mut to_old, of_old), (to_new, of_new)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
    let mut old = process("tls-old -", of_old, &variables);
    let from_old = words(&mut old);
    let address = from_old.recv_timeout(PATIENCE).unwrap();
    let clients: Vec<_> = (0..CLIENTS).map(|_| Client::new(&address, authority.certificate())).collect();
    assert!(clients.iter().all(Client::is_served));
    to_old.write_all(&[1]).unwrap();
    let mut new = process("tls-new -", of_new, &variables);
    let from_new = words(&mut new);
    let between = Between::new(plan, old, new);
    let _ends = Ends(between.clone());
    let relays = between.relay(&to_old, &to_new);
    drop((to_old, to_new));
    // Each says how it ended, or was killed and says nothing.
    let (said_old, said_new) = (from_old.recv_timeout(PATIENCE), from_new.recv_timeout(PATIENCE));
    relays.into_iter().for_each(|relay| relay.join().unwrap());
    let said = format!("{plan:?}: the old process says {said_old:?}, the new one {said_new:?}");
    let served: Vec<_> = clients.iter().map(Client::is_served).collect();
    if said_old.as_deref() == Ok("lost") {
        // It listens on.
        let another = Client::new(&address, authority.certificate());
        assert!(another.is_served(), "{said}");
        another.finish().unwrap();
    }
    let expected = expected(plan, &between);
    for client in clients {
        if let Err(fault) = client.finish() {
            panic!("{said}: {fault}");
        }
    }
    if let Some(expected) = expected {
        assert_eq!(served, [expected; CLIENTS], "{said}");
    }
}

/// All plans that make a difference.
fn plans() -> Vec<Plan> {
    use Deed::{CutAndKill, Delay, DelayAndKill, KillAfter, KillBefore, KillSoonAfter, Repeat, Stop, StopAndKill};
    let steps = [
        Kind::Hello,
        Kind::Offered,
        Kind::Started,
        Kind::Ahead,
        Kind::End,
        Kind::Taken,
        Kind::Ready,
        Kind::Commit,
        Kind::Running,
        Kind::Resumed,
    ];
    let both = |deed: fn(Who) -> Deed| [deed(Who::Old), deed(Who::New)];
    let quick = [KillBefore, KillAfter, KillSoonAfter].into_iter().flat_map(both).chain([CutAndKill, Repeat]);
    let slow = [Stop, StopAndKill, DelayAndKill].into_iter().flat_map(both).chain([Delay]);
    let makes_sense = |plan: &Plan| match plan.deed {
        // A connection that is sent twice would be two: the rule is about the order of words, and not about their truth.
        Repeat => !matches!(plan.at, Kind::Ahead | Kind::Offered),
        // No kernel loses a word that was written, and the new process goes on once it has written this one.
        KillBefore(Who::New) => plan.at != Kind::Running,
        _ => true,
    };
    let quick = quick.flat_map(|deed| steps.map(|at| Plan { at, deed })).filter(makes_sense);
    // Where connections are at stake. Before, a late frame only ends the upgrade.
    let slow = slow.flat_map(|deed| steps[5..].iter().map(move |at| Plan { at: *at, deed }));
    quick.chain(slow).collect()
}

#[test]
fn no_sequence_number_is_used_twice_whatever_is_killed_stopped_or_late() {
    let authority = Authority::new("Test CA").unwrap();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    let [chain, key] = [&certificate.chain[..], &certificate.key[..]].map(|pem| str::from_utf8(pem).unwrap());
    let plans = Mutex::new(plans());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(plan) = { plans.lock().unwrap().pop() } {
                    run(plan, &authority, (chain, key));
                }
            });
        }
    });
}
