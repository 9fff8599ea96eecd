//! Subscribers roam between three processes on one broker while processes and the broker are killed and restarted.
//!
//! `TAUTLINE_OUTAGE=SUBSCRIBERS,MESSAGES_PER_SECOND,SECONDS,ROOMS` sets the size. The whole one is `5000,1000,120,100`. Each room
//! has a topic with history and one without. A subscriber has those of one room, and the messages go to the rooms in turn.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Lines};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline::{
    Bridge, ClientConfig, Closed, Conn, ConnId, DialId, Handler, Message, Opening, Outgoing, Reconnect, Server, Target,
};
use tautline_hub::{Client, ClientError, Config, Event, Hub, Log, Session, Subscribe};

/// Longest wait for the last message.
const PATIENCE: Duration = Duration::from_secs(120);
const HISTORY: &str = "log:";
const PLAIN: &str = "room:";

/// A broker to be killed.
pub(crate) trait Killed {
    /// The command that starts it on this port of loopback, with its files in the folder, which is there.
    fn command(port: u16, folder: &Path) -> Command;

    /// The connections of a host.
    fn connect(port: u16) -> (Bridge, Arc<dyn Log>);
}

/// The program of a host: a test with the name `host`, which calls this, and does nothing in another run.
pub(crate) fn host<B: Killed>() {
    let Ok(port) = std::env::var("TAUTLINE_OUTAGE_PORT") else { return };
    tautline::layers::io::machine::raise_nofile_limit().unwrap();
    let broker = std::env::var("TAUTLINE_OUTAGE_BROKER").unwrap().parse().unwrap();
    let (bridge, log) = B::connect(broker);
    let hub = Hub::with_log(Config::default(), log, Some(bridge.clone()));
    let mut config = tautline::Config::default();
    config.limits.max_handshakes = 10_000;
    let server = Server::plain().listen(format!("127.0.0.1:{port}").parse().unwrap()).config(config).bridge(bridge);
    let server = server.start(hub.handlers()).unwrap();
    println!("\nlistening");
    server.join().unwrap();
}

/// The members of a host that is killed leave with its lease, and not before. Those of others stay.
pub(crate) fn leave<B: Killed>() {
    let folder = std::env::temp_dir().join(format!("tautline-leave-{}", std::process::id()));
    let ports = [port(), port(), port()];
    let mut processes = Processes::<B>::start(ports, port(), folder.clone());
    let connect = |host: usize| {
        let reconnect = Reconnect::new(Duration::from_millis(50), Duration::from_secs(1));
        let target = Target::new(&format!("ws://127.0.0.1:{}/", ports[host])).unwrap().with_reconnect(reconnect);
        Client::connect(target, ClientConfig::default()).unwrap()
    };
    let (watcher, stays, goes) = (connect(0), connect(0), connect(1));
    watcher.subscribe("room", Subscribe::default().with_presence()).unwrap();
    stays.subscribe("room", Subscribe::default().as_member("stays")).unwrap();
    goes.subscribe("room", Subscribe::default().as_member("goes")).unwrap();
    // The members by their names, as they are told.
    let mut members = HashMap::new();
    let mut changes = |until: &dyn Fn(&HashMap<String, String>) -> bool| {
        let begin = Instant::now();
        while !until(&members) {
            let left = PATIENCE.saturating_sub(begin.elapsed());
            match watcher.next_within(left).unwrap() {
                Event::Members(_, all) => members = all.into_iter().map(|(id, name)| (name, id)).collect(),
                Event::MoreMembers(_, all) => members.extend(all.into_iter().map(|(id, name)| (name, id))),
                Event::Joined(_, id, name) => _ = members.insert(name, id),
                Event::Left(_, id) => members.retain(|_, other| *other != id),
                Event::Disconnected(..) => panic!("the host that lives has ended the connection"),
                _ => {}
            }
        }
        begin.elapsed()
    };
    changes(&|members| members.len() == 2);
    // Its process has no time to say anything.
    let killed = Instant::now();
    processes.kill(0);
    drop(goes);
    changes(&|members| !members.contains_key("goes"));
    let (took, lease) = (killed.elapsed(), Config::default().lease);
    // A host renews its lease three times within it.
    assert!(took > lease / 2, "the member has left after {took:?}");
    println!("the member of a host that was killed has left after {:.1} s", took.as_secs_f64());
    // It may come again, and the one of the other host was there all the time.
    processes.restart();
    let again = connect(1);
    again.subscribe("room", Subscribe::default().as_member("goes")).unwrap();
    changes(&|members| members.contains_key("goes") && members.contains_key("stays"));
    drop(processes);
    let _ = std::fs::remove_dir_all(&folder);
}

/// A process that ends with the test.
struct Process {
    child: Child,
    /// After a minute its test harness writes a line, and ends if nobody could read that.
    _output: Option<Lines<BufReader<ChildStdout>>>,
}

impl Process {
    fn host(port: u16, broker: u16) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "host", "--nocapture"]);
        command.env("TAUTLINE_OUTAGE_PORT", port.to_string());
        command.env("TAUTLINE_OUTAGE_BROKER", broker.to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.by_ref().map_while(Result::ok).any(|line| line == "listening"), "a host does not start");
        Self { child, _output: Some(lines) }
    }

    fn broker<B: Killed>(port: u16, folder: &Path) -> Self {
        let child = B::command(port, folder).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, _output: None }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
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
    /// Plain messages that a subscriber got from two hosts.
    again: AtomicU64,
    reconnects: AtomicU64,
    wrong: Mutex<Vec<String>>,
    /// Messages of the plain topic that a subscriber missed: from the first to before the second.
    gaps: Mutex<Vec<(u64, u64)>>,
    /// The number of messages up to each subscriber's last one of the plain topic.
    latest: Mutex<Vec<Arc<AtomicU64>>>,
}

impl Counts {
    /// Every subscriber has got a message of the plain topic at or after the one before this number.
    fn all_have(&self) -> u64 {
        self.latest.lock().unwrap().iter().map(|latest| latest.load(Ordering::Relaxed)).min().unwrap_or_default()
    }

    /// How far subscribers are in the plain topics, for the message of a failure.
    fn progress(&self) -> String {
        let latest: Vec<u64> =
            self.latest.lock().unwrap().iter().map(|latest| latest.load(Ordering::Relaxed)).collect();
        let most = latest.iter().copied().max().unwrap_or_default();
        let behind: Vec<_> = latest.iter().enumerate().filter(|&(_, latest)| latest + 1 < most).collect();
        let some = &behind[..behind.len().min(50)];
        format!("the first has {most}; {} of {} are behind: {some:?}", behind.len(), latest.len())
    }

    /// The fate of the messages without history.
    fn report(&self) -> String {
        let [reconnects, plain, again] =
            [&self.reconnects, &self.plain, &self.again].map(|count| count.load(Ordering::Relaxed));
        let lost = self.lost();
        format!(
            "{reconnects} reconnections; without history {plain} arrived, {again} of them again from another host; {lost} \
             were lost, all during outages"
        )
    }

    /// The plain messages that subscribers missed.
    fn lost(&self) -> u64 {
        self.gaps.lock().unwrap().iter().map(|(from, to)| to - from).sum()
    }

    /// Fails if a plain message was lost outside of these outages. Returns the number of messages outside of them.
    fn check_losses(&self, outages: &[(u64, u64)], total: u64) -> u64 {
        for (from, to) in &*self.gaps.lock().unwrap() {
            let is_inside = outages.iter().any(|(first, end)| first <= from && to <= end);
            assert!(is_inside, "messages {from} to {to} were lost outside of the outages {outages:?}");
        }
        let quiet = total - outages.iter().map(|(first, end)| end - first).sum::<u64>();
        assert!(quiet > 0 && self.lost() > 0, "{quiet} messages outside of outages, {} lost", self.lost());
        quiet
    }
}

/// The subscribers, all on one loop.
struct Crowd {
    ports: Vec<u16>,
    counts: Arc<Counts>,
    subscribers: HashMap<DialId, Subscriber>,
    rooms: usize,
    roaming: usize,
}

#[derive(Default)]
struct Subscriber {
    session: Session,
    conn: Option<ConnId>,
    next: u64,
    plain: Option<u64>,
    /// Whether its present host may still get plain messages that an earlier one had already.
    has_moved: bool,
    latest: Arc<AtomicU64>,
}

impl Crowd {
    fn new(ports: &[u16], rooms: u64, counts: &Arc<Counts>) -> Self {
        Self {
            ports: ports.to_vec(),
            counts: counts.clone(),
            subscribers: HashMap::new(),
            rooms: usize::try_from(rooms).unwrap(),
            roaming: 0,
        }
    }

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
        let room = self.subscribers.len() % self.rooms;
        let subscriber = self.subscribers.entry(conn.dial().unwrap()).or_insert_with(|| {
            let mut session = Session::new();
            session.subscribe(&format!("{HISTORY}{room}"), Subscribe::default());
            session.subscribe(&format!("{PLAIN}{room}"), Subscribe::default());
            let subscriber = Subscriber { session, ..Subscriber::default() };
            self.counts.latest.lock().unwrap().push(subscriber.latest.clone());
            subscriber
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
                if message.topic.starts_with(HISTORY) {
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
                    } else if number < expected && subscriber.has_moved {
                        counts.again.fetch_add(1, Ordering::Relaxed);
                        return self.send(conn);
                    } else if number < expected {
                        counts.wrong.lock().unwrap().push(format!("plain {number} instead of {expected}"));
                    }
                    subscriber.has_moved = false;
                    subscriber.plain = Some(number);
                    subscriber.latest.store(number + 1, Ordering::Relaxed);
                }
            }
            Some(Event::Subscribed(topic, _)) if topic.starts_with(HISTORY) && subscriber.next == 0 => {
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
        subscriber.has_moved = true;
    }

    fn on_redial(&mut self, _: DialId, target: &mut Target) {
        self.roaming += 1;
        self.counts.reconnects.fetch_add(1, Ordering::Relaxed);
        let port = self.ports[self.roaming % self.ports.len()];
        target.uri = format!("ws://127.0.0.1:{port}/").parse().unwrap();
    }
}

/// Three hosts and their broker.
struct Processes<B> {
    hosts: [Option<Process>; 3],
    broker: Option<Process>,
    ports: [u16; 3],
    broker_port: u16,
    folder: PathBuf,
    kind: PhantomData<B>,
}

impl<B: Killed> Processes<B> {
    fn start(ports: [u16; 3], broker_port: u16, folder: PathBuf) -> Self {
        std::fs::create_dir_all(&folder).unwrap();
        let mut processes =
            Self { hosts: [None, None, None], broker: None, ports, broker_port, folder, kind: PhantomData };
        processes.restart();
        processes
    }

    /// Kills in turn: a host, the broker, another host.
    fn kill(&mut self, number: u64) {
        match number % 3 {
            0 => drop(self.hosts[1].take()),
            1 => drop(self.broker.take()),
            _ => drop(self.hosts[2].take()),
        }
    }

    /// Starts all that do not run.
    fn restart(&mut self) {
        self.broker.get_or_insert_with(|| Process::broker::<B>(self.broker_port, &self.folder));
        for (host, port) in self.hosts.iter_mut().zip(self.ports) {
            host.get_or_insert_with(|| Process::host(port, self.broker_port));
        }
    }
}

/// Sends messages to the rooms in turn. The number of a message is that of the round in which each room gets one.
struct Publisher {
    client: Client,
    rooms: u64,
    /// Rounds that have ended.
    sent: u64,
    /// The room that gets the next message.
    room: u64,
}

impl Publisher {
    /// Rounds that have begun.
    fn rounds(&self) -> u64 {
        self.sent + u64::from(self.room > 0)
    }

    /// Sends messages until their number is `due`, or until too many are not answered.
    fn send(&mut self, due: u64) {
        while self.sent * self.rooms + self.room < due {
            let (room, number) = (self.room, self.sent.to_string());
            match self.client.publish(&format!("{HISTORY}{room}"), None, &number) {
                Ok(_) => {}
                Err(ClientError::Busy) => return,
                Err(error) => panic!("{error}"),
            }
            // In the plain topic a message may be lost, and never comes twice.
            match self.client.publish_once(&format!("{PLAIN}{room}"), None, &number) {
                Ok(()) | Err(ClientError::Offline) => {}
                Err(error) => panic!("{error}"),
            }
            self.room += 1;
            if self.room == self.rooms {
                (self.sent, self.room) = (self.sent + 1, 0);
            }
        }
    }

    /// Ends the last round. Returns the number of rounds.
    fn end_round(&mut self) -> u64 {
        let rounds = self.rounds();
        while self.room > 0 {
            self.send(rounds * self.rooms);
            self.take_answers();
        }
        rounds
    }

    fn take_answers(&self) {
        while self.client.next_within(Duration::from_millis(1)).is_ok() {}
    }
}

/// The present step of an outage of processes and the broker.
enum Phase {
    /// Nothing, until this time.
    Quiet(Instant),
    /// One is killed. All subscribers have the plain messages before `first`.
    Down { first: u64, since: Instant },
    /// It runs again. Messages from `restarted` on show who is back.
    Recovering { first: u64, restarted: u64 },
}

fn port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn size() -> [u64; 4] {
    let size = std::env::var("TAUTLINE_OUTAGE").unwrap_or_else(|_| "200,200,15,1".into());
    let size: Vec<u64> = size.split(',').map(|number| number.parse().unwrap()).collect();
    size.try_into().unwrap_or_else(|_| panic!("TAUTLINE_OUTAGE=SUBSCRIBERS,PER_SECOND,SECONDS,ROOMS"))
}

/// Nobody misses a message with history while processes and the broker are killed.
pub(crate) fn survive<B: Killed>() {
    let [count, rate, seconds, rooms] = size();
    tautline::layers::io::machine::raise_nofile_limit().unwrap();
    let folder = std::env::temp_dir().join(format!("tautline-outage-{}", std::process::id()));
    let ports = [port(), port(), port()];
    let mut processes = Processes::<B>::start(ports, port(), folder.clone());
    let counts = Arc::<Counts>::default();
    let target = |index: u64| {
        let port = ports[usize::try_from(index).unwrap() % ports.len()];
        let reconnect = Reconnect::new(Duration::from_millis(50), Duration::from_secs(1));
        Target::new(&format!("ws://127.0.0.1:{port}/")).unwrap().with_reconnect(reconnect)
    };
    let crowd = Crowd::new(&ports, rooms, &counts);
    let clients = tautline::Client::plain().stay().start(move |_| crowd).unwrap();
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
    let client = Client::connect(target(0), ClientConfig::default()).unwrap();
    let mut publisher = Publisher { client, rooms, sent: 0, room: 0 };
    let begin = Instant::now();
    let mut outages = 0;
    // Messages of the plain topic may be lost after the last one that all have before a kill. A window of losses ends when all have
    // a message that was sent after the restart.
    let mut windows: Vec<(u64, u64)> = Vec::new();
    let mut phase = Phase::Quiet(begin + Duration::from_secs(1));
    while begin.elapsed() < Duration::from_secs(seconds) || outages < 3 || !matches!(phase, Phase::Quiet(_)) {
        if begin.elapsed() > Duration::from_secs(seconds) + PATIENCE {
            panic!(
                "no recovery after outage {outages}: {} rounds were sent, {}",
                publisher.rounds(),
                counts.progress()
            );
        }
        let due = u64::try_from(begin.elapsed().as_millis()).unwrap() * rate / 1_000;
        publisher.send(due);
        publisher.take_answers();
        phase = match phase {
            // Three quarters of the time are for outages, the rest is quiet. Subscribers that are behind catch up first, so that
            // windows of losses are apart.
            Phase::Quiet(until)
                if Instant::now() > until
                    && (outages < 3 || begin.elapsed().as_secs() < seconds * 3 / 4)
                    && windows.last().is_none_or(|(_, end)| counts.all_have() >= *end) =>
            {
                let first = counts.all_have();
                processes.kill(outages);
                outages += 1;
                Phase::Down { first, since: Instant::now() }
            }
            Phase::Down { first, since } if since.elapsed() > Duration::from_secs(1) => {
                processes.restart();
                Phase::Recovering { first, restarted: publisher.rounds() }
            }
            Phase::Recovering { first, restarted } if counts.all_have() > restarted => {
                windows.push((first, publisher.rounds()));
                Phase::Quiet(Instant::now() + Duration::from_secs(1))
            }
            other => other,
        };
    }
    let total = publisher.end_round();
    wait("all messages arrive", &|| counts.received.load(Ordering::Relaxed) >= total * count);
    wait("the last message without history arrives", &|| counts.all_have() == total);
    let wrong = counts.wrong.lock().unwrap();
    assert!(wrong.is_empty(), "{} wrong: {:?}", wrong.len(), &wrong[..wrong.len().min(20)]);
    assert_eq!(counts.received.load(Ordering::Relaxed), total * count);
    let quiet = counts.check_losses(&windows, total);
    println!(
        "{count} subscribers in {rooms} rooms, {} messages in {:.1} s, {outages} outages: all with history once and in order; \
         {}; {} messages were outside of outages",
        total * rooms,
        begin.elapsed().as_secs_f64(),
        counts.report(),
        quiet * rooms,
    );
    drop(processes);
    let _ = std::fs::remove_dir_all(&folder);
}
