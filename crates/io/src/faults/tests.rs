//! Nothing is lost when calls fail, and only the connection ends whose own call failed.

#[expect(dead_code, reason = "some tests do not apply, see below")]
#[expect(clippy::field_reassign_with_default, reason = "the suite sees this crate from outside")]
#[path = "../../tests/suite/mod.rs"]
mod suite;

use super::{Weather, begin, is_over, rage};
use crate::{Address, Driver, End, ListenOptions, Listener, Received, Sent, Sink, Token, epoll, select, uring};
use rustix::io::Errno;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use tautline_buf::Buf;

#[derive(Default)]
struct Log {
    accepted: Vec<Token>,
    refused: Vec<io::ErrorKind>,
    sent: usize,
    received: Vec<(Token, Vec<u8>)>,
    ended: Vec<(Token, String)>,
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
    fn ended(&mut self, _: &mut dyn Driver, token: Token, end: End) {
        self.ended.push((token, format!("{end:?}")));
    }
    fn woken(&mut self, _: &mut dyn Driver) {}
    fn accept_failed(&mut self, _: &mut dyn Driver, error: io::Error) {
        self.refused.push(error.kind());
    }
}

fn run(driver: &mut dyn Driver, log: &mut Log, mut done: impl FnMut(&Log) -> bool) {
    let start = Instant::now();
    while !done(log) {
        assert!(start.elapsed() < Duration::from_secs(20), "nothing happens any more: {:?}", log.ended);
        driver.turn(Some(Duration::from_millis(20)), log).unwrap();
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect()
}

/// `accepts` is true if the driver accepts by calls, which can fail, and not by requests to the kernel.
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
        // First a send on an open connection, while many calls fail. Then one that is closed before any byte has left.
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
        assert!(log.ended.iter().all(|(_, end)| end == "Finished"), "{:?}", log.ended);
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
        rage(Weather::Scarce, seed);
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
        rage(Weather::Scarce, 0);
        for (_, all) in &log.received {
            assert!(*all == data, "seed {seed}: received bytes are wrong");
        }
        for peer in peers {
            assert!(peer.join().unwrap().unwrap() == data, "seed {seed}: sent bytes were lost");
        }
        assert!(log.ended.iter().all(|(_, end)| end == "Finished"), "seed {seed}: {:?}", log.ended);
    }
}

/// A peer that sends `data`, and returns what came back.
fn talk(at: SocketAddr, data: &[u8]) -> thread::JoinHandle<(io::Result<usize>, Vec<u8>)> {
    let data = data.to_vec();
    thread::spawn(move || {
        let mut all = Vec::new();
        let talked = TcpStream::connect(at).and_then(|mut peer| {
            peer.write_all(&data)?;
            peer.shutdown(Shutdown::Write)?;
            peer.read_to_end(&mut all)
        });
        (talked, all)
    })
}

/// Answers connections whose peer has finished, and frees those that failed.
fn answer(driver: &mut dyn Driver, log: &Log, answered: &mut usize, data: &[u8]) {
    for (token, end) in &log.ended[*answered..] {
        if end == "Finished" {
            let mut buf = Buf::new();
            buf.put(data);
            let _ = driver.send(*token, buf);
            driver.shutdown(*token);
        }
        driver.close(*token, end != "Finished");
    }
    *answered = log.ended.len();
}

/// Talks on six connections while all calls fail now and then, by many seeds.
fn breaks_only_what_fails<D: Driver>(make: fn() -> io::Result<D>) {
    let (mut whole, mut broken) = (0, 0);
    for seed in 1..=20_u64 {
        let (mut driver, mut log) = (make().unwrap(), Log::default());
        let any = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let Ok((_, Address::Tcp(at))) = driver.listen(&any, &ListenOptions::default()) else { panic!("cannot listen") };
        let (data, mut answered) = (pattern(30_000), 0);
        let peers = [(); 6].map(|()| talk(at, &data));
        rage(Weather::Breaking, seed);
        let start = Instant::now();
        while !peers.iter().all(thread::JoinHandle::is_finished) {
            assert!(start.elapsed() < Duration::from_secs(20), "seed {seed}: nothing more happens: {:?}", log.ended);
            driver.turn(Some(Duration::from_millis(20)), &mut log).unwrap();
            answer(&mut driver, &log, &mut answered, &data);
        }
        rage(Weather::Rough, 0);
        for (token, all) in &log.received {
            assert!(data.starts_with(all), "seed {seed}: {token:?} received wrong bytes");
        }
        for token in &log.accepted {
            let ends = log.ended.iter().filter(|(ended, _)| ended == token).count();
            assert!(ends <= 1, "seed {seed}: {:?}", log.ended);
        }
        for (talked, all) in peers.map(|peer| peer.join().unwrap()) {
            assert!(data.starts_with(&all), "seed {seed}: a peer received wrong bytes");
            whole += usize::from(talked.is_ok() && all == data);
            broken += usize::from(talked.is_err() || all != data);
        }
        // The driver goes on as if nothing had been.
        let (mut log, mut answered, last) = (Log::default(), 0, talk(at, &data));
        run(&mut driver, &mut log, |log| log.ended.len() == 1);
        answer(&mut driver, &log, &mut answered, &data);
        run(&mut driver, &mut log, |_| last.is_finished());
        assert!(last.join().unwrap().1 == data, "seed {seed}: the driver has not recovered");
    }
    assert!(whole > 0 && broken > 0, "{whole} connections were whole, {broken} broke");
}

/// Whether there is an io_uring.
fn has_uring() -> bool {
    crate::DriverConfig::from(uring::Config::default()).probe().is_ok()
}

/// An io_uring whose queues overflow all the time.
fn cramped() -> io::Result<uring::Driver> {
    let (submissions, completions, buffers, buffer) = (2, 4, 2, 4096);
    uring::Driver::with(uring::Config { submissions, completions, buffers, buffer, ..uring::Config::default() })
}

#[test]
fn epoll_survives_failing_calls() {
    survives_failing_calls(epoll::Driver::new);
    breaks_only_what_fails(epoll::Driver::new);
}

#[test]
fn select_survives_failing_calls() {
    survives_failing_calls(select::Driver::new);
    breaks_only_what_fails(select::Driver::new);
}

#[test]
fn io_uring_survives_failing_requests() {
    if has_uring() {
        survives_failing_calls(uring::Driver::new);
        breaks_only_what_fails(uring::Driver::new);
        survives_failing_calls(cramped);
        breaks_only_what_fails(cramped);
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
    if has_uring() {
        loses_nothing(uring::Driver::new, false);
    }
}

/// The suite of all drivers, with two exceptions. Tests that measure time or count turns are left out, since a failed
/// call costs a turn. So is the test that needs most descriptors of the process.
macro_rules! unless_it_counts {
    (turn $test:ident $code:tt) => {};
    (accept thousands_at_once $code:tt) => {};
    ($file:ident $test:ident { $($code:tt)* }) => { $($code)* };
}

/// Such a suite for io_uring, where there is one.
macro_rules! on_io_uring {
    ($file:ident $test:ident { #[test] fn $name:ident() $code:block }) => {
        crate::faults::tests::unless_it_counts! {
            $file $test { #[test] fn $name() { if super::super::has_uring() $code } }
        }
    };
}
use {on_io_uring, unless_it_counts};

/// Makes the drivers of a suite, whose calls fail by a seed.
macro_rules! suite_in_rough_weather {
    ($name:ident, $make:expr, $filter:ident) => {
        mod $name {
            use super::suite;

            fn make() -> impl crate::Driver {
                let driver = $make.unwrap();
                super::rage(super::Weather::Rough, 7);
                driver
            }

            crate::driver_suite!(super::make, crate::faults::tests::$filter);
        }
    };
}
suite_in_rough_weather!(over_epoll, crate::epoll::Driver::new(), unless_it_counts);
suite_in_rough_weather!(over_select, crate::select::Driver::new(), unless_it_counts);
suite_in_rough_weather!(over_io_uring, crate::uring::Driver::new(), on_io_uring);
suite_in_rough_weather!(over_cramped_io_uring, super::cramped(), on_io_uring);
