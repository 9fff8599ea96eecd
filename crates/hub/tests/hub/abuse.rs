//! Clients that ask for too much, and other hosts that say too much.

use crate::helpers;
use crate::helpers::{PATIENCE, client, message, publish, stop, subscribe, target};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline::{Bridge, ClientConfig, Incoming, Kind, MemoryBroker, Outgoing, Server, ServerHandle, Socket};
use tautline_hub::{
    Append, Config, Done, Event, Following, Hub, Kind as HubKind, Log, LogError, MemoryLog, Page, Position, Sink,
    Subscribe,
};

type Reading = (Arc<str>, HubKind, Option<u64>, Done<Page>);
type Appending = (Arc<str>, Append, Done<Position>);

/// A log that does nothing before the test says so.
#[derive(Default)]
struct Held {
    log: MemoryLog,
    reads: Mutex<Vec<Reading>>,
    appends: Mutex<Vec<Appending>>,
    holds_appends: bool,
}

impl Log for Held {
    fn append(&self, topic: &Arc<str>, append: Append, done: Done<Position>) {
        if self.holds_appends {
            return self.appends.lock().unwrap().push((topic.clone(), append, done));
        }
        self.log.append(topic, append, done);
    }

    fn follow(&self, topic: &Arc<str>, kind: HubKind, sink: Arc<dyn Sink>) -> Following {
        self.log.follow(topic, kind, sink)
    }

    fn read(&self, topic: &Arc<str>, kind: HubKind, after: Option<u64>, done: Done<Page>) {
        self.reads.lock().unwrap().push((topic.clone(), kind, after, done));
    }
}

impl Held {
    /// Does what was asked for so far. Returns its number.
    fn read_all(&self) -> usize {
        let reads = std::mem::take(&mut *self.reads.lock().unwrap());
        let count = reads.len();
        reads.into_iter().for_each(|(topic, kind, after, done)| self.log.read(&topic, kind, after, done));
        count
    }
}

fn serve(config: Config, log: Arc<dyn Log>) -> ServerHandle {
    let server = Server::plain().listen("127.0.0.1:0".parse().unwrap()).shards(1).beside_others(true);
    server.start(Hub::with_log(config, log, None).handlers()).unwrap()
}

fn socket(server: &ServerHandle) -> Socket {
    Socket::connect(target(server), ClientConfig::default(), tautline::Config::default()).unwrap()
}

fn text(socket: &mut Socket) -> String {
    match socket.receive().unwrap() {
        Incoming::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

/// The next answer with `part` in it. The others go to `before`.
fn text_with(socket: &mut Socket, part: &str, before: &mut Vec<String>) -> String {
    loop {
        let text = text(socket);
        if text.contains(part) {
            return text;
        }
        before.push(text);
    }
}

/// Waits until the hub has taken everything that was sent on this socket.
fn settle(socket: &mut Socket, before: &mut Vec<String>) {
    socket.text(r#"{"type":"unsubscribe","topic":"settled"}"#).unwrap();
    text_with(socket, r#""unsubscribed""#, before);
}

#[test]
fn readings_of_history_are_bounded_and_a_page_of_an_earlier_subscription_is_dropped() {
    let held = Arc::new(Held::default());
    let server = serve(Config::default(), held.clone());
    let publisher = client(&server);
    let offsets: Vec<u64> = (0..700).map(|n| publish(&publisher, "log:a", None, &n.to_string()).unwrap()).collect();
    let (mut socket, mut texts) = (socket(&server), Vec::new());
    // The last one counts. Each of the others would take memory for a page, for some bytes of a request.
    for from in [500_usize; 999].into_iter().chain([0]) {
        let after = offsets[from];
        socket.text(&format!(r#"{{"type":"subscribe","topic":"log:a","after":{after}}}"#)).unwrap();
    }
    settle(&mut socket, &mut texts);
    assert!(texts.iter().all(|text| text.contains(r#""subscribed""#)), "{:?}", texts.last());
    let end = Instant::now() + PATIENCE;
    let most = loop {
        let most = held.reads.lock().unwrap().len();
        if most > 0 {
            break most;
        }
        // The loop hears of the topic's position later.
        assert!(Instant::now() < end, "no reading begins");
        settle(&mut socket, &mut texts);
    };
    assert!(most <= 32, "{most} readings at a time");
    let mut next = 1;
    while next < 700 {
        assert!(Instant::now() < end, "the message {next} does not come");
        assert!(held.read_all() <= 32);
        settle(&mut socket, &mut texts);
        for text in texts.drain(..).filter(|text| text.contains(r#""message""#)) {
            assert!(text.contains(&format!(r#""data":{next}}}"#)), "{text} instead of message {next}");
            next += 1;
        }
    }
    stop(server);
}

#[test]
fn histories_of_many_topics_do_not_make_a_connection_lag() {
    const TOPICS: usize = 40;
    const MESSAGES: usize = 20;
    let mut config = Config::default();
    // A page, but not two.
    config.max_lag = 400 << 10;
    let server = serve(config, Arc::new(MemoryLog::default()));
    let publisher = client(&server);
    let data = format!("\"{}\"", "x".repeat(12 << 10));
    let name = |topic: usize| format!("log:{topic}");
    let mut first = Vec::new();
    for topic in 0..TOPICS {
        let offsets: Vec<_> = (0..MESSAGES).map(|_| publish(&publisher, &name(topic), None, &data).unwrap()).collect();
        first.push(offsets[0]);
    }
    let mut socket = socket(&server);
    for (topic, after) in first.iter().enumerate() {
        let topic = name(topic);
        socket.text(&format!(r#"{{"type":"subscribe","topic":"{topic}","after":{after}}}"#)).unwrap();
    }
    // Nothing is read until the hub has filled the socket: 10 MiB do not fit there.
    std::thread::sleep(Duration::from_millis(500));
    let mut got = [0; TOPICS];
    while got.iter().sum::<usize>() < TOPICS * (MESSAGES - 1) {
        let text = text(&mut socket);
        if text.starts_with(r#"{"type":"message""#) {
            let topic = text.split('"').nth(7).and_then(|topic| topic.strip_prefix("log:")).unwrap();
            got[topic.parse::<usize>().unwrap()] += 1;
        }
    }
    assert!(got.iter().all(|count| *count == MESSAGES - 1), "{got:?}");
    stop(server);
}

#[test]
fn histories_of_ten_thousand_topics_are_read_a_few_at_a_time() {
    const CONNS: usize = 100;
    const TOPICS: usize = 100;
    let held = Arc::new(Held::default());
    let topic = |conn: usize, number: usize| -> Arc<str> { format!("log:{conn}:{number}").into() };
    for place in 0..2 * CONNS * TOPICS {
        let append = Append { kind: HubKind::History, key: None, data: "1".into(), id: None };
        let of = place / 2;
        held.log.append(&topic(of / TOPICS, of % TOPICS), append, Box::new(|done| _ = done.unwrap()));
    }
    let server = serve(Config::default(), held.clone());
    let mut sockets: Vec<_> = (0..CONNS).map(|_| socket(&server)).collect();
    for (conn, socket) in sockets.iter_mut().enumerate() {
        for number in 0..TOPICS {
            let topic = topic(conn, number);
            socket.text(&format!(r#"{{"type":"subscribe","topic":"{topic}","after":0}}"#)).unwrap();
        }
    }
    let is_done = Arc::new(AtomicBool::new(false));
    let (ended, log) = (is_done.clone(), held);
    let reading = std::thread::spawn(move || {
        let (mut most, mut all) = (0, 0);
        while !ended.load(Ordering::Relaxed) {
            let read = log.read_all();
            (most, all) = (most.max(read), all + read);
            // Others come while this one waits.
            std::thread::sleep(Duration::from_millis(1));
        }
        (most, all)
    });
    for socket in &mut sockets {
        let mut messages = 0;
        while messages < 2 * TOPICS {
            messages += usize::from(text(socket).starts_with(r#"{"type":"message""#));
        }
    }
    is_done.store(true, Ordering::Relaxed);
    let (most, all) = reading.join().unwrap();
    assert!(all >= CONNS * TOPICS && (2..=32).contains(&most), "{most} at a time, {all} in all");
    drop(sockets);
    stop(server);
}

#[test]
fn messages_that_wait_for_the_log_are_bounded_and_none_is_lost_or_overtaken() {
    let held = Arc::new(Held { holds_appends: true, ..Held::default() });
    let mut config = Config::default();
    config.max_unanswered_bytes = 10_000;
    let server = serve(config, held.clone());
    let (mut socket, mut texts) = (socket(&server), Vec::new());
    let data = |n: usize| format!("[{n},\"{}\"]", "x".repeat(3_000));
    let send = |socket: &mut Socket, n: usize| {
        socket.text(&format!(r#"{{"type":"publish","topic":"log:a","id":"m{n}","data":{}}}"#, data(n))).unwrap();
    };
    (0..20).for_each(|n| send(&mut socket, n));
    settle(&mut socket, &mut texts);
    // One is on its way, and four wait.
    assert_eq!(texts.len(), 15, "{texts:?}");
    assert!(texts.iter().all(|text| text.contains(r#""retry":true"#)), "{texts:?}");
    let mut unanswered: Vec<usize> = (0..20).collect();
    while !unanswered.is_empty() {
        let append = held.appends.lock().unwrap().pop();
        if let Some((topic, append, done)) = append {
            held.log.append(&topic, append, done);
        } else {
            unanswered.iter().for_each(|n| send(&mut socket, *n));
        }
        settle(&mut socket, &mut texts);
        for text in texts.drain(..).filter(|text| text.contains(r#""published""#)) {
            unanswered.retain(|n| !text.contains(&format!(r#""id":"m{n}""#)));
        }
    }
    let (tell, page) = std::sync::mpsc::channel();
    held.log.read(&Arc::from("log:a"), HubKind::History, None, Box::new(move |page| tell.send(page).unwrap()));
    let stored: Vec<_> = page.recv().unwrap().unwrap().entries.into_iter().map(|entry| entry.data).collect();
    assert_eq!(stored.len(), 20);
    for (n, stored) in stored.iter().enumerate() {
        assert!(stored.starts_with(&format!("[{n},")), "{:.20} instead of message {n}", stored);
    }
    stop(server);
}

#[test]
fn a_message_that_is_repeated_after_its_answer_blocks_nobody() {
    let held = Arc::new(Held { holds_appends: true, ..Held::default() });
    let mut config = Config::default();
    config.max_unanswered = 2;
    let server = serve(config, held.clone());
    let (mut socket, mut texts) = (socket(&server), Vec::new());
    let send = |socket: &mut Socket, ids: &str| {
        for id in ids.chars() {
            let frame = format!(r#"{{"type":"publish","topic":"log:a","id":"{id}","data":"{id}"}}"#);
            socket.text(&frame).unwrap();
        }
    };
    let store = |socket: &mut Socket, texts: &mut Vec<String>, id: &str| {
        let (topic, append, done) = held.appends.lock().unwrap().pop().unwrap();
        assert_eq!(append.id.as_deref(), Some(id));
        held.log.append(&topic, append, done);
        assert!(text_with(socket, &format!(r#""id":"{id}""#), texts).contains("published"));
    };
    send(&mut socket, "abcd");
    assert!(text_with(&mut socket, "retry", &mut texts).contains(r#""id":"d""#));
    store(&mut socket, &mut texts, "a");
    // The client sends these before it has that answer. Three of them are there already.
    send(&mut socket, "abcd");
    settle(&mut socket, &mut texts);
    store(&mut socket, &mut texts, "b");
    send(&mut socket, "b");
    settle(&mut socket, &mut texts);
    store(&mut socket, &mut texts, "c");
    // The log is away for a while.
    let (_, append, done) = held.appends.lock().unwrap().pop().unwrap();
    assert_eq!(append.id.as_deref(), Some("d"));
    done(Err(LogError::Away));
    assert!(text_with(&mut socket, "retry", &mut texts).contains(r#""id":"d""#));
    // Only this one has no answer yet.
    send(&mut socket, "de");
    settle(&mut socket, &mut texts);
    store(&mut socket, &mut texts, "d");
    store(&mut socket, &mut texts, "e");
    assert!(texts.is_empty() && held.appends.lock().unwrap().is_empty(), "{texts:?}");
    drop(socket);
    stop(server);
}

#[test]
fn topics_that_nobody_reads_any_more_lock_nobody_out() {
    let mut config = Config::default();
    config.max_topics = 3;
    let server = serve(config, Arc::new(MemoryLog::default()));
    let (mut socket, mut texts) = (socket(&server), Vec::new());
    for n in 0..20 {
        for action in ["subscribe", "unsubscribe"] {
            socket.text(&format!(r#"{{"type":"{action}","topic":"log:{n}"}}"#)).unwrap();
        }
    }
    settle(&mut socket, &mut texts);
    let refused = texts.iter().find(|text| text.contains(r#""error""#));
    assert_eq!(refused, None);
    let honest = client(&server);
    subscribe(&honest, "log:a", Subscribe::default());
    publish(&client(&server), "log:a", None, "1");
    assert_eq!(message(&honest).data, "1");
    stop(server);
}

#[test]
fn data_that_is_nested_deeply_reaches_nobody() {
    let server = serve(Config::default(), Arc::new(MemoryLog::default()));
    let mut socket = socket(&server);
    for (depth, answer) in [(128, r#""published""#), (129, r#""error""#), (100_000, r#""error""#)] {
        let data = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        socket.text(&format!(r#"{{"type":"publish","topic":"log:a","id":"m{depth}","data":{data}}}"#)).unwrap();
        let text = text(&mut socket);
        assert!(text.contains(answer), "{depth}: {text}");
    }
    stop(server);
}

/// A host's answer lists all of its members. Each is 50 bytes here, and may be 300 KB.
#[test]
fn hosts_that_ask_for_members_all_the_time_are_answered_once_a_second() {
    let broker = MemoryBroker::new();
    let bridge = Bridge::start(broker.clone()).unwrap();
    let hub = Hub::with_log(Config::default(), Arc::new(MemoryLog::default()), Some(bridge.clone()));
    let server = Server::plain().listen("127.0.0.1:0".parse().unwrap()).shards(1).bridge(bridge);
    let server = server.start(hub.handlers()).unwrap();
    let member = client(&server);
    member.subscribe("room", Subscribe::default().as_member("ann").with_presence()).unwrap();
    helpers::wait(&member, |event| matches!(event, Event::Members(..)).then_some(()));
    let other = Bridge::start(broker).unwrap();
    let answers = Arc::new(Mutex::new(Vec::new()));
    let heard = answers.clone();
    let _ear = other.listen("$presence/room", move |kind, payload| {
        assert_eq!(kind, Kind::Text);
        heard.lock().unwrap().push(String::from_utf8(payload.to_vec()).unwrap());
    });
    let say = |text: &str| other.publish("$presence/room", Outgoing::text(text));
    let begin = Instant::now();
    let ask = r#"{"host":"other","ask":true}"#;
    while answers.lock().unwrap().is_empty() {
        assert!(begin.elapsed() < PATIENCE);
        say(ask);
        std::thread::sleep(Duration::from_millis(1));
    }
    (0..1_000).for_each(|_| _ = say(ask));
    // A member whose name is too long, and another.
    let long = "x".repeat(300);
    say(&format!(r#"{{"host":"other","all":{{"other/1":"{long}"}}}}"#));
    say(r#"{"host":"other","join":["other/2","bob"]}"#);
    let joined = helpers::wait(&member, |event| match event {
        Event::Joined(_, id, name) if name != "ann" => Some((id, name)),
        _ => None,
    });
    assert_eq!(joined, ("other/2".into(), "bob".into()));
    let most = begin.elapsed().as_secs() + 2;
    let count = answers.lock().unwrap().iter().filter(|answer| answer.contains(r#""all""#)).count();
    assert!(u64::try_from(count).unwrap() <= most, "{count} answers in at most {most} seconds");
    // The last one who asked is answered, too.
    let count = || answers.lock().unwrap().len();
    let (before, end) = (count(), Instant::now() + PATIENCE);
    while count() == before {
        assert!(Instant::now() < end, "no answer");
        std::thread::sleep(Duration::from_millis(5));
    }
    stop(server);
}
