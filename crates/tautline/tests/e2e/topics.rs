//! Publishing to many connections over several loops.

use crate::common::frame::{TEXT, masked};
use crate::common::server::{client_config, config};
use crate::common::{App, Events, Over, Peer, Started, both, eventually, serve, serve_at};
use tautline::{ClientTls, CloseCode, Config, Conn, DeflateConfig, Incoming, Message, Outgoing, SlowConsumer, Socket};

/// `+TOPIC` subscribes, `-TOPIC` leaves, `TOPIC:TEXT` publishes; the first two are answered.
fn obey(_events: &Events, conn: &mut Conn<'_, u64>, message: Message<'_>) {
    let text = message.text().unwrap();
    if let Some(topic) = text.strip_prefix('+') {
        let told = if conn.subscribe(topic) { "in" } else { "full" };
        conn.text(told);
    } else if let Some(topic) = text.strip_prefix('-') {
        conn.unsubscribe(topic);
        conn.text("out");
    } else if let Some((topic, text)) = text.split_once(':') {
        conn.publish(topic, Outgoing::text(text));
    } else {
        conn.send(Outgoing::from(&message));
    }
}

fn start(over: Over, shards: usize, config: Config) -> Started {
    serve_at("127.0.0.1:0", over, shards, config, App::default().on_message(obey))
}

fn ask(peer: &mut Peer, command: &str) -> String {
    peer.send(&masked(TEXT, command.as_bytes()));
    peer.frame().text().to_owned()
}

/// Peers until each of two loops has at least so many.
fn spread(server: &Started, at_least: usize) -> Vec<Peer> {
    let mut peers = Vec::new();
    let mut counts = [0, 0];
    while counts.iter().any(|count| *count < at_least) {
        peers.push(server.peer());
        let (conn, _) = server.events.open(peers.len() - 1);
        counts[conn.shard as usize] += 1;
        assert!(peers.len() < 200, "{counts:?}");
    }
    peers
}

#[test]
fn subscribers_on_all_loops_get_it_in_order() {
    both(|over| {
        let server = start(over, 2, config());
        let mut peers = spread(&server, 3);
        for peer in &mut peers {
            assert_eq!(ask(peer, "+news"), "in");
            // Once is enough.
            assert_eq!(ask(peer, "+news"), "in");
        }
        let mut outsider = server.peer();
        // From a handler, whose own connection is a subscriber too.
        for i in 0..50 {
            peers[0].send(&masked(TEXT, format!("news:{i}").as_bytes()));
        }
        for peer in &mut peers {
            for i in 0..50 {
                assert_eq!(peer.frame().text(), i.to_string());
            }
        }
        // From outside of the loops.
        server.running.publish("news", Outgoing::text("from afar")).unwrap();
        server.running.publish("old news", Outgoing::text("nobody hears it")).unwrap();
        for peer in &mut peers {
            assert_eq!(peer.frame().text(), "from afar");
        }
        // From one loop only.
        server.running.remotes()[1].publish("news", Outgoing::text("partly")).unwrap();
        server.running.publish("news", Outgoing::text("for all")).unwrap();
        for (n, peer) in peers.iter_mut().enumerate() {
            if server.events.open(n).0.shard == 1 {
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
fn leaving_and_closing_unsubscribe() {
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
    // A newcomer takes the slot, and not the subscriptions.
    let mut newcomer = server.peer();
    let before = server.counters().messages_out;
    server.running.publish("a", Outgoing::text("for a")).unwrap();
    server.running.publish("b", Outgoing::text("for b")).unwrap();
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
    for (command, told) in [
        ("+a", "in"),
        ("+b", "in"),
        ("+c", "in"),
        ("+d", "full"),
        ("+a", "in"),
        ("-b", "out"),
        ("+d", "in"),
        ("+b", "full"),
    ] {
        assert_eq!(ask(&mut peer, command), told, "{command}");
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
        server.running.publish("all", Outgoing::text(&format!("{i} {}", "x".repeat(100)))).unwrap();
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
fn a_published_message_is_compressed_for_those_who_can_read_it() {
    let takeover = DeflateConfig::with_context_takeover();
    let narrow = DeflateConfig { server_max_window_bits: 10, ..takeover };
    let mut config = config();
    config.upgrade.deflate = Some(takeover);
    let server = start(Over::Fused, 1, config.clone());
    let wishes = [None, Some(DeflateConfig::default()), Some(takeover), Some(narrow), Some(takeover), Some(narrow)];
    let mut sockets: Vec<Socket> = wishes
        .into_iter()
        .map(|deflate| {
            let mut target = server.target();
            target.deflate = deflate;
            let mut socket = Socket::connect(target, ClientTls::from(client_config()), config.clone()).unwrap();
            socket.send(Outgoing::text("+feed")).unwrap();
            assert_eq!(socket.receive().unwrap(), Incoming::Text("in".into()));
            socket
        })
        .collect();
    // Longer than the narrow window, and longer than what is copied before it is sealed.
    let words = "published to all of them, compressed once for each window; ".repeat(600);
    for round in 0..3 {
        let news = format!("{round} {words}");
        let before = server.counters();
        server.running.publish("feed", Outgoing::text(&news)).unwrap();
        for socket in &mut sockets {
            assert_eq!(socket.receive().unwrap(), Incoming::Text(news.clone()), "{round}");
        }
        let after = server.counters();
        let sent = usize::try_from(after.bytes_out - before.bytes_out).unwrap();
        assert!((news.len()..news.len() + 5 * 2_000).contains(&sent), "{sent}");
        let runs = after.publications_compressed - before.publications_compressed;
        assert_eq!(runs, 2, "once for each window, not for each of five who can read it");
        // A window that is kept goes on behind it.
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
fn one_slow_subscriber_holds_nobody_up() {
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
        server.running.publish("feed", Outgoing::text(&format!("{count} {large}"))).unwrap();
        assert!(fast.frame().text().starts_with(&format!("{count} ")));
        count += 1;
    }
    server.running.publish("feed", Outgoing::text("the end")).unwrap();
    assert_eq!(fast.frame().text(), "the end");
    // The slow one gets the newest and in order, with gaps.
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
fn a_handler_that_publishes_in_answer_to_itself_spins_no_loop() {
    // Each delivery is a message to the client, not to the handler; publishing from on_close reaches the others.
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
    server.running.remotes()[0].close(server.events.open(0).0, CloseCode::NORMAL, "").unwrap();
    assert_eq!(peer.close_frame().0, 1000);
    drop(peer);
    eventually("it is gone", || server.counters().connections == 0);
    server.stop();
}
