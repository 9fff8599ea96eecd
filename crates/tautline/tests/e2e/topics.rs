//! Publishing to many connections on several loops.

use crate::common::frame::{TEXT, masked};
use crate::common::server::{client_config, config};
use crate::common::{App, Events, Over, Peer, Started, both, eventually, serve, serve_at};
use std::sync::mpsc::channel;
use std::time::Duration;
use tautline::{CloseCode, Config, Conn, DeflateConfig, Incoming, Message, Outgoing, Recipients, SlowConsumer, Socket};

/// Subscribes on `+TOPIC`, unsubscribes on `-TOPIC`, publishes on `TOPIC:TEXT` and sends to all on `*TEXT`. The first two are
/// answered.
fn handle_command(_events: &Events, conn: &mut Conn<'_, u64>, message: Message<'_>) {
    let text = message.text().unwrap();
    if let Some(topic) = text.strip_prefix('+') {
        let result = if conn.subscribe(topic) { "in" } else { "full" };
        conn.text(result);
    } else if let Some(topic) = text.strip_prefix('-') {
        conn.unsubscribe(topic);
        conn.text("out");
    } else if let Some(text) = text.strip_prefix('*') {
        conn.broadcast(Outgoing::text(text));
    } else if let Some((topic, text)) = text.split_once(':') {
        conn.publish(topic, Outgoing::text(text));
    } else {
        conn.send(Outgoing::from(&message));
    }
}

fn start(over: Over, shards: usize, config: Config) -> Started {
    serve_at("127.0.0.1:0", over, shards, config, App::default().on_message(handle_command))
}

fn ask(peer: &mut Peer, command: &str) -> String {
    peer.send(&masked(TEXT, command.as_bytes()));
    peer.frame().text().to_owned()
}

/// Connects peers until each of two loops has `at_least` of them.
fn spread(server: &Started, at_least: usize) -> Vec<Peer> {
    let mut peers = Vec::new();
    let mut counts = [0, 0];
    while counts.iter().any(|count| *count < at_least) {
        peers.push(server.peer());
        let (conn, _) = server.events.open(peers.len() - 1);
        counts[conn.shard() as usize] += 1;
        assert!(peers.len() < 200, "{counts:?}");
    }
    peers
}

#[test]
fn subscribers_on_all_loops_get_messages_in_order() {
    both(|over| {
        let server = start(over, 2, config());
        let mut peers = spread(&server, 3);
        for peer in &mut peers {
            assert_eq!(ask(peer, "+news"), "in");
            // A second subscription has no effect.
            assert_eq!(ask(peer, "+news"), "in");
        }
        let mut outsider = server.peer();
        // Published by a handler, whose own connection is a subscriber too.
        for i in 0..50 {
            peers[0].send(&masked(TEXT, format!("news:{i}").as_bytes()));
        }
        for peer in &mut peers {
            for i in 0..50 {
                assert_eq!(peer.frame().text(), i.to_string());
            }
        }
        // Published by another thread.
        server.handle.publish("news", Outgoing::text("from afar")).unwrap();
        server.handle.publish("old news", Outgoing::text("nobody hears it")).unwrap();
        for peer in &mut peers {
            assert_eq!(peer.frame().text(), "from afar");
        }
        // Published on one loop only.
        server.handle.shards()[1].publish("news", Outgoing::text("partly")).unwrap();
        server.handle.publish("news", Outgoing::text("for all")).unwrap();
        for (n, peer) in peers.iter_mut().enumerate() {
            if server.events.open(n).0.shard() == 1 {
                assert_eq!(peer.frame().text(), "partly");
            }
            assert_eq!(peer.frame().text(), "for all");
        }
        outsider.echoes("heard nothing");
        drop((peers, outsider));
        server.survives();
    });
}

#[test]
fn messages_to_all_need_no_subscription() {
    both(|over| {
        let server = start(over, 2, config());
        let mut peers = spread(&server, 3);
        assert_eq!(ask(&mut peers[1], "+news"), "in");
        // A slot without a connection is passed over, and taken again later.
        drop(peers.remove(2));
        eventually("a connection ends", || server.counters().open == peers.len() as u64);
        for round in 0..3 {
            peers[0].send(&masked(TEXT, format!("*to all {round}").as_bytes()));
            server.handle.publish("news", Outgoing::text("to one")).unwrap();
            for (n, peer) in peers.iter_mut().enumerate() {
                let mut heard = vec![peer.frame().text().to_owned()];
                if n == 1 {
                    heard.push(peer.frame().text().to_owned());
                    heard.sort();
                }
                let expected = if n == 1 {
                    vec![format!("to all {round}"), "to one".into()]
                } else {
                    vec![format!("to all {round}")]
                };
                assert_eq!(heard, expected, "{n}");
            }
            peers.push(server.peer());
        }
        server.handle.broadcast(Outgoing::text("from afar")).unwrap();
        for peer in &mut peers {
            assert_eq!(peer.frame().text(), "from afar");
        }
        drop(peers);
        server.survives();
    });
}

#[test]
fn a_receipt_counts_the_deliveries_of_all_loops() {
    let (sender, receipts) = channel();
    let from_handler = sender.clone();
    let app = App::default().on_message(move |_, conn, message| {
        if message.text() == Some("subscribe") {
            assert!(conn.subscribe("news"));
        } else if message.text() == Some("publish") {
            let sender = from_handler.clone();
            conn.publish_counted("news", Outgoing::from(&message), move |receipt| sender.send(receipt).unwrap());
        }
        conn.send(Outgoing::from(&message));
    });
    let server = serve_at("127.0.0.1:0", Over::Plain, 2, config(), app);
    let mut peers = spread(&server, 3);
    let subscribers = peers.len() - 1;
    for peer in &mut peers[1..] {
        assert_eq!(ask(peer, "subscribe"), "subscribe");
    }
    let done = || {
        let sender = sender.clone();
        move |receipt| sender.send(receipt).unwrap()
    };
    let sent = || receipts.recv_timeout(Duration::from_secs(60)).unwrap().sent;
    assert_eq!(ask(&mut peers[0], "publish"), "publish");
    assert_eq!(sent(), subscribers as u64);
    let (news, handle) = (Outgoing::text("news"), &server.handle);
    handle.publish_counted("news", news, done()).unwrap();
    assert_eq!(sent(), subscribers as u64);
    handle.publish_counted(Recipients::All, news, done()).unwrap();
    assert_eq!(sent(), subscribers as u64 + 1);
    let conns: Vec<_> = (0..peers.len()).map(|n| server.events.open(n).0).collect();
    handle.publish_counted(&conns[1..3], news, done()).unwrap();
    assert_eq!(sent(), 2);
    for (n, peer) in peers.iter_mut().enumerate() {
        let expected: &[&str] = match n {
            0 => &["news"],
            1 | 2 => &["publish", "news", "news", "news"],
            _ => &["publish", "news", "news"],
        };
        for text in expected {
            assert_eq!(peer.frame().text(), *text, "{n}");
        }
    }
    drop(peers);
    server.survives();
}

#[test]
fn unsubscribing_and_closing_end_subscriptions() {
    let server = start(Over::Plain, 1, config());
    let (mut stays, mut leaves, mut closes) = (server.peer(), server.peer(), server.peer());
    for peer in [&mut stays, &mut leaves, &mut closes] {
        assert_eq!(ask(peer, "+a"), "in");
        assert_eq!(ask(peer, "+b"), "in");
    }
    assert_eq!(ask(&mut leaves, "-a"), "out");
    assert_eq!(ask(&mut leaves, "-never subscribed"), "out");
    closes.close();
    server.events.close(server.events.open(2).0);
    // A new connection takes the slot of the closed one, but not its subscriptions.
    let mut newcomer = server.peer();
    let before = server.counters().messages_out;
    server.handle.publish("a", Outgoing::text("for a")).unwrap();
    server.handle.publish("b", Outgoing::text("for b")).unwrap();
    assert_eq!(stays.frame().text(), "for a");
    assert_eq!(stays.frame().text(), "for b");
    assert_eq!(leaves.frame().text(), "for b");
    newcomer.echoes("nothing for me");
    assert_eq!(server.counters().messages_out, before + 4);
    drop((stays, leaves, newcomer));
    server.survives();
}

#[test]
fn subscriptions_are_limited() {
    let mut config = config();
    config.limits.max_subscriptions = 3;
    let server = start(Over::Plain, 1, config);
    let mut peer = server.peer();
    for (command, answer) in [
        ("+a", "in"),
        ("+b", "in"),
        ("+c", "in"),
        ("+d", "full"),
        ("+a", "in"),
        ("-b", "out"),
        ("+d", "in"),
        ("+b", "full"),
    ] {
        assert_eq!(ask(&mut peer, command), answer, "{command}");
    }
    drop(peer);
    server.survives();
}

#[test]
fn a_thousand_subscribers() {
    const COUNT: usize = 1_000;
    tautline::layers::io::machine::raise_nofile_limit().unwrap();
    let server = start(Over::Plain, 2, config());
    let mut peers: Vec<Peer> = (0..COUNT)
        .map(|_| {
            let mut peer = server.peer();
            assert_eq!(ask(&mut peer, "+all"), "in");
            peer
        })
        .collect();
    for i in 0..20 {
        server.handle.publish("all", Outgoing::text(&format!("{i} {}", "x".repeat(100)))).unwrap();
    }
    for peer in &mut peers {
        for i in 0..20 {
            assert!(peer.frame().text().starts_with(&format!("{i} ")));
        }
    }
    assert_eq!(server.counters().messages_dropped, 0);
    drop(peers);
    server.survives();
}

#[test]
fn a_published_message_is_compressed_once_per_window_size() {
    let takeover = DeflateConfig::with_context_takeover();
    let mut narrow = takeover;
    narrow.server_max_window_bits = 10;
    let mut config = config();
    config.upgrade.deflate = Some(takeover);
    let server = start(Over::Fused, 1, config.clone());
    let wishes = [None, Some(DeflateConfig::default()), Some(takeover), Some(narrow), Some(takeover), Some(narrow)];
    let mut sockets: Vec<Socket> = wishes
        .into_iter()
        .map(|deflate| {
            let mut target = server.target();
            target.deflate = deflate;
            let mut socket = Socket::connect(target, client_config(), config.clone()).unwrap();
            socket.send(Outgoing::text("+feed")).unwrap();
            assert_eq!(socket.receive().unwrap(), Incoming::Text("in".into()));
            socket
        })
        .collect();
    // Longer than the narrow window, and long enough to be sealed without a copy.
    let words = "published to all of them, compressed once for each window; ".repeat(600);
    for round in 0..3 {
        let news = format!("{round} {words}");
        let before = server.counters();
        server.handle.publish("feed", Outgoing::text(&news)).unwrap();
        for socket in &mut sockets {
            assert_eq!(socket.receive().unwrap(), Incoming::Text(news.clone()), "{round}");
        }
        let after = server.counters();
        let sent = usize::try_from(after.bytes_out - before.bytes_out).unwrap();
        assert!((news.len()..news.len() + 5 * 2_000).contains(&sent), "{sent}");
        let runs = after.publications_compressed - before.publications_compressed;
        assert_eq!(runs, 2, "once per window size, for five subscribers with compression");
        // With context takeover, later messages still decompress.
        for socket in &mut sockets {
            for _ in 0..2 {
                socket.send(Outgoing::text(&words)).unwrap();
                assert_eq!(socket.receive().unwrap(), Incoming::Text(words.clone()), "{round}");
            }
        }
    }
    drop(sockets);
    server.survives();
}

#[test]
fn a_slow_subscriber_does_not_delay_others() {
    let mut config = config();
    config.slow_consumer = SlowConsumer::DropOldest(100_000);
    let server = start(Over::Fused, 1, config);
    let (mut slow, mut fast) = (server.peer(), server.peer());
    for peer in [&mut slow, &mut fast] {
        assert_eq!(ask(peer, "+feed"), "in");
    }
    let large = "x".repeat(10_000);
    let mut count = 0;
    while server.counters().messages_dropped < 100 {
        server.handle.publish("feed", Outgoing::text(&format!("{count} {large}"))).unwrap();
        assert!(fast.frame().text().starts_with(&format!("{count} ")));
        count += 1;
    }
    server.handle.publish("feed", Outgoing::text("the end")).unwrap();
    assert_eq!(fast.frame().text(), "the end");
    // The slow subscriber gets the newest messages in order, with gaps.
    let mut last = None;
    loop {
        let frame = slow.frame();
        let Some((number, _)) = frame.text().split_once(' ') else { break };
        if frame.text() == "the end" {
            break;
        }
        let number: u32 = number.parse().unwrap();
        assert!(last.is_none_or(|last| last < number));
        last = Some(number);
    }
    assert_eq!(last, Some(count - 1));
    drop((slow, fast));
    server.survives();
}

#[test]
fn publishing_to_the_own_connection_does_not_repeat() {
    // A publication goes to clients, and never back to a handler.
    let app = App::default().on_message(|_, conn, message| {
        conn.subscribe("room");
        conn.publish("room", Outgoing::from(&message));
        conn.publish("room", Outgoing::from(&message));
    });
    let server = serve(Over::Plain, config(), app);
    let mut peer = server.peer();
    peer.send(&masked(TEXT, b"hello"));
    assert_eq!(peer.frame().text(), "hello");
    assert_eq!(peer.frame().text(), "hello");
    server.handle.shards()[0].close(server.events.open(0).0, CloseCode::NORMAL, "").unwrap();
    assert_eq!(peer.close_frame().0, 1000);
    drop(peer);
    eventually("no connection left", || server.counters().connections == 0);
    server.stop();
}

#[test]
fn a_message_to_one_connection_keeps_its_place_among_published_ones() {
    both(|over| {
        let app = App::default().on_message(|_, conn, _| {
            let own = conn.id();
            conn.subscribe("all");
            conn.send_to(&[own], Outgoing::text("1"));
            conn.send_to(&[own], Outgoing::text("2"));
            conn.publish("all", Outgoing::text("3"));
            conn.send_to(&[own], Outgoing::text("4"));
            conn.broadcast(Outgoing::text("5"));
            conn.send_to(&[own], Outgoing::binary(&[7; 100_000]));
            conn.broadcast(Outgoing::text("6"));
        });
        let server = serve(over, config(), app);
        let mut peer = server.peer();
        peer.send(&masked(TEXT, b"go"));
        for expected in ["1", "2", "3", "4", "5"] {
            assert_eq!(peer.frame().text(), expected);
        }
        assert_eq!(peer.frame().payload.len(), 100_000);
        assert_eq!(peer.frame().text(), "6");
        drop(peer);
        server.forgets();
        server.stop();
    });
}
