//! Connections that ended while the user has not received everything.

use super::{ACK, Bench, FIN, RST, SYN, acknowledging, with_data};
use crate::Config;
use crate::frame::Pair;
use crate::frame::tests::frame;
use smoltcp::socket::tcp::State;
use std::thread;
use std::time::Duration;
use tautline_io::{Driver as _, Token};

/// Makes a bench with a `TIME-WAIT` of 10 ms.
fn fast_timers() -> Bench {
    Bench::new(Config { retransmit: Duration::from_millis(1), ..Config::new("memory") })
}

impl Bench {
    fn state(&self, token: Token) -> State {
        let id = self.driver.id(token).unwrap();
        self.driver.conns.get(id).unwrap().state()
    }

    /// Pauses the latest connection and sends our FIN.
    ///
    /// The peer acknowledges it, and answers with data and its FIN.
    fn finish_paused(&mut self, pair: Pair, ours: u32) -> Token {
        self.log.mute = true;
        let token = *self.log.accepted.last().unwrap();
        self.driver.pause_receive(token, true);
        self.driver.shutdown(token);
        let answers = self.turn();
        assert!(matches!(answers[..], [(flags, number, _)] if flags & FIN != 0 && number == ours), "{answers:?}");
        let last = with_data(frame(pair, 1001, ACK | FIN), b"unread");
        let answers = self.give(acknowledging(last, ours.wrapping_add(1)));
        assert!(matches!(answers[..], [(ACK, _, 1008)]), "{answers:?}");
        assert_eq!(self.state(token), State::TimeWait);
        token
    }

    fn resume(&mut self, token: Token) {
        self.driver.pause_receive(token, false);
        self.turn();
    }
}

#[test]
fn unread_bytes_outlive_time_wait() {
    let mut bench = fast_timers();
    let (ours, pair) = (bench.open(1), bench.pair(1));
    let token = bench.finish_paused(pair, ours);
    thread::sleep(Duration::from_millis(30));
    bench.turn();
    assert_eq!(bench.state(token), State::Closed);
    assert_eq!((bench.log.received, &bench.log.ended[..]), (0, &[][..]), "it is paused");
    bench.log.keeps = true;
    bench.resume(token);
    thread::sleep(Duration::from_millis(30));
    bench.turn();
    assert_eq!((bench.log.received, &bench.log.ended[..]), (6, &[false][..]));
}

#[test]
fn a_reported_end_is_not_reported_as_a_failure_later() {
    let mut bench = fast_timers();
    bench.log.keeps = true;
    let (ours, pair) = (bench.open(1), bench.pair(1));
    let token = bench.finish_paused(pair, ours);
    bench.resume(token);
    assert_eq!((bench.log.received, &bench.log.ended[..]), (6, &[false][..]));
    thread::sleep(Duration::from_millis(30));
    bench.turn();
    assert_eq!(bench.state(token), State::Closed);
    assert_eq!(bench.log.ended, [false]);
}

#[test]
fn unread_bytes_outlive_the_last_acknowledgement() {
    let mut bench = fast_timers();
    bench.log.mute = true;
    let (ours, pair) = (bench.open(1), bench.pair(1));
    let token = bench.log.accepted[0];
    bench.driver.pause_receive(token, true);
    bench.give(acknowledging(with_data(frame(pair, 1001, ACK | FIN), b"unread"), ours));
    bench.driver.shutdown(token);
    bench.turn();
    assert_eq!(bench.state(token), State::LastAck);
    bench.give(acknowledging(frame(pair, 1008, ACK), ours.wrapping_add(1)));
    assert_eq!(bench.state(token), State::Closed);
    assert_eq!((bench.log.received, &bench.log.ended[..]), (0, &[][..]), "it is paused");
    bench.resume(token);
    assert_eq!((bench.log.received, &bench.log.ended[..]), (6, &[false][..]));
}

#[test]
fn a_reused_port_leaves_the_old_connection_its_bytes() {
    let mut bench = Bench::new(Config::new("memory"));
    let (ours, pair) = (bench.open(1), bench.pair(1));
    let old = bench.finish_paused(pair, ours);
    let answers = bench.give(frame(pair, 500_000, SYN));
    let [(flags, sequence, 500_001)] = answers[..] else { panic!("{answers:?}") };
    assert_eq!(flags, SYN | ACK);
    let next = sequence.wrapping_add(1);
    bench.give(acknowledging(frame(pair, 500_001, ACK), next));
    assert_eq!(bench.log.accepted.len(), 2);
    bench.resume(old);
    assert_eq!((bench.log.received, &bench.log.ended[..]), (6, &[false][..]));
    assert_eq!(bench.driver.conns.count(), 1, "the ended connection was not closed");
    // The new connection is not affected.
    let answers = bench.give(acknowledging(with_data(frame(pair, 500_001, ACK), b"new"), next));
    assert_eq!(bench.log.received, 9);
    assert!(answers.iter().any(|&(_, number, acknowledged)| (number, acknowledged) == (next, 500_004)), "{answers:?}");
}

#[test]
fn a_wrong_syn_ack_does_not_hide_a_later_reset() {
    let mut bench = Bench::new(Config::new("memory"));
    let (token, pair) = bench.dial(1);
    let answers = bench.turn();
    let [(SYN, ours, _)] = answers[..] else { panic!("{answers:?}") };
    let wrong = bench.give(acknowledging(frame(pair, 70_000, SYN | ACK), ours.wrapping_add(77)));
    assert!(matches!(wrong[..], [(flags, ..)] if flags & RST != 0), "{wrong:?}");
    bench.give(acknowledging(frame(pair, 1000, SYN | ACK), ours.wrapping_add(1)));
    assert_eq!(bench.log.connected, [token]);
    bench.give(frame(pair, 1001, RST));
    assert_eq!(bench.log.ended, [true]);
}
