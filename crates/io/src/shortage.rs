//! A kernel that has no memory for a moment, made up for tests: nothing may be lost by it.

use crate::{Address, Driver, End, ListenOptions, Listener, Received, Sent, Sink, Token, epoll, select};
use rustix::io::Errno;
use std::cell::RefCell;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use tautline_buf::Buf;

thread_local! {
    static COMING: RefCell<Vec<Errno>> = const { RefCell::new(Vec::new()) };
}

/// Lets the next calls of this thread that send or accept fail so often.
fn begin(errno: Errno, times: usize) {
    COMING.with_borrow_mut(|coming| *coming = vec![errno; times]);
}

fn is_over() -> bool {
    COMING.with_borrow(Vec::is_empty)
}

/// Fails where it is time to.
pub(crate) fn strike() -> Result<(), Errno> {
    COMING.with_borrow_mut(Vec::pop).map_or(Ok(()), Err)
}

#[derive(Default)]
struct Log {
    accepted: Vec<Token>,
    refused: Vec<io::ErrorKind>,
    sent: usize,
    ended: Vec<String>,
}

impl Sink for Log {
    fn accepted(&mut self, _: &mut dyn Driver, token: Token, _: Listener) {
        self.accepted.push(token);
    }
    fn connected(&mut self, _: &mut dyn Driver, _: Token) {}
    fn received(&mut self, _: &mut dyn Driver, _: Token, _: Received<'_>) {}
    fn sent(&mut self, _: &mut dyn Driver, _: Token, _: Buf) {
        self.sent += 1;
    }
    fn ended(&mut self, _: &mut dyn Driver, _: Token, end: End) {
        self.ended.push(format!("{end:?}"));
    }
    fn woken(&mut self, _: &mut dyn Driver) {}
    fn accept_failed(&mut self, _: &mut dyn Driver, error: io::Error) {
        self.refused.push(error.kind());
    }
}

fn run(driver: &mut dyn Driver, log: &mut Log, mut done: impl FnMut(&Log) -> bool) {
    let start = Instant::now();
    while !done(log) {
        assert!(start.elapsed() < Duration::from_secs(20), "nothing more happens: {:?}", log.ended);
        driver.turn(Some(Duration::from_millis(20)), log).unwrap();
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect()
}

/// `accepts` is whether accepting is a call that can fail, and no request.
fn loses_nothing<D: Driver>(make: fn() -> io::Result<D>, accepts: bool) {
    for errno in [Errno::NOBUFS, Errno::NOMEM] {
        let (mut driver, mut log) = (make().unwrap(), Log::default());
        let any = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let Ok((_, Address::Tcp(at))) = driver.listen(&any, &ListenOptions::default()) else { panic!("cannot listen") };
        let read = |mut peer: TcpStream| {
            thread::spawn(move || {
                let mut all = Vec::new();
                peer.read_to_end(&mut all).map(|_| all)
            })
        };
        if accepts {
            begin(errno, 2);
        }
        let peers = [(); 2].map(|()| read(TcpStream::connect(at).unwrap()));
        run(&mut driver, &mut log, |log| log.accepted.len() == 2);
        assert_eq!(log.refused.len(), usize::from(accepts), "told once: {:?}", log.refused);
        // All at once, in a flood of failures, with more behind it; then closed before any of it left.
        let [slow, closed] = log.accepted[..] else { panic!("two") };
        let data = pattern(300_000);
        begin(errno, 7);
        let mut buf = Buf::new();
        buf.put(&data);
        assert!(matches!(driver.send(slow, buf), Sent::Pending));
        assert_eq!(driver.unsent(slow), data.len());
        run(&mut driver, &mut log, |log| log.sent == 1);
        assert!(is_over());
        driver.shutdown(slow);
        begin(errno, 4);
        let mut buf = Buf::new();
        buf.put(&data);
        assert!(matches!(driver.send(closed, buf), Sent::Pending));
        driver.close(closed, false);
        run(&mut driver, &mut log, |_| peers.iter().all(thread::JoinHandle::is_finished));
        assert!(is_over());
        for peer in peers {
            assert!(peer.join().unwrap().unwrap() == data, "{errno}: bytes were lost");
        }
        assert!(log.ended.iter().all(|end| end == "Finished"), "{:?}", log.ended);
    }
}

#[test]
fn epoll_loses_nothing() {
    loses_nothing(epoll::Driver::new, true);
}

#[test]
fn select_loses_nothing() {
    loses_nothing(select::Driver::new, true);
}

#[test]
fn io_uring_loses_nothing() {
    if crate::DriverConfig::from(crate::uring::Config::default()).probe().is_ok() {
        loses_nothing(crate::uring::Driver::new, false);
    }
}
