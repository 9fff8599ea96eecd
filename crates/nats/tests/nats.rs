//! Hubs on a real nats-server, which `TAUTLINE_NATS_SERVER` names. `cargo xtask hub` installs it and runs these.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

#[path = "../../hub/tests/helpers/mod.rs"]
mod helpers;
#[path = "../../hub/tests/helpers/hosts.rs"]
mod hosts;
#[path = "../../hub/tests/helpers/kinds.rs"]
mod kinds;

use helpers::{PATIENCE, message, publish, subscribe};
use hosts::{Host, Process, certificates, eventually, folder, port};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tautline::{Bridge, Kind, Outgoing, Reach, Withheld};
use tautline_hub::{Append, Kind as HubKind, Log, LogError, Position, Rules, Subscribe};
use tautline_nats::{NatsBroker, NatsConfig, NatsLog};

/// A nats-server with files of its own.
struct Nats {
    process: Process,
    port: u16,
}

impl Nats {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(options: &[&str]) -> Self {
        let program = std::env::var_os("TAUTLINE_NATS_SERVER").unwrap_or_else(|| panic!("run `cargo xtask hub`"));
        let (mut command, port, folder) = (Command::new(program), port(), folder());
        command.args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--jetstream", "--store_dir"]);
        command.arg(&folder).args(options);
        Self { process: Process::start(command, folder), port }
    }

    fn config(&self) -> NatsConfig {
        NatsConfig::new(format!("nats://127.0.0.1:{}", self.port))
    }

    fn host(&self) -> Host {
        self.host_with(Rules::open())
    }

    fn host_with(&self, rules: Rules) -> Host {
        host(self.config(), rules)
    }
}

fn host(config: NatsConfig, rules: Rules) -> Host {
    Host::start(NatsBroker::new(config.clone()), NatsLog::start(config).unwrap(), rules)
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
    let (folder, [chain, key, own, other]) = certificates();
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
        nats.process.kill();
        eventually("the broker is known to be away", || bridges.iter().all(|bridge| !bridge.counters().connected));
        assert_eq!(bridges[1].publish(topic, Outgoing::text("withheld")), Reach::ThisHost(Withheld::Away));
        nats.process.restart();
    }
    assert_eq!(own.load(Ordering::Relaxed), 0, "a host does not hear itself");
}

#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn history_is_whole_over_restarts_of_hosts_and_the_broker() {
    let mut nats = Nats::start();
    let config = nats.config();
    hosts::history_is_whole(&mut nats.process, || host(config.clone(), Rules::open()));
}

#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn hosts_share_latest_values_and_members() {
    let nats = Nats::start();
    hosts::latest_values_and_members_are_shared([0; 2].map(|_| nats.host()));
}

#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn the_rules_decide_the_kinds_of_topics_on_all_hosts() {
    let nats = Nats::start();
    kinds::by_the_rules(&nats.process.folder, |rules| nats.host_with(rules).server);
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
    let host = nats.host();
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
    nats.process.kill();
    std::fs::write(&file, "jetstream { max_file_store: 10GB }\n").unwrap();
    nats.process.restart();
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
    nats.process.kill();
    eventually("the server is away", || append(&log, "log:a", None, "1") == Err(LogError::Away));
    assert_eq!(log.refusal().reason(), None);
}
