//! WebSockets over TLS over the XDP driver, in network namespaces made by the tests.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

#[path = "../../xdp/tests/world/mod.rs"]
mod world;

use std::sync::LazyLock;
use std::thread;
use std::time::Duration;
use tautline::layers::xdp::{self, Faults};
use tautline::{
    Address, Certificate, Client, ClientConfig, CloseCode, Closed, Config, Conn, Handler, Incoming, Kind, Message,
    Opening, Outgoing, Roots, Server, ServerConfig, ServerHandle, Socket, Target, Tls,
};
use tautline_testkit::certificate::{Authority, Leaf};
use world::{INTERFACE, OURS, THEIRS, World};

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("Test CA").unwrap());

static CERTIFICATE: LazyLock<Certificate> = LazyLock::new(|| AUTHORITY.issue(&Leaf::new(&["localhost"])).unwrap());

fn trusting() -> ClientConfig {
    ClientConfig::default().with_roots(Roots::Pem(AUTHORITY.certificate().into()))
}

fn config() -> Config {
    let mut config = Config::low_latency();
    config.limits.max_message = 2 << 20;
    config
}

fn server() -> Server {
    Server::new(Tls::from(ServerConfig::new([CERTIFICATE.clone()]))).config(config())
}

fn target(address: &Address) -> Target {
    let mut target = Target::new("wss://localhost/").unwrap();
    target.address = Some(address.clone());
    target
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| i.wrapping_mul(31).wrapping_add(i >> 8).wrapping_add(seed).to_le_bytes()[0]).collect()
}

fn stop(handle: ServerHandle) {
    handle.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    handle.join().unwrap();
}

struct Echo;

impl Handler for Echo {
    type State = ();
    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

/// Sends messages of these lengths, one after the other, and closes when all have come back.
struct Asker {
    lengths: Vec<usize>,
    next: usize,
}

impl Asker {
    fn ask(&self, conn: &mut Conn<'_, ()>) {
        match self.lengths.get(self.next) {
            Some(&len) => drop(conn.send(Outgoing::binary(&pattern(len, self.next)))),
            None => conn.close(CloseCode::NORMAL, ""),
        }
    }
}

impl Handler for Asker {
    type State = ();
    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
        self.ask(conn);
    }
    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        assert_eq!(message.kind(), Kind::Binary);
        assert!(message.data() == pattern(self.lengths[self.next], self.next), "message {}", self.next);
        self.next += 1;
        self.ask(conn);
    }
    fn on_close(&mut self, _: &mut Conn<'_, ()>, closed: &Closed) {
        assert_eq!(closed.code, CloseCode::NORMAL, "{closed:?}");
    }
}

const LENGTHS: [usize; 7] = [64, 1000, 1 << 14, (1 << 14) + 1, 1 << 16, 200_000, 1 << 20];

/// A network without faults, and one with many.
fn networks() -> [Option<Faults>; 2] {
    [None, Some(Faults { lost: 10_000, late: 10_000, seed: 11 })]
}

#[test]
fn a_server_echoes_all_sizes() {
    for faults in networks() {
        let Some(world) = World::new() else { return };
        world.enter_ours();
        let mut config = xdp::Config::new(INTERFACE);
        config.faults = faults;
        let handle = server().listen(format!("{}:0", OURS[0]).parse().unwrap()).driver(config).start(|_| Echo).unwrap();
        world.enter_theirs();
        let target = target(&handle.addresses()[0]);
        let clients: Vec<_> = (0..4)
            .map(|seed| {
                let target = target.clone();
                thread::spawn(move || {
                    let mut config = Config::low_latency();
                    config.limits.max_message = 2 << 20;
                    let mut socket = Socket::connect(target, trusting(), config).unwrap();
                    for len in LENGTHS {
                        let data = pattern(len, seed);
                        socket.binary(&data).unwrap();
                        assert!(socket.receive().unwrap() == Incoming::Binary(data), "{len}");
                    }
                    socket.close(CloseCode::NORMAL, "").unwrap();
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        stop(handle);
    }
}

#[test]
fn a_server_holds_a_thousand_connections() {
    let Some(world) = World::new() else { return };
    let _ = tautline::layers::io::machine::raise_nofile_limit();
    world.enter_ours();
    let address = format!("[{}]:0", OURS[1]).parse().unwrap();
    // All shake hands at once, and are one source.
    let mut config = config();
    (config.limits.max_connections, config.limits.max_handshakes) = (2_000, 1_000);
    let server = server().config(config).listen(address).driver(xdp::Config::new(INTERFACE));
    let handle = server.start(|_| Echo).unwrap();
    world.enter_theirs();
    let target = target(&handle.addresses()[0]);
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let target = target.clone();
            thread::spawn(move || {
                // One loop over the kernel's TCP with 500 connections.
                let mut client = Client::new(trusting()).config(Config::low_latency());
                for _ in 0..500 {
                    client = client.target(target.clone());
                }
                let crowd = client.run(Crowd::default()).unwrap();
                assert_eq!((crowd.opened, crowd.answered), (500, 500));
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    stop(handle);
}

/// A client of 500 connections. When all are open, one publishes to all.
#[derive(Default)]
struct Crowd {
    opened: usize,
    answered: usize,
}

impl Handler for Crowd {
    type State = ();
    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
        self.opened += 1;
        conn.subscribe("crowd");
        if self.opened == 500 {
            conn.publish("crowd", Outgoing::text("here"));
        }
    }
    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        assert_eq!(message.data(), b"here");
        self.answered += 1;
        conn.close(CloseCode::NORMAL, "");
    }
}

#[test]
fn a_client_asks_for_all_sizes() {
    for faults in networks() {
        let Some(world) = World::new() else { return };
        world.enter_theirs();
        let listen = server().listen(format!("{}:0", THEIRS[0]).parse().unwrap());
        let handle = listen.start(|_| Echo).unwrap();
        world.enter_ours();
        let mut config = xdp::Config::new(INTERFACE);
        config.faults = faults;
        let mut limits = Config::low_latency();
        limits.limits.max_message = 2 << 20;
        let client = Client::new(trusting()).driver(config).config(limits).target(target(&handle.addresses()[0]));
        let asker = client.run(Asker { lengths: LENGTHS.to_vec(), next: 0 }).unwrap();
        assert_eq!(asker.next, LENGTHS.len());
        stop(handle);
    }
}

#[test]
fn refuses_two_loops_on_an_interface() {
    let address = "10.77.0.1:0".parse().unwrap();
    let started = server().listen(address).shards(2).driver(xdp::Config::new(INTERFACE)).start(|_| Echo);
    assert!(format!("{:#}", started.unwrap_err()).contains("one shard"));
}
