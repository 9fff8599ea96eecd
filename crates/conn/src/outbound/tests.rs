use super::Outbound;
use crate::closed::Cause;
use crate::config::SlowConsumer;
use crate::cork::Means;
use crate::keys::Keys;
use crate::message::{Delivery, Outgoing};
use crate::phase::Phase;
use crate::tick::Tick;
use crate::verdict::{End, Notice, Verdict};
use crate::wire::{Kept, Outlet, Pieces, Transport, Wire};
use tautline_buf::{Buf, Pool};
use tautline_tls::plain;
use tautline_ws::{CloseCode, Role};

type Open = Phase<(), ()>;

/// An outlet that takes all bytes, or keeps them.
struct Peer {
    pool: Pool,
    keys: Keys,
    policy: SlowConsumer,
    told: Vec<u8>,
    is_slow: bool,
    sends: usize,
    dropped: u64,
    /// Whether the last bytes were marked as such.
    is_last: bool,
    finished: bool,
}

impl Outlet for Peer {
    fn means(&mut self) -> Means<'_> {
        Means { pool: &mut self.pool, keys: &mut self.keys }
    }

    fn policy(&self) -> SlowConsumer {
        self.policy
    }

    fn send(&mut self, sealed: Buf, last: bool) -> Option<Kept> {
        assert!(!self.finished);
        self.is_last = last;
        self.told.extend_from_slice(sealed.filled());
        self.sends += 1;
        self.is_slow.then_some(Kept { since: Tick::default(), bytes: sealed.len() })
    }

    fn shutdown(&mut self) {
        self.finished = true;
    }

    fn pieces(&self, _: usize) -> Pieces {
        Pieces { size: 32 << 10, shared: false }
    }

    fn count_dropped(&mut self, _: Option<SlowConsumer>, number: u64) {
        self.dropped += number;
    }
}

/// A server's way out.
struct Way {
    out: Outbound,
    phase: Open,
    wire: Wire,
    peer: Peer,
}

impl Way {
    fn new(policy: SlowConsumer) -> Self {
        let peer = Peer {
            pool: Pool::new(1 << 20),
            keys: Keys::new([7; 32]),
            policy,
            told: Vec::new(),
            is_slow: false,
            sends: 0,
            dropped: 0,
            is_last: false,
            finished: false,
        };
        Self { out: Outbound::new(Role::Server), phase: Phase::Open, wire: Wire::new(), peer }
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut Outbound, &mut Transport<'_, (), ()>, &mut Peer) -> R) -> R {
        let Self { out, phase, wire, peer } = self;
        act(out, &mut Transport { phase, wire, session: &mut plain::Session, in_kernel: false }, peer)
    }

    fn send(&mut self, text: &str) -> Delivery {
        self.with(|out, transport, peer| out.send(Outgoing::text(text), transport, peer))
    }

    fn flush(&mut self) {
        self.with(|out, transport, peer| out.flush(transport, peer));
    }

    /// The peer's kernel has all bytes.
    fn read(&mut self) {
        self.wire.sent(Buf::new(), &mut self.peer.pool);
        self.flush();
    }
}

#[test]
fn messages_of_a_turn_leave_as_one_send() {
    let mut end = Way::new(SlowConsumer::Disconnect(100));
    assert_eq!((end.send("a"), end.send("b")), (Delivery::Sent, Delivery::Sent));
    end.flush();
    assert_eq!((end.peer.told.as_slice(), end.peer.sends), (&b"\x81\x01a\x81\x01b"[..], 1));
    assert!(end.out.is_empty() && end.wire.is_flushed());
}

#[test]
fn messages_behind_bytes_in_flight_wait_by_the_policy() {
    let mut end = Way::new(SlowConsumer::DropOldest(70));
    end.peer.is_slow = true;
    end.send("a");
    end.flush();
    assert!(end.wire.is_in_flight());
    assert!(matches!(end.send("b"), Delivery::Queued(_)));
    assert!(matches!(end.send("c"), Delivery::Queued(_)));
    assert_eq!(end.peer.dropped, 1, "two have more than 70 bytes with their costs");
    end.flush();
    assert_eq!(end.peer.told, b"\x81\x01a");
    end.read();
    assert_eq!(end.peer.told, b"\x81\x01a\x81\x01c");
}

#[test]
fn an_overrun_ends_the_connection_only_under_disconnect() {
    let mut end = Way::new(SlowConsumer::Disconnect(70));
    end.peer.is_slow = true;
    end.send("a");
    end.flush();
    assert!(matches!(end.send("b"), Delivery::Queued(_)));
    assert_eq!(end.send("c"), Delivery::Closed);
    assert!(matches!(end.phase, Phase::Overrun) && end.out.is_empty());
}

#[test]
fn a_close_frame_and_the_end_follow_all_messages() {
    let mut end = Way::new(SlowConsumer::Disconnect(1000));
    end.peer.is_slow = true;
    end.send("a");
    end.flush();
    end.send("b");
    end.out.close(&mut end.phase, CloseCode::NORMAL, "");
    assert_eq!(end.send("late"), Delivery::Closed);
    assert!(end.phase.close_sent());
    end.phase.end(Phase::finishing(true));
    end.flush();
    assert!(!end.peer.finished);
    end.peer.is_slow = false;
    end.read();
    assert!(end.peer.finished && end.peer.is_last && end.phase.is_finished());
    assert_eq!(end.peer.told, b"\x81\x01a\x81\x01b\x88\x02\x03\xe8");
}

#[test]
fn a_failure_drops_what_waits_and_tells_its_reason() {
    let mut end = Way::new(SlowConsumer::Disconnect(1000));
    end.peer.is_slow = true;
    end.send("a");
    end.flush();
    end.send("unsent");
    let notice = Notice::Close(CloseCode::PROTOCOL_ERROR, "no".into());
    let verdict = Verdict { notice, end: End::Finish };
    let phase = end.out.begin_end(&mut end.phase, verdict, &Cause::Finished);
    end.phase.end(phase);
    end.peer.is_slow = false;
    end.read();
    assert_eq!(end.peer.told, b"\x81\x01a\x88\x04\x03\xeano");
    assert!(end.peer.finished && end.phase.is_finished());
}

#[test]
fn a_large_message_leaves_piece_by_piece_and_waits_behind_the_first() {
    for is_slow in [false, true] {
        let mut end = Way::new(SlowConsumer::Disconnect(1 << 20));
        end.peer.is_slow = is_slow;
        let large = "x".repeat(100 << 10);
        assert_eq!(end.send(&large), Delivery::Sent);
        assert_eq!(end.peer.sends, if is_slow { 1 } else { 2 });
        end.flush();
        end.peer.is_slow = false;
        end.read();
        assert_eq!(end.peer.told.len(), 10 + large.len());
    }
}
