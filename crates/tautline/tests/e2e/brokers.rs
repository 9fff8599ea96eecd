//! Topics of several servers behind a broker.

use crate::common::server::client_config;
use crate::common::{PATIENCE, eventually};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tautline::{
    Bridge, Broker, BrokerError, BrokerLink, CloseCode, Conn, DeflateConfig, Handler, Incoming, MemoryBroker, Message,
    Order, Outgoing, Reach, Server, ServerHandle, ShardHandleError, Socket, Target, Withheld,
};

/// Subscribes on `+TOPIC` and `*PREFIX`, unsubscribes on `-TOPIC`, publishes on `TOPIC:TEXT`, and answers each.
struct App;

impl Handler for App {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        let text = message.text().unwrap();
        let answer = if let Some(topic) = text.strip_prefix('+') {
            format!("{}", conn.subscribe(topic))
        } else if let Some(prefix) = text.strip_prefix('*') {
            format!("{}", conn.subscribe_prefix(prefix))
        } else if let Some(topic) = text.strip_prefix('-') {
            conn.unsubscribe(topic);
            "out".to_owned()
        } else {
            let (topic, news) = text.split_once(':').unwrap();
            format!("{:?}", conn.publish(topic, Outgoing::text(news)))
        };
        conn.text(&answer);
    }
}

struct Host {
    server: ServerHandle,
    bridge: Bridge,
}

impl Host {
    fn start(broker: impl Broker, shards: usize) -> Self {
        let bridge = Bridge::start(broker).unwrap();
        let mut config = tautline::Config::default();
        config.upgrade.deflate = Some(DeflateConfig::default());
        let server = Server::plain().listen("127.0.0.1:0".parse().unwrap()).shards(shards).config(config);
        let server = server.bridge(bridge.clone()).start(|_| App).unwrap();
        Self { server, bridge }
    }

    fn client(&self) -> Socket {
        let mut target = Target::new(&format!("ws://{}/", self.server.addresses()[0])).unwrap();
        target.deflate = Some(DeflateConfig::default());
        Socket::connect(target, client_config(), tautline::Config::default()).unwrap()
    }

    fn stop(self) {
        self.server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
        self.server.join().unwrap();
    }
}

fn ask(socket: &mut Socket, command: &str) -> String {
    socket.text(command).unwrap();
    text(socket)
}

fn text(socket: &mut Socket) -> String {
    match socket.receive().unwrap() {
        Incoming::Text(text) => text,
        Incoming::Binary(_) => panic!("only text was sent"),
    }
}

fn interests(host: &Host) -> u64 {
    host.bridge.counters().interests
}

#[test]
fn a_message_reaches_the_subscribers_of_all_hosts_once() {
    let broker = MemoryBroker::new();
    let hosts = [0; 3].map(|_| Host::start(broker.clone(), 2));
    let mut clients: Vec<Socket> = hosts.iter().flat_map(|host| [host.client(), host.client()]).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        // Some are subscribed twice, and still get each message once.
        assert_eq!(ask(client, if number % 2 == 0 { "+news" } else { "*ne" }), "true");
        assert_eq!(ask(client, "+news"), "true");
    }
    for host in &hosts {
        eventually("the broker follows both", || host.bridge.counters().connected && interests(host) == 2);
    }
    // An order behind those of the subscriptions: once it has come through, the broker has them.
    for host in &hosts {
        hear_each_other(host, &hosts);
    }
    let long = "the same words again and again, ".repeat(100);
    for round in 0..20 {
        let publisher = round % clients.len();
        clients[publisher].text(&format!("news:{round} {long}")).unwrap();
        for (number, client) in clients.iter_mut().enumerate() {
            let mut expected = VecDeque::from([format!("{round} {long}")]);
            if number == publisher {
                // The answer leaves before the publication.
                expected.push_front("AllHosts".to_owned());
            }
            for expected in expected {
                assert_eq!(text(client), expected, "{round} at {number}");
            }
        }
    }
    // From a thread.
    hosts[1].server.publish("news", Outgoing::text("from a thread")).unwrap();
    for client in &mut clients {
        assert_eq!(text(client), "from a thread");
    }
    for host in &hosts {
        let compressed: u64 = host.server.shards().iter().map(|shard| shard.counters().publications_compressed).sum();
        // Two loops may both compress a message.
        assert!((20..=2 * 21).contains(&compressed), "{compressed}");
        assert_eq!(host.bridge.counters().missed, 0);
    }
    drop(clients);
    hosts.into_iter().for_each(Host::stop);
}

/// Waits until messages of `host` reach all others.
fn hear_each_other(host: &Host, hosts: &[Host]) {
    let heard = Arc::new(AtomicUsize::new(0));
    let others = hosts.iter().filter(|other| !std::ptr::eq(*other, host));
    let ears: Vec<_> = others
        .map(|other| {
            let (heard, has_heard) = (heard.clone(), AtomicBool::new(false));
            other.bridge.listen("$test", move |_, _| {
                if !has_heard.swap(true, Ordering::Relaxed) {
                    heard.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    eventually("a message reaches the other hosts", || {
        host.bridge.publish("$test", Outgoing::text("hear me"));
        heard.load(Ordering::Relaxed) == ears.len()
    });
}

/// A report of a broker under control of the test.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Connected,
    Order(String),
}

/// A broker that works only while it is `up`, and takes orders only while it is not `stuck`.
struct Controlled {
    up: Arc<AtomicBool>,
    stuck: Arc<Mutex<()>>,
    told: std::sync::mpsc::Sender<Told>,
}

impl Broker for Controlled {
    fn name(&self) -> &str {
        "under control"
    }

    fn run(&mut self, link: &mut BrokerLink) -> Result<(), BrokerError> {
        if !self.up.load(Ordering::Relaxed) {
            return Err("it is down".into());
        }
        link.connected();
        self.told.send(Told::Connected)?;
        while !link.is_stopped() {
            if !self.up.load(Ordering::Relaxed) {
                return Err("it went down".into());
            }
            let stuck = self.stuck.lock().unwrap();
            while let Some(order) = link.next_order() {
                let told = match order {
                    Order::Publish { topic, message } => {
                        format!("{topic}: {}", String::from_utf8_lossy(message.payload()))
                    }
                    other => format!("{other:?}"),
                };
                self.told.send(Told::Order(told))?;
            }
            drop(stuck);
            link.wait(Duration::from_millis(10));
        }
        Ok(())
    }
}

fn controlled() -> (Controlled, Arc<AtomicBool>, Arc<Mutex<()>>, Receiver<Told>) {
    let (up, stuck) = (Arc::new(AtomicBool::new(true)), Arc::new(Mutex::new(())));
    let (told, receiver) = channel();
    (Controlled { up: up.clone(), stuck: stuck.clone(), told }, up, stuck, receiver)
}

#[test]
fn topics_go_on_without_a_broker_and_extend_again_when_it_is_back() {
    let (broker, up, _stuck, told) = controlled();
    let host = Host::start(broker, 1);
    let next = || told.recv_timeout(PATIENCE).unwrap();
    assert_eq!(next(), Told::Connected);
    let mut clients: Vec<Socket> = (0..5).map(|_| host.client()).collect();
    for client in &mut clients {
        assert_eq!(ask(client, "+a"), "true");
    }
    let mut publisher = host.client();
    // Five subscribers are one interest.
    assert_eq!(next(), Told::Order("Follow(Topic(\"a\"))".into()));
    assert_eq!(ask(&mut publisher, "a:1"), "AllHosts");
    assert_eq!(next(), Told::Order("a: 1".into()));
    up.store(false, Ordering::Relaxed);
    eventually("the broker is known to be away", || !host.bridge.counters().connected);
    assert_eq!(ask(&mut publisher, "a:2"), "ThisHost(Away)");
    assert_eq!(host.server.publish("a", Outgoing::text("3")), Err(ShardHandleError::Withheld));
    assert_eq!(host.bridge.publish("a", Outgoing::text("4")), Reach::ThisHost(Withheld::Away));
    assert_eq!(host.bridge.counters().withheld_away, 3);
    assert_eq!(ask(&mut publisher, "*b"), "true");
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!([text(client), text(client), text(client)], ["1", "2", "3"], "{number}");
    }
    up.store(true, Ordering::Relaxed);
    assert_eq!(next(), Told::Connected);
    let mut followed = [next(), next()];
    followed.sort_by_key(|told| format!("{told:?}"));
    assert_eq!(
        followed,
        [Told::Order("Follow(Prefix(\"b\"))".into()), Told::Order("Follow(Topic(\"a\"))".into())],
        "the broker is told all topics again"
    );
    assert_eq!(ask(&mut publisher, "a:5"), "AllHosts");
    assert_eq!(next(), Told::Order("a: 5".into()));
    // The last subscriber's end, not the first's, ends the interest.
    drop((clients, publisher));
    let mut ended = [next(), next()];
    ended.sort_by_key(|told| format!("{told:?}"));
    assert_eq!(ended, [Told::Order("Unfollow(Prefix(\"b\"))".into()), Told::Order("Unfollow(Topic(\"a\"))".into())]);
    let counters = host.bridge.counters();
    assert_eq!((counters.connects, counters.passed, counters.interests), (2, 2, 0));
    assert!(counters.failures >= 1);
    host.stop();
}

#[test]
fn a_broker_that_does_not_keep_up_delays_nobody() {
    let (broker, _up, stuck, told) = controlled();
    let host = Host::start(broker, 1);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Told::Connected);
    let mut client = host.client();
    assert_eq!(ask(&mut client, "+a"), "true");
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Told::Order("Follow(Topic(\"a\"))".into()));
    let held = stuck.lock().unwrap();
    let large = "x".repeat(1 << 19);
    let mut reached = Vec::new();
    while !matches!(reached.last(), Some(Reach::ThisHost(_))) {
        reached.push(host.bridge.publish("a", Outgoing::text(&large)));
        assert!(reached.len() < 100, "the queue has no bound");
    }
    assert_eq!(reached.pop(), Some(Reach::ThisHost(Withheld::Full)));
    // The client's own host goes on.
    let mut answers = [ask(&mut client, &format!("a:{large}")), text(&mut client)];
    answers.sort_by_key(String::len);
    assert_eq!(answers[0], "ThisHost(Full)");
    assert_eq!(answers[1].len(), large.len());
    let counters = host.bridge.counters();
    assert_eq!((counters.withheld_full, counters.waiting), (2, reached.len() as u64));
    drop(held);
    // Messages that were taken are passed.
    for _ in reached {
        assert!(matches!(told.recv_timeout(PATIENCE).unwrap(), Told::Order(text) if text.len() > 1 << 19));
    }
    drop(client);
    host.stop();
}

#[test]
fn a_broker_cannot_have_invalid_text_sent() {
    struct Hostile;

    impl Broker for Hostile {
        fn name(&self) -> &str {
            "hostile"
        }

        fn run(&mut self, link: &mut BrokerLink) -> Result<(), BrokerError> {
            link.connected();
            while !link.is_stopped() {
                while let Some(order) = link.next_order() {
                    if let Order::Follow(_) = order {
                        link.inbox().deliver("a", tautline::Kind::Text, b"\xff");
                        link.inbox().deliver("a", tautline::Kind::Binary, b"\xff");
                        panic!("a broker that panics is run again");
                    }
                }
                link.wait(Duration::from_secs(1));
            }
            Ok(())
        }
    }

    let host = Host::start(Hostile, 1);
    let mut client = host.client();
    client.text("+a").unwrap();
    let mut binary = 0;
    while binary < 2 {
        match client.receive().unwrap() {
            Incoming::Binary(payload) => {
                assert_eq!(payload, b"\xff");
                binary += 1;
            }
            Incoming::Text(text) => assert_eq!(text, "true"),
        }
    }
    assert!(host.bridge.counters().missed >= 2);
    drop(client);
    host.stop();
}
