//! An echo over the XDP driver against the kernel's TCP, in both roles, also with lost and late frames.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

mod world;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tautline_buf::Buf;
use tautline_io::{Address, Arrival, Clock, Driver as _, End, ListenOptions, Listener, Received, Sent, Sink, Token};
use tautline_xdp::{Attach, Config, Copies, Driver, Faults};
use world::{INTERFACE, OURS, THEIRS, World, ip_of};

/// Time limit for each step.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Sends back received bytes, and pauses receiving while they are pending.
#[derive(Default)]
struct Echo {
    accepted: usize,
    failures: Vec<String>,
}

impl Sink for Echo {
    fn accepted(&mut self, _: &mut dyn tautline_io::Driver, _: Token, _: Listener) {
        self.accepted += 1;
    }
    fn connected(&mut self, _: &mut dyn tautline_io::Driver, _: Token) {}
    fn received(&mut self, driver: &mut dyn tautline_io::Driver, token: Token, data: Received<'_>) {
        let mut buf = Buf::new();
        buf.put(data.bytes());
        if let Sent::Pending = driver.send(token, buf) {
            driver.pause_receive(token, true);
        }
    }
    fn sent(&mut self, driver: &mut dyn tautline_io::Driver, token: Token, _: Buf) {
        driver.pause_receive(token, false);
    }
    fn ended(&mut self, driver: &mut dyn tautline_io::Driver, token: Token, end: End) {
        if let End::Failed(error) = end {
            self.failures.push(error.to_string());
        }
        driver.close(token, false);
    }
    fn woken(&mut self, _: &mut dyn tautline_io::Driver) {}
    fn accept_failed(&mut self, _: &mut dyn tautline_io::Driver, _: io::Error) {}
}

/// An echo server on our side, with a thread of its own.
struct Server {
    at: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Echo>,
}

impl Server {
    fn start(world: &World, config: Config) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (tell, told) = mpsc::channel();
        let space = world.ours().to_owned();
        let thread = thread::spawn(move || {
            world::enter_named(&space);
            let mut driver = world::opened(|| Driver::with(config.clone()));
            let at: Vec<_> = OURS.iter().map(|&address| listen(&mut driver, address)).collect();
            tell.send(at).unwrap();
            let mut echo = Echo::default();
            while !stopped.load(Ordering::Relaxed) {
                driver.turn(Some(Duration::from_millis(20)), &mut echo).unwrap();
            }
            echo
        });
        Self { at: told.recv().unwrap(), stop, thread }
    }

    fn stop(self) -> Echo {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn listen(driver: &mut Driver, address: &str) -> SocketAddr {
    let any = Address::Tcp(SocketAddr::new(ip_of(address), 0));
    let (_, Address::Tcp(at)) = driver.listen(&any, &ListenOptions::default()).unwrap() else { panic!("no TCP") };
    at
}

fn connect(at: SocketAddr) -> TcpStream {
    let peer = TcpStream::connect_timeout(&at, TIME_LIMIT).unwrap();
    peer.set_nodelay(true).unwrap();
    peer.set_read_timeout(Some(TIME_LIMIT)).unwrap();
    peer.set_write_timeout(Some(TIME_LIMIT)).unwrap();
    peer
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| i.wrapping_mul(31).wrapping_add(i >> 8).wrapping_add(seed).to_le_bytes()[0]).collect()
}

/// Writes and reads at the same time, because both directions must flow.
fn bulk(peer: TcpStream, data: Vec<u8>) {
    let (sent, mut writer) = (data.clone(), peer.try_clone().unwrap());
    let writer = thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut reply = Vec::new();
    (&peer).read_to_end(&mut reply).unwrap();
    writer.join().unwrap();
    assert!(reply == data, "the echo of {} bytes differs, {} came", data.len(), reply.len());
}

#[test]
fn echoes_over_both_families() {
    let Some(world) = World::new() else { return };
    let server = Server::start(&world, Config::new(INTERFACE));
    world.enter_theirs();
    for &at in &server.at {
        let mut peer = connect(at);
        for len in [1, 64, 1000, 1448, 1449, 16_000, 65_535, 65_536, 100_000] {
            let data = pattern(len, 1);
            let (sent, mut writer) = (data.clone(), peer.try_clone().unwrap());
            let writer = thread::spawn(move || writer.write_all(&sent).unwrap());
            let mut reply = vec![0; len];
            peer.read_exact(&mut reply).unwrap();
            assert!(reply == data, "{at} {len}");
            writer.join().unwrap();
        }
        bulk(peer, pattern(3 << 20, 2));
    }
    let echo = server.stop();
    assert_eq!((echo.accepted, echo.failures), (2, vec![]));
}

#[test]
fn one_driver_serves_all_queues() {
    let Some(world) = World::with_queues(4) else { return };
    let server = Server::start(&world, Config::new(INTERFACE));
    world.enter_theirs();
    // The kernel spreads connections over queues by a hash of their ports.
    let mut peers: Vec<_> = (0..64).map(|number| connect(server.at[number % 2])).collect();
    for (number, peer) in (0..).zip(&mut peers) {
        peer.write_all(&[number; 100]).unwrap();
        let mut reply = [0; 100];
        peer.read_exact(&mut reply).unwrap();
        assert_eq!(reply, [number; 100]);
    }
    bulk(peers.remove(0), pattern(1 << 20, 4));
    drop(peers);
    let echo = server.stop();
    assert_eq!((echo.accepted, echo.failures), (64, vec![]));
}

/// The defaults but for what `change` changes.
fn with(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config::new(INTERFACE);
    change(&mut config);
    config
}

/// Loses and delays frames in both directions.
fn faulty(lost: u32, late: u32) -> Config {
    with(|config| config.faults = Some(Faults { lost, late, seed: 7 }))
}

#[test]
fn lost_and_late_frames_only_delay_the_echo() {
    for (lost, late) in [(1_000, 0), (10_000, 0), (0, 50_000), (10_000, 20_000)] {
        let Some(world) = World::new() else { return };
        let server = Server::start(&world, faulty(lost, late));
        world.enter_theirs();
        let at = server.at[0];
        let peers: Vec<_> =
            (0..8).map(|seed| thread::spawn(move || bulk(connect(at), pattern(200_000, seed)))).collect();
        peers.into_iter().for_each(|peer| peer.join().unwrap());
        assert_eq!(server.stop().failures, Vec::<String>::new());
    }
}

#[test]
fn both_directions_full_do_not_deadlock() {
    let Some(world) = World::new() else { return };
    let server = Server::start(&world, Config::new(INTERFACE));
    world.enter_theirs();
    for seed in 0..3 {
        let peer = connect(server.at[0]);
        let data = pattern(12 << 20, seed);
        let (sent, mut writer) = (data.clone(), peer.try_clone().unwrap());
        let writer = thread::spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        // The reader is slower than the writer, so that both buffers of both sides fill.
        // `read_to_end` reads on where a signal interrupts it.
        let mut reply = Vec::new();
        while (&peer).take(100_000).read_to_end(&mut reply).unwrap() > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        writer.join().unwrap();
        assert!(reply == data, "{} of {} bytes", reply.len(), data.len());
    }
    server.stop();
}

#[test]
fn serves_a_thousand_connections() {
    let Some(world) = World::new() else { return };
    let _ = tautline_io::machine::raise_nofile_limit();
    let server = Server::start(&world, Config::new(INTERFACE));
    world.enter_theirs();
    let mut peers: Vec<_> = (0..1000).map(|number| connect(server.at[number % 2])).collect();
    for round in 0_u32..3 {
        for (number, peer) in (0_u32..).zip(&mut peers) {
            peer.write_all(&(number ^ round << 16).to_le_bytes()).unwrap();
        }
        for (number, peer) in (0_u32..).zip(&mut peers) {
            let mut reply = [0; 4];
            peer.read_exact(&mut reply).unwrap();
            assert_eq!(u32::from_le_bytes(reply), number ^ round << 16);
        }
    }
    drop(peers);
    let echo = server.stop();
    assert_eq!((echo.accepted, echo.failures), (1000, vec![]));
}

#[test]
fn the_kernel_keeps_all_other_traffic() {
    let Some(world) = World::new() else { return };
    let server = Server::start(&world, Config::new(INTERFACE));
    world.enter_ours();
    let beside = TcpListener::bind((ip_of(OURS[0]), 0)).unwrap();
    let at = beside.local_addr().unwrap();
    let taken = TcpListener::bind(server.at[0]).map(drop).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse, "the port is reserved in the kernel");
    world.enter_theirs();
    let mut peer = connect(at);
    let (mut accepted, _) = beside.accept().unwrap();
    peer.write_all(b"to the kernel").unwrap();
    let mut got = [0; 13];
    accepted.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"to the kernel");
    // ARP and neighbour discovery worked already; ICMP must too.
    for address in OURS {
        let ping = Command::new("ping").args(["-c", "1", "-W", "2", address]).output();
        if let Ok(ping) = ping {
            assert!(ping.status.success(), "{address}: {}", String::from_utf8_lossy(&ping.stdout));
        }
    }
    bulk(connect(server.at[0]), pattern(10_000, 0));
    let refused = SocketAddr::new(server.at[0].ip(), 1);
    assert_eq!(TcpStream::connect(refused).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    server.stop();
}

/// The warnings of all tests in this binary.
struct Warnings(Mutex<Vec<String>>);

static WARNINGS: Warnings = Warnings(Mutex::new(Vec::new()));

impl log::Log for Warnings {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }
    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            self.0.lock().unwrap().push(record.args().to_string());
        }
    }
    fn flush(&self) {}
}

#[test]
fn busy_polling_is_accepted_and_echoes() {
    let Some(world) = World::new() else { return };
    log::set_logger(&WARNINGS).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let busy_poll = Some(Duration::from_micros(20));
    let server = Server::start(&world, with(|config| config.busy_poll = busy_poll));
    world.enter_theirs();
    bulk(connect(server.at[0]), pattern(300_000, 5));
    assert_eq!(server.stop().failures, Vec::<String>::new());
    let refused = |line: &String| line.contains("does not busy-poll");
    assert!(!WARNINGS.0.lock().unwrap().iter().any(refused), "{:?}", WARNINGS.0.lock().unwrap());
    // A time above the kernel's limit is rejected, with a warning.
    let busy_poll = Some(Duration::from_secs(1 << 40));
    drop(Server::start(&world, with(|config| config.busy_poll = busy_poll)).stop());
    assert!(WARNINGS.0.lock().unwrap().iter().any(refused));
}

#[test]
fn echoes_in_generic_mode_with_copies() {
    let Some(world) = World::new() else { return };
    let mut config = Config::new(INTERFACE);
    config.attach = Attach::Generic;
    config.copies = Copies::Always;
    let server = Server::start(&world, config);
    world.enter_theirs();
    let mut peer = connect(server.at[0]);
    for len in [1, 64, 1000] {
        let data = pattern(len, 3);
        peer.write_all(&data).unwrap();
        let mut reply = vec![0; len];
        peer.read_exact(&mut reply).unwrap();
        assert!(reply == data);
    }
    server.stop();
}

/// Answers with several segments, and closes.
struct AnswerAndClose(Vec<u8>);

impl Sink for AnswerAndClose {
    fn accepted(&mut self, _: &mut dyn tautline_io::Driver, _: Token, _: Listener) {}
    fn connected(&mut self, _: &mut dyn tautline_io::Driver, _: Token) {}
    fn received(&mut self, driver: &mut dyn tautline_io::Driver, token: Token, _: Received<'_>) {
        let mut buf = Buf::new();
        buf.put(&self.0);
        let _ = driver.send(token, buf);
        driver.close(token, false);
        self.0.clear();
    }
    fn sent(&mut self, _: &mut dyn tautline_io::Driver, _: Token, _: Buf) {}
    fn ended(&mut self, _: &mut dyn tautline_io::Driver, _: Token, _: End) {}
    fn woken(&mut self, _: &mut dyn tautline_io::Driver) {}
    fn accept_failed(&mut self, _: &mut dyn tautline_io::Driver, _: io::Error) {}
}

#[test]
fn a_dropped_driver_finishes_closed_connections() {
    for faults in [None, Some(Faults { lost: 50_000, late: 50_000, seed: 5 })] {
        let Some(world) = World::new() else { return };
        world.enter_ours();
        let mut config = Config::new(INTERFACE);
        config.faults = faults;
        config.linger = TIME_LIMIT;
        let mut driver = Driver::with(config).unwrap();
        let at = listen(&mut driver, OURS[0]);
        world.enter_theirs();
        let data = pattern(300_000, 9);
        let (space, expected) = (world.theirs().to_owned(), data.clone());
        let peer = thread::spawn(move || {
            world::enter_named(&space);
            let (mut peer, idle) = (connect(at), connect(at));
            peer.write_all(b"all").unwrap();
            let mut reply = Vec::new();
            peer.read_to_end(&mut reply).unwrap();
            assert!(reply == expected, "{} bytes", reply.len());
            // An open connection is reset.
            (&idle).read_to_end(&mut reply).unwrap_err();
        });
        let mut answer = AnswerAndClose(data);
        while !answer.0.is_empty() {
            driver.turn(Some(Duration::from_millis(20)), &mut answer).unwrap();
        }
        let start = Instant::now();
        drop(driver);
        assert!(start.elapsed() < TIME_LIMIT, "{:?}", start.elapsed());
        peer.join().unwrap();
    }
}

/// Records when bytes arrived and were received. Asks for stamps at the third receive.
#[derive(Default)]
struct RecordArrivals(Vec<(Option<Arrival>, Option<u64>, u64)>);

impl Sink for RecordArrivals {
    fn accepted(&mut self, _: &mut dyn tautline_io::Driver, _: Token, _: Listener) {}
    fn connected(&mut self, _: &mut dyn tautline_io::Driver, _: Token) {}
    fn received(&mut self, driver: &mut dyn tautline_io::Driver, token: Token, data: Received<'_>) {
        self.0.push((driver.arrival(), driver.began(), monotonic()));
        if self.0.len() >= 3 {
            // Stamps begin in the middle of the connection. Further calls have no effect.
            driver.stamp_arrivals().unwrap();
        }
        let mut buf = Buf::new();
        buf.put(data.bytes());
        let _ = driver.send(token, buf);
    }
    fn sent(&mut self, _: &mut dyn tautline_io::Driver, _: Token, _: Buf) {}
    fn ended(&mut self, driver: &mut dyn tautline_io::Driver, token: Token, _: End) {
        driver.close(token, false);
    }
    fn woken(&mut self, _: &mut dyn tautline_io::Driver) {}
    fn accept_failed(&mut self, _: &mut dyn tautline_io::Driver, _: io::Error) {}
}

fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(Duration::try_from(now).unwrap().as_nanos()).unwrap()
}

#[test]
fn arrivals_are_stamped() {
    for attach in [Attach::Native, Attach::Generic] {
        let Some(world) = World::new() else { return };
        world.enter_ours();
        let mut driver = Driver::with(with(|config| config.attach = attach)).unwrap();
        let at = listen(&mut driver, OURS[0]);
        world.enter_theirs();
        let peer = thread::spawn({
            let space = world.theirs().to_owned();
            move || {
                world::enter_named(&space);
                let mut peer = connect(at);
                let mut sent = Vec::new();
                for _ in 0..10 {
                    thread::sleep(Duration::from_millis(5));
                    sent.push(monotonic());
                    peer.write_all(b"when?").unwrap();
                    peer.read_exact(&mut [0; 5]).unwrap();
                }
                sent
            }
        });
        let mut record = RecordArrivals::default();
        while !peer.is_finished() {
            driver.turn(Some(Duration::from_millis(1)), &mut record).unwrap();
        }
        let sent = peer.join().unwrap();
        assert_eq!(record.0.len(), sent.len(), "{attach:?}");
        for (number, (&(arrival, began, read), sent)) in record.0.iter().zip(sent).enumerate() {
            assert_eq!((arrival.is_some(), began.is_some()), (number >= 3, number >= 3), "{attach:?} {number}");
            let Some(arrival) = arrival else { continue };
            assert_eq!(arrival.clock, Clock::Monotonic);
            assert!((sent..=read).contains(&arrival.nanos), "{attach:?} {number}: {sent} {} {read}", arrival.nanos);
        }
    }
}

/// Connects, sends, and collects the reply.
struct Dialer {
    data: Vec<u8>,
    reply: Vec<u8>,
    ended: usize,
    failed: Vec<io::ErrorKind>,
    quit_at: usize,
}

impl Sink for Dialer {
    fn accepted(&mut self, _: &mut dyn tautline_io::Driver, _: Token, _: Listener) {}
    fn connected(&mut self, driver: &mut dyn tautline_io::Driver, token: Token) {
        let mut buf = Buf::new();
        buf.put(&self.data);
        let _ = driver.send(token, buf);
    }
    fn received(&mut self, driver: &mut dyn tautline_io::Driver, token: Token, data: Received<'_>) {
        self.reply.extend_from_slice(data.bytes());
        if self.reply.len() >= self.quit_at {
            driver.shutdown(token);
        }
    }
    fn sent(&mut self, _: &mut dyn tautline_io::Driver, _: Token, _: Buf) {}
    fn ended(&mut self, driver: &mut dyn tautline_io::Driver, token: Token, end: End) {
        if let End::Failed(error) = end {
            self.failed.push(error.kind());
        }
        self.ended += 1;
        driver.close(token, false);
    }
    fn woken(&mut self, _: &mut dyn tautline_io::Driver) {}
    fn accept_failed(&mut self, _: &mut dyn tautline_io::Driver, _: io::Error) {}
}

/// Starts an echo over the kernel's TCP.
fn kernel_echo(address: &str) -> SocketAddr {
    let listener = TcpListener::bind((ip_of(address), 0)).unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for peer in listener.incoming() {
            let (mut from, mut to) = (peer.as_ref().unwrap().try_clone().unwrap(), peer.unwrap());
            thread::spawn(move || {
                let _ = io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    });
    at
}

#[test]
fn connects_to_the_kernel() {
    for faults in [None, Some(Faults { lost: 10_000, late: 10_000, seed: 3 })] {
        let Some(world) = World::new() else { return };
        world.enter_theirs();
        let targets: Vec<_> = THEIRS.iter().map(|&address| kernel_echo(address)).collect();
        world.enter_ours();
        let mut driver = Driver::with(with(|config| config.faults = faults)).unwrap();
        let start = Instant::now();
        for (seed, &target) in targets.iter().cycle().take(6).enumerate() {
            let data = pattern(200_000, seed);
            let mut dialer = Dialer { quit_at: data.len(), data, reply: Vec::new(), ended: 0, failed: Vec::new() };
            driver.connect(&Address::Tcp(target)).unwrap();
            while dialer.ended == 0 {
                assert!(start.elapsed() < 2 * TIME_LIMIT, "{target}: {} bytes", dialer.reply.len());
                driver.turn(Some(Duration::from_millis(20)), &mut dialer).unwrap();
            }
            assert!(dialer.reply == dialer.data && dialer.failed.is_empty(), "{target}: {:?}", dialer.failed);
        }
        // No host has this address, which the kernel reports after a while.
        if faults.is_none() {
            let mut dialer = Dialer { data: vec![], reply: vec![], ended: 0, failed: vec![], quit_at: 0 };
            driver.connect(&"10.77.0.99:80".parse().unwrap()).unwrap();
            while dialer.ended == 0 && start.elapsed() < 2 * TIME_LIMIT {
                driver.turn(Some(Duration::from_millis(20)), &mut dialer).unwrap();
            }
            assert_eq!(dialer.failed, [io::ErrorKind::HostUnreachable]);
        }
    }
}

#[test]
fn errors_say_what_to_do() {
    let Some(world) = World::new() else { return };
    world.enter_ours();
    let fails = |interface: &str| Driver::new(interface).map(drop).unwrap_err().to_string();
    assert!(fails("nowhere0").contains("ip link"), "{}", fails("nowhere0"));
    let mut driver = Driver::new(INTERFACE).unwrap();
    assert!(fails(INTERFACE).contains("another"), "{}", fails(INTERFACE));
    let listen = driver.listen(&"127.0.0.1:80".parse().unwrap(), &ListenOptions::default());
    assert!(listen.unwrap_err().to_string().contains(OURS[0]));
    let connect = driver.connect(&"192.0.2.1:80".parse().unwrap());
    assert!(connect.unwrap_err().to_string().contains("route"));
    let unix = driver.connect(&"unix:/tmp/x".parse().unwrap());
    assert_eq!(unix.unwrap_err().kind(), io::ErrorKind::Unsupported);
    drop(driver);
    let says = || world::once_free(|| Some(fails(INTERFACE)).filter(|told| !told.contains("another")));
    world.ip(&["link", "set", INTERFACE, "down"]);
    assert!(says().contains("up"), "{}", says());
    world.ip(&["link", "set", INTERFACE, "up", "mtu", "9000"]);
    assert!(says().contains("mtu"), "{}", says());
}

/// Opens the driver in a process with only these capabilities and this limit on locked memory. Returns its message.
fn opened_with(world: &World, capabilities: &str, memlock: &str) -> String {
    let inheritable = format!("--inh-caps=-all{capabilities}");
    let child = Command::new("ip")
        // The user is root, so that the process can read this program anywhere.
        .args(["netns", "exec", world.ours(), "prlimit", &format!("--memlock={memlock}"), "setpriv"])
        .args([&inheritable, &format!("--ambient-caps=-all{capabilities}")])
        .args([&format!("--bounding-set=-all{capabilities}"), "--no-new-privs"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "errors_say_which_privilege_is_missing", "--nocapture"])
        .env(UNPRIVILEGED, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    let told = text.lines().find_map(|line| line.split_once("opened: ")).map(|(_, told)| told.to_owned());
    told.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&child.stderr)))
}

const UNPRIVILEGED: &str = "TAUTLINE_XDP_UNPRIVILEGED";

#[test]
fn errors_say_which_privilege_is_missing() {
    if std::env::var_os(UNPRIVILEGED).is_some() {
        // The frames take 2 MiB.
        let opened = Driver::with(with(|config| config.frames = 1024));
        println!("opened: {}", opened.map_or_else(|error| error.to_string(), |_| "well".to_owned()));
        return;
    }
    let Some(world) = World::new() else { return };
    const ALL: &str = ",+net_admin,+net_raw,+bpf";
    const ENOUGH: &str = "4194304";
    for (capabilities, memlock, expected) in [
        ("", ENOUGH, "cannot make a BPF map: Operation not permitted (os error 1); it takes root, or CAP_BPF"),
        (",+bpf", ENOUGH, "CAP_NET_ADMIN"),
        (
            ",+bpf,+net_admin",
            ENOUGH,
            "no AF_XDP socket on queue 0: Operation not permitted (os error 1); it takes root or CAP_NET_RAW",
        ),
        (ALL, "65536", "exceed the limit on locked memory: raise `ulimit -l`, or CAP_IPC_LOCK"),
        (ALL, ENOUGH, "well"),
        (",+net_admin,+net_raw,+bpf,+ipc_lock", "65536", "well"),
    ] {
        let told = opened_with(&world, capabilities, memlock);
        assert!(told.contains(expected), "{capabilities:?}, {memlock} locked: {told}");
    }
}

#[test]
fn loss_of_the_interface_ends_the_driver() {
    let (delete, down) = (["link", "delete", INTERFACE].as_slice(), ["link", "set", INTERFACE, "down"].as_slice());
    let (sleep, spin) = (Duration::ZERO, Duration::MAX);
    for (lost, spin, busy) in [(delete, sleep, false), (delete, spin, true), (down, sleep, true), (down, spin, false)] {
        let Some(world) = World::new() else { return };
        world.enter_ours();
        let mut driver = Driver::with(with(|config| config.spin = spin)).unwrap();
        let at = listen(&mut driver, OURS[0]);
        world.enter_theirs();
        let mut echo = Echo::default();
        let mut peer = None;
        if busy {
            let space = world.theirs().to_owned();
            let dialer = thread::spawn(move || {
                world::enter_named(&space);
                connect(at)
            });
            while !dialer.is_finished() {
                driver.turn(Some(Duration::from_millis(1)), &mut echo).unwrap();
            }
            peer = Some(dialer.join().unwrap());
        }
        world.ip(lost);
        let start = Instant::now();
        let timeout = if busy { Duration::from_millis(20) } else { 2 * TIME_LIMIT };
        let error = loop {
            assert!(start.elapsed() < TIME_LIMIT, "{lost:?} {spin:?} {busy}: not noticed");
            if let Err(error) = driver.turn(Some(timeout), &mut echo) {
                break error;
            }
        };
        assert!(error.to_string().contains("ip link set"), "{error}");
        drop((driver, peer));
        assert!(start.elapsed() < TIME_LIMIT, "{lost:?} {spin:?} {busy}: {:?}", start.elapsed());
    }
}

#[test]
fn a_killed_process_leaves_nothing_behind() {
    const CHILD: &str = "TAUTLINE_XDP_CHILD";
    if std::env::var_os(CHILD).is_some() {
        // This is the process that is killed: a driver in the namespace of its parent.
        let mut driver = Driver::new(INTERFACE).unwrap();
        let at = listen(&mut driver, OURS[0]);
        println!("listening {at}");
        loop {
            driver.turn(None, &mut Echo::default()).unwrap();
        }
    }
    let Some(world) = World::new() else { return };
    let mut child = Command::new("ip")
        .args(["netns", "exec", world.ours()])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "a_killed_process_leaves_nothing_behind", "--nocapture"])
        .env(CHILD, "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = io::BufRead::lines(io::BufReader::new(child.stdout.take().unwrap()));
    let at: SocketAddr = loop {
        let line = lines.next().expect("the child listens").unwrap();
        if let Some((_, at)) = line.split_once("listening ") {
            break at.parse().unwrap();
        }
    };
    world.enter_theirs();
    let mut peer = connect(at);
    peer.write_all(b"alive").unwrap();
    peer.read_exact(&mut [0; 5]).unwrap();
    assert!(world.ip(&["link", "show", INTERFACE]).contains("xdp"), "the program is not attached");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!world.ip(&["link", "show", INTERFACE]).contains("prog/xdp"), "the program is still attached");
    // The kernel resets the connection, at the latest when more bytes arrive.
    let _ = peer.write_all(b"dead?");
    let mut rest = Vec::new();
    assert!(peer.read_to_end(&mut rest).is_err() || rest.is_empty());
    let server = Server::start(&world, Config::new(INTERFACE));
    bulk(connect(server.at[0]), pattern(1000, 0));
    server.stop();
}
