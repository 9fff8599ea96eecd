//! Hosts on the server of a broker, and what holds for them with any.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

use crate::helpers::{self, PATIENCE, message, publish, subscribe, wait};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tautline::{Bridge, Broker, Server, ServerHandle};
use tautline_dev_cert::{Authority, Leaf};
use tautline_hub::{Client, Config, Event, Hub, Log, Rules, Subscribe};

/// A server that is started by a command and ends with the test, with a folder that is gone then.
pub(crate) struct Process {
    command: Command,
    child: Child,
    pub(crate) folder: PathBuf,
}

impl Process {
    pub(crate) fn start(mut command: Command, folder: PathBuf) -> Self {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { command, child, folder }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.child = self.command.spawn().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A port that was free.
pub(crate) fn port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// An empty folder.
pub(crate) fn folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("tautline-broker-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A chain, its key and its authority in files of a folder, and another authority.
pub(crate) fn certificates() -> (PathBuf, [PathBuf; 4]) {
    let authority = Authority::new("broker").unwrap();
    let leaf = authority.issue(&Leaf::new(&["127.0.0.1"])).unwrap();
    let other = Authority::new("another").unwrap();
    let folder = folder();
    let files = ["chain", "key", "own", "other"].map(|name| folder.join(name));
    let texts = [&*leaf.chain, &leaf.key, authority.certificate().as_bytes(), other.certificate().as_bytes()];
    files.iter().zip(texts).for_each(|(file, text)| std::fs::write(file, text).unwrap());
    (folder, files)
}

/// A host with a broker and a log.
pub(crate) struct Host {
    pub(crate) server: ServerHandle,
    pub(crate) bridge: Bridge,
}

impl Host {
    pub(crate) fn start(broker: impl Broker, log: impl Log, rules: Rules) -> Self {
        let bridge = Bridge::start(broker).unwrap();
        let hub = Hub::with_log(Config::default(), Arc::new(log), Some(bridge.clone())).with_rules(rules);
        let server = Server::plain().listen("127.0.0.1:0".parse().unwrap()).shards(2).bridge(bridge.clone());
        Self { server: server.start(hub.handlers()).unwrap(), bridge }
    }

    pub(crate) fn client(&self) -> Client {
        helpers::client(&self.server)
    }

    pub(crate) fn stop(self) {
        helpers::stop(self.server);
    }
}

pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn is_connected(bridge: &Bridge) -> bool {
    bridge.counters().connected
}

/// Publishes to a topic with history, and waits until it is stored, over errors that pass.
pub(crate) fn publish_until_stored(publisher: &Client, topic: &str, data: &str) -> u64 {
    let id = publisher.publish(topic, None, data).unwrap();
    wait(publisher, |event| match event {
        Event::Published(other, at) if other == id => Some(at.unwrap().offset),
        _ => None,
    })
}

/// A client roams between two hosts, while these and the broker restart: it gets a history once and in order, and so does one that
/// stays.
pub(crate) fn history_is_whole(broker: &mut Process, start: impl Fn() -> Host) {
    let mut hosts = [start(), start()];
    let publisher = hosts[0].client();
    let stays = hosts[0].client();
    subscribe(&stays, "log:a", Subscribe::default());
    let first = publish_until_stored(&publisher, "log:a", "0");
    let mut sent = 1;
    // With the offset that it has.
    let mut roams = hosts[1].client();
    subscribe(&roams, "log:a", Subscribe::default().after(first, None));
    let mut roamed = 1;
    for round in 0..4 {
        for _ in 0..100 {
            publish_until_stored(&publisher, "log:a", &sent.to_string());
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
                broker.kill();
                // Published while the broker is away, and taken once it is back.
                let id = publisher.publish("log:a", None, &sent.to_string()).unwrap();
                sent += 1;
                broker.restart();
                wait(&publisher, |event| matches!(event, Event::Published(other, _) if other == id).then_some(()));
            }
            1 => std::mem::replace(&mut hosts[1], start()).stop(),
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
    // Another log's offsets mean nothing.
    let late = hosts[1].client();
    late.subscribe("log:a", Subscribe::default().after(1, Some("another".into()))).unwrap();
    wait(&late, |event| matches!(event, Event::Late(..)).then_some(()));
    hosts.into_iter().for_each(Host::stop);
}

/// Two hosts share the latest value of each key, and the members of a topic.
pub(crate) fn latest_values_and_members_are_shared(hosts: [Host; 2]) {
    eventually("the broker is connected", || hosts.iter().all(|host| is_connected(&host.bridge)));
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
