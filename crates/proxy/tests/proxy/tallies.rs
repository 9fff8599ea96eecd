//! The counts of the proxy, and its words about a request to the access log and to servers.

use crate::kit::{Client, LONG, body_of, head, length, of_text, parsed, raw_config, reader, scripted, start, text};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use tautline::{AccessLog, Config, Note, Prefixes, Server, ServerHandle};
use tautline_proxy::edge::Edge;
use tautline_proxy::tally::{CLASSES, Figures, LimitFigures, RouteFigures, ServerFigures};
use tautline_proxy::{Live, config};

/// Answers with the head that it got, and sends everything back after an upgrade.
fn showing(mut stream: TcpStream) {
    let mut reader = reader(&stream);
    while let Some(head) = head(&mut reader) {
        let _ = body_of(&head, &mut reader);
        if head.contains("upgrade: websocket") {
            let accept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
            let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket";
            write!(stream, "{switch}\r\n{accept}\r\n\r\n").unwrap();
            let _ = std::io::copy(&mut reader, &mut stream);
            return;
        }
        let status = if head.starts_with("get /missing") { "404 Not Found" } else { "200 OK" };
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{head}", head.len()).unwrap();
    }
}

fn get(client: &mut Client, request: &str) -> String {
    client.ask(&format!("{request}Host: a\r\n\r\n"));
    let head = client.head();
    body_of(&head, &mut client.reader)
}

/// Waits until the figures are as they should be.
fn until(live: &Live, mut are: impl FnMut(&Figures) -> bool) -> Figures {
    let end = Instant::now() + LONG;
    loop {
        let figures = Figures::of(&live.plan(), Instant::now());
        if are(&figures) {
            return figures;
        }
        assert!(Instant::now() < end, "{figures:#?}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn classes(statuses: &[u64; CLASSES.len()]) -> Vec<(&'static str, u64)> {
    CLASSES.into_iter().zip(*statuses).filter(|(_, count)| *count > 0).collect()
}

fn route<'f>(figures: &'f Figures, name: &str) -> &'f RouteFigures {
    figures.routes.iter().find(|route| route.name == name).unwrap()
}

fn server(figures: &Figures) -> &ServerFigures {
    &figures.backends[0].servers[0]
}

fn closed() -> String {
    format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
}

#[test]
fn requests_and_tunnels_are_counted_by_route_and_server() {
    let (address, _) = scripted(showing);
    let live = parsed(&text(&address, "").replace("to = ", "name = \"main\"\nto = "));
    let proxy = start(live.clone());
    let mut client = Client::of(&proxy);
    let first = get(&mut client, "GET / HTTP/1.1\r\n").len() as u64;
    let second = get(&mut client, "GET /missing HTTP/1.1\r\n").len() as u64;
    client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n1234567");
    let head = client.head();
    let third = body_of(&head, &mut client.reader).len() as u64;
    let figures = until(&live, |figures| server(figures).idle == 1);
    assert_eq!(classes(&route(&figures, "main").statuses), [("2xx", 2), ("4xx", 1)]);
    let of_server = server(&figures);
    assert_eq!(classes(&of_server.statuses), [("2xx", 2), ("4xx", 1)]);
    let received = first + second + third;
    assert_eq!((of_server.sent, of_server.received, route(&figures, "main").sent), (7, received, received));
    assert_eq!((of_server.connect.ranges.iter().sum::<u64>(), of_server.head.ranges.iter().sum::<u64>()), (1, 3));
    assert_eq!((of_server.requests, of_server.tunnels, of_server.connecting), (0, 0, 0));
    client.ask(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    assert!(client.head().starts_with("http/1.1 101 "));
    client.ask("hello");
    assert_eq!(client.exact(5), "hello");
    let figures = until(&live, |figures| server(figures).received == received + 5);
    assert_eq!((server(&figures).tunnels, server(&figures).idle, server(&figures).sent), (1, 0, 12));
    assert_eq!(classes(&route(&figures, "main").statuses), [("1xx", 1), ("2xx", 2), ("4xx", 1)]);
    drop(client);
    until(&live, |figures| (server(figures).tunnels, server(figures).idle) == (0, 0));
    // A reload goes on with the counts of routes and servers that stay.
    let plan = config::parse(
        Path::new("t"),
        &text(&address, "").replace("to = ", "name = \"main\"\nto = "),
        Some(&*live.plan()),
        Instant::now(),
    );
    let kept = Figures::of(&plan.unwrap(), Instant::now());
    assert_eq!((route(&kept, "main").sent, server(&kept).sent), (received + 5, 12));
}

#[test]
fn failures_retries_and_ejections_are_counted() {
    let (address, _) = scripted(showing);
    let (first, last) = (closed(), address);
    let live = parsed(&format!(
        "[[route]]\nname = \"all\"\nto = \"app\"\n[backend.app]\nservers = [{first:?}, {last:?}]\nfailures = 1\n"
    ));
    let proxy = start(live.clone());
    let mut client = Client::of(&proxy);
    // One of the first two requests meets the server that is away, and goes to the other.
    for _ in 0..2 {
        let _ = get(&mut client, "GET / HTTP/1.1\r\n");
    }
    let figures = until(&live, |figures| figures.backends[0].servers[0].ejections == 1);
    let away = server(&figures);
    assert_eq!((away.failures, away.retries, classes(&away.statuses)), (1, 1, vec![("none", 1)]));
    assert!(!away.is_up() && away.is_healthy && figures.backends[0].servers[1].is_up());
    assert_eq!(classes(&route(&figures, "all").statuses), [("2xx", 2)]);
    let none = start(parsed(&text(&closed(), "")));
    let mut client = Client::of(&none);
    client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.head().starts_with("http/1.1 502 "));
}

#[test]
fn answers_of_the_proxy_count_for_their_route_or_for_none() {
    let (address, _) = scripted(showing);
    let live = parsed(&format!(
        "[[route]]\npath = \"/old\"\nname = \"old\"\nredirect = {{ to = \"/new\" }}\n[[route]]\npath = \"/app\"\nto = \"app\"\n\
         [backend.app]\nservers = [{address:?}]\n"
    ));
    let proxy = start(live.clone());
    let mut client = Client::of(&proxy);
    for target in ["/old", "/none"] {
        let _ = get(&mut client, &format!("GET {target} HTTP/1.1\r\n"));
    }
    let figures = until(&live, |figures| route(figures, "-").statuses.iter().sum::<u64>() == 1);
    assert_eq!(classes(&route(&figures, "-").statuses), [("4xx", 1)]);
    assert_eq!(classes(&route(&figures, "old").statuses), [("3xx", 1)]);
}

#[test]
fn requests_for_files_and_those_beyond_a_rate_are_counted() {
    let folder = std::env::temp_dir().join(format!("tautline-proxy-tallies-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a.txt"), "hello").unwrap();
    let live = parsed(&format!(
        "limits = {{ requests = {{ per-second = 1, burst = 3 }} }}\n[[route]]\nname = \"files\"\nfiles = {folder:?}\n"
    ));
    let proxy = start(live.clone());
    let mut client = Client::of(&proxy);
    assert_eq!(get(&mut client, "GET /a.txt HTTP/1.1\r\n"), "hello");
    let _ = get(&mut client, "GET /none HTTP/1.1\r\n");
    let figures = until(&live, |figures| route(figures, "files").statuses.iter().sum::<u64>() == 2);
    assert_eq!(classes(&route(&figures, "files").statuses), [("2xx", 1), ("4xx", 1)]);
    assert_eq!(figures.limits, [LimitFigures { key: "requests", refused: 0 }]);
    // A slow machine may let some more pass, and not all.
    let end = Instant::now() + LONG;
    while Figures::of(&live.plan(), Instant::now()).limits[0].refused == 0 && Instant::now() < end {
        let _ = get(&mut client, "GET /a.txt HTTP/1.1\r\n");
    }
    let figures = until(&live, |figures| figures.limits[0].refused > 0);
    assert_eq!(classes(&route(&figures, "-").statuses), [("4xx", figures.limits[0].refused)]);
    std::fs::remove_dir_all(folder).unwrap();
}

/// An entry of the access log.
#[derive(Debug)]
struct Entry {
    peer: String,
    direct: Option<String>,
    notes: Vec<(String, Note)>,
    bytes_out: u64,
}

impl Entry {
    fn text(&self, name: &str) -> Option<&str> {
        self.notes.iter().find(|(known, _)| *known == name).and_then(|(_, note)| match note {
            Note::Text(text) => Some(&**text),
            Note::Time(_) => None,
        })
    }

    fn has_time(&self, name: &str) -> bool {
        self.notes.iter().any(|(known, note)| *known == name && matches!(note, Note::Time(_)))
    }
}

/// A proxy with an access log, which trusts proxies of this machine.
fn logged(text: &str) -> (ServerHandle, Live, Receiver<Entry>) {
    let (entry, entries) = channel();
    let mut config: Config = raw_config();
    config.front.forwarded_from = Prefixes::list(&["127.0.0.0/8"]).unwrap();
    config.access_log = Some(AccessLog::new(move |access| {
        let notes = access.notes.iter().map(|(name, note)| (name.to_owned(), note.clone())).collect();
        let (peer, direct) = (access.peer.to_string(), access.direct.map(ToString::to_string));
        let _ = entry.send(Entry { peer, direct, notes, bytes_out: access.traffic.bytes_out });
    }));
    let live = parsed(text);
    let server = Server::plain().config(config).listen("127.0.0.1:0".parse().unwrap());
    let plans = live.clone();
    (server.start(move |_| Edge::new(plans.clone())).unwrap(), live, entries)
}

#[test]
fn the_access_log_has_the_way_of_a_request_and_its_identifiers() {
    let (address, _) = scripted(showing);
    let text = format!("traceparent = true\n{}", text(&address, "").replace("to = ", "name = \"main\"\nto = "));
    let (proxy, _, entries) = logged(&text);
    let mut client = Client::of(&proxy);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    // A client names its own request, and then a proxy that is trusted does.
    let claims = format!("X-Request-Id: mine\r\nTraceparent: 00-{trace}-00f067aa0ba902b7-01\r\n");
    let seen = get(&mut client, &format!("GET / HTTP/1.1\r\n{claims}"));
    let told = get(&mut client, &format!("GET / HTTP/1.1\r\nX-Forwarded-For: 192.0.2.7\r\n{claims}"));
    client.stream.shutdown(Shutdown::Write).unwrap();
    let (one, two) = (entries.recv_timeout(LONG).unwrap(), entries.recv_timeout(LONG).unwrap());
    let id = one.text("request_id").unwrap();
    assert!(id.len() == 32 && seen.contains(&format!("x-request-id: {id}\r\n")) && !seen.contains("mine"), "{seen}");
    assert!(told.contains("x-request-id: mine\r\n"), "{told}");
    assert_eq!((two.text("request_id"), two.text("trace")), (Some("mine"), Some(trace)));
    for entry in [&one, &two] {
        let place = [entry.text("route"), entry.text("backend"), entry.text("server")];
        assert_eq!(place, [Some("main"), Some("app"), Some(address.as_str())], "{entry:?}");
        assert!(entry.has_time("head"), "{entry:?}");
    }
    // The second request had a connection.
    assert!(one.has_time("connect") && !two.has_time("connect"), "{one:?} {two:?}");
    assert_eq!(one.direct, None);
    assert!(two.peer.starts_with("192.0.2.7") && two.direct.as_ref().unwrap().starts_with("127.0.0.1:"), "{two:?}");
}

#[test]
fn a_request_that_has_waited_is_logged_with_its_server() {
    let (leave, left) = channel::<()>();
    let left = Mutex::new(left);
    let (address, _) = scripted(move |mut stream| {
        let mut reader = reader(&stream);
        while head(&mut reader).is_some() {
            left.lock().unwrap().recv().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    let (proxy, live, entries) = logged(&text(&address, "max-connections = 1\nwait-time = \"1h\""));
    let mut clients = [Client::of(&proxy), Client::of(&proxy)];
    for client in &mut clients {
        client.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    }
    let figures = until(&live, |figures| figures.backends[0].queue.waiting == 1);
    assert_eq!((figures.backends[0].queue.joined, server(&figures).requests + server(&figures).connecting), (1, 1));
    for _ in &clients {
        leave.send(()).unwrap();
    }
    for client in &mut clients {
        assert!(client.rest().starts_with("HTTP/1.1 200 "));
        let entry = entries.recv_timeout(LONG).unwrap();
        assert_eq!(entry.text("server"), Some(address.as_str()), "{entry:?}");
    }
    until(&live, |figures| figures.backends[0].queue.waiting == 0);
}

/// The bytes that the event of a server's connection sends to the client are those of the client's request.
#[test]
fn the_access_log_has_the_bytes_of_large_responses() {
    const LEN: usize = 3_000_000;
    let (address, _) = scripted(|mut stream| {
        let mut reader = reader(&stream);
        while head(&mut reader).is_some() {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n\r\n").unwrap();
            stream.write_all(&vec![7; LEN]).unwrap();
        }
    });
    let (proxy, _, entries) = logged(&text(&address, ""));
    let mut client = Client::of(&proxy);
    for _ in 0..2 {
        client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = client.head();
        assert_eq!(length(&head), Some(LEN));
        let mut body = vec![0; LEN];
        client.reader.read_exact(&mut body).unwrap();
        let entry = entries.recv_timeout(LONG).unwrap();
        let whole = LEN as u64..LEN as u64 + 1_000;
        assert!(whole.contains(&entry.bytes_out), "{entry:?}");
    }
}

/// Requests that wait before the end of the client's direction are answered.
#[test]
fn a_client_that_pipelines_and_half_closes_gets_all_its_responses() {
    let (address, _) = scripted(showing);
    let proxy = of_text(&format!("[[route]]\npath = \"/old\"\nredirect = {{ to = \"/new\" }}\n{}", text(&address, "")));
    let mut client = Client::of(&proxy);
    for target in ["/1", "/2", "/old", "/3", "/4"] {
        client.ask(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    client.stream.shutdown(Shutdown::Write).unwrap();
    let answers = client.rest().to_lowercase();
    let places = ["get /1 ", "get /2 ", "location: /new", "get /3 ", "get /4 "].map(|one| answers.find(one));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} {answers}");
    // A part of a request is none.
    let mut client = Client::of(&proxy);
    client.ask("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTT");
    client.stream.shutdown(Shutdown::Write).unwrap();
    let answers = client.rest().to_lowercase();
    assert!(answers.contains("get /1 ") && !answers.contains("get /2"), "{answers}");
}
