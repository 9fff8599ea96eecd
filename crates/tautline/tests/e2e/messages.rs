//! Messages of every size and form, with the library's own client and with a test's peer.

use crate::common::frame::{self, BINARY, CONTINUES, ENDS, Frame, PING, PONG, TEXT, TEXT_BEGINS, masked};
use crate::common::server::{client_config, config, server_config};
use crate::common::{App, Event, Over, Peer, Started, both, eventually, payload, serve, serve_at};
use std::time::Duration;
use tautline::{
    Address, Client, CloseCode, Config, DeflateConfig, Delivery, Handler, Incoming, Kind, Outgoing, Records, Rustls,
    Server, SlowConsumer, Socket, Tls,
};

const MIB: usize = 1 << 20;

fn large() -> Config {
    let mut config = config();
    config.limits.max_message = 8 * MIB;
    config
}

/// A text of `len` bytes, which compresses a little.
fn text(len: usize) -> String {
    let mut text = String::with_capacity(len + 4);
    let mut state = len as u64;
    while text.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        text.push(['a', 'b', 'c', 'ä', '€', '🦀', ' ', '"'][usize::from(state.to_le_bytes()[7] & 7)]);
    }
    while text.len() > len {
        text.pop();
    }
    while text.len() < len {
        text.push('.');
    }
    text
}

fn echoes_all_sizes(server: &Started, socket: &mut Socket) {
    for len in [0, 1, 2, 125, 126, 127, 1000, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537, MIB, 5 * MIB] {
        let sent = text(len);
        socket.text(&sent).unwrap();
        assert!(socket.receive().unwrap() == Incoming::Text(sent), "{:?} {len}", server.over);
        let sent = payload(len);
        socket.binary(&sent).unwrap();
        assert!(socket.receive().unwrap() == Incoming::Binary(sent), "{:?} {len}", server.over);
    }
}

#[test]
fn every_size_over_every_layer() {
    for over in [Over::Plain, Over::Fused, Over::Rustls, Over::Uring] {
        let server = serve(over, large(), App::default());
        let mut socket = Socket::connect(server.target(), client_config(), large()).unwrap();
        echoes_all_sizes(&server, &mut socket);
        socket.close(CloseCode::NORMAL, "").unwrap();
        server.survives();
    }
}

#[test]
fn every_size_sealed_by_several_threads() {
    let mut config = large();
    config.offload.records = Some(Records::default().with_min_message(40_000).with_threads(2));
    let server = serve(Over::Fused, config.clone(), App::default());
    let mut socket = Socket::connect(server.target(), client_config(), large()).unwrap();
    echoes_all_sizes(&server, &mut socket);
    // Ten messages are large enough. On a busy machine help is requested less often.
    assert!(server.counters().seals_offloaded >= 2, "{:?}", server.counters());
    socket.close(CloseCode::NORMAL, "").unwrap();
    server.survives();
    let refused =
        Server::new(Tls { engine: Rustls, config: server_config() }).listen(Address::Tcp(([127, 0, 0, 1], 0).into()));
    let error = refused.config(config).start(|_| App::default()).unwrap_err().to_string();
    assert!(error.contains("rustls cannot have") && error.contains("take an engine that can"), "{error}");
}

/// The socket's buffer fills up again and again while several threads seal and send.
#[test]
fn a_slow_reader_of_messages_sealed_by_several_threads() {
    for over in [Over::Fused, Over::Uring] {
        let mut config = large();
        config.offload.records = Some(Records::default().with_min_message(200_000).with_threads(1));
        config.slow_consumer = SlowConsumer::Disconnect(256 * MIB);
        let server = serve(over, config, App::default());
        let mut peer = server.peer();
        let messages: Vec<Vec<u8>> = (0..8).map(|number| payload(3 * MIB + number)).collect();
        let wire: Vec<Vec<u8>> = messages.iter().map(|message| peer.seal(&masked(BINARY, message))).collect();
        let mut reader = Peer::over(peer.socket.try_clone().unwrap());
        let writer = std::thread::spawn(move || wire.iter().for_each(|wire| reader.send_wire(wire)));
        std::thread::sleep(Duration::from_millis(50));
        for message in &messages {
            let Frame { first, payload } = peer.frame();
            assert!(first == BINARY && payload == *message, "{over:?}: {} of {}", payload.len(), message.len());
        }
        writer.join().unwrap();
        assert!(server.counters().seals_offloaded > 0, "{:?}", server.counters());
        peer.close();
        server.survives();
    }
}

#[test]
fn every_size_compressed() {
    for deflate in [DeflateConfig::default(), DeflateConfig::with_context_takeover()] {
        let mut config = large();
        config.upgrade.deflate = Some(deflate);
        let server = serve(Over::Fused, config, App::default());
        let mut target = server.target();
        target.deflate = Some(deflate);
        let mut socket = Socket::connect(target, client_config(), large()).unwrap();
        assert!(server.events.open(0).1.deflate);
        echoes_all_sizes(&server, &mut socket);
        // Equal messages: with context takeover each refers to the previous one.
        let before = server.counters().bytes_in;
        let same = text(10_000);
        for i in 0..20 {
            socket.send(Outgoing::text(&same)).unwrap();
            assert_eq!(socket.receive().unwrap(), Incoming::Text(same.clone()), "{i}");
            socket.send(Outgoing::text("not compressed").uncompressed()).unwrap();
            assert_eq!(socket.receive().unwrap(), Incoming::Text("not compressed".into()));
        }
        let spent = server.counters().bytes_in - before;
        assert!(spent < 20 * 8_000, "{spent}");
        assert_eq!(spent < 20 * 1_500, !deflate.client_no_context_takeover, "{spent}");
        socket.close(CloseCode::NORMAL, "").unwrap();
        server.survives();
    }
}

#[test]
fn order_survives_backpressure() {
    both(|over| {
        let mut config = config();
        config.slow_consumer = SlowConsumer::Disconnect(256 * MIB);
        let server = serve(over, config, App::default());
        let mut peer = server.peer();
        // The peer sends without reading, more than the kernel's buffers hold in both directions.
        let mut reader = Peer::over(peer.socket.try_clone().unwrap());
        let total: u32 = 10_000;
        let wire: Vec<Vec<u8>> = (0..total / 100)
            .map(|hundred| {
                let plain: Vec<u8> = (hundred * 100..hundred * 100 + 100)
                    .flat_map(|i| masked(BINARY, &[&i.to_be_bytes()[..], &[0; 1000]].concat()))
                    .collect();
                peer.seal(&plain)
            })
            .collect();
        let writer = std::thread::spawn(move || wire.iter().for_each(|wire| reader.send_wire(wire)));
        std::thread::sleep(Duration::from_millis(100));
        for i in 0..total {
            let Frame { first, payload } = peer.frame();
            assert_eq!((first, payload.len(), &payload[..4]), (BINARY, 1004, &i.to_be_bytes()[..]), "{over:?}");
        }
        writer.join().unwrap();
        peer.close();
        server.survives();
    });
}

#[test]
fn answers_of_one_turn_leave_together() {
    for over in [Over::Fused, Over::Rustls] {
        let server = serve(over, config(), App::default());
        let mut peer = server.peer();
        // After this echo all tickets of the handshake have arrived.
        peer.echoes("first");
        let ten: Vec<u8> = (0..10).flat_map(|i| masked(TEXT, format!("message {i}").as_bytes())).collect();
        peer.send(&ten);
        // A single record: the header, ten answers of eleven bytes, the content type and the tag.
        assert_eq!(peer.record(), 5 + 10 * 11 + 1 + 16, "{over:?}");
        for i in 0..10 {
            assert_eq!(peer.frame().text(), format!("message {i}"));
        }
        peer.close();
        server.survives();
    }
}

#[test]
fn fragments_and_pings_interleave() {
    both(|over| {
        let app = App::default().on_message(|_, conn, message| {
            if message.text() == Some("well") {
                conn.send(Outgoing::from(&message));
                return;
            }
            for word in ["all ", "in ", "", "good "] {
                assert_eq!(conn.fragment(Kind::Text, word.as_bytes(), false), Delivery::Sent);
                conn.ping(word.as_bytes()).unwrap();
            }
            assert_eq!(conn.text("not now"), Delivery::Dropped);
            assert_eq!(conn.fragment(Kind::Binary, b"time", true), Delivery::Dropped);
            assert_eq!(conn.fragment(Kind::Text, b"time", true), Delivery::Sent);
            assert_eq!(conn.text("now"), Delivery::Sent);
            assert!(conn.ping(&[0; 126]).is_err());
        });
        let server = serve(over, config(), app);
        let mut peer = server.peer();
        peer.send(&masked(TEXT, b"go"));
        let words =
            [(TEXT_BEGINS, "all "), (PING, "all "), (CONTINUES, "in "), (PING, "in "), (CONTINUES, ""), (PING, "")];
        let words = words.into_iter().chain([(CONTINUES, "good "), (PING, "good "), (ENDS, "time"), (TEXT, "now")]);
        for (first, text) in words {
            assert_eq!(peer.frame(), Frame { first, payload: text.into() });
        }
        peer.send(&masked(PONG, b"good "));
        peer.close();
        assert!(server.events.all().iter().any(|event| matches!(event, Event::Pong(payload) if payload == b"good ")));
        // The library's own client assembles the fragments.
        let mut socket = server.socket();
        socket.text("go").unwrap();
        assert_eq!(socket.receive().unwrap(), Incoming::Text("all in good time".into()));
        assert_eq!(socket.receive().unwrap(), Incoming::Text("now".into()));
        socket.close(CloseCode::NORMAL, "").unwrap();
        server.survives();
    });
}

#[test]
fn pings_are_answered_with_their_payload_at_once() {
    both(|over| {
        let server = serve(over, config(), App::default());
        let mut peer = server.peer();
        peer.send(&masked(TEXT_BEGINS, b"in the middle "));
        for payload in [vec![], vec![0xff; 1], payload(125)] {
            peer.send(&masked(PING, &payload));
            assert_eq!(peer.frame(), Frame { first: PONG, payload });
        }
        // A pong without a ping is ignored.
        peer.send(&masked(PONG, b"hm"));
        peer.send(&masked(ENDS, b"of it"));
        assert_eq!(peer.frame().text(), "in the middle of it");
        peer.close();
        server.survives();
    });
}

#[test]
fn messages_can_be_taken_in_pieces() {
    both(|over| {
        let app = App::default().on_message(|_, _, _| panic!("whole messages are not for streaming")).on_chunk(
            |events, conn, chunk| {
                let so_far = conn.state();
                *so_far = if chunk.first { 0 } else { *so_far } + chunk.data.len() as u64;
                if chunk.data.len() > 300_000 {
                    events.note("a chunk larger than what arrives at once");
                }
                if chunk.last {
                    let answer = format!("{:?} {}", chunk.kind, conn.state());
                    conn.text(&answer);
                }
            },
        );
        let mut config = config();
        config.streaming = true;
        config.limits.max_message = 64 * MIB;
        let server = serve(over, config, app);
        let mut peer = server.peer();
        for (kind, len) in [(TEXT, 0), (TEXT, 5), (BINARY, 100_000), (BINARY, 20 * MIB)] {
            peer.send(&masked(kind, &vec![b'x'; len]));
            let kind = if kind == TEXT { "Text" } else { "Binary" };
            assert_eq!(peer.frame().text(), format!("{kind} {len}"));
        }
        peer.send(&[masked(TEXT_BEGINS, b"\xe2"), masked(PING, b""), masked(ENDS, b"\x82\xac")].concat());
        assert_eq!(peer.frame().first, PONG);
        assert_eq!(peer.frame().text(), "Text 3");
        // Invalid UTF-8 and too long messages are still rejected.
        peer.send(&[masked(TEXT_BEGINS, b"\xe2"), masked(ENDS, b"\x82")].concat());
        assert_eq!(peer.close_frame().0, 1007);
        peer = server.peer();
        peer.send(&[frame::header(BINARY, 0x80, 64 * MIB as u64 + 1), vec![0; 4]].concat());
        assert_eq!(peer.close_frame().0, 1009);
        drop(peer);
        assert!(!server.events.all().iter().any(|event| matches!(event, Event::Note(_))));
        server.forgets();
        server.stop();
    });
}

#[test]
fn unix_sockets() {
    let path = std::env::temp_dir().join(format!("tautline-e2e-{}.sock", std::process::id()));
    let address = format!("unix:{}", path.display());
    both(|over| {
        for shards in [1, 2] {
            let server = serve_at(&address, over, shards, large(), App::default());
            assert!(path.exists());
            let mut socket = server.socket();
            echoes_all_sizes(&server, &mut socket);
            socket.close(CloseCode::NORMAL, "").unwrap();
            server.survives();
            assert!(!path.exists());
        }
    });
}

#[test]
fn ipv6() {
    let server = serve_at("[::1]:0", Over::Fused, 1, config(), App::default());
    assert!(server.address.to_string().starts_with("[::1]:"));
    server.survives();
}

#[test]
fn thousands_of_connections_in_one_loop() {
    const COUNT: usize = 2_000;
    tautline::layers::io::machine::raise_nofile_limit().unwrap();
    let server = serve(Over::Plain, config(), App::default());
    let mut peers: Vec<Peer> = (0..COUNT).map(|_| server.peer()).collect();
    assert_eq!(server.counters().open, COUNT as u64);
    for round in 0..3 {
        for (at, peer) in peers.iter_mut().enumerate() {
            peer.send(&masked(TEXT, format!("{round} {at}").as_bytes()));
        }
        for (at, peer) in peers.iter_mut().enumerate() {
            assert_eq!(peer.frame().text(), format!("{round} {at}"));
        }
    }
    drop(peers);
    server.survives();
}

#[test]
fn a_client_holds_many_connections_in_one_loop() {
    const COUNT: usize = 200;
    let server = serve(Over::Fused, config(), App::default());
    let app = App::default().greets("0").on_message(|_, conn, message| {
        let n: u32 = message.text().unwrap().parse().unwrap();
        if n == 20 {
            conn.close(CloseCode::NORMAL, "");
        } else {
            conn.text(&(n + 1).to_string());
        }
    });
    let events = app.events.clone();
    let mut client = Client::new(client_config());
    for _ in 0..COUNT {
        client = client.target(server.target());
    }
    client.run(app).unwrap();
    let ends = events
        .all()
        .iter()
        .filter(|event| matches!(event, Event::Close(_, closed) if closed.code == CloseCode::NORMAL))
        .count();
    assert_eq!(ends, COUNT);
    eventually("all counted", || server.counters().messages_in == 21 * COUNT as u64);
    server.survives();
}

#[test]
fn a_client_and_a_server_flood_each_other() {
    both(|over| {
        /// Sends all messages at once, and no answers.
        struct Flood(usize);
        impl Handler for Flood {
            type State = ();
            fn on_open(&mut self, conn: &mut tautline::Conn<'_, ()>, _opening: &tautline::Opening<'_>) {
                for _ in 0..64 {
                    conn.binary(&vec![3; MIB]);
                }
            }
            fn on_message(&mut self, conn: &mut tautline::Conn<'_, ()>, message: tautline::Message<'_>) {
                self.0 += message.data().len();
                if self.0 == 64 * MIB {
                    conn.close(CloseCode::NORMAL, "");
                }
            }
        }
        let mut config = config();
        config.slow_consumer = SlowConsumer::Disconnect(256 * MIB);
        config.deadlines.send = Duration::from_secs(5);
        let server = serve(over, config.clone(), App::default());
        let client = Client::new(client_config()).target(server.target()).config(config);
        // Neither end waits for the other to read first.
        assert_eq!(client.run(Flood(0)).unwrap().0, 64 * MIB);
        server.survives();
    });
}

#[test]
fn a_socket_gets_whole_messages_and_keeps_its_timeout() {
    let server = serve(Over::Fused, config(), App::default());
    // A socket cannot deliver pieces, so it ignores this.
    let mut streaming = config();
    streaming.streaming = true;
    let mut socket = Socket::connect(server.target(), client_config(), streaming).unwrap();
    socket.text("whole").unwrap();
    assert_eq!(socket.receive_timeout(Duration::MAX).unwrap(), Some(Incoming::Text("whole".into())));
    assert_eq!(socket.receive_timeout(Duration::ZERO).unwrap(), None);
    socket.close(CloseCode::NORMAL, "").unwrap();
    server.forgets();
    server.stop();
}
