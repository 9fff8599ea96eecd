//! Futures that are dropped at any await lose no byte and double none.

#[path = "../pipe/mod.rs"]
mod pipe;

use pipe::{Random, pair};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tautline_dev_cert::Leaf;
use tautline_tokio::{
    Acceptor, ClientConfig, CloseCode, Config, Connector, DeflateConfig, Message, Outgoing, Receiver, Roots, Sender,
    ServerConfig, Target, WebSocket,
};

type Socket = WebSocket<pipe::End>;

/// Polls a future at most `polls` times, and drops it then.
fn poll_times<R>(future: impl Future<Output = R>, polls: usize) -> Option<R> {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        if let Poll::Ready(result) = future.as_mut().poll(&mut cx) {
            return Some(result);
        }
    }
    None
}

/// Without deadlines, since no runtime with time is here.
fn config() -> Config {
    let mut config = Config::default();
    config.deadlines.handshake = Duration::MAX;
    config.deadlines.ping = None;
    config.deadlines.idle = None;
    config.deadlines.close = Duration::MAX;
    config.deadlines.send = Duration::MAX;
    config
}

/// Both ends of an open connection over a stream that moves few bytes at a time.
fn connected(seed: u64, tls: bool, deflate: bool) -> (Socket, Socket) {
    let (near, far) = pair(seed);
    let mut server_config = config();
    server_config.upgrade.deflate = deflate.then(DeflateConfig::with_context_takeover);
    let authority = tautline_dev_cert::Authority::new("test").unwrap();
    let (acceptor, connector, uri) = if tls {
        let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
        let roots = Roots::Pem(authority.certificate().into());
        (
            Acceptor::new(&ServerConfig::new([certificate])).unwrap(),
            Connector::new(&ClientConfig::default().with_roots(roots)).unwrap(),
            "wss://localhost/",
        )
    } else {
        (Acceptor::plain(), Connector::plain(), "ws://localhost/")
    };
    let mut target = Target::new(uri).unwrap();
    target.deflate = deflate.then(DeflateConfig::with_context_takeover);
    let (acceptor, connector) = (acceptor.with_config(server_config), connector.with_config(config()));
    let mut accepting = pin!(acceptor.accept(far));
    let mut connecting = pin!(connector.connect_over(target, near));
    let mut cx = Context::from_waker(Waker::noop());
    let (mut server, mut client) = (None, None);
    while server.is_none() || client.is_none() {
        if server.is_none()
            && let Poll::Ready(result) = accepting.as_mut().poll(&mut cx)
        {
            server = Some(result.unwrap());
        }
        if client.is_none()
            && let Poll::Ready(result) = connecting.as_mut().poll(&mut cx)
        {
            client = Some(result.unwrap());
        }
    }
    (server.unwrap(), client.unwrap())
}

/// The message with this number: its number first, and of a size and kind that follow from it.
fn message(number: u64, random: &mut Random) -> Message {
    let size = match number % 37 {
        0 => 40_000 + number % 20_000,
        1..=4 => 2_000,
        _ => number % 150,
    };
    let fill = b'a' + (random.below(26) & 0x1f) as u8;
    let text = format!("{number:08}{}", String::from_utf8(vec![fill; size as usize]).unwrap());
    if number.is_multiple_of(2) { Message::Text(text) } else { Message::Binary(text.into_bytes().into()) }
}

/// One direction: messages that were taken and not received.
#[derive(Default)]
struct Direction {
    sent: std::collections::VecDeque<Message>,
    count: u64,
    received: u64,
}

impl Direction {
    /// Sends the next message; returns whether the future was dropped before it completed.
    fn send(&mut self, socket: &mut Socket, polls: usize, random: &mut Random) -> bool {
        let message = message(self.count, random);
        let result = poll_times(socket.send(&message), polls);
        if let Some(result) = &result {
            result.as_ref().unwrap();
        }
        // A message is taken when `send` is called, also if the future is never polled.
        self.count += 1;
        self.sent.push_back(message);
        result.is_none()
    }

    fn check(&mut self, received: &Message) {
        let expected = self.sent.pop_front().expect("no message twice");
        assert!(*received == expected, "message {}: {:?} is not {:?}", self.received, received.kind(), expected.kind());
        self.received += 1;
    }
}

/// Drops futures at random polls, `cancellations` times, and then checks that every message arrived once, in order.
fn storm(seed: u64, cancellations: u64, tls: bool, deflate: bool) {
    let (server, client) = connected(seed, tls, deflate);
    let mut ends = [server, client];
    let mut random = Random(seed);
    let mut directions = [Direction::default(), Direction::default()];
    let mut dropped = 0;
    while dropped < cancellations {
        let end = random.below(2) as usize;
        let polls = random.below(4) as usize;
        let is_behind = directions[end].sent.len() > 8;
        let cancelled = match random.below(5) {
            0 if !is_behind => directions[end].send(&mut ends[end], polls, &mut random),
            1 => match poll_times(ends[end].flush(), polls) {
                Some(result) => result.map(|()| false).unwrap(),
                None => true,
            },
            2 if !is_behind => {
                let message = message(directions[end].count, &mut random);
                if ends[end].feed(&message).is_ok() {
                    directions[end].count += 1;
                    directions[end].sent.push_back(message);
                }
                false
            }
            3 => {
                ends[end].ping(b"there?").ok();
                false
            }
            _ => match poll_times(ends[end].recv(), polls) {
                Some(received) => {
                    directions[1 - end].check(&received.unwrap().expect("open").to_message());
                    false
                }
                None => true,
            },
        };
        dropped += u64::from(cancelled);
    }
    // Everything that was taken arrives.
    for _ in 0..10_000_000 {
        for end in 0..2 {
            if let Some(received) = poll_times(ends[end].recv(), 3) {
                directions[1 - end].check(&received.unwrap().expect("open").to_message());
            }
        }
        if directions.iter().all(|direction| direction.sent.is_empty()) {
            break;
        }
    }
    assert!(directions.iter().all(|direction| direction.sent.is_empty() && direction.received == direction.count));
    assert!(directions.iter().all(|direction| direction.count > 10), "{}", directions[0].count);
    finish(ends);
}

/// Closes, while the futures of the closing are dropped after each poll.
fn finish([mut server, mut client]: [Socket; 2]) {
    drop(client.close(CloseCode::NORMAL, "done"));
    let mut ended = [false; 2];
    for _ in 0..1_000_000 {
        if !ended[0]
            && let Some(result) = poll_times(server.recv(), 1)
        {
            assert!(result.unwrap().is_none());
            ended[0] = true;
        }
        if !ended[1]
            && let Some(result) = poll_times(client.close(CloseCode::NORMAL, "again"), 1)
        {
            result.unwrap();
            ended[1] = true;
        }
        if ended == [true; 2] {
            break;
        }
    }
    assert_eq!(ended, [true; 2]);
    assert_eq!(server.closed().unwrap().reason, "done");
}

/// Cancellations of each of three tests. The long tests ask for more, together a million.
fn number() -> u64 {
    std::env::var("TAUTLINE_CANCELLATIONS").map_or(50_000, |number| number.parse().unwrap())
}

#[test]
fn nothing_is_lost_without_tls() {
    storm(1, number(), false, false);
}

#[test]
fn nothing_is_lost_over_tls() {
    storm(2, number(), true, false);
}

#[test]
fn nothing_is_lost_with_compression() {
    storm(3, number(), true, true);
}

#[test]
fn a_receive_may_be_dropped_at_each_of_its_polls() {
    for polls in 0..60 {
        let (mut server, mut client) = connected(4, true, false);
        server.feed(Outgoing::text("first")).unwrap();
        server.feed(Outgoing::binary(&[7; 500])).unwrap();
        let mut received = Vec::new();
        // The first receive is dropped at this poll; the others complete.
        let first = poll_times(async { client.recv().await.unwrap().unwrap().to_message() }, polls);
        received.extend(first);
        for _ in 0..100_000 {
            poll_times(server.flush(), 1);
            if let Some(message) = poll_times(client.recv(), 1) {
                received.push(message.unwrap().unwrap().to_message());
            }
            if received.len() == 2 {
                break;
            }
        }
        assert_eq!(received, [Message::from("first"), Message::from(vec![7; 500])], "{polls}");
    }
}

#[test]
fn a_send_may_be_dropped_at_each_of_its_polls() {
    for polls in 0..60 {
        let (mut server, mut client) = connected(5, true, false);
        let _ = poll_times(client.send(Outgoing::binary(&[9; 300])), polls);
        drop(client.send(Outgoing::text("second")));
        let mut received = Vec::new();
        for _ in 0..100_000 {
            poll_times(client.flush(), 1);
            if let Some(message) = poll_times(server.recv(), 1) {
                received.push(message.unwrap().unwrap().to_message());
            }
            if received.len() == 2 {
                break;
            }
        }
        assert_eq!(received, [Message::from(vec![9; 300]), Message::from("second")], "{polls}");
    }
}

#[test]
fn halves_lose_nothing_when_their_futures_are_dropped() {
    let (server, client) = connected(7, true, true);
    let (mut senders, mut receivers): (Vec<_>, Vec<_>) = [server.split(), client.split()].into_iter().unzip();
    let mut random = Random(7);
    let mut directions = [Direction::default(), Direction::default()];
    let mut dropped = 0;
    while dropped < 10_000 || directions.iter().any(|direction| !direction.sent.is_empty()) {
        let (end, polls) = (random.below(2) as usize, random.below(4) as usize);
        let direction = &mut directions[end];
        if dropped < 10_000 && random.below(2) == 0 && direction.sent.len() <= 8 {
            let message = message(direction.count, &mut random);
            let result = poll_times(senders[end].send(&message), polls);
            dropped += u64::from(result.is_none());
            result.into_iter().for_each(|result| result.unwrap());
            direction.count += 1;
            direction.sent.push_back(message);
        } else {
            match poll_times(receivers[end].recv(), polls) {
                Some(received) => directions[1 - end].check(&received.unwrap().expect("open")),
                None => dropped += 1,
            }
        }
    }
    assert!(directions.iter().all(|direction| direction.received == direction.count && direction.count > 10));
    let whole = |(sender, receiver): (Sender<pipe::End>, Receiver<pipe::End>)| receiver.reunite(sender).unwrap();
    let mut ends = senders.into_iter().zip(receivers).map(whole);
    finish([ends.next().unwrap(), ends.next().unwrap()]);
}

#[test]
fn futures_and_halves_are_send() {
    fn is_send<T: Send>(_: T) {}
    let (mut server, client) = connected(6, false, false);
    is_send(server.recv());
    is_send(server.send(Outgoing::text("x")));
    is_send(server.close(CloseCode::NORMAL, ""));
    let (sender, receiver) = client.split();
    is_send(sender);
    is_send(receiver);
    is_send(Acceptor::plain().accept(tokio::io::duplex(1).0));
}
