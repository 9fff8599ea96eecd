//! Streams count for the limits of connections.

use super::client::{Client, Plain};
use super::common::logs;
use super::serve;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline::{Address, Config, Gate, Place, ServerHandle};

const LONG: Duration = Duration::from_secs(20);

/// Opens WebSockets. Returns those that are open; all others were refused.
fn open(client: &mut Client, count: usize) -> Vec<u32> {
    let sockets: Vec<u32> = (0..count).map(|_| client.websocket("/chat")).collect();
    let (open, refused): (Vec<_>, Vec<_>) = sockets.into_iter().partition(|socket| client.is_answered(*socket));
    for socket in refused {
        assert_eq!(client.answer(socket).body, b"REFUSED_STREAM");
    }
    open
}

/// Whether a request is answered within a time: the server may not know yet that a connection has ended.
fn is_answered_soon(client: &mut Client) -> bool {
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        let stream = client.get("/");
        if client.is_answered(stream) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Waits until the server has so many connections and streams.
fn wait_for(handle: &ServerHandle, connections: u64) {
    let end = Instant::now() + LONG;
    while handle.shards()[0].counters().connections != connections {
        assert!(Instant::now() < end, "{:?}", handle.shards()[0].counters());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn streams_beyond_max_connections_are_refused_until_others_end() {
    logs::keep();
    let mut config = Config::default();
    config.limits.max_connections = 10;
    let (handle, authority) = serve(config);
    let address = &handle.addresses()[0];
    let mut client = Client::new(address, &authority);
    let sockets = open(&mut client, 100);
    assert_eq!(sockets.len(), 9, "the connection of HTTP/2 is one of the ten");
    let counters = handle.shards()[0].counters();
    assert_eq!((counters.connections, counters.open, counters.accept_pauses), (10, 9, 1 + 91));
    assert_eq!((counters.handshaking, counters.carriers_failed), (0, 0));
    assert!(!logs::lines(&["stream refused: limits.max_connections (10)"]).is_empty());
    for socket in &sockets {
        client.text(*socket, "still");
        assert_eq!(client.message(*socket), b"still");
    }
    // One place is free, and refused streams take it from nobody: a client of HTTP/1.1 has it.
    client.reset(sockets[0]);
    wait_for(&handle, 9);
    let mut plain = Plain::new(address, &authority);
    assert!(open(&mut client, 20).is_empty());
    plain.echo();
    drop(plain);
    assert!(is_answered_soon(&mut client));
    wait_for(&handle, 9);
    assert_eq!(open(&mut client, 20).len(), 1);
}

/// At the limit, connections that wait for their next request leave their places to streams, and so does a carrier.
#[test]
fn a_connection_that_waits_gives_way_to_streams() {
    let mut config = Config::default();
    config.limits.max_connections = 8;
    let (handle, authority) = serve(config);
    let address = &handle.addresses()[0];
    let mut client = Client::new(address, &authority);
    let mut sockets = open(&mut client, 4);
    assert_eq!(sockets.len(), 4);
    let idle: Vec<Client> = (0..2).map(|_| Client::new(address, &authority)).collect();
    let end = Instant::now() + LONG;
    while sockets.len() < 7 {
        assert!(Instant::now() < end, "{:?}", handle.shards()[0].counters());
        sockets.extend(open(&mut client, 1));
    }
    assert_eq!(handle.shards()[0].counters().http_evicted, 2);
    assert!(open(&mut client, 5).is_empty());
    drop(idle);
}

/// Streams whose requests are not whole wait as handshakes of their client.
#[test]
fn the_oldest_streams_that_wait_for_their_client_give_way() {
    let mut config = Config::default();
    (config.limits.max_connections, config.limits.max_handshakes) = (40, 4);
    let (handle, authority) = serve(config);
    let mut client = Client::new(&handle.addresses()[0], &authority);
    let waiting: Vec<u32> = (0..10).map(|_| client.begin_post("/echo")).collect();
    for stream in &waiting[..6] {
        assert!(!client.is_answered(*stream));
    }
    wait_for(&handle, 5);
    assert_eq!(handle.shards()[0].counters().handshakes_evicted, 6);
}

/// Lets each host have three connections at a time.
#[derive(Debug, Default)]
struct Three(Arc<Mutex<Vec<Address>>>);

struct Inside(Arc<Mutex<Vec<Address>>>, Address);

impl Drop for Inside {
    fn drop(&mut self) {
        let mut inside = self.0.lock().unwrap();
        let at = inside.iter().position(|client| *client == self.1).unwrap();
        inside.swap_remove(at);
    }
}

impl Gate for Three {
    fn enter(&self, client: &Address) -> Option<Place> {
        let has = self.0.lock().unwrap().iter().filter(|other| ip(other) == ip(client)).count();
        (has < 3).then(|| self.enter_again(client))
    }

    fn enter_again(&self, client: &Address) -> Place {
        self.0.lock().unwrap().push(client.clone());
        Place::new(Inside(self.0.clone(), client.clone()))
    }
}

fn ip(client: &Address) -> Option<std::net::IpAddr> {
    match client {
        Address::Tcp(address) => Some(address.ip()),
        _ => None,
    }
}

#[test]
fn a_gate_is_asked_for_each_stream() {
    let three = Three::default();
    let inside = three.0.clone();
    let mut config = Config::default();
    config.gate = Some(Arc::new(three));
    let (handle, authority) = serve(config);
    let mut client = Client::new(&handle.addresses()[0], &authority);
    let sockets = open(&mut client, 20);
    assert_eq!((sockets.len(), inside.lock().unwrap().len()), (2, 3));
    let counters = handle.shards()[0].counters();
    assert_eq!((counters.connections, counters.connections_refused, counters.accept_pauses), (3, 18, 0));
    client.reset(sockets[0]);
    assert!(is_answered_soon(&mut client));
    wait_for(&handle, 2);
    assert_eq!(open(&mut client, 20).len(), 1);
    // Nothing is left of it once the client has gone.
    drop(client);
    wait_for(&handle, 0);
    assert!(inside.lock().unwrap().is_empty());
}

/// Connections that no gate was asked for have streams that none is asked for: those of proxies.
#[test]
fn a_gate_is_not_asked_for_streams_of_proxies() {
    let three = Three::default();
    let inside = three.0.clone();
    let mut config = Config::default();
    config.gate = Some(Arc::new(three));
    config.front.forwarded_from = tautline::Prefixes::list(&["127.0.0.1"]).unwrap();
    let (handle, authority) = serve(config);
    let mut client = Client::new(&handle.addresses()[0], &authority);
    assert_eq!(open(&mut client, 20).len(), 20);
    assert!(inside.lock().unwrap().is_empty());
}
