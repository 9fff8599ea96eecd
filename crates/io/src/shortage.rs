//! A kernel that has no memory for a moment, made up for tests: nothing may be lost by it.

use crate::{Address, Driver, End, ListenOptions, Listener, Received, Sent, Sink, Token, epoll, select};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
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

thread_local! {
    /// The state of the generator that decides which calls fail, and with which error. 0 lets all succeed.
    static SEED: Cell<u64> = const { Cell::new(0) };
}

/// A system call that can fail although nothing is wrong with the connection.
#[derive(Clone, Copy)]
pub(crate) enum Call {
    Send,
    Accept,
    Receive,
    Wait,
}

impl Call {
    /// Fails every third call of this thread or so, by its seed.
    pub(crate) fn may_fail(self) -> Result<(), Errno> {
        let errors: &[Errno] = match self {
            Self::Send => &[Errno::INTR, Errno::NOBUFS, Errno::NOMEM],
            Self::Accept => &[Errno::INTR, Errno::CONNABORTED, Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM],
            Self::Receive | Self::Wait => &[Errno::INTR],
        };
        let mut seed = SEED.get();
        // xorshift64, for which 0 is a fixed point.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        SEED.set(seed);
        let at = usize::try_from(seed >> 33).unwrap();
        if seed == 0 || at % 3 > 0 { Ok(()) } else { Err(errors[at / 3 % errors.len()]) }
    }
}

#[derive(Default)]
struct Log {
    accepted: Vec<Token>,
    refused: Vec<io::ErrorKind>,
    sent: usize,
    received: Vec<(Token, Vec<u8>)>,
    ended: Vec<String>,
}

impl Sink for Log {
    fn accepted(&mut self, _: &mut dyn Driver, token: Token, _: Listener) {
        self.accepted.push(token);
    }
    fn connected(&mut self, _: &mut dyn Driver, _: Token) {}
    fn received(&mut self, _: &mut dyn Driver, token: Token, data: Received<'_>) {
        let bytes = data.bytes();
        match self.received.iter_mut().find(|(known, _)| *known == token) {
            Some((_, all)) => all.extend_from_slice(bytes),
            None => self.received.push((token, bytes.to_vec())),
        }
    }
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

/// Bytes go both ways on three connections while calls fail, by many seeds.
fn survives_failing_calls<D: Driver>(make: fn() -> io::Result<D>) {
    for seed in 1..=10_u64 {
        let (mut driver, mut log) = (make().unwrap(), Log::default());
        let any = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let Ok((_, Address::Tcp(at))) = driver.listen(&any, &ListenOptions::default()) else { panic!("cannot listen") };
        let data = pattern(200_000);
        let talk = |_| {
            let data = data.clone();
            thread::spawn(move || {
                let mut peer = TcpStream::connect(at)?;
                peer.write_all(&data)?;
                peer.shutdown(Shutdown::Write)?;
                let mut all = Vec::new();
                peer.read_to_end(&mut all).map(|_| all)
            })
        };
        let peers = [(), (), ()].map(talk);
        SEED.set(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let is_whole =
            |log: &Log| log.received.len() == 3 && log.received.iter().all(|(_, all)| all.len() == data.len());
        run(&mut driver, &mut log, |log| is_whole(log) && log.ended.len() == 3);
        for token in log.accepted.clone() {
            let mut buf = Buf::new();
            buf.put(&data);
            let _ = driver.send(token, buf);
            driver.shutdown(token);
        }
        run(&mut driver, &mut log, |_| peers.iter().all(thread::JoinHandle::is_finished));
        SEED.set(0);
        for (_, all) in &log.received {
            assert!(*all == data, "seed {seed}: received bytes are wrong");
        }
        for peer in peers {
            assert!(peer.join().unwrap().unwrap() == data, "seed {seed}: sent bytes were lost");
        }
        assert!(log.ended.iter().all(|end| end == "Finished"), "seed {seed}: {:?}", log.ended);
    }
}

#[test]
fn epoll_survives_failing_calls() {
    survives_failing_calls(epoll::Driver::new);
}

#[test]
fn select_survives_failing_calls() {
    survives_failing_calls(select::Driver::new);
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
