//! Hubs and their clients over loopback.

use crate::helpers::{PATIENCE, client, message, publish, stop, subscribe, target, wait};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tautline::{Bridge, ClientConfig, Incoming, MemoryBroker, Outgoing, Server, ServerHandle, Socket};
use tautline_hub::{
    Append, Client, ClientError, Config, Done, Entry, Event, Following, Hub, Kind, Log, MemoryLog, Page, Position,
    Sink, Subscribe,
};

fn serve(hub: &Hub, port: u16, bridge: Option<Bridge>) -> ServerHandle {
    let server = Server::plain().listen(format!("127.0.0.1:{port}").parse().unwrap()).shards(2).beside_others(true);
    let server = if let Some(bridge) = bridge { server.bridge(bridge) } else { server };
    server.start(hub.handlers()).unwrap()
}

#[test]
fn those_who_return_get_what_they_missed_once_and_in_order() {
    let hub = Hub::default();
    let server = serve(&hub, 0, None);
    let (publisher, all) = (client(&server), client(&server));
    subscribe(&all, "log:a", Subscribe::default());
    // More than the loops keep, so that the log is read in pages.
    let offsets: Vec<u64> = (0..700).map(|n| publish(&publisher, "log:a", None, &n.to_string()).unwrap()).collect();
    for (n, offset) in offsets.iter().enumerate() {
        let message = message(&all);
        assert_eq!((message.data, message.offset), (n.to_string(), Some(*offset)));
    }
    for from in [0, 1, 350, 600, 698] {
        let returned = client(&server);
        subscribe(&returned, "log:a", Subscribe::default().after(offsets[from], None));
        // Messages that are published meanwhile follow those that it missed.
        let live = publish(&publisher, "log:a", None, &format!("\"live {from}\""));
        for (n, offset) in offsets.iter().enumerate().skip(from + 1) {
            let message = message(&returned);
            assert_eq!((message.data, message.offset), (n.to_string(), Some(*offset)), "after {from}");
        }
        while message(&returned).offset != live {}
    }
    stop(server);
}

#[test]
fn those_who_return_too_late_are_told_and_get_what_is_kept() {
    let server = serve(&Hub::default(), 0, None);
    let publisher = client(&server);
    let mut last = None;
    for n in 0..1_100 {
        last = publish(&publisher, "log:a", None, &n.to_string());
    }
    let ahead = Subscribe::default().after(100_000, None);
    for how in
        [Subscribe::default().after(1, None), ahead, Subscribe::default().after(1_100, Some("another life".into()))]
    {
        let returned = client(&server);
        returned.subscribe("log:a", how).unwrap();
        let missed = wait(&returned, |event| match event {
            Event::Late(_, offset) => Some(offset),
            Event::Message(message) => panic!("{message:?}"),
            _ => None,
        });
        let mut offset = missed;
        while Some(offset) != last {
            let message = message(&returned);
            assert_eq!(message.offset, Some(offset + 1), "each message that is kept, in order");
            offset += 1;
        }
        assert!(missed > 0 && offset > missed, "some are not kept, and others are: {missed} of {offset}");
        last = publish(&publisher, "log:a", None, "\"next\"");
        assert_eq!(message(&returned).offset, last);
    }
    stop(server);
}

#[test]
fn a_client_of_another_epoch_gets_what_was_published_since() {
    let server = serve(&Hub::default(), 0, None);
    let publisher = client(&server);
    for n in 0..5 {
        publish(&publisher, "log:a", None, &n.to_string());
    }
    let returned = client(&server);
    returned.subscribe("log:a", Subscribe::default().after(700, Some("before the restart".into()))).unwrap();
    let missed = wait(&returned, |event| match event {
        Event::Late(_, offset) => Some(offset),
        _ => None,
    });
    let got: Vec<_> = (0..5).map(|_| message(&returned)).collect();
    assert_eq!(got.iter().map(|one| &*one.data).collect::<Vec<_>>(), ["0", "1", "2", "3", "4"]);
    assert_eq!(got[0].offset, Some(missed + 1));
    stop(server);
}

#[test]
fn a_publisher_learns_the_epoch_of_its_offset() {
    let server = serve(&Hub::default(), 0, None);
    let publisher = client(&server);
    let id = publisher.publish("log:a", None, "1").unwrap();
    let at = wait(&publisher, |event| match event {
        Event::Published(other, at) if other == id => Some(at.unwrap()),
        _ => None,
    });
    publish(&publisher, "log:a", None, "2");
    let returned = client(&server);
    returned.subscribe("log:a", Subscribe::default().after(at.offset, Some(at.epoch.to_string()))).unwrap();
    let first = wait(&returned, |event| match event {
        Event::Message(message) => Some(message),
        Event::Late(..) => panic!("the epoch is not the log's: {at:?}"),
        _ => None,
    });
    assert_eq!(&*first.data, "2");
    stop(server);
}

#[test]
fn null_is_a_value() {
    let server = serve(&Hub::default(), 0, None);
    let publisher = client(&server);
    let offset = publish(&publisher, "log:a", None, "null");
    let reader = client(&server);
    reader.subscribe("log:a", Subscribe::default().after(0, None)).unwrap();
    let got = message(&reader);
    assert_eq!((&*got.data, got.offset), ("null", offset));
    stop(server);
}

#[test]
fn after_0_begins_with_the_first_message_that_is_kept() {
    let server = serve(&Hub::default(), 0, None);
    let publisher = client(&server);
    let all: Vec<_> = (0..1_100).map(|n| publish(&publisher, "log:a", None, &n.to_string())).collect();
    let from_the_begin = client(&server);
    from_the_begin.subscribe("log:a", Subscribe::default().after(0, None)).unwrap();
    let first = wait(&from_the_begin, |event| match event {
        Event::Message(message) => Some(message),
        Event::Late(..) => panic!("nothing was missed"),
        _ => None,
    });
    assert!(first.offset > all[0], "the log has dropped the first: {first:?}");
    while message(&from_the_begin).offset != all[1_099] {}
    stop(server);
}

#[test]
fn those_who_come_get_the_latest_message_of_each_key() {
    let server = serve(&Hub::default(), 0, None);
    let (publisher, early) = (client(&server), client(&server));
    subscribe(&early, "latest:prices", Subscribe::default());
    for round in 0..50 {
        for key in ["EURUSD", "EURGBP", "EURJPY"] {
            publish(&publisher, "latest:prices", Some(key), &round.to_string());
        }
    }
    let late = client(&server);
    subscribe(&late, "latest:prices", Subscribe::default());
    let got: BTreeMap<_, _> =
        (0..3).map(|_| message(&late)).map(|message| (message.key.unwrap(), message.data)).collect();
    assert_eq!(got.len(), 3);
    assert!(got.values().all(|data| data == "49"), "{got:?}");
    publish(&publisher, "latest:prices", Some("EURUSD"), "50");
    assert_eq!(message(&late).data, "50");
    let all: Vec<_> = (0..151).map(|_| message(&early).data).collect();
    assert_eq!(all[150], "50");
    stop(server);
}

/// Clients roam between two hosts that come and go, and get every message once.
#[test]
fn restarts_lose_and_double_nothing() {
    let log = Arc::new(MemoryLog::default());
    let hub = || Hub::with_log(Config::default(), log.clone(), None);
    let mut server = serve(&hub(), 0, None);
    let address = server.addresses()[0].clone();
    let port = match &address {
        tautline::Address::Tcp(address) => address.port(),
        other => panic!("{other}"),
    };
    let clients: Vec<Client> = (0..5).map(|_| client(&server)).collect();
    clients.iter().for_each(|client| subscribe(client, "log:a", Subscribe::default()));
    let publisher = client(&server);
    let mut sent = 0;
    for _ in 0..4 {
        for _ in 0..50 {
            publish(&publisher, "log:a", None, &sent.to_string());
            sent += 1;
        }
        // The next one begins before the last one ends, with a log in common.
        let next = serve(&hub(), port, None);
        stop(std::mem::replace(&mut server, next));
    }
    for client in &clients {
        for n in 0..sent {
            assert_eq!(message(client).data, n.to_string());
        }
    }
    stop(server);
}

/// A log that loses every tenth message on its way to the hub, and says so.
struct Lossy {
    log: MemoryLog,
    sent: Arc<AtomicU64>,
}

struct LossySink {
    sink: Arc<dyn Sink>,
    at: Mutex<Option<Position>>,
    sent: Arc<AtomicU64>,
}

impl Sink for LossySink {
    fn begin(&self, at: Position) {
        *self.at.lock().unwrap() = Some(at.clone());
        self.sink.begin(at);
    }

    fn entry(&self, entry: Entry) {
        if self.sent.fetch_add(1, Ordering::Relaxed) % 10 == 9 {
            let epoch = self.at.lock().unwrap().clone().unwrap().epoch;
            self.sink.lost();
            return self.sink.begin(Position { epoch, offset: entry.offset });
        }
        self.sink.entry(entry);
    }

    fn lost(&self) {
        self.sink.lost();
    }
}

impl Log for Lossy {
    fn append(&self, topic: &Arc<str>, append: Append, done: Done<Position>) {
        self.log.append(topic, append, done);
    }

    fn follow(&self, topic: &Arc<str>, kind: Kind, sink: Arc<dyn Sink>) -> Following {
        self.log.follow(topic, kind, Arc::new(LossySink { sink, at: Mutex::default(), sent: self.sent.clone() }))
    }

    fn read(&self, topic: &Arc<str>, kind: Kind, after: Option<u64>, done: Done<Page>) {
        self.log.read(topic, kind, after, done);
    }
}

#[test]
fn messages_that_a_host_misses_are_read_again() {
    let lossy = Lossy { log: MemoryLog::default(), sent: Arc::default() };
    let hub = Hub::with_log(Config::default(), Arc::new(lossy), None);
    let server = serve(&hub, 0, None);
    let (publisher, subscriber) = (client(&server), client(&server));
    subscribe(&subscriber, "log:a", Subscribe::default());
    for n in 0..200 {
        publish(&publisher, "log:a", None, &n.to_string());
    }
    for n in 0..200 {
        assert_eq!(message(&subscriber).data, n.to_string());
    }
    stop(server);
}

#[test]
fn members_of_all_hosts_are_known_and_those_of_a_dead_host_leave() {
    let broker = MemoryBroker::new();
    let mut config = Config::default();
    config.lease = Duration::from_secs(2);
    let hosts: Vec<_> = (0..2)
        .map(|_| {
            let bridge = Bridge::start(broker.clone()).unwrap();
            let hub = Hub::with_log(config.clone(), Arc::new(MemoryLog::default()), Some(bridge.clone()));
            serve(&hub, 0, Some(bridge))
        })
        .collect();
    let watcher = client(&hosts[0]);
    watcher.subscribe("room", Subscribe::default().with_presence().as_member("watcher")).unwrap();
    let seen = Mutex::new(BTreeMap::new());
    // Waits until the members have these names.
    let expect = |names: &[&str]| {
        let mut seen = seen.lock().unwrap();
        while seen.values().map(String::as_str).collect::<std::collections::BTreeSet<_>>()
            != names.iter().copied().collect()
        {
            match watcher.next_within(PATIENCE).unwrap() {
                Event::Members(_, members) => *seen = members.into_iter().collect(),
                Event::Joined(_, id, name) => assert_eq!(seen.insert(id, name), None, "joined twice"),
                Event::Left(_, id) => assert!(seen.remove(&id).is_some(), "left twice"),
                _ => {}
            }
        }
    };
    expect(&["watcher"]);
    let [near, far] = [&hosts[0], &hosts[1]].map(client);
    subscribe(&near, "room", Subscribe::default().as_member("near"));
    expect(&["watcher", "near"]);
    subscribe(&far, "room", Subscribe::default().as_member("far"));
    expect(&["watcher", "near", "far"]);
    // A host that says something once, and then is dead.
    let dead = Bridge::start(broker).unwrap();
    let heard = Arc::new(AtomicU64::new(0));
    let count = heard.clone();
    let _ear = dead.listen("$presence/room", move |_, _| _ = count.fetch_add(1, Ordering::Relaxed));
    // Renewals of the others show that it is connected.
    while heard.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    dead.publish("$presence/room", Outgoing::text("garbage"));
    dead.publish("$presence/room", Outgoing::text(r#"{"host":"dead","all":{"dead/1":"ghost"}}"#));
    expect(&["watcher", "near", "far", "ghost"]);
    expect(&["watcher", "near", "far"]);
    near.unsubscribe("room").unwrap();
    expect(&["watcher", "far"]);
    drop(far);
    expect(&["watcher"]);
    hosts.into_iter().for_each(stop);
}

#[test]
fn plain_topics_reach_the_subscribers_of_all_hosts() {
    let broker = MemoryBroker::new();
    let hosts: Vec<_> = (0..2)
        .map(|_| {
            let bridge = Bridge::start(broker.clone()).unwrap();
            let hub = Hub::with_log(Config::default(), Arc::new(MemoryLog::default()), Some(bridge.clone()));
            serve(&hub, 0, Some(bridge))
        })
        .collect();
    let [here, there] = [&hosts[0], &hosts[1]].map(client);
    subscribe(&here, "news", Subscribe::default());
    let mut number = 0;
    // The broker may still be learning of the subscription.
    let first = loop {
        number += 1;
        publish(&there, "news", None, &format!("{{\"n\":{number}}}"));
        if let Ok(Event::Message(message)) = here.next_within(Duration::from_millis(100)) {
            break message;
        }
    };
    assert_eq!((&*first.topic, first.offset), ("news", None));
    hosts.into_iter().for_each(stop);
}

#[test]
fn requests_out_of_bounds_are_refused_and_harm_nobody() {
    let mut config = Config::default();
    config.max_subscriptions = 3;
    let server = serve(&Hub::new(config), 0, None);
    let mut socket = Socket::connect(target(&server), ClientConfig::default(), tautline::Config::default()).unwrap();
    let long = "x".repeat(300);
    let requests = [
        "garbage".to_owned(),
        "{}".into(),
        r#"{"type":"subscribe"}"#.into(),
        r#"{"type":"subscribe","topic":""}"#.into(),
        r#"{"type":"subscribe","topic":"$presence/room"}"#.into(),
        format!(r#"{{"type":"subscribe","topic":"{long}"}}"#),
        format!(r#"{{"type":"subscribe","topic":"a","as":"{long}"}}"#),
        r#"{"type":"publish","topic":"a"}"#.into(),
        r#"{"type":"publish","topic":"a","data":}"#.into(),
        format!(r#"{{"type":"publish","topic":"log:a","id":"{long}","data":1}}"#),
        r#"{"type":"publish","topic":"log:a","id":"a\r\nNats-Rollup: all","data":1}"#.into(),
        r#"{"type":"publish","topic":"latest:a","key":"a\u0000","data":1}"#.into(),
        r#"{"type":"subscribe","topic":"a","as":"\u001b[2J"}"#.into(),
        format!(r#"{{"type":"subscribe","topic":"log:a","after":1,"epoch":"{long}"}}"#),
        r#"{"type":"dance","topic":"a"}"#.into(),
    ];
    for request in requests {
        socket.text(&request).unwrap();
        let Incoming::Text(answer) = socket.receive().unwrap() else { panic!("a binary answer") };
        assert!(answer.starts_with(r#"{"type":"error""#), "{request}: {answer}");
        assert!(answer.len() < 200, "an answer has no text that is refused: {answer}");
        if request.contains("dance") {
            assert!(answer.contains("write subscribe, unsubscribe, publish"), "{answer}");
        }
    }
    socket.binary(b"binary").unwrap();
    for topic in ["a", "log:b", "latest:c"] {
        socket.text(&format!(r#"{{"type":"subscribe","topic":"{topic}","after":18446744073709551615}}"#)).unwrap();
    }
    socket.text(r#"{"type":"subscribe","topic":"d"}"#).unwrap();
    let mut texts = Vec::new();
    while !texts.last().is_some_and(|text: &String| text.contains("too many subscriptions")) {
        let Incoming::Text(answer) = socket.receive().unwrap() else { panic!("a binary answer") };
        texts.push(answer);
    }
    // A client that claims to have messages of the far future harms nobody.
    let honest = client(&server);
    subscribe(&honest, "log:b", Subscribe::default());
    publish(&honest, "log:b", None, "1");
    stop(server);
}

#[test]
fn a_target_that_no_attempt_can_use_is_an_error_at_once() {
    // Nobody listens at port 1.
    let mut target = tautline::Target::new("ws://127.0.0.1:1/").unwrap();
    target.headers.insert("host", tautline::http::HeaderValue::from_static("mine"));
    let error = Client::connect(target, ClientConfig::default()).unwrap_err();
    assert!(error.to_string().contains("host"), "{error}");
    // The client's loop ends on its own if TLS cannot use the name.
    let mut target = tautline::Target::new("wss://127.0.0.1:1/").unwrap();
    target.server_name = Some("no name".to_owned());
    let client = Client::connect(target, ClientConfig::default()).unwrap();
    assert!(matches!(client.next_within(PATIENCE), Err(ClientError::Ended)));
    // Nothing would be sent any more.
    assert!(matches!(client.publish("log:a", None, "1"), Err(ClientError::Ended)));
    assert!(matches!(client.subscribe("log:a", Subscribe::default()), Err(ClientError::Ended)));
}
