//! The stack over frames in memory, with hostile peers and without privileges.

use crate::Config;
use crate::conn::{Conn, Phase};
use crate::driver::Driver;
use crate::frame::tests::{OURS, THEIRS, frame};
use crate::frame::{ETHERNET, Ethernet, Pair};
use crate::netlink::Netlink;
use crate::port::InterfaceInfo;
use crate::wire::Wire;
use rustix::fd::BorrowedFd;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tautline_buf::Buf;
use tautline_io::{Address, Driver as _, End, ListenOptions, Listener, Received, Sink, Token};

mod ending;
mod path;
mod window;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A wire over frames in memory.
#[derive(Default)]
struct Memory {
    inbound: VecDeque<Vec<u8>>,
    outbound: Vec<Vec<u8>>,
    /// An address whose claims fail.
    refused: Option<IpAddr>,
}

impl Wire for Memory {
    type Frame = Vec<u8>;

    fn receive(&mut self) -> Option<Vec<u8>> {
        self.inbound.pop_front()
    }
    fn bytes<'f>(&self, frame: &'f Vec<u8>) -> &'f [u8] {
        frame
    }
    fn stamp(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn arrival(&self, _: &mut Vec<u8>) -> Option<u64> {
        None
    }
    fn give_back(&mut self, _: Vec<u8>) {}
    fn recycle(&mut self) {}
    fn has_room(&mut self) -> bool {
        true
    }
    fn send<R>(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut frame = vec![0; len];
        let result = fill(&mut frame);
        self.outbound.push(frame);
        result
    }
    fn flush(&mut self) {}
    fn is_readable(&mut self) -> bool {
        !self.inbound.is_empty()
    }
    fn wait(&mut self, _: BorrowedFd<'_>, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
    fn check(&self) -> io::Result<()> {
        Ok(())
    }
    fn claim(&mut self, local: SocketAddr, _: bool) -> io::Result<()> {
        if self.refused == Some(local.ip()) { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(()) }
    }
}

#[derive(Default)]
struct Log {
    accepted: Vec<Token>,
    connected: Vec<Token>,
    received: usize,
    ended: Vec<bool>,
    /// Whether the sink does not echo received bytes.
    mute: bool,
    /// Whether the sink does not close ended connections.
    keeps: bool,
}

impl Sink for Log {
    fn accepted(&mut self, _: &mut dyn tautline_io::Driver, token: Token, _: Listener) {
        self.accepted.push(token);
    }
    fn connected(&mut self, _: &mut dyn tautline_io::Driver, token: Token) {
        self.connected.push(token);
    }
    fn received(&mut self, driver: &mut dyn tautline_io::Driver, token: Token, data: Received<'_>) {
        self.received += data.len();
        if self.mute {
            return;
        }
        let mut buf = Buf::new();
        buf.put(data.bytes());
        let _ = driver.send(token, buf);
    }
    fn sent(&mut self, _: &mut dyn tautline_io::Driver, _: Token, _: Buf) {}
    fn ended(&mut self, driver: &mut dyn tautline_io::Driver, token: Token, end: End) {
        self.ended.push(matches!(end, End::Failed(_)));
        if !self.keeps {
            driver.close(token, false);
        }
    }
    fn woken(&mut self, _: &mut dyn tautline_io::Driver) {}
    fn accept_failed(&mut self, _: &mut dyn tautline_io::Driver, _: io::Error) {}
}

struct Bench {
    driver: Driver<Memory>,
    log: Log,
    at: SocketAddr,
}

fn driver(config: Config, addresses: &[IpAddr]) -> Driver<Memory> {
    let info = InterfaceInfo {
        name: "memory".into(),
        index: 1,
        mac: OURS,
        mtu: 1500,
        addresses: addresses.iter().map(|&address| (address, 8)).collect(),
        is_virtual: true,
    };
    Driver::with_wire(Memory::default(), config.clamp(), info, Netlink::new().unwrap()).unwrap()
}

/// Flags, sequence and acknowledgement numbers of a frame.
fn numbers(frame: &[u8]) -> (u8, u32, u32) {
    let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    let tcp = &frame[ETHERNET + 20..];
    (tcp[13], word(&tcp[4..8]), word(&tcp[8..12]))
}

impl Bench {
    fn new(config: Config) -> Self {
        let address = "127.0.0.1".parse().unwrap();
        let mut driver = driver(config, &[address]);
        let any = Address::Tcp(SocketAddr::new(address, 0));
        let (_, Address::Tcp(at)) = driver.listen(&any, &ListenOptions::default()).unwrap() else { panic!("no TCP") };
        Self { driver, log: Log::default(), at }
    }

    fn pair(&self, number: u32) -> Pair {
        let [_, a, b, c] = number.to_be_bytes();
        Pair { local: self.at, remote: SocketAddr::from(([10, a, b, c], 5000)) }
    }

    /// Delivers a frame. Returns flags, sequence and acknowledgement numbers of the answers.
    fn give(&mut self, frame: Vec<u8>) -> Vec<(u8, u32, u32)> {
        self.driver.wire.wire.inbound.push_back(frame);
        self.turn()
    }

    fn turn(&mut self) -> Vec<(u8, u32, u32)> {
        self.sent().iter().map(|frame| numbers(frame)).collect()
    }

    /// The frames that the driver sends in three turns.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        for _ in 0..3 {
            self.driver.turn(Some(Duration::ZERO), &mut self.log).unwrap();
        }
        self.driver.wire.wire.outbound.drain(..).collect()
    }

    /// Opens a connection on which the peer's initial number is 1000. Returns our next number.
    fn open(&mut self, number: u32) -> u32 {
        let pair = self.pair(number);
        self.driver.wire.wire.inbound.push_back(frame(pair, 1000, SYN));
        let SocketAddr::V4(remote) = pair.remote else { panic!("no IPv4") };
        // On a slow machine the driver retransmits this answer, and those of other connections.
        let mut sent = self.sent();
        sent.retain(|frame| frame[ETHERNET + 16..ETHERNET + 20] == remote.ip().octets());
        let mut answers: Vec<_> = sent.iter().map(|frame| numbers(frame)).collect();
        answers.dedup();
        let [(flags, sequence, 1001)] = answers[..] else { panic!("{answers:?}") };
        assert_eq!(flags, SYN | ACK);
        self.give(acknowledging(frame(pair, 1001, ACK), sequence.wrapping_add(1)));
        sequence.wrapping_add(1)
    }
}

impl Bench {
    /// Begins a connection as [`Driver::dial`] does when the route is known. It then waits for the peer's answer.
    fn dial(&mut self, number: u32) -> (Token, Pair) {
        let pair = self.pair(number);
        let tcp = self.driver.stack.active(pair.local, pair.remote).unwrap();
        self.driver.claim(pair.local).unwrap();
        let header = Ethernet::new(THEIRS, OURS, pair.remote.ip());
        let id = self.driver.conns.put(Conn::new(tcp, pair, header, Phase::Connecting));
        let token = self.driver.tokens.put(id);
        self.driver.conns.get_mut(id).unwrap().token = Some(token);
        self.driver.pairs.insert(pair, id);
        self.driver.enqueue(id);
        (token, pair)
    }
}

fn acknowledging(mut frame: Vec<u8>, number: u32) -> Vec<u8> {
    frame[ETHERNET + 28..ETHERNET + 32].copy_from_slice(&number.to_be_bytes());
    frame
}

fn with_data(mut frame: Vec<u8>, data: &[u8]) -> Vec<u8> {
    frame.extend(data);
    let len = u16::try_from(frame.len() - ETHERNET).unwrap();
    frame[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&len.to_be_bytes());
    frame
}

/// A SplitMix64 generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ z >> 31) % below as u64).unwrap()
    }
}

#[test]
fn a_syn_flood_is_bounded() {
    let mut bench = Bench::new(Config { half_open: 50, connections: 200, ..Config::new("memory") });
    let honest = bench.open(1);
    for number in 2..5000 {
        bench.give(frame(bench.pair(number), 1, SYN));
        assert!(bench.driver.conns.count() <= 51, "{} connections", bench.driver.conns.count());
    }
    assert_eq!(bench.log.accepted.len(), 1);
    // Neither an open connection nor a new genuine one is affected.
    bench.give(acknowledging(with_data(frame(bench.pair(1), 1001, ACK), b"still here"), honest));
    assert_eq!(bench.log.received, 10);
    bench.open(900_000);
    assert_eq!(bench.log.accepted.len(), 2);
}

#[test]
fn a_failed_claim_undoes_the_whole_listener() {
    let [first, second] = ["127.0.0.1", "127.0.0.2"].map(|address| address.parse().unwrap());
    let mut driver = driver(Config::new("memory"), &[first, second]);
    let (any, options) = ("0.0.0.0:0".parse().unwrap(), ListenOptions::default());
    driver.wire.wire.refused = Some(second);
    assert!(driver.listen(&any, &options).is_err());
    assert!(driver.claims.is_empty(), "{:?}", driver.claims);
    driver.wire.wire.refused = None;
    driver.listen(&any, &options).unwrap();
    assert_eq!(driver.claims.len(), 2);
}

#[test]
fn completed_handshakes_do_not_evict_incomplete_ones() {
    let retransmit = Duration::from_secs(1);
    let mut bench = Bench::new(Config { half_open: 4, connections: 2000, retransmit, ..Config::new("memory") });
    let slow = bench.pair(900_000);
    let [(.., sequence, _)] = bench.give(frame(slow, 1000, SYN))[..] else { panic!("no answer") };
    for number in 0..1000 {
        bench.open(number);
        assert!(bench.driver.listening.half_open.len() <= 8, "the list grew");
    }
    bench.give(acknowledging(frame(slow, 1001, ACK), sequence.wrapping_add(1)));
    assert_eq!(bench.log.accepted.len(), 1001, "the slow handshake was evicted");
    // Among incomplete handshakes the oldest is evicted.
    for number in 1000..1004 {
        bench.give(frame(bench.pair(number), 1000, SYN));
    }
    let oldest = bench.pair(1000);
    assert!(bench.driver.pairs.contains_key(&oldest));
    bench.give(frame(bench.pair(1004), 1000, SYN));
    assert!(!bench.driver.pairs.contains_key(&oldest) && bench.driver.pairs.contains_key(&bench.pair(1001)));
}

#[test]
fn connections_are_bounded() {
    let mut bench = Bench::new(Config { connections: 10, ..Config::new("memory") });
    for number in 0..10 {
        bench.open(number);
    }
    assert_eq!(bench.give(frame(bench.pair(10), 1, SYN)), [], "a connection above the limit is answered");
    let token = bench.log.accepted[0];
    bench.driver.close(token, true);
    bench.turn();
    bench.open(11);
}

/// A SYN with a data offset of 6: its option offers segments of 1460 bytes.
fn opening(pair: Pair) -> Vec<u8> {
    let mut frame = with_data(frame(pair, 1000, SYN), &[2, 4, 0x05, 0xb4]);
    frame[ETHERNET + 32] = 0x60;
    frame
}

#[test]
fn packets_respect_the_configured_mtu() {
    for (mtu, most) in [(None, 1500), (Some(1400), 1400), (Some(9000), 1500), (Some(1), 576)] {
        let mut bench = Bench::new(Config { mtu, ..Config::new("memory") });
        bench.driver.wire.wire.inbound.push_back(opening(bench.pair(1)));
        bench.driver.turn(Some(Duration::ZERO), &mut bench.log).unwrap();
        let answer = bench.driver.wire.wire.outbound.pop().unwrap();
        let offered = u16::try_from(most - 40).unwrap().to_be_bytes();
        assert_eq!(answer[ETHERNET + 40..ETHERNET + 44], [2, 4, offered[0], offered[1]], "{mtu:?}");
        let next = u32::from_be_bytes(*answer[ETHERNET + 24..].first_chunk().unwrap()).wrapping_add(1);
        bench.give(acknowledging(frame(bench.pair(1), 1001, ACK), next));
        let token = bench.log.accepted[0];
        let mut buf = Buf::new();
        buf.put(&[7; 10_000]);
        let _ = bench.driver.send(token, buf);
        let longest = bench.driver.wire.wire.outbound.iter().map(Vec::len).max();
        assert_eq!(longest, Some(ETHERNET + most), "{mtu:?}");
    }
}

#[test]
fn initial_sequence_numbers_are_random() {
    let mut bench = Bench::new(Config::new("memory"));
    let mut first: Vec<_> = (0..200).map(|number| bench.open(number)).collect();
    let steps: Vec<_> = first.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert!(steps.iter().any(|step| step.leading_zeros() == 0) && steps.iter().any(|step| step.leading_zeros() > 0));
    first.sort_unstable();
    first.dedup();
    assert!(first.len() > 198, "numbers repeat");
}

#[test]
fn only_an_exact_reset_closes() {
    let mut bench = Bench::new(Config::new("memory"));
    let ours = bench.open(1);
    let pair = bench.pair(1);
    let mut asked = false;
    for off in [1, 100, 65_000, u32::MAX] {
        let answers = bench.give(frame(pair, 1001_u32.wrapping_add(off), RST));
        assert!(bench.log.ended.is_empty(), "a reset {off} off");
        assert!(answers.iter().all(|(flags, ..)| flags & RST == 0));
        asked |= answers.iter().any(|&(flags, _, number)| flags & ACK != 0 && number == 1001);
    }
    assert!(asked, "a reset that is not exact was not challenged");
    let flood = (0..1000).flat_map(|number| bench.give(frame(pair, 2000 + number, RST))).count();
    assert!(flood < 100, "{flood} answers to resets that are not exact (RFC 5961 section 7)");
    bench.give(acknowledging(with_data(frame(pair, 1001, ACK), b"data"), ours));
    bench.give(frame(pair, 1001, RST));
    assert!(bench.log.ended.is_empty(), "the reset is older than the received data");
    bench.give(frame(pair, 1005, RST));
    assert_eq!(bench.log.ended, [true]);
}

#[test]
fn segments_without_a_connection_are_reset_and_resets_are_not_answered() {
    let mut bench = Bench::new(Config::new("memory"));
    let pair = bench.pair(1);
    let answers = bench.give(acknowledging(frame(pair, 5, ACK), 77));
    assert!(matches!(answers[..], [(flags, 77, _)] if flags & RST != 0), "{answers:?}");
    assert_eq!(bench.give(frame(pair, 5, RST)), []);
    let elsewhere = Pair { local: SocketAddr::new(pair.local.ip(), pair.local.port() ^ 1), ..pair };
    let answers = bench.give(frame(elsewhere, 5, SYN));
    assert!(matches!(answers[..], [(flags, ..)] if flags & RST != 0), "nobody listens: {answers:?}");
    assert_eq!(bench.driver.conns.count(), 0);
}

#[test]
fn garbage_neither_panics_nor_fills_the_tables() {
    let mut bench = Bench::new(Config { connections: 64, half_open: 16, ..Config::new("memory") });
    let mut dice = Dice(1);
    for round in 0..60_000_u32 {
        let number = u32::try_from(dice.roll(20)).unwrap();
        let pair = bench.pair(number);
        let known = bench.driver.pairs.get(&pair).and_then(|&id| bench.driver.conns.get(id));
        let near = if known.is_some() { 1001 } else { 1000 };
        let sequence = near + u32::try_from(dice.roll(3000)).unwrap() * u32::from(dice.roll(2) == 0);
        let flags = [SYN, ACK, ACK, ACK, ACK | FIN, RST, RST | ACK, SYN | ACK, 0, 0xff][dice.roll(10)];
        let mut bytes = frame(pair, sequence, flags);
        if dice.roll(2) == 0 {
            let len = dice.roll(1400);
            bytes = with_data(bytes, &vec![7; len]);
        }
        match dice.roll(4) {
            0 => bytes = acknowledging(bytes, u32::try_from(dice.roll(usize::try_from(u32::MAX).unwrap())).unwrap()),
            1 => {
                for _ in 0..=dice.roll(4) {
                    let (at, bit) = (dice.roll(bytes.len()), dice.roll(8));
                    bytes[at] ^= 1 << bit;
                }
            }
            2 => bytes.truncate(dice.roll(bytes.len() + 1)),
            _ => {
                // An acknowledgement that our side may expect, so that the segment passes more checks.
                let guess = bench
                    .driver
                    .wire
                    .wire
                    .outbound
                    .last()
                    .map_or(0, |sent| u32::from_be_bytes(sent[ETHERNET + 24..ETHERNET + 28].try_into().unwrap()));
                bytes = acknowledging(bytes, guess.wrapping_add(u32::try_from(dice.roll(3)).unwrap()));
            }
        }
        bench.driver.wire.wire.inbound.push_back(bytes);
        bench.driver.turn(Some(Duration::ZERO), &mut bench.log).unwrap();
        if round % 50 == 0 {
            bench.driver.wire.wire.outbound.truncate(1);
        }
        assert!(bench.driver.conns.count() <= 64);
    }
    assert!(!bench.log.accepted.is_empty(), "no handshake was completed");
    let all = bench.driver.conns.tokens();
    let is_half_open =
        |&&id: &&Token| bench.driver.conns.get(id).is_some_and(|conn| matches!(conn.phase, Phase::HalfOpen(_)));
    assert!(all.iter().filter(is_half_open).count() <= 16);
}
