//! An echo over the XDP driver, against the kernel's TCP at the other end, both ways round, with frames lost and late.

mod world;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tautline_io::{Address, Driver as _, End, ListenOptions, Listener, Received, Sent, Sink, Token};
use tautline_window::Buf;
use tautline_xdp::{Attach, Config, Copies, Driver, Faults};
use world::{INTERFACE, OURS, THEIRS, World, ip_of};

/// Sends back what it receives, and stops to receive while that pends.
#[derive(Default)]
struct Echo {
    accepted: usize,
    failures: Vec<String>,
}

impl Sink<Driver> for Echo {
    fn accepted(&mut self, _: &mut Driver, _: Token, _: Listener) {
        self.accepted += 1;
    }
    fn connected(&mut self, _: &mut Driver, _: Token) {}
    fn received(&mut self, driver: &mut Driver, token: Token, data: Received<'_>) {
        let mut buf = Buf::new();
        buf.put(data.bytes());
        if let Sent::Pending = driver.send(token, buf) {
            driver.pause_receive(token, true);
        }
    }
    fn sent(&mut self, driver: &mut Driver, token: Token, _: Buf) {
        driver.pause_receive(token, false);
    }
    fn ended(&mut self, driver: &mut Driver, token: Token, end: End) {
        if let End::Failed(error) = end {
            self.failures.push(error.to_string());
        }
        driver.close(token, false);
    }
    fn woken(&mut self, _: &mut Driver) {}
    fn accept_failed(&mut self, _: &mut Driver, _: io::Error) {}
}

/// An echo server on our side, on a thread of its own.
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
            let mut driver = Driver::with(config).unwrap();
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
    let peer = TcpStream::connect_timeout(&at, Duration::from_secs(20)).unwrap();
    peer.set_nodelay(true).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    peer.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    peer
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31).wrapping_add(i >> 8).wrapping_add(seed) & 0xff) as u8).collect()
}

/// Writes and reads at the same time, as both directions must flow.
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
