//! The loop stands still for a while, and the clock does not: SIGSTOP, a paused virtual machine, a handler that blocks.

use crate::bench::{App, UPGRADE, frames, masked};
use crate::fake::{Event, Fake};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tautline_engine::{Cause, Config, Deadline, Shard};
use tautline_tls::plain;

const PING: &str = "89 ";
const PONG: &[u8] = &[0x8a, 0x80, 0, 0, 0, 0];

/// A shard on a clock that the test sets, with open connections.
struct Stalled {
    kernel: Fake,
    shard: Shard<plain::Engine, App>,
    now: Rc<Cell<Duration>>,
}

impl Stalled {
    fn new(conns: u32) -> Self {
        let mut config = Config::default();
        config.deadlines.ping = Some(Duration::from_secs(30));
        config.deadlines.idle = Some(Duration::from_secs(60));
        let kernel = Fake::default();
        kernel.0.borrow_mut().room = usize::MAX;
        let mut shard = Shard::new(0, Arc::new(config), plain::Engine, kernel.clone(), App::default()).unwrap();
        let now = Rc::new(Cell::new(Duration::ZERO));
        let clock = now.clone();
        shard.danger_simulate(move || clock.get(), [7; 32]);
        let mut stalled = Self { kernel, shard, now };
        for conn in 0..conns {
            stalled.kernel.push(Event::Accept);
            stalled.kernel.push(Event::Bytes(conn, UPGRADE.to_vec()));
        }
        stalled.turn();
        assert!((0..conns).all(|conn| stalled.kernel.received(conn).starts_with(b"HTTP/1.1 101")));
        stalled
    }

    fn turn(&mut self) {
        self.shard.turn(Some(Duration::ZERO)).unwrap();
    }

    /// A turn some time after the one before.
    fn turn_after(&mut self, time: Duration) {
        self.now.set(self.now.get() + time);
        self.turn();
    }

    fn read(&self, conn: u32) -> Vec<String> {
        frames(&self.kernel.received(conn))
    }

    fn closed(&mut self) -> usize {
        self.shard.handler().closed.len()
    }
}

#[test]
fn no_peer_is_closed_whose_bytes_wait_in_the_kernel() {
    for stall in [Duration::from_secs(61), Duration::from_secs(3_600), Duration::from_secs(400 * 86_400)] {
        let mut stalled = Stalled::new(3);
        // The pings before the stall are answered within it.
        stalled.turn_after(Duration::from_secs(31));
        stalled.turn();
        (0..3).for_each(|conn| assert_eq!(stalled.read(conn), [PING]));
        // The driver brings the bytes of one connection in a turn.
        stalled.kernel.push(Event::Bytes(0, PONG.to_vec()));
        stalled.turn_after(stall);
        stalled.kernel.push(Event::Bytes(1, masked("here")));
        stalled.turn_after(Duration::from_millis(10));
        stalled.kernel.push(Event::Bytes(2, PONG.to_vec()));
        stalled.turn_after(Duration::from_millis(10));
        stalled.turn_after(Duration::from_millis(10));
        assert_eq!(stalled.closed(), 0, "after {stall:?}");
        assert_eq!((stalled.read(0), stalled.read(1), stalled.read(2)), (vec![], vec!["here".to_owned()], vec![]));
    }
}

#[test]
fn peers_have_the_time_to_answer_a_ping_that_is_late() {
    let mut stalled = Stalled::new(2);
    stalled.turn_after(Duration::from_secs(3_600));
    stalled.turn();
    (0..2).for_each(|conn| assert_eq!(stalled.read(conn), [PING]));
    stalled.turn_after(Duration::from_millis(500));
    assert_eq!(stalled.closed(), 0);
    stalled.kernel.push(Event::Bytes(0, PONG.to_vec()));
    stalled.turn();
    // The other one is gone, and has had 30 seconds.
    for _ in 0..29 {
        stalled.turn_after(Duration::from_millis(990));
    }
    assert_eq!(stalled.closed(), 0);
    (0..2).for_each(|_| stalled.turn_after(Duration::from_millis(990)));
    let [closed] = &stalled.shard.handler().closed[..] else { panic!("one end") };
    assert!(matches!(closed.cause, Cause::Timeout(Deadline::Idle)), "{closed:?}");
    assert!(stalled.kernel.with(0, |wire| wire.closed.is_none()));
}

#[test]
fn peers_that_send_without_a_pause_put_off_the_deadlines_of_others_for_two_seconds_at_most() {
    let mut stalled = Stalled::new(2);
    stalled.turn_after(Duration::from_secs(31));
    stalled.turn();
    let mut waited = Duration::ZERO;
    let mut step = Duration::from_secs(60);
    while stalled.closed() == 0 {
        stalled.kernel.push(Event::Bytes(0, masked("more")));
        stalled.turn_after(step);
        step = Duration::from_millis(100);
        waited += step;
        assert!(waited < Duration::from_secs(10), "the silent peer is never closed");
    }
    assert!((2_000..2_300).contains(&waited.as_millis()), "{waited:?}");
}

/// A timer of the application that was due in the stall is called once, at its end.
#[test]
fn a_clock_that_stands_still_holds_timers_and_a_jump_calls_them_once() {
    let mut stalled = Stalled::new(1);
    let conn = stalled.shard.handler().conns[0];
    stalled.shard.with_conn(conn, |_, conn| conn.set_timer(Duration::from_secs(5), 7)).unwrap();
    (0..100).for_each(|_| stalled.turn());
    assert!(stalled.shard.handler().timers.is_empty() && stalled.read(0).is_empty());
    stalled.turn_after(Duration::from_secs(86_400));
    (0..100).for_each(|_| stalled.turn());
    assert_eq!(stalled.shard.handler().timers, [7]);
}
