//! A table of every event in every state.

use super::{Finish, Head, Linger, Raw, Wait};
use crate::proxy::{Proxy, Tunnel};
use Event::{
    Abandon, AwaitPeer, Close, EndOfTurn, Finish as Finishes, FinishSent, Go, Overrun, PeerFinishes, PeerGone,
};
use std::num::NonZeroU64;
use tautline_buf::Buf;
use tautline_ws::handshake::{HeadLimits, Opening, Options};

type Phase = super::Phase<(), ()>;

/// An event of a connection.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The application closes.
    Close,
    /// The slow-consumer policy gives up.
    Overrun,
    /// The turn in which a close frame was queued is over.
    EndOfTurn,
    /// The peer ends its direction while nothing is read.
    PeerFinishes,
    /// The end of our direction is with the kernel.
    FinishSent,
    /// `end`, and our direction ends.
    Finish,
    /// `end` because the peer ended its direction.
    PeerGone,
    /// `end` of a client, which lets the server end first.
    AwaitPeer,
    /// `end` because the TLS session failed.
    Abandon,
    /// `end` of the whole connection.
    Go,
}

const EVENTS: [Event; 10] =
    [Close, Overrun, EndOfTurn, PeerFinishes, FinishSent, Finishes, PeerGone, AwaitPeer, Abandon, Go];

/// A line per state: its name, and the name of the state after each of [`EVENTS`]. `=` stands for the same state.
///
/// `L` is a lingering state, and `R` a raw one. The next letter is our [`Finish`]: `a`fter the peer's, `w`anted, `x` for abandoned, `d`one. `+` means
/// that the peer's direction has ended.
const TABLE: &str = "
    proxy      =     =       =         =   =   Lw  Lw+ La  Lx  gone
    header     =     =       =         =   =   Lw  Lw+ La  Lx  gone
    tls        =     =       =         =   =   Lw  Lw+ La  Lx  gone
    offloaded  =     =       =         =   =   Lw  Lw+ La  Lx  reset
    request    =     =       =         =   =   Lw  Lw+ La  Lx  gone
    waiting    =     =       =         =   =   Lw  Lw+ La  Lx  gone
    streaming  =     =       =         =   =   Lw  Lw+ La  Lx  gone
    answer     =     =       =         =   =   Lw  Lw+ La  Lx  gone
    open       queue overrun =         =   =   Lw  Lw+ La  Lx  gone
    overrun    =     =       =         =   =   Lw  Lw+ La  Lx  gone
    queue      =     =       sent      =   =   Lw  Lw+ La  Lx  gone
    sent       =     =       =         =   =   Lw  Lw+ La  Lx  gone
    La         =     =       =         Lw+ =   Lw  Lw+ La  Lx  gone
    Lw         =     =       =         Lw+ Ld  Lw  Lw+ La  Lx  gone
    Lx         =     =       =         Lx+ Ld  Lw  Lw+ La  Lx  gone
    Ld         =     =       =         Ld+ =   Ld  Ld+ Ld  Ld  gone
    La+        =     =       =         Lw+ =   Lw+ Lw+ La+ Lx+ gone
    Lw+        =     =       =         =   Ld+ Lw+ Lw+ La+ Lx+ gone
    Lx+        =     =       =         =   Ld+ Lw+ Lw+ La+ Lx+ gone
    Ld+        =     =       =         =   =   Ld+ Ld+ Ld+ Ld+ gone
    Ra         =     =       =         =   =   Lw  Lw+ La  Lx  gone
    Rw         =     =       =         =   Rd  Lw  Lw+ La  Lx  gone
    Rd         =     =       =         =   =   Ld  Ld+ Ld  Ld  gone
    Ra+        =     =       =         =   =   Lw+ Lw+ La+ Lx+ gone
    Rw+        =     =       =         =   Rd+ Lw+ Lw+ La+ Lx+ gone
    Rd+        =     =       =         =   =   Ld+ Ld+ Ld+ Ld+ gone
    gone       =     =       =         =   =   =   =   =   =   =
    reset      =     =       =         =   =   =   =   =   =   =
";

fn state(name: &str) -> Phase {
    let opening = || Opening::new(&"ws://localhost/".parse().unwrap(), [0; 16], &Options::default()).unwrap();
    let head = || Box::new(Head::new(HeadLimits::default()));
    match name {
        "proxy" => {
            let proxy: Proxy = "http://localhost:1".parse().unwrap();
            Phase::Proxy(Box::new(Tunnel::new(proxy, "localhost", 1, &mut Buf::new()).unwrap()))
        }
        "header" => Phase::ProxyHeader,
        "tls" => Phase::Tls,
        "offloaded" => Phase::Offloaded(Some(NonZeroU64::MIN)),
        "request" => Phase::Request(head()),
        "waiting" => Phase::Waiting(Box::new(Wait { head: head(), request: http::Request::new(()), with: () })),
        "streaming" => Phase::Streaming(Box::new(())),
        "answer" => Phase::Answer(Box::new(super::Answer { bytes: Buf::new(), opening: opening() })),
        "open" => Phase::Open,
        "overrun" => Phase::Overrun,
        "queue" => Phase::CloseQueued,
        "sent" => Phase::CloseSent,
        "gone" => Phase::Gone { reset: false },
        "reset" => Phase::Gone { reset: true },
        ends => {
            let ours = match ends.as_bytes()[1] {
                b'a' => Finish::AfterPeer,
                b'w' => Finish::Wanted,
                b'x' => Finish::Abandoned,
                _ => Finish::Done,
            };
            let linger = Linger { ours, peer_finished: ends.ends_with('+') };
            if ends.starts_with('R') {
                Phase::Raw(Raw { ends: linger, ..Raw::new(None) })
            } else {
                Phase::Linger(linger)
            }
        }
    }
}

fn name(phase: &Phase) -> String {
    let name = match phase {
        Phase::Proxy(_) => "proxy",
        Phase::ProxyHeader => "header",
        Phase::Tls => "tls",
        Phase::Offloaded(_) => "offloaded",
        Phase::Request(_) => "request",
        Phase::Waiting(_) => "waiting",
        Phase::Streaming(_) => "streaming",
        Phase::Answer(_) => "answer",
        Phase::Open => "open",
        Phase::Overrun => "overrun",
        Phase::CloseQueued => "queue",
        Phase::CloseSent => "sent",
        Phase::Gone { reset: false } => "gone",
        Phase::Gone { reset: true } => "reset",
        Phase::Linger(Linger { ours, peer_finished })
        | Phase::Raw(Raw { ends: Linger { ours, peer_finished }, .. }) => {
            let ours = match ours {
                Finish::AfterPeer => "a",
                Finish::Wanted => "w",
                Finish::Abandoned => "x",
                Finish::Done => "d",
            };
            let kind = if phase.is_raw() { "R" } else { "L" };
            return format!("{kind}{ours}{}", if *peer_finished { "+" } else { "" });
        }
    };
    name.to_owned()
}

fn happen(phase: &mut Phase, event: Event) {
    let linger = |ours| Phase::Linger(Linger { ours, peer_finished: false });
    match event {
        Close => drop(phase.close()),
        Overrun => phase.overrun(),
        EndOfTurn => drop(phase.close_sent()),
        PeerFinishes => phase.peer_finished(),
        FinishSent => {
            if let Some(finish) = phase.finish_mut().filter(|finish| finish.is_due()) {
                *finish = Finish::Done;
            }
        }
        Finishes => drop(phase.end(Phase::finishing(false))),
        PeerGone => drop(phase.end(Phase::finishing(true))),
        AwaitPeer => drop(phase.end(linger(Finish::AfterPeer))),
        Abandon => drop(phase.end(Phase::ABANDONED)),
        Go => drop(phase.end(Phase::GONE)),
    }
}

fn rows() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    TABLE.lines().filter(|line| !line.trim().is_empty()).map(|line| {
        let mut words = line.split_whitespace();
        (words.next().unwrap(), words.collect())
    })
}

#[test]
fn every_event_moves_every_state_as_the_table_says() {
    let mut states = 0;
    for (before, after) in rows() {
        assert_eq!(after.len(), EVENTS.len(), "{before}");
        for (event, after) in EVENTS.into_iter().zip(after) {
            let mut phase = state(before);
            assert_eq!(name(&phase), before);
            happen(&mut phase, event);
            let expected = if after == "=" { before } else { after };
            assert_eq!(name(&phase), expected, "{before} after {event:?}");
        }
        states += 1;
    }
    assert_eq!(states, 28, "every state has a row");
}

#[test]
fn nothing_moves_a_connection_back() {
    // Phases in the order of a connection's life.
    let rank = |phase: &Phase| match phase {
        _ if phase.is_handshaking() => 0,
        Phase::Open | Phase::Raw(_) => 1,
        _ if phase.is_open() => 2,
        Phase::Linger(_) => 3,
        _ => 4,
    };
    for (before, after) in rows() {
        for after in after.into_iter().filter(|after| *after != "=") {
            let (from, to) = (state(before), state(after));
            assert!(rank(&from) <= rank(&to), "{before} to {after}");
            if let (Phase::Linger(from), Phase::Linger(to)) = (&from, &to) {
                assert!(to.peer_finished || !from.peer_finished, "{before} to {after} forgets the peer's end");
                assert!(from.ours != Finish::Done || to.ours == Finish::Done, "{before} to {after} ends twice");
            }
        }
    }
}

#[test]
fn the_handler_hears_of_the_end_once() {
    for (before, after) in rows() {
        let was_open = state(before).is_open();
        for (event, after) in EVENTS.into_iter().zip(after).skip(5) {
            let mut phase = state(before);
            let reported = match event {
                Finishes => phase.end(Phase::finishing(false)),
                PeerGone => phase.end(Phase::finishing(true)),
                Abandon => phase.end(Phase::ABANDONED),
                _ => phase.end(Phase::GONE),
            };
            assert_eq!(reported.is_open(), was_open, "{before}");
            assert!(!phase.is_open(), "{before} to {after}");
        }
    }
}

#[test]
fn only_an_open_connection_takes_messages_and_only_an_ended_one_is_finished() {
    for (name, _) in rows() {
        let phase = state(name);
        assert_eq!(phase.takes_messages(), name == "open");
        assert_eq!(phase.is_finished(), ["Ld+", "La+", "Rd+"].contains(&name), "{name}");
        assert_eq!(phase.is_ending(), name.starts_with('L') || phase.is_gone(), "{name}");
    }
}
