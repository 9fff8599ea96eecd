//! Tunnels of a proxy that move to another server, as to another process.

use crate::kit;
use crate::kit::wire::{self, BINARY, End, TEXT, frame};
use crate::kit::{Client, LONG, head, length, live, messages, parsed, raw_config, reader, scripted, text};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use tautline::layers::tls::mixed;
use tautline::layers::tls::{Capabilities, EngineKind, Error};
use tautline::{
    AccessLog, ClientConfig, CloseCode, Config, Conn, DriverConfig, EngineChoice, Fused, HandOver, HandOverError,
    HandedOver, Handler, Message, Outgoing, Roots, Server, ServerConfig, ServerHandle, Socket, Target, Tls, Versions,
};
use tautline_dev_cert::{Authority, Leaf};
use tautline_proxy::Live;
use tautline_proxy::edge::Edge;
use tautline_proxy::tally::Figures;

struct Echo;

impl Handler for Echo {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

/// Moves what can move to a new server, which has this plan and this number of loops.
fn upgrade<E: EngineChoice>(old: &ServerHandle, new: Server<E>, live: Live) -> (ServerHandle, HandedOver) {
    upgrade_to(old, new, raw_config(), live)
}

/// Moves likewise, to loops with this configuration.
fn upgrade_to<E: EngineChoice>(
    old: &ServerHandle,
    new: Server<E>,
    config: Config,
    live: Live,
) -> (ServerHandle, HandedOver) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let giving = old.clone();
    let mut settings = HandOver::default();
    settings.deadline = Duration::from_secs(600);
    let giver = thread::spawn(move || giving.hand_over(ours, &settings));
    let taken = new.config(config).take_over(theirs).start(move |_| Edge::new(live.clone()));
    (taken.unwrap(), giver.join().unwrap().unwrap())
}

/// A server that gives each request's connection to the test once it has changed the protocol.
fn tunneling() -> (String, std::sync::mpsc::Receiver<TcpStream>) {
    let (give, given) = channel();
    let (server, _) = scripted(move |mut stream| {
        let mut input = reader(&stream);
        if head(&mut input).is_some() {
            stream.write_all(wire::response("").as_bytes()).unwrap();
            give.send(stream).unwrap();
        }
    });
    (server, given)
}

/// Opens a tunnel. Returns the client's end, whose next bytes are those of the server.
fn open(proxy: &ServerHandle) -> TcpStream {
    let mut client = Client::of(proxy);
    client.ask(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    );
    assert!(client.head().starts_with("http/1.1 101 "));
    client.stream
}

fn expect(stream: &mut TcpStream, bytes: &[u8]) {
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut got = vec![0; bytes.len()];
    stream.read_exact(&mut got).unwrap();
    assert!(got == bytes, "other bytes than those that were sent");
}

fn ends(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0, "the end was expected");
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 + seed).to_le_bytes()[0]).collect()
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn tunnels_go_on_in_each_state_of_their_two_directions() {
    go_on_in_each_state(&DriverConfig::default());
}

#[test]
fn tunnels_go_on_in_each_state_over_io_uring() {
    let driver: DriverConfig = "uring".parse().unwrap();
    match driver.probe() {
        Ok(_) => go_on_in_each_state(&driver),
        Err(error) => eprintln!("skipped: {error}"),
    }
}

fn go_on_in_each_state(driver: &DriverConfig) {
    let (server, given) = tunneling();
    let shards = |count| Server::plain().shards(count).driver(driver.clone());
    let first = live(std::slice::from_ref(&server));
    let start = first.clone();
    let mut proxy = shards(3)
        .config(raw_config())
        .listen("127.0.0.1:0".parse().unwrap())
        .start(move |_| Edge::new(start.clone()))
        .unwrap();
    let mut pairs: Vec<_> = (0..6).map(|_| (open(&proxy), given.recv().unwrap())).collect();
    // Of the client, and of the server: their directions have ended.
    pairs[0].0.shutdown(Shutdown::Write).unwrap();
    ends(&mut pairs[0].1);
    pairs[1].1.shutdown(Shutdown::Write).unwrap();
    ends(&mut pairs[1].0);
    // More than all buffers of the kernel hold: one side of the proxy is not read, and bytes wait for the other.
    let much = Arc::new(pattern(24 << 20, 7));
    let writers: Vec<_> = [pairs[2].0.try_clone(), pairs[3].1.try_clone()]
        .into_iter()
        .map(|stream| {
            let (mut stream, much) = (stream.unwrap(), much.clone());
            thread::spawn(move || {
                stream.write_all(&much).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            })
        })
        .collect();
    let before = proxy.shards().iter().map(|shard| shard.counters().receive_pauses).sum::<u64>();
    eventually("both are not read any more", || {
        let now = proxy.shards().iter().map(|shard| shard.counters().receive_pauses).sum::<u64>();
        now >= before + 2 || proxy.shards().iter().map(|shard| shard.counters().memory_sending).sum::<u64>() > 128 << 10
    });
    // The new server has another number of loops each time, and a plan without the backend in the end.
    let other = || parsed(&text("http://127.0.0.1:1", "").replace("app", "other"));
    for (number, (loops, plan)) in [(1, first.clone()), (2, first), (1, other())].into_iter().enumerate() {
        let (new, handed) = upgrade(&proxy, shards(loops), plan);
        assert_eq!((handed.moved, handed.refused, handed.staying.total()), (12, 0, 0), "{handed:?}");
        drop(std::mem::replace(&mut proxy, new));
        for (at, (client, server)) in pairs.iter_mut().enumerate() {
            let said = format!("{number} {at}");
            if at != 0 && at != 2 {
                client.write_all(said.as_bytes()).unwrap();
                expect(server, said.as_bytes());
            }
            if at != 1 && at != 3 {
                server.write_all(said.as_bytes()).unwrap();
                expect(client, said.as_bytes());
            }
        }
    }
    expect(&mut pairs[2].1, &much);
    ends(&mut pairs[2].1);
    expect(&mut pairs[3].0, &much);
    ends(&mut pairs[3].0);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    // The second direction ends each connection.
    for (client, server) in &mut pairs {
        let _ = client.shutdown(Shutdown::Write);
        let _ = server.shutdown(Shutdown::Write);
        ends(client);
        ends(server);
    }
    eventually("no connection is left", || proxy.shards().iter().all(|shard| shard.counters().connections == 0));
}

#[test]
fn pairs_whose_messages_pass_move_amid_messages() {
    let (server, servers) = wire::server("");
    let text = messages(&server, "max-size = \"2MiB\", deflate = true");
    let first = parsed(&text);
    let new = || Server::plain().shards(2);
    let started = new().config(raw_config()).listen("127.0.0.1:0".parse().unwrap());
    let mut proxy = started.start(move |_| Edge::new(first.clone())).unwrap();
    let mut pairs: Vec<_> = (0..4).map(|_| End::pair(&proxy, &servers)).collect();
    let long = pattern(1_500_000, 3);
    let bytes = frame(true, BINARY, &long);
    // Other rules, and then none, end no pair.
    let other = messages(&server, "max-size = \"1KiB\"");
    let none = "[[route]]\npath = \"/x\"\nanswer = { status = 404 }\n".to_owned();
    for (number, text) in [text.clone(), other, none, text].iter().enumerate() {
        let live = parsed(text);
        pairs[0].0.stream.write_all(&bytes[..700_000]).unwrap();
        pairs[1].1.send(0x01, b"in ");
        let (taken, handed) = upgrade(&proxy, new(), live.clone());
        assert_eq!((handed.moved, handed.refused, handed.staying.total()), (8, 0, 0), "{number} {handed:?}");
        drop(std::mem::replace(&mut proxy, taken));
        pairs[0].0.stream.write_all(&bytes[700_000..]).unwrap();
        assert!(pairs[0].1.next() == (BINARY, long.clone()), "lost or damaged");
        pairs[1].1.send(0x80, b"parts");
        assert_eq!(pairs[1].0.next(), (TEXT, b"in parts".to_vec()));
        for (client, server) in &mut pairs {
            client.send(TEXT, b"forth");
            assert_eq!(server.next(), (TEXT, b"forth".to_vec()));
            server.send(TEXT, b"back");
            assert_eq!(client.next(), (TEXT, b"back".to_vec()));
        }
        let Figures { routes, backends, .. } = Figures::of(&live.plan(), Instant::now());
        if let Some(backend) = backends.first() {
            let of_server = &backend.servers[0];
            assert_eq!((of_server.tunnels, of_server.requests, of_server.idle), (4, 0, 0));
            assert_eq!((of_server.messages_sent, of_server.messages_received), (5, 5));
            assert_eq!((routes[1].messages_received, routes[1].messages_sent), (5, 5));
        }
    }
    // The longest message is still that of the beginning.
    pairs[3].0.send(BINARY, &vec![0; (2 << 20) + 1]);
    assert_eq!((pairs[3].0.closed().0, pairs[3].1.closed().0), (1009, 1001));
    pairs[2].1.close(4000, "well");
    assert_eq!(pairs[2].0.closed(), (4000, "well".to_owned()));
}

/// TLS towards clients and servers, which trusts the authority with this certificate.
#[derive(Clone, Copy, Debug)]
struct Trusting(&'static str);

impl EngineKind for Trusting {
    type Engine = mixed::Engine<<Fused as EngineKind>::Engine, <Fused as EngineKind>::Engine>;

    fn capabilities(self) -> &'static Capabilities {
        Fused.capabilities()
    }

    fn server(self, config: &ServerConfig) -> Result<Self::Engine, Error> {
        let client = ClientConfig::default().with_roots(Roots::Pem(self.0.into()));
        Ok(mixed::Engine::new(Fused.server(config)?, Fused.client(&client)?))
    }

    fn client(self, _: &ClientConfig) -> Result<Self::Engine, Error> {
        Err(Error::ApiMisuse("it is for servers"))
    }
}

#[test]
fn sessions_of_both_roles_move() {
    let authority = Authority::new("test").unwrap();
    let root: &'static str = authority.certificate().to_owned().leak();
    let config = || ServerConfig::new([authority.issue(&Leaf::new(&["localhost"])).unwrap()]);
    let echo = Server::new(Tls { engine: Fused, config: config() }).listen("127.0.0.1:0".parse().unwrap());
    let echo = echo.start(|_| Echo).unwrap();
    let port = echo.addresses()[0].to_string().rsplit(':').next().unwrap().to_owned();
    let live = live(&[format!("https://localhost:{port}")]);
    let server = || Server::new(Tls { engine: Trusting(root), config: config() }).shards(2);
    let first = live.clone();
    let mut proxy = server()
        .config(raw_config())
        .listen("127.0.0.1:0".parse().unwrap())
        .start(move |_| Edge::new(first.clone()))
        .unwrap();
    let connect = |proxy: &ServerHandle, versions| {
        let address = proxy.addresses()[0].clone();
        let mut target = Target::new("wss://localhost/").unwrap();
        target.address = Some(address);
        let mut config = ClientConfig::default().with_roots(Roots::Pem(root.into()));
        config.versions = versions;
        Socket::connect(target, Tls { engine: Fused, config }, Config::default()).unwrap()
    };
    let mut sockets: Vec<_> = (0..8).map(|_| connect(&proxy, Versions::All)).collect();
    // Its session cannot move, so the one to the server must not either.
    let mut old = connect(&proxy, Versions::Tls12);
    for round in 0..3 {
        let sent: Vec<_> = (0..20).map(|number| pattern(number * 3_001, round)).collect();
        for socket in &mut sockets {
            sent.iter().for_each(|message| socket.binary(message).unwrap());
        }
        // Amid all of it.
        let (new, handed) = upgrade(&proxy, server(), live.clone());
        let staying = if round == 0 { 2 } else { 0 };
        assert_eq!((handed.moved, handed.refused, handed.staying.tls), (16, 0, staying), "{handed:?}");
        assert_eq!(handed.staying.total(), staying, "{handed:?}");
        drop(std::mem::replace(&mut proxy, new));
        old.text("still here").unwrap();
        assert_eq!(old.receive().unwrap().data(), b"still here");
        for socket in &mut sockets {
            for message in &sent {
                assert!(socket.receive().unwrap().data() == message, "lost, doubled or out of order");
            }
        }
        // Servers of one process share the plan.
        eventually("the counts go along", || live.plan().backends[0].group.servers()[0].connections() == 9);
    }
}

#[test]
fn a_client_between_two_requests_keeps_its_connection() {
    let (server, count) = scripted(|mut stream| {
        let mut reader = reader(&stream);
        while head(&mut reader).is_some() {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").unwrap();
        }
    });
    let live = live(&[server]);
    let first = live.clone();
    let server = || Server::plain().config(raw_config());
    let proxy = server().listen("127.0.0.1:0".parse().unwrap()).start(move |_| Edge::new(first.clone())).unwrap();
    let mut client = Client::of(&proxy);
    let mut ask = || {
        client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(length(&client.head()), Some(2));
        assert_eq!(client.exact(2), "hi");
    };
    ask();
    ask();
    // Both its answer has left, and the connection to the server is idle.
    eventually("the client is idle", || proxy.shards()[0].counters().http == 1);
    let (new, handed) = upgrade(&proxy, server(), live);
    assert_eq!((handed.moved, handed.staying.forwarding, handed.staying.total()), (1, 1, 1), "{handed:?}");
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 1);
    ask();
    eventually("the client is idle again", || new.shards()[0].counters().http == 1);
    proxy.join().unwrap();
    ask();
}

#[test]
fn a_new_process_that_fails_leaves_the_tunnels_where_they_are() {
    let (server, given) = tunneling();
    let proxy = kit::proxy(&[server]);
    let (mut client, mut server) = (open(&proxy), given.recv().unwrap());
    for _ in 0..3 {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let giving = proxy.clone();
        let giver = thread::spawn(move || giving.hand_over(ours, &HandOver::default()));
        let live = live(&["http://127.0.0.1:1".to_owned()]);
        let new = Server::plain().config(raw_config()).take_over(theirs).prepare(move |_| Edge::new(live.clone()));
        new.unwrap().give_up(&"the test wants it so");
        assert!(matches!(giver.join().unwrap(), Err(HandOverError::Failed(_))));
        client.write_all(b"forth").unwrap();
        expect(&mut server, b"forth");
        server.write_all(b"back").unwrap();
        expect(&mut client, b"back");
    }
    // It serves new connections, too.
    let (mut client, mut server) = (open(&proxy), given.recv().unwrap());
    server.write_all(b"new").unwrap();
    expect(&mut client, b"new");
}

#[test]
fn a_tunnel_that_opens_during_the_drain_is_refused_instead_of_cut() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let live = live(&[format!("http://{}", listener.local_addr().unwrap())]);
    let first = live.clone();
    let server = || Server::plain().config(raw_config());
    let proxy = server().listen("127.0.0.1:0".parse().unwrap()).start(move |_| Edge::new(first.clone())).unwrap();
    let mut client = Client::of(&proxy);
    client.ask(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    );
    let mut behind = listener.accept().unwrap().0;
    assert!(head(&mut reader(&behind)).is_some());
    // Another connection is idle, and its end says that the drain has begun.
    let mut other = Client::of(&proxy);
    other.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut idle = listener.accept().unwrap().0;
    assert!(head(&mut reader(&idle)).is_some());
    idle.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert_eq!(length(&other.head()), Some(0));
    eventually("the other client is idle", || proxy.shards()[0].counters().http == 1);
    let (new, handed) = upgrade(&proxy, server(), live);
    assert_eq!((handed.moved, handed.staying.forwarding), (1, 3), "{handed:?}");
    ends(&mut idle);
    behind.write_all(wire::response("").as_bytes()).unwrap();
    let head = client.head();
    assert!(head.starts_with("http/1.1 503 ") && head.contains("retry-after: "), "{head}");
    proxy.join().unwrap();
    assert_eq!(new.shards()[0].counters().http, 1);
}

/// A WebSocket that moves is one entry of the access log, with its whole time, traffic and way.
#[test]
fn the_access_log_has_a_websocket_that_moved_once() {
    for by_messages in [false, true] {
        let (server, ends) = wire::server("");
        let text = if by_messages { messages(&server, "") } else { text(&server, "") };
        let (entry, entries) = channel();
        let mut config = raw_config();
        config.access_log = Some(AccessLog::new(move |access| {
            let notes: Vec<String> = access.notes.iter().map(|(name, note)| format!("{name}={note:?}")).collect();
            let path = access.path.unwrap_or("-").to_owned();
            let _ = entry.send((path, access.duration, access.traffic.bytes_in, notes.join(" ")));
        }));
        let first = parsed(&text);
        let start = first.clone();
        let listening = Server::plain().config(config.clone()).listen("127.0.0.1:0".parse().unwrap());
        let old = listening.start(move |_| Edge::new(start.clone())).unwrap();
        let (mut client, mut far) = End::pair(&old, &ends);
        let sent = [7; 5_000];
        client.send(BINARY, &sent);
        assert_eq!(far.next().1, sent);
        // The loop of the new server is younger than the WebSocket.
        thread::sleep(Duration::from_millis(300));
        let (new, handed) = upgrade_to(&old, Server::plain(), config, parsed(&text));
        assert_eq!(handed.moved, 2, "{handed:?}");
        client.send(BINARY, &sent);
        assert_eq!(far.next().1, sent);
        drop((client, far));
        let (path, time, bytes, notes) = entries.recv_timeout(LONG).unwrap();
        assert_eq!(path, "/ws");
        assert!(time >= Duration::from_millis(300) && time < LONG, "{time:?}");
        assert!(bytes > 10_000, "{bytes}");
        for name in ["route=", "backend=Text(\"app\")", "server=", "head=Time"] {
            assert!(notes.contains(name), "{name}: {notes}");
        }
        new.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
        new.join().unwrap();
        assert!(entries.try_recv().is_err(), "one entry");
    }
}
