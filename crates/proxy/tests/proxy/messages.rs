//! Routes whose messages pass, between real sockets: ends whose every byte the test chooses on both sides.

use crate::kit;
use crate::kit::wire::{self, BINARY, CLOSE, End, PING, PONG, TEXT, closing, frame};
use crate::kit::{body_of, messages, of_text, parsed, raw_config, scripted, start, start_with};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use tautline::{
    AccessLog, ClientConfig, CloseCode, Config, Conn, DeflateConfig, Handler, Incoming, Message, Outgoing, Plain,
    Server, ServerHandle, Socket, Target, Tls,
};
use tautline_proxy::messages::Messages;
use tautline_proxy::plan::Action;
use tautline_proxy::tally::{Figures, RouteFigures, ServerFigures};
use tautline_proxy::{Live, config};

/// A proxy in message mode, its servers' ends, and its plan.
fn proxy(keys: &str) -> (ServerHandle, Receiver<End>, Live) {
    let (server, ends) = wire::server("");
    let live = parsed(&messages(&server, keys));
    (start(live.clone()), ends, live)
}

fn of(live: &Live) -> Arc<Messages> {
    match &live.plan().routes[0].action {
        Action::Forward(forward) => forward.messages.clone().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The figures of the route and of its server.
fn figures(live: &Live) -> (RouteFigures, ServerFigures) {
    let Figures { routes, backends, .. } = Figures::of(&live.plan(), Instant::now());
    (routes[1].clone(), backends[0].servers[0].clone())
}

/// Waits until no pair counts any more.
fn await_no_tunnel(live: &Live) {
    let end = Instant::now() + kit::LONG;
    while figures(live).1.tunnels > 0 {
        assert!(Instant::now() < end, "{:?}", figures(live));
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until nothing is left of any connection.
fn await_nothing(proxy: &ServerHandle) {
    let left = || {
        let counters = proxy.shards()[0].counters();
        (counters.connections, counters.open, counters.memory_sending, counters.memory_heads, counters.memory_partial)
    };
    let end = Instant::now() + kit::LONG;
    while left() != (0, 0, 0, 0, 0) && Instant::now() < end {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(left(), (0, 0, 0, 0, 0));
}

#[test]
fn whole_messages_pass_both_ways() {
    let (proxy, servers, live) = proxy("");
    let (mut client, mut server) = End::pair(&proxy, &servers);
    assert!(server.head.contains("get /ws http/1.1\r\n") && server.head.contains("x-forwarded-for: 127.0.0.1\r\n"));
    let long = vec![7; 70_000];
    for (first, payload) in [(TEXT, &b"hello"[..]), (BINARY, &[0, 255]), (TEXT, b""), (BINARY, &long[..])] {
        client.send(first, payload);
        assert_eq!(server.next(), (first, payload.to_vec()));
        server.send(first, payload);
        assert_eq!(client.next(), (first, payload.to_vec()));
    }
    // Fragments become one message, and control frames between them are answered at the edge.
    for is_client in [true, false] {
        let (from, to) = if is_client { (&mut client, &mut server) } else { (&mut server, &mut client) };
        from.send(0x01, b"in ");
        from.send(PING, b"?");
        from.send(0x00, "f\u{fc}nf".as_bytes().split_at(2).0);
        from.send(0x00, "f\u{fc}nf".as_bytes().split_at(2).1);
        from.send(0x80, b" parts");
        assert_eq!(from.next(), (PONG, b"?".to_vec()));
        assert_eq!(to.next(), (TEXT, "in f\u{fc}nf parts".as_bytes().to_vec()));
    }
    let (route, of_server) = figures(&live);
    assert_eq!((route.messages_received, route.messages_sent, route.statuses[1]), (5, 5, 1));
    assert_eq!((of_server.messages_sent, of_server.messages_received), (5, 5));
    assert_eq!((route.received, route.sent, of_server.sent, of_server.received), (70_021, 70_021, 70_021, 70_021));
    assert_eq!((of_server.tunnels, of_server.requests, of_server.idle), (1, 0, 0));
    client.close(1000, "");
    assert_eq!(server.closed().0, 1000);
    await_no_tunnel(&live);
}

#[test]
fn each_side_is_pinged_by_the_edge_alone() {
    let (server, servers) = wire::server("");
    let mut config: Config = raw_config();
    config.deadlines.ping = Some(Duration::from_millis(100));
    let proxy = start_with(config, parsed(&messages(&server, "")));
    let (mut client, mut server) = End::pair(&proxy, &servers);
    for end in [&mut client, &mut server] {
        assert_eq!(end.next(), (PING, Vec::new()));
        end.send(PONG, b"");
    }
    client.send(TEXT, b"x");
    // Neither has the pong of the other.
    let next = |end: &mut End| loop {
        match end.next() {
            (PING, _) => {}
            message => break message,
        }
    };
    assert_eq!(next(&mut server), (TEXT, b"x".to_vec()));
    server.send(TEXT, b"y");
    assert_eq!(next(&mut client), (TEXT, b"y".to_vec()));
}

#[test]
fn close_frames_are_passed_on_both_ways() {
    let (proxy, servers, live) = proxy("");
    let cases = [(1000, "bye"), (1001, ""), (1012, "restart"), (3999, "x"), (4001, "t\u{fc}r"), (1005, "")];
    for (code, reason) in cases {
        for is_client in [true, false] {
            let (mut client, mut server) = End::pair(&proxy, &servers);
            let (from, to) = if is_client { (&mut client, &mut server) } else { (&mut server, &mut client) };
            from.send(TEXT, b"last");
            let payload = if code == 1005 { Vec::new() } else { closing(code, reason) };
            from.send(CLOSE, &payload);
            assert_eq!(to.next(), (TEXT, b"last".to_vec()), "what was sent before comes before");
            assert_eq!(to.closed(), (code, reason.to_owned()));
            assert_eq!(from.closed().0, code, "its own handshake");
            to.send(CLOSE, &payload);
            server.finish();
            client.ended();
            server.ended();
        }
    }
    await_nothing(&proxy);
    assert_eq!(figures(&live).1.tunnels, 0);
}

/// The ways in which a side ends without a close frame.
#[derive(Clone, Copy, Debug)]
enum Way {
    Reset,
    Finish,
    Garbage,
    Unmasked,
    Utf8,
    Reserved,
}

#[test]
fn an_end_without_a_close_frame_has_its_code_on_the_other_side() {
    let (proxy, servers, _) = proxy("");
    let ways = [
        (Way::Reset, 0),
        (Way::Finish, 0),
        (Way::Garbage, 1002),
        (Way::Unmasked, 1002),
        (Way::Utf8, 1007),
        (Way::Reserved, 1002),
    ];
    for (way, own) in ways {
        for is_client in [true, false] {
            let (client, server) = End::pair(&proxy, &servers);
            let (mut from, mut to) = if is_client { (client, server) } else { (server, client) };
            from.send(TEXT, b"whole");
            assert_eq!(to.next(), (TEXT, b"whole".to_vec()));
            // Amid a message, of which the other side gets nothing.
            from.send(0x01, b"half");
            let mut from = Some(from);
            let bytes = match way {
                Way::Reset => {
                    from.take().unwrap().reset();
                    Vec::new()
                }
                Way::Finish => {
                    from.as_ref().unwrap().finish();
                    Vec::new()
                }
                Way::Garbage => b"\xf3\xff\x00garbage".to_vec(),
                Way::Unmasked => frame(!is_client, 0x80, b"x"),
                Way::Utf8 => frame(is_client, 0x80, b"\xff"),
                Way::Reserved => frame(is_client, CLOSE, &closing(1006, "")),
            };
            if let Some(from) = &mut from {
                from.stream.write_all(&bytes).unwrap();
                if own != 0 {
                    assert_eq!(from.closed().0, own, "{way:?} of {is_client}");
                }
            }
            let (code, _) = to.closed();
            assert_eq!(code, if is_client { 1001 } else { 1014 }, "{way:?} of {is_client}");
            to.close(code, "");
            to.finish();
            to.ended();
        }
    }
    await_nothing(&proxy);
}

#[test]
fn a_message_beyond_the_limit_ends_its_pair() {
    let (proxy, servers, live) = proxy("max-size = \"1KiB\"");
    for is_client in [true, false] {
        let (client, server) = End::pair(&proxy, &servers);
        let (mut from, mut to) = if is_client { (client, server) } else { (server, client) };
        from.send(BINARY, &[1; 1024]);
        assert_eq!(to.next().1.len(), 1024);
        // Half of it now: fragments count together, and nothing is kept for the rest.
        from.send(0x02, &[1; 600]);
        from.send(0x80, &[1; 600]);
        assert_eq!(from.closed().0, 1009);
        assert_eq!(to.closed().0, if is_client { 1001 } else { 1014 });
    }
    await_no_tunnel(&live);
    assert_eq!(figures(&live).0.closed, [0, 0, 0, 2, 0]);
}

/// Sends more messages at once than any rate of these tests lets through. Returns the messages that the server has got.
fn flood(client: &mut End, server: &mut End) -> usize {
    let flood: Vec<u8> = (0..200).flat_map(|_| frame(true, TEXT, b"m")).collect();
    client.stream.write_all(&flood).unwrap();
    let (code, reason) = client.closed();
    assert_eq!(code, 1008, "{reason}");
    assert!(reason.starts_with("too many messages a second"), "{reason}");
    let mut got = 0;
    loop {
        match server.next() {
            (TEXT, _) => got += 1,
            (CLOSE, payload) => {
                assert_eq!(payload[..2], 1001_u16.to_be_bytes());
                return got;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_connection_has_its_rate() {
    let (proxy, servers, live) = proxy("rate = 5");
    for _ in 0..2 {
        let (mut client, mut server) = End::pair(&proxy, &servers);
        // Messages of servers have none.
        for _ in 0..50 {
            server.send(TEXT, b"s");
            assert_eq!(client.next().0, TEXT);
        }
        let got = flood(&mut client, &mut server);
        assert!((5..100).contains(&got), "{got}");
    }
    assert_eq!(figures(&live).0.closed, [2, 0, 0, 0, 0]);
}

#[test]
fn connections_of_an_address_and_all_of_a_route_share_their_rates() {
    for (key, is_address) in [("rate-by-address", true), ("rate-in-all", false)] {
        // An hour's worth would be needed for the second one to pass.
        let (proxy, servers, live) = proxy(&format!("{key} = 5"));
        let mut pairs: Vec<_> = (0..3).map(|_| End::pair(&proxy, &servers)).collect();
        let mut got = 0;
        let begun = Instant::now();
        for (client, server) in &mut pairs {
            got += flood(client, server);
        }
        let most = 5 + 5 * (usize::try_from(begun.elapsed().as_secs()).unwrap() + 1);
        assert!((5..=most).contains(&got), "{got} of {most}");
        let expected = if is_address { [0, 3, 0, 0, 0] } else { [0, 0, 3, 0, 0] };
        assert_eq!(figures(&live).0.closed, expected);
    }
}

/// Sends numbered messages of 10 kB until the proxy takes no more for a while, or all are sent. Returns their number.
fn pour(end: &mut End, most: u32) -> u32 {
    end.stream.set_write_timeout(Some(Duration::from_millis(700))).unwrap();
    let is_client = end.head.starts_with("http/1.1");
    for number in 0..most {
        let payload = [&number.to_be_bytes()[..], &[0; 10_000]].concat();
        let bytes = frame(is_client, BINARY, &payload);
        let mut sent = 0;
        while sent < bytes.len() {
            match end.stream.write(&bytes[sent..]) {
                Ok(more) => sent += more,
                Err(_) => {
                    // The rest of it, once the other side reads.
                    let (mut stream, rest) = (end.stream.try_clone().unwrap(), bytes[sent..].to_vec());
                    stream.set_write_timeout(Some(kit::LONG)).unwrap();
                    thread::spawn(move || stream.write_all(&rest));
                    return number + 1;
                }
            }
        }
    }
    most
}

#[test]
fn a_side_that_does_not_read_pauses_the_other() {
    let (proxy, servers, _) = proxy("");
    for is_client in [true, false] {
        let (client, server) = End::pair(&proxy, &servers);
        let (mut from, mut to) = if is_client { (client, server) } else { (server, client) };
        let sent = pour(&mut from, 20_000);
        assert!(sent < 20_000, "the kernel's buffers do not take them all");
        let waiting = proxy.shards()[0].counters().memory_sending;
        assert!(waiting < 1 << 20, "{waiting} bytes wait after {sent} messages");
        for number in 0..sent {
            let (_, payload) = to.next();
            assert_eq!(payload[..4], number.to_be_bytes());
        }
        from.send(TEXT, b"goes on");
        assert_eq!(to.next(), (TEXT, b"goes on".to_vec()));
        from.close(1000, "");
        assert_eq!(to.closed().0, 1000);
    }
}

#[test]
fn a_client_that_does_not_read_is_closed_if_the_route_says_so() {
    let (proxy, servers, live) = proxy("slow = \"disconnect\", queue = \"100KiB\"");
    let (mut client, mut server) = End::pair(&proxy, &servers);
    let writes = thread::spawn(move || {
        let sent = pour(&mut server, 20_000);
        (server, sent)
    });
    await_no_tunnel(&live);
    assert_eq!(figures(&live).0.closed, [0, 0, 0, 0, 1]);
    let (mut server, _) = writes.join().unwrap();
    assert_eq!(server.closed().0, 1001);
    let mut last = None;
    loop {
        match client.next() {
            (BINARY, payload) => last = Some(payload),
            (CLOSE, payload) => break assert_eq!(payload[..2], 1008_u16.to_be_bytes()),
            other => panic!("{other:?}"),
        }
    }
    assert!(last.is_some());
}

#[test]
fn messages_for_a_client_that_does_not_read_are_dropped_if_the_route_says_so() {
    for (policy, is_oldest) in [("drop-oldest", true), ("drop-newest", false)] {
        let (proxy, servers, live) = proxy(&format!("slow = \"{policy}\", queue = \"100KiB\""));
        let (mut client, mut server) = End::pair(&proxy, &servers);
        server.stream.set_write_timeout(Some(kit::LONG)).unwrap();
        const ALL: u32 = 2_000;
        for number in 0..ALL {
            server.send(BINARY, &[&number.to_be_bytes()[..], &[0; 10_000]].concat());
        }
        server.close(1000, "");
        assert_eq!(server.closed().0, 1000, "the server is not held up");
        let (mut numbers, mut closed) = (Vec::new(), false);
        while !closed {
            let (first, payload) = client.next();
            closed = first == CLOSE;
            if !closed {
                numbers.push(u32::from_be_bytes(payload[..4].try_into().unwrap()));
            }
        }
        assert!(numbers.is_sorted() && numbers[0] == 0, "{policy}");
        let dropped = ALL - u32::try_from(numbers.len()).unwrap();
        assert!(dropped > 0, "{policy}");
        assert_eq!(numbers.last() == Some(&(ALL - 1)), is_oldest, "{policy}");
        assert!(figures(&live).0.dropped > 0, "{policy}");
    }
}

/// Sends messages back.
struct Echo;

impl Handler for Echo {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

#[test]
fn compression_is_for_clients_alone() {
    let echo = Server::plain().listen("127.0.0.1:0".parse().unwrap()).start(|_| Echo).unwrap();
    let proxy = of_text(&messages(&format!("http://{}", echo.addresses()[0]), "deflate = true"));
    let mut target = Target::new(&format!("ws://{}/", proxy.addresses()[0])).unwrap();
    target.deflate = Some(DeflateConfig::default());
    let tls = Tls { engine: Plain, config: ClientConfig::default() };
    let mut socket = Socket::connect(target, tls, Config::default()).unwrap();
    let extensions = socket.response().unwrap().headers().get("sec-websocket-extensions").cloned();
    assert!(extensions.is_some_and(|value| value.to_str().unwrap().starts_with("permessage-deflate")));
    let text = "all the same ".repeat(1000);
    socket.text(&text).unwrap();
    assert_eq!(socket.receive().unwrap(), Incoming::Text(text.clone()));
    let (proxy, servers, _) = self::proxy("deflate = true");
    // One frame, byte by byte: it is compressed.
    let mut client = End::open(&proxy, "Sec-WebSocket-Extensions: permessage-deflate\r\n");
    let mut server = servers.recv_timeout(kit::LONG).unwrap();
    server.send(TEXT, text.as_bytes());
    let (first, payload) = client.next();
    assert_eq!(first, 0xc1);
    assert!(payload.len() < 500, "{}", payload.len());
    client.send(0xc1, &payload);
    assert_eq!(server.next(), (TEXT, text.clone().into_bytes()));
    assert!(!server.head.contains("sec-websocket-extensions"), "{}", server.head);
    // A client that offers nothing gets none.
    let mut client = End::open(&proxy, "");
    assert!(!client.head.contains("sec-websocket-extensions"));
    servers.recv_timeout(kit::LONG).unwrap().send(TEXT, text.as_bytes());
    assert_eq!(client.next(), (TEXT, text.into_bytes()));
}

#[test]
fn the_server_chooses_the_subprotocol() {
    let (server, servers) = wire::server("Sec-WebSocket-Protocol: v2.chat\r\nX-Own: 1\r\n");
    let proxy = of_text(&messages(&server, "deflate = true"));
    let client = End::open(&proxy, "Sec-WebSocket-Protocol: v1.chat, v2.chat\r\n");
    assert!(client.head.contains("sec-websocket-protocol: v2.chat\r\n") && client.head.contains("x-own: 1\r\n"));
    assert!(servers.recv_timeout(kit::LONG).unwrap().head.contains("sec-websocket-protocol: v1.chat, v2.chat\r\n"));
    let client = End::asking(&proxy, "Sec-WebSocket-Protocol: v1.chat\r\n");
    assert!(client.head.starts_with("http/1.1 502 "), "{}", client.head);
    servers.recv_timeout(kit::LONG).unwrap().ended();
}

#[test]
fn refusals_of_the_server_are_passed_on() {
    for said in [
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 5\r\n\r\nlogin",
        "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nX-Why: you\r\n\r\nno",
        "HTTP/1.1 302 Found\r\nLocation: /login\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhere\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes",
    ] {
        let (server, _) = scripted(move |mut stream| {
            let _ = kit::head(&mut kit::reader(&stream));
            stream.write_all(said.as_bytes()).unwrap();
        });
        let proxy = of_text(&messages(&server, ""));
        let mut client = End::asking(&proxy, "");
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        for line in head.to_lowercase().split("\r\n") {
            assert!(client.head.contains(&format!("{line}\r\n")), "{line}: {}", client.head);
        }
        let body = body.strip_prefix("4\r\n").map_or(body, |_| "here");
        assert_eq!(body_of(&client.head.clone(), &mut client.reader), body);
    }
}

#[test]
fn a_server_that_opens_no_websocket_is_answered_for() {
    let good = wire::response("");
    for said in [
        good.replace("s3pP", "AAAA"),
        good.replace("Sec-WebSocket-Accept", "X-Accept"),
        good.replace("websocket", "h2c"),
        wire::response("Sec-WebSocket-Extensions: permessage-deflate\r\n"),
    ] {
        let (server, _) = scripted(move |mut stream| {
            let _ = kit::head(&mut kit::reader(&stream));
            stream.write_all(said.as_bytes()).unwrap();
            let _ = stream.read(&mut [0]);
        });
        let proxy = of_text(&messages(&server, "deflate = true"));
        let client = End::asking(&proxy, "Sec-WebSocket-Extensions: permessage-deflate\r\n");
        assert!(client.head.starts_with("http/1.1 502 "), "{}", client.head);
    }
    // A request that is no handshake does not reach the server.
    let (proxy, servers, _) = proxy("");
    let mut client = kit::Client::of(&proxy);
    client.ask(&wire::request("").replace("Version: 13", "Version: 7"));
    assert!(client.head().starts_with("http/1.1 426 "));
    assert!(servers.try_recv().is_err());
}

#[test]
fn frames_that_come_with_the_heads_are_messages() {
    let (server, _) = scripted(|mut stream| {
        let mut reader = kit::reader(&stream);
        let _ = kit::head(&mut reader);
        let with =
            [wire::response("").into_bytes(), frame(false, TEXT, b"welcome"), frame(false, CLOSE, b"\x03\xe8ok")];
        stream.write_all(&with.concat()).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = reader.read_to_end(&mut rest);
        assert!(!rest.is_empty());
    });
    let proxy = of_text(&messages(&server, ""));
    for _ in 0..20 {
        let mut client = End::open(&proxy, "");
        assert_eq!(client.next(), (TEXT, b"welcome".to_vec()));
        assert_eq!(client.closed(), (1000, "ok".to_owned()));
    }
    let (proxy, servers, _) = self::proxy("");
    let mut client = kit::Client::of(&proxy);
    let ahead = [wire::request("").into_bytes(), frame(true, TEXT, b"ahead"), frame(true, 0x01, b"be")].concat();
    client.stream.write_all(&ahead).unwrap();
    let mut server = servers.recv_timeout(kit::LONG).unwrap();
    assert_eq!(server.next(), (TEXT, b"ahead".to_vec()));
    client.stream.write_all(&frame(true, 0x80, b"hind")).unwrap();
    assert_eq!(server.next(), (TEXT, b"behind".to_vec()));
}

#[test]
fn a_reload_ends_no_pair_and_keeps_counters_of_routes_that_stay() {
    let (server, servers) = wire::server("");
    let text = messages(&server, "rate = 100");
    let live = parsed(&text);
    let proxy = start(live.clone());
    let (mut client, mut server_end) = End::pair(&proxy, &servers);
    let before = of(&live);
    let reload = |text: &str| {
        let plan = config::parse(Path::new("taut.toml"), text, Some(&live.plan()), Instant::now()).unwrap();
        live.replace(plan);
    };
    reload(&text);
    assert!(Arc::ptr_eq(&before, &of(&live)));
    reload(&messages(&server, "max-size = \"1KiB\""));
    assert!(!Arc::ptr_eq(&before, &of(&live)));
    reload("[[route]]\nanswer = { status = 404 }\n");
    for len in [1, 5_000] {
        client.send(BINARY, &vec![1; len]);
        assert_eq!(server_end.next().1.len(), len);
        server_end.send(BINARY, &vec![1; len]);
        assert_eq!(client.next().1.len(), len);
    }
    // The route of another kind has the name, and so the counts.
    let now = Figures::of(&live.plan(), Instant::now());
    assert_eq!((now.routes[1].messages_received, now.routes[1].messages_sent), (2, 2));
}

#[test]
fn a_drain_closes_both_sides_with_a_code() {
    let (proxy, servers, _) = proxy("");
    let (mut client, mut server) = End::pair(&proxy, &servers);
    proxy.drain(CloseCode::SERVICE_RESTART, "new version", kit::LONG);
    for end in [&mut client, &mut server] {
        assert_eq!(end.closed(), (1012, "new version".to_owned()));
        end.close(1012, "");
        end.finish();
    }
    proxy.join().unwrap();
}

#[test]
fn the_access_log_has_the_messages_and_the_close_code() {
    let (server, servers) = wire::server("");
    let (entry, entries) = channel();
    let mut config: Config = raw_config();
    config.access_log = Some(AccessLog::new(move |access| {
        let closed = access.closed.map(|closed| closed.code.get());
        let _ = entry.send((access.status.map(|status| status.as_u16()), closed, access.traffic));
    }));
    let proxy = start_with(config, parsed(&messages(&server, "")));
    let (mut client, mut server) = End::pair(&proxy, &servers);
    for _ in 0..3 {
        client.send(TEXT, b"question");
        let _ = server.next();
    }
    server.send(TEXT, b"answer");
    let _ = client.next();
    server.close(4321, "");
    assert_eq!(client.closed().0, 4321);
    client.close(4321, "");
    client.finish();
    let (status, closed, traffic) = entries.recv_timeout(kit::LONG).unwrap();
    assert_eq!((status, closed), (Some(101), Some(4321)));
    assert_eq!((traffic.messages_in, traffic.messages_out), (3, 1));
    assert!(entries.try_recv().is_err(), "one entry for both sides");
}
