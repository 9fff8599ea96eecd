//! Stages of messages, as servers and clients report them.

use crate::common::server::{client_config, config, server_config};
use crate::common::{PATIENCE, eventually};
use std::num::NonZeroU32;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use tautline::{
    Client, CloseCode, Conn, DialId, DriverConfig, Handler, Incoming, Message, Opening, Outgoing, SendStage, SendTimes,
    Server, ShardContext, Socket, Stage, Target, Tls, TlsEngine,
};

const MESSAGES: u64 = 200;

struct Echo;

impl Handler for Echo {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

/// Sends a message, and the next one when its echo has arrived.
struct Ping {
    done: Sender<()>,
    left: u64,
}

impl Handler for Ping {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _opening: &Opening<'_>) {
        conn.text("0123456789");
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        self.left -= 1;
        if self.left > 0 {
            conn.send(Outgoing::from(&message));
            return;
        }
        conn.close(CloseCode::NORMAL, "");
        self.done.send(()).unwrap();
    }
}

fn server(shards: usize) -> Server {
    let tls = Tls::from(server_config());
    Server::new(tls).listen("127.0.0.1:0".parse().unwrap()).shards(shards).config(config())
}

fn target(address: &tautline::Address) -> Target {
    Target::new(&format!("wss://{address}/")).unwrap()
}

#[test]
fn both_ends_count_every_message() {
    let server = server(1).start_with_stages(|_| Echo).unwrap();
    let (done, is_done) = channel();
    let target = target(&server.addresses()[0]);
    let client = Client::new(client_config()).target(target).config(config());
    let client = client.start_with_stages(move |_| Ping { done, left: MESSAGES }).unwrap();
    is_done.recv_timeout(Duration::from_secs(20)).unwrap();
    for _ in 0..2 {
        // First while the loops run, then after they have ended.
        let [at_server, at_client] = [&server, &client].map(|handle| handle.stages().unwrap());
        assert_eq!((at_server.messages(), at_client.messages()), (MESSAGES, MESSAGES));
        for stages in [at_server, at_client] {
            for stage in [Stage::Loop, Stage::Read, Stage::Tls, Stage::Parse, Stage::Callback, Stage::App] {
                assert_eq!(stages.spread(stage).count, MESSAGES, "{stage:?}");
            }
            // The kernel begins to stamp shortly after it was asked to.
            assert!(stages.spread(Stage::Nic).count <= MESSAGES);
            assert!(stages.spread(Stage::Total).mean >= stages.spread(Stage::Nic).mean);
            assert!(stages.spread(Stage::Tls).min > 0.0 && stages.tls_share() < 1.0);
            assert_eq!(stages.per_read(), (1.0, 1));
            assert!(stages.to_string().contains("\ntls "), "{stages}");
        }
        server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(200));
    }
    client.join().unwrap();
    server.join().unwrap();
}

/// A target with the address in it is dialed at once, which must not be before arrivals are stamped.
#[test]
fn the_first_connection_of_a_client_has_times_of_arrival() {
    let server = server(1).start_with_stages(|_| Echo).unwrap();
    let (done, is_done) = channel();
    let client = Client::new(client_config()).target(target(&server.addresses()[0])).config(config());
    let client = client.start_with_stages(move |_| Ping { done, left: 5 * MESSAGES }).unwrap();
    is_done.recv_timeout(PATIENCE).unwrap();
    let [at_server, at_client] = [&server, &client].map(|handle| handle.stages().unwrap().stamped());
    // The kernel begins to stamp shortly after it was asked to.
    assert!(at_client > 0 || at_server == 0, "{at_client} at the client, {at_server} at the server");
    server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    client.join().unwrap();
    server.join().unwrap();
}

/// Sends an order for each price, and the next one when its time is known.
struct Orders {
    sent: Sender<SendTimes>,
    orders: u64,
}

impl Handler for Orders {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _opening: &Opening<'_>) {
        conn.text("price");
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, _: Message<'_>) {
        self.orders += 1;
        conn.send_timed(Outgoing::text("order"), self.orders);
    }

    fn on_sent(&mut self, _: &mut ShardContext<'_>, times: &SendTimes) {
        // The test may have ended.
        let _ = self.sent.send(*times);
    }
}

/// Times orders to an echo server, of which each echo is the next price.
fn times_of_orders(driver: DriverConfig, engine: TlsEngine) {
    let any = "127.0.0.1:0".parse().unwrap();
    let server = Server::new(Tls { engine, config: server_config() }).listen(any).shards(1).config(config());
    let server = server.start(|_| Echo).unwrap();
    let scheme = if engine == TlsEngine::Plain { "ws" } else { "wss" };
    let target = Target::new(&format!("{scheme}://{}/", server.addresses()[0])).unwrap();
    let (sent, times) = channel();
    let tls = Tls { engine, config: client_config() };
    let client = Client::new(tls).target(target).config(config()).driver(driver);
    let client = client.start_with_stages(move |_| Orders { sent, orders: 0 }).unwrap();
    let (mut with_arrival, begin) = (0, Instant::now());
    // The kernel begins to stamp what arrives a moment after it was asked to, a long one where it has much to do.
    for id in 1.. {
        if id > 50 && with_arrival > 0 {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "nothing that arrives is stamped");
        let times: SendTimes = times.recv_timeout(PATIENCE).unwrap();
        // The loopback device stamps.
        let (written, sent) = (times.written.unwrap(), times.sent.unwrap());
        assert_eq!(times.id, id);
        assert!(written <= sent && sent < PATIENCE, "{times:?}");
        assert!(times.sent_at.unwrap().elapsed().unwrap() < PATIENCE, "{times:?}");
        if let Some(all) = times.tick_to_trade {
            assert!(all >= sent, "{times:?}");
            with_arrival += 1;
        }
    }
    client.drain(CloseCode::NORMAL, "", Duration::from_secs(5));
    let stages = client.join_with_stages().unwrap().unwrap();
    assert!(stages.sends().0 >= 50 && stages.send_spread(SendStage::TickToTrade).count >= with_arrival, "{stages}");
    server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    server.join().unwrap();
}

#[test]
fn orders_are_timed_from_the_price_to_the_network_card() {
    for engine in [TlsEngine::Plain, TlsEngine::Fused, TlsEngine::Rustls] {
        times_of_orders(DriverConfig::default(), engine);
    }
}

#[test]
fn orders_are_timed_over_io_uring() {
    // Without io_uring epoll takes its place, which is logged.
    for engine in [TlsEngine::Plain, TlsEngine::Fused] {
        times_of_orders("uring".parse().unwrap(), engine);
    }
}

#[test]
fn both_ends_sample_reads() {
    let every = NonZeroU32::new(4).unwrap();
    let server = server(1).stages_of_one_read_in(every).start_with_stages(|_| Echo).unwrap();
    let (done, is_done) = channel();
    let client = Client::new(client_config()).target(target(&server.addresses()[0])).config(config());
    let client = client.stages_of_one_read_in(every);
    let client = client.start_with_stages(move |_| Ping { done, left: MESSAGES }).unwrap();
    is_done.recv_timeout(Duration::from_secs(20)).unwrap();
    for handle in [&server, &client] {
        // 50 are expected; the bounds are six standard deviations.
        let messages = handle.stages().unwrap().messages();
        assert!((13..=87).contains(&messages), "{messages}");
    }
    server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    client.join().unwrap();
    server.join().unwrap();
}

#[test]
fn stages_include_all_shards() {
    let server = server(2).start_with_stages(|_| Echo).unwrap();
    let mut sockets: Vec<Socket> =
        (0..8).map(|_| Socket::connect(target(&server.addresses()[0]), client_config(), config()).unwrap()).collect();
    for socket in &mut sockets {
        socket.text("hello").unwrap();
        assert_eq!(socket.receive().unwrap(), Incoming::Text("hello".into()));
    }
    assert_eq!(server.stages().unwrap().messages(), 8);
    drop(sockets);
    server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    server.join().unwrap();
}

#[test]
fn without_a_probe_there_are_no_stages() {
    let server = server(1).start(|_| Echo).unwrap();
    assert!(server.stages().is_none());
    server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    server.join().unwrap();
}

/// Pings over several dials, each for its own number of messages.
struct Pings {
    left: Vec<u64>,
    end: Sender<DialId>,
}

impl Handler for Pings {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _opening: &Opening<'_>) {
        conn.text("0123456789");
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        let dial = conn.dial().unwrap();
        let left = &mut self.left[dial.index()];
        *left -= 1;
        if *left > 0 {
            conn.send(Outgoing::from(&message));
        } else {
            self.end.send(dial).unwrap();
        }
    }
}

#[test]
fn dials_are_counted_apart() {
    let server = server(1).start(|_| Echo).unwrap();
    let (end, ends) = channel();
    let mut client = Client::new(client_config()).config(config());
    for _ in 0..3 {
        client = client.target(target(&server.addresses()[0]));
    }
    let client = client.start_with_stages(move |_| Pings { left: vec![10, 20, 30], end }).unwrap();
    let shard = client.shards()[0].clone();
    let messages = |dial| shard.stages_of(dial).unwrap().map_or(0, |stages| stages.messages());
    let mut dials: Vec<_> = (0..3).map(|_| ends.recv_timeout(PATIENCE).unwrap()).collect();
    dials.sort_unstable();
    assert_eq!(dials.iter().map(|dial| messages(*dial)).collect::<Vec<_>>(), [10, 20, 30]);
    assert_eq!(client.stages().unwrap().messages(), 60);
    shard.disconnect(dials[1], CloseCode::NORMAL, "").unwrap();
    eventually("the dial is forgotten", || messages(dials[1]) == 0);
    assert_eq!(messages(dials[2]), 30);
    client.drain(CloseCode::NORMAL, "", Duration::from_secs(9));
    assert_eq!(client.join_with_stages().unwrap().unwrap().messages(), 60);
    server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(9));
    server.join().unwrap();
}
