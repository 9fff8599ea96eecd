//! Random mixes of peers that behave, violate the protocol, stall and vanish. The application acts differently on each message. A
//! seed decides the order.

use crate::common::frame::{BINARY, CONTINUES, ENDS, PING, PONG, TEXT, TEXT_BEGINS, close, header, masked, unmasked};
use crate::common::server::config;
use crate::common::{App, Over, Peer, both, serve};
use std::io::Read;
use std::time::Duration;
use tautline::{CloseCode, Config, DeflateConfig, Delivery, Kind, Outgoing, SlowConsumer};
use tautline_testkit::Random;

/// Ignores the result of a send.
const fn any(_: Delivery) {}

/// An application whose action depends on the message's first byte.
fn act() -> App {
    App::default()
        .on_message(|_, conn, message| {
            let data = message.data();
            match data.first() {
                _ if message.text() == Some("well") => any(conn.send(Outgoing::from(&message))),
                Some(b'a'..=b'c') => assert!(conn.subscribe("room")),
                Some(b'd') => conn.unsubscribe("room"),
                Some(b'e'..=b'g') => _ = conn.publish("room", Outgoing::from(&message).with_key(1)),
                Some(b'h') => (0..50).for_each(|i| any(conn.binary(&vec![i; 5_000]))),
                Some(b'i') => any(conn.fragment(Kind::Text, b"piece", false)),
                Some(b'j') => any(conn.fragment(Kind::Text, b"last", true)),
                Some(b'k') => conn.close(CloseCode::new(4000), "as you wish"),
                Some(b'l') => conn.ping(&data[..data.len().min(125)]).unwrap(),
                Some(b'm') => conn.pause(true),
                _ => any(conn.send(Outgoing::from(&message))),
            }
        })
        .on_drain(|_, conn| {
            *conn.state() += 1;
            if *conn.state() < 20 {
                conn.binary(&[1; 2000]);
            }
        })
}

fn strict(policy: SlowConsumer) -> Config {
    let mut config = config();
    config.slow_consumer = policy;
    config.limits.max_message = 50_000;
    config.limits.pause_receive_above = 20_000;
    config.limits.max_connections = 30;
    config.deadlines.handshake = Duration::from_secs(2);
    config.deadlines.ping = Some(Duration::from_millis(30));
    config.deadlines.idle = Some(Duration::from_millis(400));
    config.deadlines.send = Duration::from_millis(400);
    config.deadlines.close = Duration::from_millis(200);
    config.upgrade.deflate = Some(DeflateConfig::default());
    config
}

/// Random frames, valid and invalid ones.
fn frames(random: &mut Random) -> Vec<u8> {
    let text = |random: &mut Random, len: usize| {
        let letter = b'a' + u8::try_from(random.below(16)).unwrap();
        vec![letter; len.max(1)]
    };
    match random.below(40) {
        0..=19 => {
            let len = random.below(300);
            masked(TEXT, &text(random, len))
        }
        20..=23 => {
            let len = random.below(40_000);
            masked(BINARY, &text(random, len))
        }
        24..=26 => {
            [masked(TEXT_BEGINS, b"n in"), masked(PING, b"!"), masked(CONTINUES, b""), masked(ENDS, b"!")].concat()
        }
        27..=29 => masked(PING, &[7; 125]),
        30..=31 => masked(PONG, b""),
        32 => masked(BINARY, b"n").repeat(3000),
        33 => close(1000, "done"),
        34 => unmasked(TEXT, b"bare"),
        35 => masked(TEXT, b"\xff"),
        36 => header(BINARY, 0x80, 1 << 40),
        37 => masked(0xc1, b"no deflate"),
        38 => masked(CONTINUES, b"nothing to continue"),
        _ => random.bytes(100),
    }
}

/// A random step of a peer; `None` once it is gone.
fn step(mut peer: Peer, random: &mut Random) -> Option<Peer> {
    match random.below(100) {
        0..=59 => {
            let wire = frames(random);
            let wire = peer.seal(&wire);
            // Sometimes only a part of the bytes.
            let len = if random.below(20) == 0 { random.below(wire.len() + 1) } else { wire.len() };
            peer.try_send_wire(&wire[..len]).ok()?;
            (len == wire.len()).then_some(peer)
        }
        60..=94 => {
            // Reads the available bytes without waiting. Records are not opened.
            peer.socket.set_nonblocking(true).unwrap();
            let read = peer.socket.read(&mut vec![0; 100_000]);
            peer.socket.set_nonblocking(false).unwrap();
            (!matches!(read, Ok(0))).then_some(peer)
        }
        95 => peer.try_send_wire(&random.bytes(50)).ok().map(|()| peer),
        96 => {
            let _ = peer.socket.shutdown(std::net::Shutdown::Write);
            None
        }
        97 => {
            peer.reset();
            None
        }
        _ => {
            std::thread::sleep(Duration::from_millis(2));
            Some(peer)
        }
    }
}

fn chaos(over: Over, policy: SlowConsumer, seed: u64) {
    let server = serve(over, strict(policy), act());
    let mut random = Random::new(seed);
    let mut peers: Vec<Peer> = Vec::new();
    for _ in 0..1_200 {
        if peers.len() < 20 && random.below(5) == 0 {
            let peer = server.attack();
            peer.socket.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            match random.below(10) {
                // Some peers get no further than the connection.
                0 => drop(peer),
                1 => peers.push(peer),
                _ => peers.push(if over.is_secure() { peer.secure().upgrade() } else { peer.upgrade() }),
            }
        }
        if peers.is_empty() {
            continue;
        }
        let at = random.below(peers.len());
        let peer = peers.swap_remove(at);
        peers.extend(step(peer, &mut random));
    }
    drop(peers);
    server.survives();
}

#[test]
fn a_server_survives_random_peers() {
    let policies =
        [SlowConsumer::Disconnect, SlowConsumer::DropNewest, SlowConsumer::DropOldest, SlowConsumer::KeepLatest];
    both(|over| {
        for (seed, policy) in (0..).zip(policies) {
            chaos(over, policy(30_000), seed);
        }
    });
}
