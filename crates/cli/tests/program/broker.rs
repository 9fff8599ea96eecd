//! `taut serve --broker` on real servers. `cargo xtask hub` and `cargo xtask redis` run these tests.

use super::admin::exchange;
use super::tls::eventually;
use super::{Home, Served};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A broker on a free port, which ends with the test.
struct Broker {
    child: Child,
    port: u16,
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A hub on a broker, and its admin listener.
struct Hub {
    server: Served,
    admin: PathBuf,
}

impl Hub {
    fn start(home: &Home, broker: &str, options: &[&str]) -> Self {
        let admin = home.0.join("admin.sock");
        let at = format!("unix:{}", admin.display());
        let hub = ["--plain", "--app", "hub", "--admin", &at, "--broker", broker];
        Self { server: home.serve(&[&hub[..], options].concat()), admin }
    }

    fn get(&self, path: &str) -> (u16, String) {
        exchange(&self.admin, &format!("GET {path}"), "")
    }

    fn is_refused(&self) -> bool {
        let metrics = self.get("/metrics").1;
        let value = metrics.lines().find_map(|line| line.strip_prefix("taut_broker_refused ")).unwrap();
        value == "1"
    }

    /// Publishes these numbers to a topic with history, and returns whether all were stored.
    fn stores(&self, home: &Home, numbers: std::ops::Range<usize>) -> bool {
        let count = numbers.len();
        let requests =
            numbers.map(|n| format!("{{\"type\":\"publish\",\"topic\":\"log:a\",\"id\":\"{n}\",\"data\":{n}}}\n"));
        let said = home.run_with(&["connect", "--wait", "2", &self.server.url], &requests.collect::<String>());
        said.out.matches("\"type\":\"published\"").count() == count
    }
}

#[cfg(feature = "nats")]
fn nats(home: &Home) -> (Broker, u16) {
    let program = std::env::var_os("TAUTLINE_NATS_SERVER").unwrap_or_else(|| panic!("run `cargo xtask hub`"));
    let (port, monitor) = (free_port(), free_port());
    let streams = home.0.join("streams");
    let config = format!(
        "listen: \"127.0.0.1:{port}\"\nhttp: \"127.0.0.1:{monitor}\"\n\
         jetstream {{ store_dir: \"{}\", max_file_store: 10MB, max_memory_store: 10MB }}\n",
        streams.display()
    );
    let file = home.0.join("nats.conf");
    std::fs::write(&file, config).unwrap();
    let child = Command::new(program).arg("--config").arg(file).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    (Broker { child: child.unwrap(), port }, monitor)
}

#[cfg(feature = "nats")]
#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn nats_without_room_makes_the_server_unready_until_it_asks_for_less() {
    let home = Home::new();
    let (nats, monitor) = nats(&home);
    let broker = format!("nats://127.0.0.1:{}", nats.port);
    let hub = Hub::start(&home, &broker, &[]);
    eventually("the broker refuses", || hub.is_refused());
    let (status, reason) = hub.get("/readyz");
    assert_eq!(status, 503, "{reason}");
    assert!(reason.contains("the broker refuses the log of topics") && reason.contains("10047"), "{reason}");
    let said = hub.server.stop().err;
    let warned = said.lines().filter(|line| line.contains("WARN") && line.contains("10047")).count();
    // Once for each of the two streams, though it is tried again and again.
    assert!((1..=2).contains(&warned), "{said}");

    let hub = Hub::start(&home, &broker, &["--broker-size", "1MiB", "--broker-age", "2h"]);
    eventually("a message is stored", || hub.stores(&home, 0..1));
    assert_eq!((hub.get("/readyz").0, hub.is_refused()), (200, false));
    let mut streams = std::net::TcpStream::connect(("127.0.0.1", monitor)).unwrap();
    let mut answer = String::new();
    std::io::Write::write_all(&mut streams, b"GET /jsz?streams=1&config=1 HTTP/1.0\r\n\r\n").unwrap();
    std::io::Read::read_to_string(&mut streams, &mut answer).unwrap();
    let body: serde_json::Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let streams = body["account_details"][0]["stream_detail"].as_array().unwrap();
    let configs: Vec<_> = streams.iter().map(|stream| &stream["config"]).collect();
    assert!(!configs.is_empty() && configs.iter().all(|config| config["max_bytes"] == 1 << 20), "{configs:?}");
    assert!(configs.iter().any(|config| config["max_age"] == 7_200_000_000_000_u64), "{configs:?}");
}

#[cfg(feature = "nats")]
#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn nats_needs_a_cluster_for_copies() {
    let home = Home::new();
    let (nats, _) = nats(&home);
    let broker = format!("nats://127.0.0.1:{}", nats.port);
    let hub = Hub::start(&home, &broker, &["--broker-size", "1MiB", "--broker-replicas", "3"]);
    eventually("the broker refuses", || hub.is_refused());
    let reason = hub.get("/readyz").1;
    assert!(reason.contains("replicas") && !reason.contains("10047"), "{reason}");
}

#[cfg(feature = "redis")]
#[test]
#[ignore = "needs redis-server: cargo xtask redis"]
fn redis_has_the_entries_of_a_topic_that_are_asked_for() {
    let home = Home::new();
    let port = free_port();
    let mut redis = Command::new("redis-server");
    redis.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "yes", "--dir"]);
    let child = redis.arg(&home.0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let redis = Broker { child, port };
    let hub = Hub::start(&home, &format!("redis://127.0.0.1:{}", redis.port), &["--broker-entries", "10"]);
    // A client may have 128 messages without an answer.
    for first in (0..600).step_by(100) {
        eventually("messages are stored", || hub.stores(&home, first..first + 100));
    }
    assert_eq!((hub.get("/readyz").0, hub.is_refused()), (200, false));
    let ask = |arguments: &[&str]| {
        let said = Command::new("redis-cli").args(["-p", &redis.port.to_string()]).args(arguments).output().unwrap();
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    };
    let keys = ask(&["--scan"]);
    let lengths = keys.lines().filter(|key| ask(&["type", key]) == "stream").map(|key| ask(&["xlen", key]));
    let lengths: Vec<usize> = lengths.map(|length| length.parse().unwrap()).collect();
    // Redis removes whole nodes of a stream, of a hundred entries each. Another stream is a probe's.
    let longest = lengths.iter().max();
    assert!(longest.is_some_and(|longest| (10..=220).contains(longest)), "{lengths:?} of {keys}");
}
