//! Subscribers roam between three processes on one nats-server while processes and the server are killed and restarted.
//!
//! `TAUTLINE_OUTAGE=SUBSCRIBERS,MESSAGES_PER_SECOND,SECONDS` sets the size. The whole one is `5000,1000,120`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline::{
    Bridge, ClientConfig, Closed, Conn, ConnId, DialId, Handler, Message, Opening, Outgoing, Reconnect, Server, Target,
};
use tautline_hub::{Client, ClientError, Config, Event, Hub, Session, Subscribe};
use tautline_nats::{NatsBroker, NatsConfig, NatsLog};

/// Longest wait for the last message.
const PATIENCE: Duration = Duration::from_secs(120);
const HISTORY: &str = "log:all";
const PLAIN: &str = "all";

/// The program of a host: this test again, with these variables.
#[test]
#[ignore = "a process of the other test"]
fn host() {
    let Ok(port) = std::env::var("TAUTLINE_OUTAGE_PORT") else { return };
    tautline::layers::io::machine::raise_nofile_limit().unwrap();
    let nats = NatsConfig::new(std::env::var("TAUTLINE_OUTAGE_NATS").unwrap());
    let bridge = Bridge::start(NatsBroker::new(nats.clone())).unwrap();
    let hub = Hub::with_log(Config::default(), Arc::new(NatsLog::start(nats).unwrap()), Some(bridge.clone()));
    let mut config = tautline::Config::default();
    config.limits.max_handshakes = 10_000;
    let server = Server::plain().listen(format!("127.0.0.1:{port}").parse().unwrap()).config(config).bridge(bridge);
    let server = server.start(hub.handlers()).unwrap();
    println!("\nlistening");
    server.join().unwrap();
}

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn host(port: u16, nats: u16) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "host", "--nocapture"]);
        command.env("TAUTLINE_OUTAGE_PORT", port.to_string());
        command.env("TAUTLINE_OUTAGE_NATS", format!("nats://127.0.0.1:{nats}"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "listening"), "a host does not start");
        Self(child)
    }

    fn nats(port: u16, folder: &PathBuf) -> Self {
        let program = std::env::var_os("TAUTLINE_NATS_SERVER").unwrap_or_else(|| panic!("run `cargo xtask hub`"));
        let mut command = Command::new(program);
        command.args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--jetstream", "--store_dir"]).arg(folder);
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The counts of all subscribers.
#[derive(Default)]
struct Counts {
    subscribed: AtomicU64,
    /// Messages with history.
    received: AtomicU64,
    /// Messages of the plain topic, and those that were missed.
    plain: AtomicU64,
    reconnects: AtomicU64,
    wrong: Mutex<Vec<String>>,
    /// The first numbers of the plain topic after each gap.
    gaps: Mutex<Vec<(u64, u64)>>,
}

/// The subscribers, all on one loop.
struct Crowd {
    ports: Vec<u16>,
    counts: Arc<Counts>,
    subscribers: HashMap<DialId, Subscriber>,
    roaming: usize,
}

#[derive(Default)]
struct Subscriber {
    session: Session,
    conn: Option<ConnId>,
    next: u64,
    plain: Option<u64>,
}

impl Crowd {
    fn send(&mut self, conn: &mut Conn<'_, ()>) {
        let Some(dial) = conn.dial() else { return };
        let Some(subscriber) = self.subscribers.get_mut(&dial) else { return };
        while let Some(frame) = subscriber.session.next_frame() {
            conn.send(Outgoing::text(&frame));
        }
    }
}

impl Handler for Crowd {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
        let subscriber = self.subscribers.entry(conn.dial().unwrap()).or_insert_with(|| {
            let mut session = Session::new();
            session.subscribe(HISTORY, Subscribe::default());
            session.subscribe(PLAIN, Subscribe::default());
            Subscriber { session, ..Subscriber::default() }
        });
        subscriber.conn = Some(conn.id());
        subscriber.session.opened();
        self.send(conn);
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        let counts = self.counts.clone();
        let subscriber = self.subscribers.get_mut(&conn.dial().unwrap()).unwrap();
        match subscriber.session.received(message.text().unwrap()) {
            Some(Event::Message(message)) => {
                let number: u64 = message.data.parse().unwrap();
                if &*message.topic == HISTORY {
                    if number != subscriber.next {
                        counts.wrong.lock().unwrap().push(format!("{number} instead of {}", subscriber.next));
                    }
                    subscriber.next = number + 1;
                    counts.received.fetch_add(1, Ordering::Relaxed);
                } else {
                    counts.plain.fetch_add(1, Ordering::Relaxed);
                    let expected = subscriber.plain.map_or(number, |last| last + 1);
                    if number > expected {
                        counts.gaps.lock().unwrap().push((expected, number));
                    } else if number < expected {
                        counts.wrong.lock().unwrap().push(format!("plain {number} after {expected}"));
                    }
                    subscriber.plain = Some(number);
                }
            }
            Some(Event::Subscribed(topic, _)) if &*topic == HISTORY && subscriber.next == 0 => {
                counts.subscribed.fetch_add(1, Ordering::Relaxed);
            }
            Some(event @ (Event::Late(..) | Event::Refused(..))) => {
                counts.wrong.lock().unwrap().push(format!("{event:?}"));
            }
            _ => {}
        }
        self.send(conn);
    }

    fn on_close(&mut self, conn: &mut Conn<'_, ()>, _: &Closed) {
        let subscriber = self.subscribers.get_mut(&conn.dial().unwrap()).unwrap();
        subscriber.session.closed();
        subscriber.conn = None;
    }

    fn on_redial(&mut self, _: DialId, target: &mut Target) {
        self.roaming += 1;
        self.counts.reconnects.fetch_add(1, Ordering::Relaxed);
        let port = self.ports[self.roaming % self.ports.len()];
        target.uri = format!("ws://127.0.0.1:{port}/").parse().unwrap();
    }
}

fn port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn nobody_misses_a_message_with_history_while_processes_and_the_broker_are_killed() {
    let size = std::env::var("TAUTLINE_OUTAGE").unwrap_or_else(|_| "200,200,15".into());
    let size: Vec<u64> = size.split(',').map(|number| number.parse().unwrap()).collect();
    let [count, rate, seconds] = size[..] else { panic!("TAUTLINE_OUTAGE=SUBSCRIBERS,PER_SECOND,SECONDS") };
    tautline::layers::io::machine::raise_nofile_limit().unwrap();
    let folder = std::env::temp_dir().join(format!("tautline-outage-{}", std::process::id()));
    let broker = port();
    let mut nats = Some(Process::nats(broker, &folder));
    let ports = [port(), port(), port()];
    let mut hosts = ports.map(|port| Some(Process::host(port, broker)));
    let counts = Arc::<Counts>::default();
    let crowd = Crowd { ports: ports.to_vec(), counts: counts.clone(), subscribers: HashMap::new(), roaming: 0 };
    let clients = tautline::Client::plain().stay().start(move |_| crowd).unwrap();
    let target = |index: u64| {
        let port = ports[usize::try_from(index).unwrap() % ports.len()];
        let reconnect = Reconnect::new(Duration::from_millis(50), Duration::from_secs(1));
        Target::new(&format!("ws://127.0.0.1:{port}/")).unwrap().with_reconnect(reconnect)
    };
    for index in 0..count {
        clients.shards()[0].connect(target(index)).unwrap();
    }
    let wait = |what: &str, holds: &dyn Fn() -> bool| {
        let end = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < end, "timed out: {what}: {:?}", counts.received);
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    wait("all subscribe", &|| counts.subscribed.load(Ordering::Relaxed) == count);
    let publisher = Client::connect(target(0), ClientConfig::default()).unwrap();
    // Kills in turn: a process, the broker, another process. Each is back after a second.
    let (total, begin) = (rate * seconds, Instant::now());
    let mut sent = 0;
    let mut outages = 0;
    let mut down: Option<Instant> = None;
    while sent < total {
        let due = (u64::try_from(begin.elapsed().as_millis()).unwrap() * rate / 1_000).min(total);
        while sent < due {
            match publisher.publish(HISTORY, None, &sent.to_string()) {
                Ok(_) => sent += 1,
                Err(ClientError::Busy) => break,
                Err(error) => panic!("{error}"),
            }
            // In the plain topic a message may be lost, and never comes twice.
            publisher.publish_once(PLAIN, None, &sent.to_string()).unwrap();
        }
        while publisher.next_within(Duration::from_millis(1)).is_ok() {}
        // Three quarters of the time are for outages, the rest is quiet.
        let next = begin + Duration::from_secs(2) + Duration::from_secs(3) * outages;
        if down.is_none() && Instant::now() > next && sent < total * 3 / 4 {
            match outages % 3 {
                0 => drop(hosts[1].take()),
                1 => drop(nats.take()),
                _ => drop(hosts[2].take()),
            }
            (outages, down) = (outages + 1, Some(Instant::now()));
        }
        if down.is_some_and(|down| down.elapsed() > Duration::from_secs(1)) {
            nats.get_or_insert_with(|| Process::nats(broker, &folder));
            for (host, port) in hosts.iter_mut().zip(ports) {
                host.get_or_insert_with(|| Process::host(port, broker));
            }
            down = None;
        }
    }
    wait("all messages arrive", &|| counts.received.load(Ordering::Relaxed) >= total * count);
    let wrong = counts.wrong.lock().unwrap();
    assert!(wrong.is_empty(), "{} wrong: {:?}", wrong.len(), &wrong[..wrong.len().min(20)]);
    assert_eq!(counts.received.load(Ordering::Relaxed), total * count);
    let lost: u64 = counts.gaps.lock().unwrap().iter().map(|(from, to)| to - from).sum();
    println!(
        "{count} subscribers, {total} messages in {:.1} s, {outages} outages, {} reconnections: all with history once and in \
         order; without history {} arrived, {lost} lost in {} gaps",
        begin.elapsed().as_secs_f64(),
        counts.reconnects.load(Ordering::Relaxed),
        counts.plain.load(Ordering::Relaxed),
        counts.gaps.lock().unwrap().len(),
    );
    assert!(outages >= 3, "too short a run for {outages} outages");
    drop(hosts);
    drop(nats);
    let _ = std::fs::remove_dir_all(&folder);
}
