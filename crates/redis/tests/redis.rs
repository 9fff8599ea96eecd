//! Hubs on real servers of Redis. `cargo xtask redis` runs these.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

#[path = "../../hub/tests/helpers/mod.rs"]
mod helpers;
#[path = "../../hub/tests/helpers/hosts.rs"]
mod hosts;
#[path = "../../hub/tests/helpers/kinds.rs"]
mod kinds;

use helpers::{PATIENCE, message, publish, subscribe, wait};
use hosts::{Host, Process, certificates, eventually, folder, is_connected, port, publish_until_stored};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline::{Bridge, Kind, Outgoing, Reach, Withheld};
use tautline_hub::{Append, Client, Event, Kind as HubKind, Log, LogError, Page, Position, Rules, Subscribe};
use tautline_redis::{RedisBroker, RedisConfig, RedisLog};

/// Options of a server that stores each message on its disk before it answers.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// A redis-server with files of its own.
struct Redis {
    process: Process,
    port: u16,
}

impl Redis {
    fn start(options: &[&str]) -> Self {
        Self::start_at(port(), options)
    }

    fn start_at(port: u16, options: &[&str]) -> Self {
        let (mut command, folder) = (Command::new("redis-server"), folder());
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"]);
        command.arg(&folder).args(options);
        Self { process: Process::start(command, folder), port }
    }

    fn config(&self) -> RedisConfig {
        RedisConfig::new(format!("redis://127.0.0.1:{}", self.port))
    }

    /// The output of redis-cli, once the server is there.
    fn tell(&self, command: &[&str]) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut program = Command::new("redis-cli");
            let output = program.args(["-p", &self.port.to_string()]).args(command).output().unwrap();
            let [printed, error] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
            if output.status.success() && !printed.starts_with("LOADING") {
                return printed.trim().to_owned();
            }
            assert!(Instant::now() < end, "{printed} {error}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn host(config: &RedisConfig) -> Host {
    host_with(config, Rules::open())
}

fn host_with(config: &RedisConfig, rules: Rules) -> Host {
    Host::start(RedisBroker::new(config.clone()), RedisLog::start(config.clone()).unwrap(), rules)
}

fn append_as(log: &RedisLog, topic: &str, append: Append) -> Result<Position, LogError> {
    let (done, result) = std::sync::mpsc::channel();
    log.append(&Arc::from(topic), append, Box::new(move |at| done.send(at).unwrap()));
    result.recv_timeout(PATIENCE).unwrap()
}

fn append(log: &RedisLog, topic: &str, id: Option<&str>, data: &str) -> Result<Position, LogError> {
    let append = Append { kind: HubKind::History, key: None, data: data.into(), id: id.map(Into::into) };
    append_as(log, topic, append)
}

/// Appends with an identifier until it is stored.
fn store(log: &RedisLog, topic: &str, data: &str) -> Position {
    let mut stored = None;
    eventually("the log takes a message", || {
        stored = append(log, topic, Some(&format!("store {data}")), data).ok();
        stored.is_some()
    });
    stored.unwrap()
}

fn read(log: &RedisLog, topic: &str, after: Option<u64>) -> Result<Page, LogError> {
    let (done, result) = std::sync::mpsc::channel();
    log.read(&Arc::from(topic), HubKind::History, after, Box::new(move |page| done.send(page).unwrap()));
    result.recv_timeout(PATIENCE).unwrap()
}

fn data(page: &Page) -> Vec<String> {
    page.entries.iter().map(|entry| entry.data.to_string()).collect()
}

fn is_refused(log: &RedisLog, remedy: &str) {
    eventually(remedy, || log.refusal().reason().is_some_and(|reason| reason.contains(remedy)));
}

#[test]
#[ignore = "needs redis-server: cargo xtask redis"]
fn the_rules_decide_the_kinds_of_topics_on_all_hosts() {
    let redis = Redis::start(&[]);
    kinds::by_the_rules(&redis.process.folder, |rules| host_with(&redis.config(), rules).server);
}

#[test]
#[ignore = "needs redis-server: cargo xtask redis"]
fn passwords_rights_and_room_are_refusals_until_they_are_remedied_and_outages_are_none() {
    let mut redis = Redis::start(&["--requirepass", "right", "--maxmemory", "64mb"]);
    let at = |user: &str| RedisConfig::new(format!("redis://{user}@127.0.0.1:{}", redis.port));
    let [taken, refused] = [":right", ":wrong"].map(|user| Bridge::start(RedisBroker::new(at(user))).unwrap());
    eventually("the bridge is connected", || is_connected(&taken));
    eventually("the other one is refused", || refused.counters().failures > 1);
    assert_eq!(refused.counters().connects, 0);
    is_refused(&RedisLog::start(at(":wrong")).unwrap(), "password");
    let tell = |command: &[&str]| redis.tell(&[&["-a", "right"], command].concat());
    tell(&["ACL", "SETUSER", "few", "on", ">few", "~taut:*", "&taut:*", "+@all", "-@dangerous"]);
    let few = RedisLog::start(at("few:few")).unwrap();
    is_refused(&few, "+info");
    tell(&["ACL", "SETUSER", "few", "+info"]);
    eventually("it is not refused any more", || few.refusal().reason().is_none());
    store(&few, "log:few", "1");

    let log = RedisLog::start(at(":right")).unwrap();
    store(&log, "log:a", "1");
    tell(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(append(&log, "log:a", None, "2"), Err(LogError::Away));
    is_refused(&log, "maxmemory");
    tell(&["CONFIG", "SET", "maxmemory", "0"]);
    eventually("it is not refused any more", || log.refusal().reason().is_none());
    store(&log, "log:a", "3");
    redis.process.kill();
    eventually("the server is away", || append(&log, "log:a", None, "4") == Err(LogError::Away));
    assert_eq!(log.refusal().reason(), None);
}

#[test]
#[ignore = "needs redis-server: cargo xtask redis"]
fn a_server_with_tls_is_known_by_its_authority() {
    let (folder, [chain, key, own, other]) = certificates();
    let [chain, key] = [&chain, &key].map(|file| file.to_str().unwrap());
    let tls = port().to_string();
    let options = ["--tls-port", &tls, "--tls-cert-file", chain, "--tls-key-file", key, "--tls-auth-clients", "no"];
    let _redis = Redis::start(&[&options[..], &["--tls-ca-cert-file", own.to_str().unwrap()]].concat());
    let knows = |file: &PathBuf| {
        let mut config = RedisConfig::new(format!("rediss://127.0.0.1:{tls}/3"));
        config.authorities = Some(file.clone());
        config
    };
    let [taken, refused] = [&own, &other].map(|file| Bridge::start(RedisBroker::new(knows(file))).unwrap());
    eventually("the bridge is connected", || is_connected(&taken));
    eventually("the other one refuses", || refused.counters().failures > 1);
    assert_eq!(refused.counters().connects, 0);
    store(&RedisLog::start(knows(&own)).unwrap(), "log:a", "1");
    let _ = std::fs::remove_dir_all(&folder);
}

/// The messages that a host hears.
type Heard = Arc<Mutex<Vec<(Kind, Vec<u8>)>>>;

#[test]
#[ignore = "needs redis-server: cargo xtask redis"]
fn plain_topics_pass_between_hosts_and_come_back_after_an_outage() {
    let mut redis = Redis::start(&[]);
    let bridges = [0; 2].map(|_| Bridge::start(RedisBroker::new(redis.config())).unwrap());
    let heard = Heard::default();
    // A name with everything that a pattern or a hash tag may have.
    let topic = "news. of the *day* [?] {} > \u{e9}..";
    let hear = heard.clone();
    let _ears = bridges[0].listen(topic, move |kind, payload| hear.lock().unwrap().push((kind, payload.to_vec())));
    let own = Arc::new(AtomicU32::new(0));
    let count = own.clone();
    let _own = bridges[1].listen(topic, move |_, _| _ = count.fetch_add(1, Ordering::Relaxed));
    for round in 0..3 {
        eventually("the broker is connected", || bridges.iter().all(is_connected));
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
        // Of a program without our header.
        redis.tell(&["PUBLISH", &format!("taut:plain:{topic}"), "foreign"]);
        eventually("a foreign message arrives", || {
            heard.lock().unwrap().last() == Some(&(Kind::Text, b"foreign".into()))
        });
        eventually("both hear it", || own.load(Ordering::Relaxed) == round + 1);
        redis.process.kill();
        eventually("the broker is known to be away", || bridges.iter().all(|bridge| !is_connected(bridge)));
        assert_eq!(bridges[1].publish(topic, Outgoing::text("withheld")), Reach::ThisHost(Withheld::Away));
        redis.process.restart();
    }
    assert_eq!(own.load(Ordering::Relaxed), 3, "a host does not hear itself");
}

#[test]
#[ignore = "needs redis-server: cargo xtask redis"]
fn history_is_whole_over_restarts_of_hosts_and_the_broker() {
    let mut redis = Redis::start(&DURABLE);
    let config = redis.config();
    hosts::history_is_whole(&mut redis.process, || host(&config));
}

#[test]
#[ignore = "needs redis-server: cargo xtask redis"]
fn a_log_that_may_have_lost_messages_begins_another_epoch_and_keeps_the_rest() {
    let mut redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let host = host(&redis.config());
    let log = RedisLog::start(redis.config()).unwrap();
    let first = store(&log, "log:a", "1");
    let second = store(&log, "log:a", "2");
    assert_eq!(first.epoch, second.epoch);
    let stays = host.client();
    subscribe(&stays, "log:a", Subscribe::default().after(second.offset, Some(second.epoch.to_string())));
    let is_late = |client: &Client| wait(client, |event| matches!(event, Event::Late(..)).then_some(()));

    // All messages are there, but that is not known.
    redis.process.kill();
    redis.process.restart();
    is_late(&stays);
    let third = store(&log, "log:a", "3");
    assert_ne!(third.epoch, second.epoch);
    assert!(third.offset > second.offset);
    assert_eq!(data(&read(&log, "log:a", None).unwrap()), ["1", "2", "3"]);
    let late = host.client();
    late.subscribe("log:a", Subscribe::default().after(second.offset, Some(second.epoch.to_string()))).unwrap();
    is_late(&late);
    (1..=3).for_each(|n| assert_eq!(message(&late).data, n.to_string()));

    redis.tell(&["FLUSHALL"]);
    let fourth = store(&log, "log:a", "4");
    assert_ne!(fourth.epoch, third.epoch);
    assert!(fourth.offset > third.offset);
    assert_eq!(data(&read(&log, "log:a", None).unwrap()), ["4"]);
    is_late(&late);
    assert_eq!(message(&late).data, "4");

    // The stream alone is evicted, and then all but the stream.
    redis.tell(&["DEL", "taut:{llog:a}:stream"]);
    let fifth = store(&log, "log:a", "5");
    assert_ne!(fifth.epoch, fourth.epoch);
    redis.tell(&["DEL", "taut:{llog:a}:state"]);
    let sixth = store(&log, "log:a", "6");
    assert_ne!(sixth.epoch, fifth.epoch);
    assert_eq!(data(&read(&log, "log:a", None).unwrap()), ["5", "6"]);
    host.stop();
}

#[test]
#[ignore = "needs redis-server: cargo xtask redis"]
fn after_a_failover_clients_are_late_and_the_new_master_is_found() {
    let mut master = Redis::start(&DURABLE);
    let replica = Redis::start(&DURABLE);
    replica.tell(&["REPLICAOF", "127.0.0.1", &master.port.to_string()]);
    let config = RedisConfig::new(format!("redis://127.0.0.1:{}, redis://127.0.0.1:{}", replica.port, master.port));
    let log = RedisLog::start(config.clone()).unwrap();
    let first = store(&log, "log:a", "1");
    let is_there = || replica.tell(&["XLEN", "taut:{llog:a}:stream"]) == "1";
    eventually("the message is on the replica", is_there);
    let host = host(&config);
    let client = host.client();
    subscribe(&client, "log:a", Subscribe::default().after(first.offset, Some(first.epoch.to_string())));
    master.process.kill();
    replica.tell(&["REPLICAOF", "NO", "ONE"]);
    let second = store(&log, "log:a", "2");
    assert_ne!(second.epoch, first.epoch);
    wait(&client, |event| matches!(event, Event::Late(..)).then_some(()));
    ["1", "2"].into_iter().for_each(|data| assert_eq!(message(&client).data, data));
    // The former master comes back as a replica, and is not used.
    master.process.restart();
    master.tell(&["REPLICAOF", "127.0.0.1", &replica.port.to_string()]);
    assert_eq!(store(&log, "log:a", "3").epoch, second.epoch);
    let alone = RedisLog::start(master.config()).unwrap();
    is_refused(&alone, "replica");
    host.stop();
}

#[test]
#[ignore = "needs redis-server: cargo xtask redis"]
fn hosts_share_latest_values_and_members() {
    let redis = Redis::start(&[]);
    hosts::latest_values_and_members_are_shared([0; 2].map(|_| host(&redis.config())));
}

#[test]
#[ignore = "needs redis-server: cargo xtask redis"]
fn the_key_of_a_message_is_the_same_for_those_who_come_later() {
    let redis = Redis::start(&[]);
    let host = host(&redis.config());
    let (early, publisher) = (host.client(), host.client());
    let topics = ["latest:a", "log:a"];
    for topic in topics {
        // Redis may not be reached yet.
        publish_until_stored(&publisher, topic, "0");
        subscribe(&early, topic, Subscribe::default().after(0, None));
        let late = host.client();
        assert_eq!(message(&early).key, None);
        for (key, data) in [("k", "1"), ("", "2")] {
            publish(&publisher, topic, Some(key), data).unwrap();
        }
        let seen: Vec<_> = (0..2).map(|_| message(&early)).map(|message| (message.key, message.data)).collect();
        assert_eq!(seen, [(Some("k".to_owned()), "1".to_owned()), (None, "2".to_owned())], "{topic}");
        subscribe(&late, topic, Subscribe::default().after(0, None));
        let all = if topic == "log:a" { 3 } else { 2 };
        let read: Vec<_> = (0..all).map(|_| message(&late)).map(|message| (message.key, message.data)).collect();
        assert_eq!(read[all - 2..], seen, "{topic}");
    }
    host.stop();
}

#[test]
#[ignore = "needs redis-server: cargo xtask redis"]
fn identifiers_count_once_and_old_messages_are_late() {
    let redis = Redis::start(&[]);
    let mut config = redis.config();
    config.retention.entries = 100;
    let log = RedisLog::start(config.clone()).unwrap();
    store(&log, "log:b", "0");
    for id in ["", "1", "a\r\nb", "\n", "\u{e9}", "{}", "1.2"] {
        let [first, again] = [0; 2].map(|_| append(&log, "log:a", Some(id), "1").unwrap());
        assert_eq!(first, again, "{id:?} is stored once");
        let in_other = append(&log, "log:b", Some(id), "2").unwrap();
        assert_eq!(read(&log, "log:b", Some(in_other.offset - 1)).unwrap().entries.len(), 1, "{id:?} in another topic");
    }
    let places: Vec<u64> = (0..600).map(|n| append(&log, "log:c", None, &n.to_string()).unwrap().offset).collect();
    assert!(places.is_sorted_by(|one, next| one < next));
    assert_eq!(read(&log, "log:c", Some(places[0])).unwrap_err(), LogError::TooLate);
    assert_eq!(read(&log, "log:c", Some(1)).unwrap_err(), LogError::TooLate);
    assert_eq!(data(&read(&log, "log:c", Some(places[597])).unwrap()), ["598", "599"]);
    assert_eq!(read(&log, "log:c", Some(u64::MAX)).unwrap().entries, []);
    assert_eq!(read(&log, "log:c", Some(places[599])).unwrap().upto.offset, places[599]);
    let kept = read(&log, "log:c", None).unwrap();
    assert!((100..=256).contains(&kept.entries.len()), "{}", kept.entries.len());
    // A page ends with its bytes, and the next one goes on.
    let large = format!("\"{}\"", "x".repeat(100_000));
    (0..8).for_each(|_| _ = append(&log, "log:d", None, &large).unwrap());
    let (mut after, mut sizes) = (None, Vec::new());
    while sizes.iter().sum::<usize>() < 8 {
        let page = read(&log, "log:d", after).unwrap();
        sizes.push(page.entries.len());
        after = Some(page.upto.offset);
    }
    assert_eq!(sizes, [3, 3, 2]);
    // Messages are gone after their time, also in a topic that is silent.
    config.retention.age = Duration::from_millis(200);
    let short = RedisLog::start(config).unwrap();
    let old = store(&short, "log:e", "1");
    eventually("it is gone", || read(&short, "log:e", None).unwrap().entries.is_empty());
    assert_eq!(read(&short, "log:e", Some(old.offset - 1)).unwrap_err(), LogError::TooLate);
    assert_eq!(store(&short, "log:e", "2").epoch, old.epoch);
}

#[test]
#[ignore = "needs redis-server: cargo xtask redis"]
fn messages_of_other_programs_harm_no_reader() {
    let redis = Redis::start(&[]);
    let host = host(&redis.config());
    let publisher = host.client();
    let first = publish(&publisher, "log:a", None, "0").unwrap();
    let reader = host.client();
    subscribe(&reader, "log:a", Subscribe::default().after(first, None));
    for news in ["", "garbage\n", "e 1 2 -1\nx", "e 1 2 9\n1"] {
        redis.tell(&["SPUBLISH", "taut:{llog:a}:news", news]);
    }
    redis.tell(&["XADD", "taut:{llog:a}:stream", "*", "data", "{"]);
    redis.tell(&["XADD", "taut:{llog:a}:stream", "*", "before", &first.to_string(), "data", "1,\"type\":\"late\""]);
    publish(&publisher, "log:a", None, "1").unwrap();
    assert_eq!(message(&reader).data, "1");
    let later = host.client();
    subscribe(&later, "log:a", Subscribe::default().after(first, None));
    assert_eq!(message(&later).data, "1");
    host.stop();
}

#[test]
#[ignore = "needs redis-server: cargo xtask redis"]
fn a_cluster_of_three_nodes_has_each_topic_on_one_of_them() {
    let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
    // The second port of a node is 10,000 above.
    let free = || (0..).map(|_| port()).find(|port| *port < 50_000).unwrap();
    let nodes = [0; 3].map(|_| Redis::start_at(free(), &[&options[..], &DURABLE].concat()));
    let addresses = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect::<Vec<_>>();
    nodes.iter().for_each(|node| _ = node.tell(&["PING"]));
    let mut create = vec!["--cluster", "create"];
    create.extend(addresses.iter().map(String::as_str));
    create.push("--cluster-yes");
    nodes[0].tell(&create);
    eventually("the cluster is there", || {
        nodes.iter().all(|node| node.tell(&["CLUSTER", "INFO"]).contains("cluster_state:ok"))
    });
    let config = RedisConfig::new(addresses.iter().map(|node| format!("redis://{node}")).collect::<Vec<_>>().join(","));
    let hosts = [host(&config), host(&config)];
    eventually("the broker is connected", || hosts.iter().all(|host| is_connected(&host.bridge)));
    let [here, there] = [&hosts[0], &hosts[1]].map(Host::client);
    for topic in (0..20).map(|n| format!("log:{n}")) {
        subscribe(&there, &topic, Subscribe::default());
        (0..3).for_each(|n| _ = publish(&here, &topic, None, &n.to_string()).unwrap());
        (0..3).for_each(|n| assert_eq!(message(&there).data, n.to_string()));
    }
    assert!(nodes.iter().all(|node| node.tell(&["DBSIZE"]) != "0"), "topics are on all nodes");
    for topic in (0..20).map(|n| format!("room:{n}")) {
        subscribe(&there, &topic, Subscribe::default());
        // Until the subscription has arrived there.
        let mut sent = 0;
        loop {
            sent += 1;
            publish(&here, &topic, None, &sent.to_string());
            match there.next_within(Duration::from_millis(200)) {
                Ok(Event::Message(message)) if *message.topic == *topic => break,
                _ => assert!(sent < 300, "nothing arrives in {topic}"),
            }
        }
    }
    // A slot moves to another node, with its topic.
    let key = "taut:{llog:0}:state";
    let slot = nodes[0].tell(&["CLUSTER", "KEYSLOT", key]);
    let ids = nodes.iter().map(|node| node.tell(&["CLUSTER", "MYID"])).collect::<Vec<_>>();
    let owns = |node: &&Redis| node.tell(&["EXISTS", key]) == "1";
    let from = nodes.iter().position(|node| owns(&node)).unwrap();
    let to = (from + 1) % 3;
    nodes[to].tell(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[from]]);
    nodes[from].tell(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[to]]);
    let port = nodes[to].port.to_string();
    for key in nodes[from].tell(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).lines() {
        nodes[from].tell(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
    }
    for node in [to, from, 3 - from - to] {
        nodes[node].tell(&["CLUSTER", "SETSLOT", &slot, "NODE", &ids[to]]);
    }
    assert!(owns(&&nodes[to]));
    for n in 3..100 {
        publish_until_stored(&here, "log:0", &n.to_string());
        assert_eq!(message(&there).data, n.to_string());
    }
    hosts.into_iter().for_each(Host::stop);
}
