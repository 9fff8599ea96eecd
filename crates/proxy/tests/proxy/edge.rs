//! The proxy between real sockets: clients of HTTP and WebSockets in front, a server of ours and scripted ones behind.

use crate::kit;
use crate::kit::{Client, body_of, head, length, live, messages, proxy, proxy_of, raw_config, reader, scripted, text};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tautline::layers::tls::mixed;
use tautline::{
    ClientConfig, CloseCode, Config, Conn, Fused, Handler, Incoming, Message, Outgoing, Plain, Prefixes, Roots, Server,
    ServerConfig, ServerHandle, Socket, Target, Tls,
};
use tautline_dev_cert::{Authority, Leaf};
use tautline_proxy::edge::Edge;

struct Echo;

impl Handler for Echo {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

fn echo() -> ServerHandle {
    Server::plain().listen("127.0.0.1:0".parse().unwrap()).start(|_| Echo).unwrap()
}

fn echoes(mut socket: Socket) {
    for len in [0, 1, 125, 126, 5_000, 70_000, 1_000_000] {
        let sent = vec![u8::try_from(len % 251).unwrap(); len];
        socket.binary(&sent).unwrap();
        let Incoming::Binary(got) = socket.receive().unwrap() else { panic!("a binary message") };
        assert!(got == sent, "{len}: {}", got.len());
    }
    for number in 0..200 {
        socket.text(&format!("message {number}")).unwrap();
    }
    for number in 0..200 {
        assert_eq!(socket.receive().unwrap(), Incoming::Text(format!("message {number}")));
    }
    socket.close(CloseCode::NORMAL, "done").unwrap();
}

#[test]
fn a_websocket_goes_through_a_tunnel() {
    let echo = echo();
    let proxy = proxy(&[format!("http://{}", echo.addresses()[0])]);
    let target = Target::new(&format!("ws://{}/", proxy.addresses()[0])).unwrap();
    echoes(Socket::connect(target, Tls { engine: Plain, config: ClientConfig::default() }, Config::default()).unwrap());
}

#[test]
fn a_websocket_over_tls_goes_to_a_server_without_by_bytes_or_by_messages() {
    let echo = echo();
    let server = format!("http://{}", echo.addresses()[0]);
    for text in [text(&server, ""), messages(&server, "")] {
        let authority = Authority::new("test").unwrap();
        let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
        let tls = Tls { engine: mixed::Kind(Fused, Fused), config: ServerConfig::new([certificate]) };
        let proxy = proxy_of(tls, &text);
        let address = proxy.addresses()[0].to_string();
        let port = address.rsplit(':').next().unwrap();
        let roots = ClientConfig::default().with_roots(Roots::Pem(authority.certificate().into()));
        let mut target = Target::new(&format!("wss://localhost:{port}/")).unwrap();
        target.address = Some(proxy.addresses()[0].clone());
        echoes(Socket::connect(target, Tls { engine: Fused, config: roots }, Config::default()).unwrap());
    }
}

#[test]
fn requests_share_a_kept_connection_and_are_told_of_the_client() {
    let (server, count) = scripted(|mut stream| {
        let mut reader = reader(&stream);
        while let Some(head) = head(&mut reader) {
            let body = head.replace("\r\n", "|");
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nKeep-Alive: x\r\n\r\n{body}", body.len()).unwrap();
        }
    });
    let proxy = proxy(&[server]);
    let mut client = Client::of(&proxy);
    for number in 0..3 {
        client.ask(&format!("GET /{number}?q HTTP/1.1\r\nHost: a.example\r\nConnection: x-drop\r\nX-Drop: 1\r\n\r\n"));
        let head = client.head();
        assert!(head.starts_with("http/1.1 200 ok\r\n") && !head.contains("keep-alive"), "{head}");
        let body = client.exact(length(&head).unwrap());
        assert!(body.starts_with(&format!("get /{number}?q http/1.1|")), "{body}");
        assert!(body.contains("|host: a.example|") && body.contains("|x-forwarded-for: 127.0.0.1|"), "{body}");
        assert!(body.contains("|x-forwarded-proto: http|") && !body.contains("x-drop"), "{body}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

/// Sends bodies back, in the framing that the path says.
fn framings(mut stream: TcpStream) {
    let mut reader = reader(&stream);
    while let Some(head) = head(&mut reader) {
        let text = body_of(&head, &mut reader);
        match head.split(' ').nth(1).unwrap() {
            "/chunked" => {
                let (one, two) = text.split_at(text.len() / 2);
                let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                let (first, second) = (one.len(), two.len());
                write!(stream, "{head}{first:x};e=1\r\n{one}\r\n{second:x}\r\n{two}\r\n0\r\nT: t\r\n\r\n").unwrap();
            }
            "/end" => return write!(stream, "HTTP/1.1 200 OK\r\n\r\n{text}").unwrap(),
            "/cut" => return write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{text}").unwrap(),
            _ => write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()).unwrap(),
        }
    }
}

#[test]
fn bodies_pass_both_ways_in_all_framings() {
    let (server, _) = scripted(framings);
    let proxy = proxy(&[server]);
    let mut client = Client::of(&proxy);
    let long = "0123456789".repeat(30_000);
    client.ask(&format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{long}", long.len()));
    assert_eq!(length(&client.head()), Some(300_000));
    assert!(client.exact(long.len()) == long);
    client.ask(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n2\r\nde\r\n0\r\nT: t\r\n\r\n",
    );
    assert_eq!(length(&client.head()), Some(5));
    assert_eq!(client.exact(5), "abcde");
    client.ask("POST /chunked HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabcdef");
    assert!(client.head().contains("transfer-encoding: chunked\r\n"));
    assert_eq!(client.exact(21), "3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n");
    client.ask("POST /end HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nxyz");
    assert!(client.head().contains("connection: close\r\n"));
    let begun = Instant::now();
    assert_eq!(client.rest(), "xyz");
    // A close has 5 s.
    assert!(begun.elapsed() < Duration::from_secs(4), "the end of the response is late");
}

#[test]
fn a_client_that_knows_no_chunks_gets_the_bytes() {
    let (server, _) = scripted(framings);
    let proxy = proxy(&[server]);
    let mut client = Client::of(&proxy);
    client.ask("POST /chunked HTTP/1.0\r\nContent-Length: 6\r\n\r\nabcdef");
    assert!(!client.head().contains("chunked"));
    assert_eq!(client.rest(), "abcdef");
}

#[test]
fn a_response_that_ends_early_is_shown_by_a_reset() {
    let (server, _) = scripted(framings);
    let proxy = proxy(&[server]);
    let mut client = Client::of(&proxy);
    client.ask("POST /cut HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nxyz");
    assert_eq!(length(&client.head()), Some(1000));
    assert!(client.reader.read_to_end(&mut Vec::new()).is_err());
}

#[test]
fn requests_on_which_two_parties_could_disagree_are_refused() {
    let (server, count) = scripted(|_| {});
    let proxy = proxy(&[server]);
    for request in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: y\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n",
    ] {
        let mut client = Client::of(&proxy);
        client.ask(request);
        let head = client.head();
        assert!(head.starts_with("http/1.1 400 "), "{request:?}: {head}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 0, "the server saw none");
}

#[test]
fn a_server_that_breaks_the_protocol_is_answered_for() {
    for said in [
        "",
        "garbage\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-",
    ] {
        let (server, _) = scripted(move |mut stream| {
            let _ = head(&mut reader(&stream));
            stream.write_all(said.as_bytes()).unwrap();
        });
        let proxy = proxy(&[server]);
        let mut client = Client::of(&proxy);
        client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = client.head();
        assert!(head.starts_with("http/1.1 502 "), "{said:?}: {head}");
    }
}

#[test]
fn a_101_that_opens_no_websocket_is_not_passed_on() {
    let good = kit::wire::response("");
    for (said, status) in [
        (good.clone(), 101),
        (good.replace("Upgrade: websocket", "Upgrade: h2c"), 502),
        (good.replace("Upgrade: websocket", "Upgrade: websocket, h2c"), 502),
        (good.replace("Connection: Upgrade", "Connection: x"), 502),
        (good.replace("s3pP", "AAAA"), 502),
        (good.replace("Sec-WebSocket-Accept", "X"), 502),
    ] {
        let answer = said.clone();
        let (server, _) = scripted(move |mut stream| {
            let _ = head(&mut reader(&stream));
            stream.write_all(answer.as_bytes()).unwrap();
        });
        for text in [text(&server, ""), messages(&server, "")] {
            let client = kit::wire::End::asking(&kit::of_text(&text), "");
            assert!(client.head.starts_with(&format!("http/1.1 {status} ")), "{said}: {}", client.head);
        }
    }
}

#[test]
fn a_websocket_binds_its_client_by_the_cookie_too() {
    let (server, _) = scripted(|mut stream| {
        let _ = head(&mut reader(&stream));
        stream.write_all(kit::wire::response("").as_bytes()).unwrap();
    });
    for text in [text(&server, ""), messages(&server, "")] {
        let proxy = kit::of_text(&format!("{text}sticky-cookie = \"srv\"\n"));
        let fresh = kit::wire::End::open(&proxy, "");
        let cookie = fresh.head.split("set-cookie: ").nth(1).expect("a cookie").split(';').next().unwrap();
        assert!(cookie.starts_with("srv="), "{cookie}");
        let bound = kit::wire::End::open(&proxy, &format!("Cookie: {cookie}\r\n"));
        assert!(!bound.head.contains("set-cookie"), "{}", bound.head);
    }
}

#[test]
fn a_server_that_cannot_be_reached_is_passed_over_for_another() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (server, _) = scripted(framings);
    let alone = proxy(&[format!("http://{nobody}")]);
    let mut client = Client::of(&alone);
    client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.head().starts_with("http/1.1 502 "));
    let both = proxy(&[format!("http://{nobody}"), server]);
    for _ in 0..4 {
        let mut client = Client::of(&both);
        client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
        assert!(client.head().starts_with("http/1.1 200 "));
        assert_eq!(client.exact(2), "ab");
    }
}

#[test]
fn a_request_is_sent_again_once_if_a_kept_connection_ends() {
    // Each connection answers one request, and ends when the next one comes.
    let (server, count) = scripted(|mut stream| {
        let mut reader = reader(&stream);
        let _ = head(&mut reader);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        let _ = head(&mut reader);
    });
    let proxy = proxy(&[server]);
    let mut client = Client::of(&proxy);
    for _ in 0..3 {
        client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.head().starts_with("http/1.1 200 "));
        assert_eq!(client.exact(2), "ok");
    }
    assert_eq!(count.load(Ordering::SeqCst), 3);
    // It might be executed twice.
    client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert!(client.head().starts_with("http/1.1 502 "));
}

#[test]
fn a_client_that_waits_to_send_its_body_is_told_to_continue() {
    let (server, _) = scripted(|mut stream| {
        let mut reader = reader(&stream);
        let head = head(&mut reader).unwrap();
        assert!(head.contains("expect: 100-continue\r\n"), "{head}");
        stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n").unwrap();
        reader.read_exact(&mut [0; 4]).unwrap();
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    });
    let proxy = proxy(&[server]);
    let mut client = Client::of(&proxy);
    client.ask("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    assert_eq!(client.head(), "http/1.1 100 continue\r\n\r\n");
    client.ask("body");
    assert!(client.head().starts_with("http/1.1 204 no content\r\n"));
}

#[test]
fn events_are_not_held_back() {
    let (server, _) = scripted(|mut stream| {
        let mut reader = reader(&stream);
        let _ = head(&mut reader);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n").unwrap();
        // The stream stays open for as long as the client has it.
        let _ = head(&mut reader);
    });
    let proxy = proxy(&[server]);
    let mut client = Client::of(&proxy);
    client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let _ = client.head();
    assert_eq!(client.exact(9), "data: 1\n\n");
}

#[test]
fn a_trusted_proxy_in_front_says_who_the_client_is() {
    let (server, _) = scripted(|mut stream| {
        let mut reader = reader(&stream);
        while let Some(head) = head(&mut reader) {
            let body = head.replace("\r\n", "|");
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        }
    });
    let (live, mut config) = (live(&[server]), raw_config());
    config.front.forwarded_from = Prefixes::list(&["127.0.0.0/8"]).unwrap();
    let server = Server::plain().config(config).listen("127.0.0.1:0".parse().unwrap());
    let proxy = server.start(move |_| Edge::new(live.clone())).unwrap();
    let mut client = Client::of(&proxy);
    for (said, told) in [
        (
            "X-Forwarded-For: 6.6.6.6, 192.0.2.1\r\nX-Forwarded-Proto: https\r\n",
            "192.0.2.1, 127.0.0.1|x-forwarded-proto: https|",
        ),
        ("X-Forwarded-For: 192.0.2.2\r\n", "192.0.2.2, 127.0.0.1|x-forwarded-proto: http|"),
        ("", "127.0.0.1|x-forwarded-proto: http|"),
    ] {
        client.ask(&format!("GET / HTTP/1.1\r\nHost: a\r\n{said}\r\n"));
        let head = client.head();
        let body = client.exact(length(&head).unwrap());
        assert!(body.contains(&format!("|x-forwarded-for: {told}")) && !body.contains("6.6.6.6"), "{body}");
    }
}
