//! Hubs on a real nats-server, which `TAUTLINE_NATS_SERVER` names. `cargo xtask hub` installs it and runs these.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

#[path = "../../hub/tests/helpers/mod.rs"]
mod helpers;
#[path = "../../hub/tests/helpers/kinds.rs"]
mod kinds;

use helpers::{PATIENCE, message, publish, subscribe, wait};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tautline::{Bridge, Kind, Outgoing, Reach, Server, ServerHandle, Withheld};
use tautline_dev_cert::{Authority, Leaf};
use tautline_hub::{Append, Client, Config, Event, Hub, Kind as HubKind, Log, LogError, Position, Rules, Subscribe};
use tautline_nats::{NatsBroker, NatsConfig, NatsLog};

/// A nats-server with files of its own. It ends with the test.
struct Nats {
    child: Child,
    port: u16,
    folder: PathBuf,
    options: Vec<String>,
}

impl Nats {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(options: &[&str]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tautline-nats-{}-{number}", std::process::id()));
        let options = options.iter().map(|&option| option.to_owned()).collect::<Vec<_>>();
        Self { child: spawn(port, &folder, &options), port, folder, options }
    }

    fn config(&self) -> NatsConfig {
        NatsConfig::new(format!("nats://127.0.0.1:{}", self.port))
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn restart(&mut self) {
        self.child = spawn(self.port, &self.folder, &self.options);
    }
}

fn spawn(port: u16, folder: &std::path::Path, options: &[String]) -> Child {
    let program = std::env::var_os("TAUTLINE_NATS_SERVER").unwrap_or_else(|| panic!("run `cargo xtask hub`"));
    let mut command = Command::new(program);
    command
        .args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--jetstream", "--store_dir"])
        .arg(folder)
        .args(options);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

struct Host {
    server: ServerHandle,
    bridge: Bridge,
}

impl Host {
    fn start(nats: &Nats) -> Self {
        Self::start_with(nats, Rules::open())
    }

    fn start_with(nats: &Nats, rules: Rules) -> Self {
        let bridge = Bridge::start(NatsBroker::new(nats.config())).unwrap();
        let log = NatsLog::start(nats.config()).unwrap();
        let hub = Hub::with_log(Config::default(), Arc::new(log), Some(bridge.clone())).with_rules(rules);
        let server = Server::plain().listen("127.0.0.1:0".parse().unwrap()).shards(2).bridge(bridge.clone());
        Self { server: server.start(hub.handlers()).unwrap(), bridge }
    }

    fn client(&self) -> Client {
        helpers::client(&self.server)
    }

    fn stop(self) {
        helpers::stop(self.server);
    }
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn passwords_open_a_server() {
    let nats = Nats::start_with(&["--user", "taut", "--pass", "right"]);
    let at = |password: &str| NatsConfig::new(format!("nats://taut:{password}@127.0.0.1:{}", nats.port));
    let start = |password| Bridge::start(NatsBroker::new(at(password))).unwrap();
    let (taken, refused) = (start("right"), start("wrong"));
    eventually("the bridge is connected", || taken.counters().connected);
    eventually("the other one is refused", || refused.counters().failures > 1);
    assert_eq!(refused.counters().connects, 0);
    let log = NatsLog::start(at("right")).unwrap();
    assert!(appends(&log));
}

#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn a_server_with_tls_is_known_by_its_authority() {
    let authority = Authority::new("broker").unwrap();
    let leaf = authority.issue(&Leaf::new(&["127.0.0.1"])).unwrap();
    let folder = std::env::temp_dir().join(format!("tautline-nats-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [chain, key, own, other] = ["chain", "key", "own", "other"].map(|name| folder.join(name));
    std::fs::write(&chain, &leaf.chain).unwrap();
    std::fs::write(&key, &leaf.key).unwrap();
    std::fs::write(&own, authority.certificate()).unwrap();
    std::fs::write(&other, Authority::new("another").unwrap().certificate()).unwrap();
    let [chain, key] = [&chain, &key].map(|file| file.to_str().unwrap());
    let nats = Nats::start_with(&["--tls", "--tlscert", chain, "--tlskey", key]);
    let knows = |file: &PathBuf| {
        let mut config = NatsConfig::new(format!("tls://127.0.0.1:{}", nats.port));
        config.authorities = Some(file.clone());
        config
    };
    let [taken, refused] = [&own, &other].map(|file| Bridge::start(NatsBroker::new(knows(file))).unwrap());
    eventually("the bridge is connected", || taken.counters().connected);
    eventually("the other one refuses", || refused.counters().failures > 1);
    assert_eq!(refused.counters().connects, 0);
    assert!(appends(&NatsLog::start(knows(&own)).unwrap()));
    let _ = std::fs::remove_dir_all(&folder);
}

/// Appends a message, and waits for the answer.
fn appends(log: &NatsLog) -> bool {
    let (tell, told) = std::sync::mpsc::channel();
    // The log says that NATS is away until it is connected.
    (0..100).any(|_| {
        let (append, tell) = (Append { kind: HubKind::History, key: None, data: "1".into(), id: None }, tell.clone());
        log.append(&"log:a".into(), append, Box::new(move |done| tell.send(done.is_ok()).unwrap()));
        let is_done = told.recv_timeout(PATIENCE).unwrap();
        if !is_done {
            std::thread::sleep(Duration::from_millis(100));
        }
        is_done
    })
}

#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn core_topics_pass_between_hosts_and_come_back_after_an_outage() {
    let mut nats = Nats::start();
    let bridges = [0; 2].map(|_| Bridge::start(NatsBroker::new(nats.config())).unwrap());
    let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
    let hear = heard.clone();
    // A name with everything that a subject may not have.
    let topic = "news. of the *day* > \u{e9}..";
    let _ears = [topic, "other"].map(|topic| {
        let hear = hear.clone();
        bridges[0].listen(topic, move |kind, payload| hear.lock().unwrap().push((kind, payload.to_vec())))
    });
    let own = Arc::new(AtomicU32::new(0));
    let count = own.clone();
    let _own = bridges[1].listen(topic, move |_, _| _ = count.fetch_add(1, Ordering::Relaxed));
    for round in 0..3 {
        eventually("the broker is connected", || bridges.iter().all(|bridge| bridge.counters().connected));
        heard.lock().unwrap().clear();
        // Until the subscription has arrived there.
        eventually("a message arrives", || {
            assert_eq!(bridges[1].publish(topic, Outgoing::text("probe")), Reach::AllHosts);
            !heard.lock().unwrap().is_empty()
        });
        for n in 0..100 {
            assert_eq!(bridges[1].publish(topic, Outgoing::text(&n.to_string())), Reach::AllHosts);
        }
        assert_eq!(bridges[1].publish(topic, Outgoing::binary(b"text as binary")), Reach::AllHosts);
        let is_end = |(_, payload): &(Kind, Vec<u8>)| payload.starts_with(b"text");
        eventually("all arrive", || heard.lock().unwrap().last().is_some_and(is_end));
        let got: Vec<_> = heard.lock().unwrap().drain(..).filter(|(_, payload)| payload != b"probe").collect();
        let expected: Vec<_> = (0..100).map(|n| (Kind::Text, n.to_string().into_bytes())).collect();
        assert_eq!(got[..100], expected[..], "in order, in round {round}");
        assert_eq!(got[100], (Kind::Binary, b"text as binary".to_vec()));
        nats.kill();
        eventually("the broker is known to be away", || bridges.iter().all(|bridge| !bridge.counters().connected));
        assert_eq!(bridges[1].publish(topic, Outgoing::text("withheld")), Reach::ThisHost(Withheld::Away));
        nats.restart();
    }
    assert_eq!(own.load(Ordering::Relaxed), 0, "a host does not hear itself");
}

#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn history_is_whole_over_restarts_of_hosts_and_the_broker() {
    let mut nats = Nats::start();
    let mut hosts = [Host::start(&nats), Host::start(&nats)];
    // One client stays on its host.
    let publisher = hosts[0].client();
    let stays = hosts[0].client();
    subscribe(&stays, "log:a", Subscribe::default());
    let first = publish(&publisher, "log:a", None, "0").unwrap();
    let mut sent = 1;
    // One client roams, with the offset that it has.
    let mut roams = hosts[1].client();
    subscribe(&roams, "log:a", Subscribe::default().after(first, None));
    let mut roamed = 1;
    for round in 0..4 {
        for _ in 0..100 {
            publish(&publisher, "log:a", None, &sent.to_string());
            sent += 1;
        }
        let mut last = 0;
        for _ in 0..50 + 20 * round {
            let message = message(&roams);
            assert_eq!(message.data, roamed.to_string());
            (roamed, last) = (roamed + 1, message.offset.unwrap());
        }
        match round {
            0 => {
                nats.kill();
                // Published while the broker is away, and taken once it is back.
                let id = publisher.publish("log:a", None, &sent.to_string()).unwrap();
                sent += 1;
                nats.restart();
                wait(&publisher, |event| matches!(event, Event::Published(other, _) if other == id).then_some(()));
            }
            1 => {
                let next = Host::start(&nats);
                std::mem::replace(&mut hosts[1], next).stop();
            }
            _ => {}
        }
        let epoch = roams.position("log:a").and_then(|(_, epoch)| epoch);
        roams = hosts[usize::from(round % 2 == 1)].client();
        subscribe(&roams, "log:a", Subscribe::default().after(last, epoch));
    }
    while roamed < sent {
        assert_eq!(message(&roams).data, roamed.to_string());
        roamed += 1;
    }
    for n in 0..sent {
        assert_eq!(message(&stays).data, n.to_string());
    }
    // Another stream's offsets mean nothing.
    let late = hosts[1].client();
    late.subscribe("log:a", Subscribe::default().after(1, Some("another".into()))).unwrap();
    wait(&late, |event| matches!(event, Event::Late(..)).then_some(()));
    hosts.into_iter().for_each(Host::stop);
}

#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn hosts_share_latest_values_and_members() {
    let nats = Nats::start();
    let hosts = [Host::start(&nats), Host::start(&nats)];
    eventually("the broker is connected", || hosts.iter().all(|host| host.bridge.counters().connected));
    let [here, there] = [&hosts[0], &hosts[1]].map(Host::client);
    for round in 0..20 {
        for key in ["EUR/USD", "EUR.GBP", "*"] {
            publish(&here, "latest:prices", Some(key), &round.to_string());
        }
    }
    subscribe(&there, "latest:prices", Subscribe::default());
    let got: BTreeMap<_, _> = (0..3).map(|_| message(&there)).map(|one| (one.key.unwrap(), one.data)).collect();
    assert_eq!(got.keys().map(String::as_str).collect::<Vec<_>>(), ["*", "EUR.GBP", "EUR/USD"]);
    assert!(got.values().all(|data| data == "19"), "{got:?}");
    publish(&here, "latest:prices", Some("*"), "20");
    assert_eq!(message(&there).data, "20");

    subscribe(&here, "room", Subscribe::default().as_member("here"));
    there.subscribe("room", Subscribe::default().as_member("there").with_presence()).unwrap();
    let mut names = BTreeSet::new();
    while names.len() < 2 {
        match there.next_within(PATIENCE).unwrap() {
            Event::Members(_, members) => names.extend(members.into_iter().map(|(_, name)| name)),
            Event::Joined(.., name) => _ = names.insert(name),
            _ => {}
        }
    }
    drop(here);
    wait(&there, |event| matches!(event, Event::Left(..)).then_some(()));
    hosts.into_iter().for_each(Host::stop);
}

#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn the_rules_decide_the_kinds_of_topics_on_all_hosts() {
    let nats = Nats::start();
    kinds::by_the_rules(&nats.folder, |rules| Host::start_with(&nats, rules).server);
}

/// Appends to a log, and waits for the place.
fn append(log: &NatsLog, topic: &str, id: Option<&str>, data: &str) -> Result<Position, LogError> {
    let (done, result) = std::sync::mpsc::channel();
    let append = Append { kind: HubKind::History, key: None, data: data.into(), id: id.map(Into::into) };
    log.append(&Arc::from(topic), append, Box::new(move |at| done.send(at).unwrap()));
    result.recv_timeout(PATIENCE).unwrap()
}

#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn identifiers_are_data_and_those_of_one_topic_are_not_those_of_another() {
    let nats = Nats::start();
    let log = NatsLog::start(nats.config()).unwrap();
    // Until the log is connected.
    eventually("the log takes a message", || append(&log, "log:a", None, "0").is_ok());
    for id in ["", "1", "a\r\nNats-Expected-Last-Sequence: 7", "\n", "\u{e9}", ".", "1.2"] {
        let [first, again] = [0; 2].map(|_| append(&log, "log:a", Some(id), "1").unwrap());
        assert_eq!(first, again, "{id:?} is stored once");
        assert!(append(&log, "log:b", Some(id), "1").unwrap().offset > first.offset, "{id:?} in another topic");
    }
    let large = format!("\"{}\"", "x".repeat(2 << 20));
    let refused = append(&log, "log:a", Some("large"), &large);
    assert!(matches!(refused, Err(LogError::Failed(_))), "repeating it cannot help: {refused:?}");
    append(&log, "log:a", Some("small"), "1").unwrap();
}

#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn messages_of_other_programs_that_are_no_json_harm_no_reader() {
    let nats = Nats::start();
    let host = Host::start(&nats);
    let publisher = host.client();
    let first = publish(&publisher, "log:a", None, "0").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Pages are full of bytes before they are full of messages.
    let padding = "x".repeat(10_000);
    runtime.block_on(async {
        let client = async_nats::connect(format!("127.0.0.1:{}", nats.port)).await.unwrap();
        let stream = async_nats::jetstream::new(client);
        for n in 0..600 {
            let payload = match n % 3 {
                0 => format!("1,\"type\":\"late\",\"offset\":{}", u64::MAX).into_bytes(),
                1 => vec![0xff; 10],
                _ => format!("[{n},\"{padding}\"]").into_bytes(),
            };
            stream.publish("taut.h._log:a", payload.into()).await.unwrap().await.unwrap();
        }
    });
    publish(&publisher, "log:a", None, "\"last\"").unwrap();
    let reader = host.client();
    subscribe(&reader, "log:a", Subscribe::default().after(first, None));
    for n in (2..600).step_by(3) {
        let got = message(&reader).data;
        assert!(got.starts_with(&format!("[{n},")), "{:.20} instead of message {n}", got);
    }
    assert_eq!(message(&reader).data, "\"last\"");
    host.stop();
}

#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn a_server_without_room_refuses_with_a_remedy_until_it_has_room() {
    let file = std::env::temp_dir().join(format!("tautline-nats-room-{}.conf", std::process::id()));
    std::fs::write(&file, "jetstream { max_file_store: 10MB, max_memory_store: 10MB }\n").unwrap();
    let mut nats = Nats::start_with(&["--config", file.to_str().unwrap()]);
    let log = NatsLog::start(nats.config()).unwrap();
    let refusal = log.refusal();
    eventually("it is refused before any client comes", || refusal.reason().is_some());
    let reason = refusal.reason().unwrap();
    assert!(reason.contains("10047") && reason.contains("Retention::bytes"), "{reason}");
    assert_eq!(append(&log, "log:a", None, "1"), Err(LogError::Away));
    nats.kill();
    std::fs::write(&file, "jetstream { max_file_store: 10GB }\n").unwrap();
    nats.restart();
    eventually("it is not refused any more", || refusal.reason().is_none());
    eventually("messages are stored", || append(&log, "log:a", None, "1").is_ok());
    std::fs::remove_file(&file).unwrap();
}

#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn replicas_without_a_cluster_and_wrong_passwords_are_refusals_and_outages_are_none() {
    let mut nats = Nats::start_with(&["--user", "taut", "--pass", "right"]);
    let at = |password: &str| NatsConfig::new(format!("nats://taut:{password}@127.0.0.1:{}", nats.port));
    let mut config = at("right");
    config.retention.replicas = 3;
    for (config, remedy) in [(config, "Retention::replicas"), (at("wrong"), "password")] {
        let log = NatsLog::start(config).unwrap();
        eventually(remedy, || log.refusal().reason().is_some_and(|reason| reason.contains(remedy)));
    }
    let log = NatsLog::start(at("right")).unwrap();
    assert!(appends(&log));
    nats.kill();
    eventually("the server is away", || append(&log, "log:a", None, "1") == Err(LogError::Away));
    assert_eq!(log.refusal().reason(), None);
}
