//! Requests that wait until a server has room, between real sockets.

use crate::kit;
use crate::kit::{Client, LONG, head, length, parsed, reader, scripted, start, text};
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tautline::{Plain, Server, ServerConfig, Tls};
use tautline_proxy::Live;
use tautline_proxy::balance::QueueCounts;
use tautline_proxy::edge::Edge;

/// A server that tells the paths of requests, and answers each once it gets leave.
fn gated() -> (String, Receiver<String>, Sender<()>) {
    let (asked, paths) = channel();
    let (leave, leaves) = channel::<()>();
    let (asked, leaves) = (Mutex::new(asked), Mutex::new(leaves));
    let (address, _) = scripted(move |mut stream: TcpStream| {
        let mut reader = reader(&stream);
        while let Some(head) = head(&mut reader) {
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let _ = asked.lock().unwrap().send(path.clone());
            if leaves.lock().unwrap().recv().is_err() {
                return;
            }
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len());
        }
    });
    (address, paths, leave)
}

fn counts(live: &Live) -> QueueCounts {
    live.plan().backends[0].group.queue().counts()
}

fn until(live: &Live, is_so: impl Fn(QueueCounts) -> bool) {
    let end = Instant::now() + LONG;
    while !is_so(counts(live)) {
        assert!(Instant::now() < end, "{:?}", counts(live));
        thread::sleep(Duration::from_millis(2));
    }
}

fn ask(client: &mut Client, path: &str) {
    client.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
}

fn answer(client: &mut Client) -> (String, String) {
    let head = client.head();
    let body = client.exact(length(&head).unwrap());
    (head, body)
}

/// The path of the request that the server has next.
fn next(paths: &Receiver<String>) -> String {
    paths.recv_timeout(LONG).unwrap()
}

#[test]
fn requests_wait_in_their_order_and_those_beyond_the_queue_get_503() {
    let (server, paths, leave) = gated();
    let live = parsed(&text(&server, "max-connections = 1\nwait-queue = 3\nwait-time = \"1h\""));
    let proxy = start(live.clone());
    let mut clients: Vec<Client> = (0..4).map(|_| Client::of(&proxy)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        ask(client, &format!("/{number}"));
        if number == 0 {
            assert_eq!(next(&paths), "/0");
        } else {
            until(&live, |counts| counts.waiting == number);
        }
    }
    let mut late = Client::of(&proxy);
    ask(&mut late, "/late");
    let (head, _) = answer(&mut late);
    assert!(head.starts_with("http/1.1 503 ") && head.contains("retry-after: 3600\r\n"), "{head}");
    for (number, client) in clients.iter_mut().enumerate() {
        leave.send(()).unwrap();
        assert_eq!(answer(client).1, format!("/{number}"));
        if number < 3 {
            assert_eq!(next(&paths), format!("/{}", number + 1));
        }
    }
    assert_eq!(counts(&live), QueueCounts { waiting: 0, joined: 3, refused: 1, expired: 0 });
    // Connections go on, and so does the one that was refused.
    leave.send(()).unwrap();
    ask(&mut late, "/again");
    assert_eq!(answer(&mut late).1, "/again");
}

#[test]
fn a_request_waits_for_its_time_at_most_and_one_whose_client_leaves_frees_its_place() {
    let (server, paths, leave) = gated();
    let live = parsed(&text(&server, "max-connections = 1\nwait-queue = 1\nwait-time = \"300ms\""));
    let proxy = start(live.clone());
    let mut first = Client::of(&proxy);
    ask(&mut first, "/first");
    assert_eq!(next(&paths), "/first");
    let mut second = Client::of(&proxy);
    ask(&mut second, "/second");
    let (head, body) = answer(&mut second);
    assert!(head.starts_with("http/1.1 503 ") && head.contains("retry-after: 1\r\n"), "{head}");
    assert!(body.contains("wait-time"), "{body}");
    assert_eq!(counts(&live), QueueCounts { waiting: 0, joined: 1, refused: 0, expired: 1 });
    leave.send(()).unwrap();
    assert_eq!(answer(&mut first).1, "/first");
    let live = parsed(&text(&server, "max-connections = 1\nwait-queue = 1\nwait-time = \"1h\""));
    let proxy = start(live.clone());
    let mut first = Client::of(&proxy);
    ask(&mut first, "/first");
    assert_eq!(next(&paths), "/first");
    let mut gone = Client::of(&proxy);
    ask(&mut gone, "/gone");
    until(&live, |counts| counts.waiting == 1);
    drop(gone);
    until(&live, |counts| counts.waiting == 0);
    let mut third = Client::of(&proxy);
    // Its body is not read before there is a server for it.
    third.ask("POST /third HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
    until(&live, |counts| counts.waiting == 1);
    leave.send(()).unwrap();
    assert_eq!(answer(&mut first).1, "/first");
    assert_eq!(next(&paths), "/third");
}

#[test]
fn a_server_of_another_loop_that_becomes_free_wakes_those_that_wait() {
    let (server, paths, leave) = gated();
    let live = parsed(&text(&server, "max-connections = 1\nwait-time = \"1h\""));
    let plan = live.clone();
    let tls = Tls { engine: Plain, config: ServerConfig::default() };
    let proxy = Server::new(tls).config(kit::raw_config()).listen("127.0.0.1:0".parse().unwrap()).shards(3);
    let proxy = Arc::new(proxy.start(move |_| Edge::new(plan.clone())).unwrap());
    let clients: Vec<_> = (0..24)
        .map(|number| {
            let proxy = proxy.clone();
            thread::spawn(move || {
                let mut client = Client::of(&proxy);
                ask(&mut client, &format!("/{number}"));
                answer(&mut client).1 == format!("/{number}")
            })
        })
        .collect();
    until(&live, |counts| counts.waiting == 23);
    for _ in 0..24 {
        let _ = next(&paths);
        leave.send(()).unwrap();
    }
    assert!(clients.into_iter().all(|client| client.join().unwrap()));
    assert_eq!(counts(&live), QueueCounts { waiting: 0, joined: 23, refused: 0, expired: 0 });
}
