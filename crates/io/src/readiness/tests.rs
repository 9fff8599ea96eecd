//! Tests of the epoll driver alone; `tests/suite` has the tests of every driver.

use crate::epoll::{Config, Driver};
use crate::{Address, Driver as _, End, ListenOptions, Listener, Received, Sent, Sink, Token, socket};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use rustix::net::sockopt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tautline_buf::Buf;

#[derive(Default)]
struct Log {
    woken: usize,
    accepted: Vec<Token>,
    lengths: Vec<usize>,
    ended: usize,
    /// Whether no connection is to be accepted.
    is_full: bool,
}

impl Sink for Log {
    fn may_accept(&self) -> bool {
        !self.is_full
    }
    fn accepted(&mut self, _: &mut dyn crate::Driver, token: Token, _: Listener) {
        self.accepted.push(token);
    }
    fn connected(&mut self, _: &mut dyn crate::Driver, _: Token) {}
    fn received(&mut self, _: &mut dyn crate::Driver, _: Token, data: Received<'_>) {
        self.lengths.push(data.len());
    }
    fn sent(&mut self, _: &mut dyn crate::Driver, _: Token, _: Buf) {}
    fn ended(&mut self, _: &mut dyn crate::Driver, _: Token, _: End) {
        self.ended += 1;
    }
    fn woken(&mut self, _: &mut dyn crate::Driver) {
        self.woken += 1;
    }
    fn accept_failed(&mut self, _: &mut dyn crate::Driver, _: io::Error) {}
}

fn connected(driver: &mut Driver) -> (TcpStream, Token, Log) {
    let any = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    let Ok((_, Address::Tcp(at))) = driver.listen(&any, &ListenOptions::default()) else { panic!("cannot listen") };
    let peer = TcpStream::connect(at).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut log = Log::default();
    driver.turn(Some(Duration::from_secs(20)), &mut log).unwrap();
    let token = log.accepted[0];
    (peer, token, log)
}

#[test]
fn accepted_connections_do_not_delay() {
    let mut driver = Driver::new().unwrap();
    let (_peer, token, _) = connected(&mut driver);
    assert!(sockopt::tcp_nodelay(&driver.slots.get(token).unwrap().fd).unwrap(), "inherited from the listener");
}

#[test]
fn connections_wait_in_the_backlog_until_the_sink_takes_them() {
    let mut driver = Driver::new().unwrap();
    let any = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    let Ok((_, Address::Tcp(at))) = driver.listen(&any, &ListenOptions::default()) else { panic!("cannot listen") };
    let _peers = [(); 2].map(|()| TcpStream::connect(at).unwrap());
    let mut log = Log { is_full: true, ..Log::default() };
    for _ in 0..2 {
        driver.turn(Some(Duration::from_secs(20)), &mut log).unwrap();
        assert!(log.accepted.is_empty());
    }
    log.is_full = false;
    driver.turn(Some(Duration::from_secs(20)), &mut log).unwrap();
    assert_eq!(log.accepted.len(), 2);
}

#[test]
fn peers_are_known_by_their_addresses() {
    let mut driver = Driver::new().unwrap();
    let (peer, token, mut log) = connected(&mut driver);
    let Ok(Address::Tcp(at)) = socket::local(driver.slots.get(token).unwrap().fd.as_fd()) else { panic!("no address") };
    let second = TcpStream::connect(at).unwrap();
    driver.turn(Some(Duration::from_secs(20)), &mut log).unwrap();
    for (peer, token) in [&peer, &second].into_iter().zip(&log.accepted) {
        assert_eq!(driver.peer(*token), Some(Address::Tcp(peer.local_addr().unwrap())));
        assert_eq!(driver.local(*token), Some(Address::Tcp(at)));
    }
    driver.close(token, false);
    assert_eq!((driver.peer(token), driver.local(token)), (None, None));
}

#[test]
fn no_more_connections_are_asked_for_than_came_before() {
    let mut driver = Driver::new().unwrap();
    let (peer, token, mut log) = connected(&mut driver);
    assert_eq!(driver.expected, 1);
    let Ok(Address::Tcp(at)) = socket::local(driver.slots.get(token).unwrap().fd.as_fd()) else { panic!("no address") };
    let _peers =
        [peer, TcpStream::connect(at).unwrap(), TcpStream::connect(at).unwrap(), TcpStream::connect(at).unwrap()];
    for (accepted, expected) in [(2, 2), (4, 3)] {
        driver.turn(Some(Duration::from_secs(20)), &mut log).unwrap();
        assert_eq!((log.accepted.len(), driver.expected), (accepted, expected));
    }
    driver.turn(Some(Duration::ZERO), &mut log).unwrap();
    assert_eq!(driver.expected, 3, "the kernel reports nobody, so nobody is asked for");
}

#[test]
fn bytes_and_the_end_behind_them_take_one_turn() {
    let mut driver = Driver::new().unwrap();
    let (mut peer, token, mut log) = connected(&mut driver);
    peer.write_all(b"bye").unwrap();
    drop(peer);
    let fd = driver.slots.get(token).unwrap().fd.as_fd();
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::RDHUP)], None).unwrap();
    driver.turn(Some(Duration::from_secs(20)), &mut log).unwrap();
    assert_eq!((log.lengths.as_slice(), log.ended), (&[3][..], 1));
    assert_eq!(driver.next_work(), None, "nothing is left for a turn of its own");
}

#[test]
fn sizes_of_the_configuration_hold() {
    let config = Config { receive_buffer: 10, headroom: 3, events_per_turn: 1, ..Config::default() };
    let mut driver = Driver::with(config).unwrap();
    let (mut peer, _, mut log) = connected(&mut driver);
    peer.write_all(&[7; 25]).unwrap();
    while log.lengths.iter().sum::<usize>() < 25 {
        driver.turn(Some(Duration::from_secs(20)), &mut log).unwrap();
    }
    assert_eq!(log.lengths, [10, 10, 5]);
    let zero = Config { receive_buffer: 0, headroom: 0, events_per_turn: 0, accepts_per_turn: 0, ..Config::default() };
    let mut driver = Driver::with(zero).unwrap();
    let (mut peer, _, mut log) = connected(&mut driver);
    peer.write_all(&[7; 3]).unwrap();
    while log.lengths.len() < 3 {
        driver.turn(Some(Duration::from_secs(20)), &mut log).unwrap();
    }
    assert_eq!(log.lengths, [1, 1, 1]);
}

#[test]
fn a_closed_connection_lingers_for_its_time_only() {
    let linger = Duration::from_millis(80);
    let mut driver = Driver::with(Config { linger, ..Config::default() }).unwrap();
    let (mut peer, token, mut log) = connected(&mut driver);
    let mut pending = false;
    while !pending {
        let mut buf = Buf::new();
        buf.put(&[1; 1 << 20]);
        pending = matches!(driver.send(token, buf), Sent::Pending);
    }
    driver.close(token, false);
    let closed = Instant::now();
    while driver.deferred.next().is_some() {
        assert!(closed.elapsed() < Duration::from_secs(20));
        driver.turn(None, &mut log).unwrap();
    }
    assert!(closed.elapsed() >= linger, "it had no chance");
    let mut all = Vec::new();
    assert_eq!(peer.read_to_end(&mut all).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn a_panicking_sink_costs_nothing_but_its_turn() {
    struct Panic;
    impl Sink for Panic {
        fn accepted(&mut self, _: &mut dyn crate::Driver, _: Token, _: Listener) {}
        fn connected(&mut self, _: &mut dyn crate::Driver, _: Token) {}
        fn received(&mut self, _: &mut dyn crate::Driver, _: Token, _: Received<'_>) {
            std::panic::resume_unwind(Box::new("quietly"));
        }
        fn sent(&mut self, _: &mut dyn crate::Driver, _: Token, _: Buf) {}
        fn ended(&mut self, _: &mut dyn crate::Driver, _: Token, _: End) {}
        fn woken(&mut self, _: &mut dyn crate::Driver) {
            std::panic::resume_unwind(Box::new("quietly"));
        }
        fn accept_failed(&mut self, _: &mut dyn crate::Driver, _: io::Error) {}
    }
    let mut driver = Driver::new().unwrap();
    let (mut peer, _, mut log) = connected(&mut driver);
    peer.write_all(b"x").unwrap();
    driver.waker().wake();
    let turn = std::panic::AssertUnwindSafe(|| driver.turn(Some(Duration::from_secs(20)), &mut Panic));
    assert!(std::panic::catch_unwind(turn).is_err());
    // The event that the panicking turn did not deliver is still there.
    driver.turn(Some(Duration::from_secs(20)), &mut log).unwrap();
    assert_eq!(log.lengths.len() + log.woken, 1);
    peer.write_all(b"still there").unwrap();
    driver.turn(Some(Duration::from_secs(20)), &mut log).unwrap();
    assert_eq!(log.lengths.last(), Some(&11));
}

#[test]
fn a_reading_unix_peer_does_not_wake_the_driver() {
    let path = std::env::temp_dir().join(format!("tautline-io-{}.sock", std::process::id()));
    let peers = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mut driver = Driver::new().unwrap();
    let mut log = Log::default();
    // Connecting watches for room to send, which Unix sockets report whenever the peer reads.
    let token = driver.connect(&Address::Unix(path.clone())).unwrap();
    let (mut peer, _) = peers.accept().unwrap();
    std::fs::remove_file(path).unwrap();
    driver.turn(Some(Duration::from_secs(20)), &mut log).unwrap();
    let wait = Duration::from_millis(20);
    let mut slept = Vec::new();
    for _ in 0..4 {
        let mut buf = Buf::new();
        buf.put(b"x");
        assert!(matches!(driver.send(token, buf), Sent::Done(_)));
        peer.read_exact(&mut [0]).unwrap();
        let start = Instant::now();
        driver.turn(Some(wait), &mut log).unwrap();
        slept.push(start.elapsed() >= wait);
    }
    assert_eq!(slept[1..], [true; 3], "only the first may be in vain");
}
