//! The admin listener, as operators and scrapers see it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

mod common;

use common::frame::{CLOSE, TEXT, masked};
use common::server::{client_config, config, server_config};
use common::{App, Over, PATIENCE, Started, eventually, serve};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tautline::layers::metrics::prometheus_client::metrics::counter::Counter;
use tautline::layers::metrics::prometheus_client::registry::Registry;
use tautline::{
    AccessLog, Address, Admin, AdminToken, Bridge, Broker, BrokerError, BrokerLink, CloseCode, Conn, HandOver, Handler,
    LogLevel, MemoryBroker, Message, OnPanic, Outgoing, Reach, Server, ServerConfig, ServerHandle, SlowConsumer,
    Socket, Target, check_admin_address,
};

fn admin(server: &Started) -> ServerHandle {
    Admin::new(&server.handle).listen("127.0.0.1:0".parse().unwrap()).unwrap()
}

fn tcp(admin: &ServerHandle) -> TcpStream {
    let Address::Tcp(address) = &admin.addresses()[0] else { panic!("no TCP") };
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a request, and returns the status and the body.
fn exchange(mut stream: impl Read + Write, head: &str, body: &str) -> (u16, String) {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    write!(stream, "{head}\r\nConnection: close\r\n{length}\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn get(admin: &ServerHandle, path: &str) -> (u16, String) {
    exchange(tcp(admin), &format!("GET {path} HTTP/1.1\r\nHost: localhost"), "")
}

/// The value of a metric with its labels.
fn value(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().unwrap()
}

#[test]
fn metrics_follow_a_connection_from_its_handshake_to_its_end() {
    let server = serve(Over::Fused, config(), App::default());
    let admin = admin(&server);
    let mut socket = server.socket();
    socket.text("hello").unwrap();
    socket.receive().unwrap();
    let (status, metrics) = get(&admin, "/metrics");
    assert_eq!(status, 200);
    for (name, expected) in [
        ("tautline_connections{state=\"open\"}", 1.0),
        ("tautline_loop_running{loop=\"0\"}", 1.0),
        ("tautline_loop_open_websockets{loop=\"0\"}", 1.0),
        ("tautline_websockets_opened_total", 1.0),
        ("tautline_messages_total{direction=\"received\"}", 1.0),
        ("tautline_messages_total{direction=\"sent\"}", 1.0),
        ("tautline_tls_handshake_seconds_count{kind=\"full\"}", 1.0),
        ("tautline_tls_handshake_seconds_bucket{le=\"+Inf\",kind=\"full\"}", 1.0),
        ("tautline_tls_handshake_seconds_count{kind=\"resumed\"}", 0.0),
        ("tautline_draining", 0.0),
        ("tautline_reloads_total{result=\"done\"}", 0.0),
    ] {
        assert_eq!(value(&metrics, name), expected, "{name}");
    }
    assert!(value(&metrics, "tautline_bytes_total{direction=\"received\"}") > 100.0);
    assert!(value(&metrics, "tautline_memory_bytes{use=\"connections\"}") > 100.0);
    assert!(value(&metrics, "process_resident_memory_bytes") > 1e6);
    assert!(
        metrics.contains("tautline_certificate_expiry_timestamp_seconds{name=\"localhost\",serial=\""),
        "{metrics}"
    );
    assert!(metrics.ends_with("# EOF\n"));
    socket.close(CloseCode::NORMAL, "").unwrap();
    eventually("the connection ends", || server.counters().open == 0);
    let (_, metrics) = get(&admin, "/metrics");
    assert_eq!(value(&metrics, "tautline_websockets_closed_total{code=\"1000\"}"), 1.0);
    assert_eq!(value(&metrics, "tautline_websockets_ended_total{cause=\"peer\"}"), 1.0);
    // The second handshake has a ticket only if the client keeps one, so the kinds are counted together.
    let mut second = server.peer();
    second.send(&masked(CLOSE, &4000_u16.to_be_bytes()));
    eventually("the second connection ends", || server.counters().opened == 2 && server.counters().open == 0);
    let outcomes = server.handle.shards()[0].outcomes();
    assert_eq!(outcomes.full.count() + outcomes.resumed.count(), 2);
    let text = get(&admin, "/metrics").1;
    assert_eq!(value(&text, "tautline_websockets_closed_total{code=\"other\"}"), 1.0);
}

#[test]
fn stages_and_metrics_of_the_application_are_included() {
    let app = App::default();
    let server = Server::plain().listen("127.0.0.1:0".parse().unwrap());
    let server = server.start_with_stages(move |_| app.clone()).unwrap();
    let mut socket = tautline::connect(&format!("ws://{}/", server.addresses()[0])).unwrap();
    for _ in 0..10 {
        socket.text("hello").unwrap();
        socket.receive().unwrap();
    }
    let mut own = Registry::default();
    let orders = Counter::<u64>::default();
    own.register("orders", "Orders taken", orders.clone());
    orders.inc_by(7);
    let admin = Admin::new(&server).with_metrics(own).listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let (_, metrics) = get(&admin, "/metrics");
    assert_eq!(value(&metrics, "tautline_stage_seconds_count{stage=\"app\"}"), 10.0);
    assert_eq!(value(&metrics, "orders_total"), 7.0);
    assert!(!metrics.contains("tautline_reloads"), "there is no TLS");
    assert!(metrics.find("orders_total") < metrics.find("# EOF"));
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("tautline_") || word.starts_with("process_")).collect()
}

#[test]
fn the_document_the_board_and_the_alerts_name_metrics_that_exist() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let read = |path: &str| std::fs::read_to_string(format!("{root}{path}")).unwrap();
    let (document, board) = (read("docs/operations.md"), read("packaging/grafana/tautline.json"));
    let server = Server::new(server_config()).listen("127.0.0.1:0".parse().unwrap());
    let server = server.bridge(Bridge::start(MemoryBroker::new()).unwrap());
    let server = server.start_with_stages(|_| App::default()).unwrap();
    let admin = Admin::new(&server).listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let metrics = get(&admin, "/metrics").1;
    let exist = names(&metrics);
    // A histogram is documented by the name of its family.
    let known = |name: &&str| exist.contains(name) || exist.contains(format!("{name}_bucket").as_str());
    // The prefix stands for all names of the process, and `tautline_io` is a module. Only servers that order certificates have
    // metrics about that; tests of `--acme` look at them.
    let others = |name: &str| {
        ["process_", "tautline_io", "tautline_engine"].contains(&name) || name.starts_with("tautline_acme_")
    };
    let rules = read("packaging/prometheus/tautline.rules.yml");
    for (place, text) in [("document", &document), ("board", &board), ("alerts", &rules)] {
        let unknown: Vec<&str> = names(text).into_iter().filter(|name| !known(name) && !others(name)).collect();
        assert!(unknown.is_empty(), "{place}: {unknown:?}");
    }
    assert!(names(&board).len() > 20, "{board}");
    let tests = read("packaging/prometheus/tautline.test.yml");
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let untested =
        alerts.iter().filter(|alert| !tests.lines().any(|line| line.trim() == format!("alertname: {alert}")));
    assert!(alerts.len() > 10 && untested.clone().count() == 0, "{:?}", untested.collect::<Vec<_>>());
    // Otherwise one alert stands for all servers, or each loop has its own.
    let joined = rules.lines().filter(|line| line.trim().starts_with("expr: ") && !line.contains(" by (instance"));
    assert_eq!(joined.collect::<Vec<_>>(), [""; 0]);
    let families = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE tautline_")?.split(' ').next());
    for family in families {
        assert!(document.contains(family), "{family} is not documented");
    }
}

/// An application whose connections can move.
struct Movable;

impl Handler for Movable {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }

    fn save_state(&mut self, _: &mut (), _: &mut Vec<u8>) -> bool {
        true
    }

    fn restore_state(&mut self, saved: &[u8]) -> Option<()> {
        saved.is_empty().then_some(())
    }
}

/// The values of a text that never fall, by their names with labels.
fn totals(metrics: &str) -> BTreeMap<&str, f64> {
    let samples = metrics.lines().filter(|line| line.starts_with("tautline_"));
    let samples = samples.map(|line| line.rsplit_once(' ').unwrap());
    let grows = |name: &&str| ["_total", "_count", "_sum", "_bucket"].iter().any(|end| name.ends_with(end));
    samples
        .filter(|(name, _)| grows(&name.split('{').next().unwrap()))
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect()
}

#[test]
fn no_counter_falls_by_an_upgrade() {
    let start = |server: Server<_>| server.shards(2).start(|_| Movable).unwrap();
    let mut server = start(Server::new(server_config()).listen("127.0.0.1:0".parse().unwrap()));
    let mut target = Target::new("wss://localhost/").unwrap();
    target.address = Some(server.addresses()[0].clone());
    let mut sockets: Vec<_> =
        (0..4).map(|_| Socket::connect(target.clone(), client_config(), config()).unwrap()).collect();
    sockets.pop().unwrap().close(CloseCode::NORMAL, "").unwrap();
    let (ours, gone) = UnixStream::pair().unwrap();
    drop(gone);
    assert!(server.hand_over(ours, &HandOver::default()).is_err());
    assert!(server.reload(&ServerConfig::default()).is_err());
    for done in 1..=2 {
        sockets.iter_mut().for_each(|socket| socket.text("hello").unwrap());
        sockets.iter_mut().for_each(|socket| drop(socket.receive().unwrap()));
        let ended = |server: &ServerHandle| -> u64 {
            server.shards().iter().flat_map(|shard| shard.outcomes().codes().collect::<Vec<_>>()).map(|(_, n)| n).sum()
        };
        eventually("the first connection has ended", || ended(&server) == 1);
        let admin = Admin::new(&server).listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let before = get(&admin, "/metrics").1;
        let (ours, theirs) = UnixStream::pair().unwrap();
        let giving = server.clone();
        let giver = std::thread::spawn(move || giving.hand_over(ours, &HandOver::default()));
        let new = start(Server::new(server_config()).take_over(theirs));
        let handed = giver.join().unwrap().unwrap();
        server.join().unwrap();
        server = new;
        let admin = Admin::new(&server).listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let after = get(&admin, "/metrics").1;
        let (before, after) = (totals(&before), totals(&after));
        assert!(before.len() > 100 && before["tautline_websockets_closed_total{code=\"1000\"}"] == 1.0, "{before:?}");
        for (name, value) in &before {
            assert!(after[name] >= *value, "{name} falls from {value} to {}", after[name]);
        }
        for (name, value) in [
            ("tautline_websockets_opened_total", 4),
            ("tautline_messages_total{direction=\"received\"}", 3 * done),
            ("tautline_upgrades_total{result=\"done\"}", done),
            ("tautline_upgrades_total{result=\"failed\"}", 1),
            ("tautline_upgrade_pause_seconds_count", done),
            ("tautline_upgrade_connections_total{fate=\"moved\"}", 3 * done),
            ("tautline_upgrade_connections_total{fate=\"tls\"}", 0),
            ("tautline_reloads_total{result=\"failed\"}", 1),
        ] {
            assert_eq!(after[name], f64::from(value), "{name}");
        }
        assert_eq!(handed.moved, 3);
        let pause = server.upgrades().pause.sum();
        assert!(pause >= Duration::from_millis(handed.pause.as_millis().try_into().unwrap()), "{pause:?}");
    }
    server.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
    server.join().unwrap();
}

#[test]
fn a_drain_ends_readiness_and_not_health() {
    let server = serve(Over::Plain, config(), App::default());
    let admin = admin(&server);
    assert_eq!(get(&admin, "/readyz"), (200, "ok\n".to_owned()));
    assert_eq!(get(&admin, "/healthz"), (200, "ok\n".to_owned()));
    // A peer that does not answer the close frame keeps the drain from ending.
    let peer = server.peer();
    server.handle.drain(CloseCode::GOING_AWAY, "", PATIENCE);
    let (status, why) = get(&admin, "/readyz");
    assert!(status == 503 && why.contains("drained"), "{status} {why}");
    assert_eq!(get(&admin, "/healthz").0, 200);
    assert_eq!(value(&get(&admin, "/metrics").1, "tautline_draining"), 1.0);
    drop(peer);
    eventually("the loop ends", || !server.handle.is_running());
    assert_eq!((get(&admin, "/readyz").0, get(&admin, "/healthz").0), (503, 200));
}

#[test]
fn a_loop_that_failed_ends_readiness_and_health() {
    let mut config = config();
    config.on_panic = OnPanic::EndLoop;
    let server = serve(Over::Plain, config, App::default().on_message(|_, _, _| panic!("the test asks for it")));
    let admin = admin(&server);
    server.peer().send(&masked(TEXT, b"go"));
    assert!(server.handle.wait_for_end().is_some());
    let (status, why) = get(&admin, "/readyz");
    assert!(status == 503 && why.contains("loop 0 has ended"), "{status} {why}");
    let (status, why) = get(&admin, "/healthz");
    assert!(status == 503 && why.contains("a loop failed: loop 0 has ended"), "{status} {why}");
    assert_eq!(value(&get(&admin, "/metrics").1, "tautline_loop_running{loop=\"0\"}"), 0.0);
}

#[test]
fn a_loop_that_is_blocked_is_not_healthy_and_still_has_metrics() {
    let (entered, enters) = channel();
    let (release, released) = channel::<()>();
    let (entered, released) = (Mutex::new(entered), Mutex::new(released));
    let app = App::default().on_message(move |_, conn, _| {
        entered.lock().unwrap().send(()).unwrap();
        let _ = released.lock().unwrap().recv();
        conn.text("done");
    });
    let server = serve(Over::Plain, config(), app);
    let admin = admin(&server);
    let mut peer = server.peer();
    peer.send(&masked(TEXT, b"go"));
    enters.recv_timeout(PATIENCE).unwrap();
    let (status, why) = get(&admin, "/healthz");
    assert!(status == 503 && why.contains("loop 0") && why.contains("did not answer in time"), "{status} {why}");
    assert_eq!(value(&get(&admin, "/metrics").1, "tautline_messages_total{direction=\"received\"}"), 1.0);
    let (status, json) = get(&admin, "/connections");
    assert!(status == 200 && json.contains("\"unanswered\""), "{json}");
    assert!(json.contains("did not answer in time"), "{json}");
    drop(release);
    assert_eq!(peer.frame().text(), "done");
    assert_eq!(get(&admin, "/healthz").0, 200);
}

#[test]
fn the_heaviest_connections_come_first() {
    let mut config = config();
    config.slow_consumer = SlowConsumer::Disconnect(64 << 20);
    let app = App::default().on_message(|_, conn, message| {
        let megabytes: usize = message.text().unwrap().parse().unwrap();
        for _ in 0..megabytes * 16 {
            conn.send(Outgoing::binary(&[7; 64 << 10]));
        }
    });
    let server = serve(Over::Plain, config, app);
    let admin = admin(&server);
    let (mut light, mut heavy) = (server.peer(), server.peer());
    light.send(&masked(TEXT, b"20"));
    heavy.send(&masked(TEXT, b"40"));
    let mut idle = server.peer();
    idle.send(&masked(TEXT, b"0"));
    eventually("both are listed", || get(&admin, "/connections?most=2").1.matches("\"peer\"").count() == 2);
    let (_, json) = get(&admin, "/connections?most=2");
    let (first, second) = (json.find(&heavy.name()).unwrap(), json.find(&light.name()).unwrap());
    assert!(first < second && json.contains("\"state\": \"open\""), "{json}");
    assert!(!get(&admin, "/connections?most=1").1.contains(&light.name()));
    let all = get(&admin, "/connections").1;
    assert!(all.find(&light.name()) < all.find(&idle.name()), "those that hold nothing come last: {all}");
    assert_eq!(get(&admin, "/connections?most=1001").0, 400);
}

fn delete(admin: &ServerHandle, path: &str) -> (u16, String) {
    exchange(tcp(admin), &format!("DELETE {path} HTTP/1.1\r\nHost: localhost"), "")
}

#[test]
fn idle_connections_are_listed_page_by_page_with_their_paths() {
    let mut config = config();
    config.access_log = Some(AccessLog::discard());
    let server = Server::plain().config(config).shards(2).listen("127.0.0.1:0".parse().unwrap());
    let server = server.start(|_| App::default()).unwrap();
    let admin = Admin::new(&server).listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut sockets: Vec<_> = (0..7)
        .map(|number| {
            let url = format!("ws://{}/rooms/{number}?token=secret", server.addresses()[0]);
            tautline::connect(&url).unwrap()
        })
        .collect();
    sockets[0].text("hello").unwrap();
    sockets[0].receive().unwrap();
    let (mut path, mut seen, mut pages) = ("/connections?order=id&most=3".to_owned(), Vec::new(), 0);
    loop {
        let page = get(&admin, &path).1;
        assert!(!page.contains("secret"), "{page}");
        let page: Value = serde_json::from_str(&page).unwrap();
        seen.extend(page["connections"].as_array().unwrap().iter().cloned());
        pages += 1;
        let Some(next) = page["next"].as_str() else { break };
        next.clone_into(&mut path);
    }
    let paths: BTreeSet<_> = seen.iter().map(|one| one["path"].as_str().unwrap().to_owned()).collect();
    assert_eq!((seen.len(), paths), (7, (0..7).map(|number| format!("/rooms/{number}")).collect()));
    assert_eq!(pages, 3);
    let first = seen.iter().find(|one| one["path"] == "/rooms/0").unwrap();
    assert_eq!((&first["traffic"]["messages_in"], &first["state"]), (&1.into(), &"open".into()), "{first}");
    assert!(first["peer"].as_str().unwrap().starts_with("127.0.0.1:") && first["age_s"].is_u64(), "{first}");
}

#[test]
fn an_operator_closes_one_connection() {
    let server = serve(Over::Plain, config(), App::default());
    let admin = admin(&server);
    let (mut kicked, mut other) = (server.socket(), server.socket());
    let ids: Value = serde_json::from_str(&get(&admin, "/connections?order=id").1).unwrap();
    let id = ids["connections"][0]["id"].as_str().unwrap();
    let one = format!("/connections/{id}");
    assert_eq!(get(&admin, &one).0, 200);
    for (path, status) in
        [(format!("{one}?code=1006"), 400), ("/connections/0.99.0".into(), 404), ("/connections/x".into(), 404)]
    {
        assert_eq!(delete(&admin, &path).0, status, "{path}");
    }
    let foreign = format!("DELETE {one} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site");
    assert_eq!(exchange(tcp(&admin), &foreign, "").0, 403, "no web page may");
    assert_eq!(exchange(tcp(&admin), &format!("POST {one} HTTP/1.1\r\nHost: localhost"), "").0, 405);
    assert_eq!(delete(&admin, &format!("{one}?code=4001")).0, 200);
    match kicked.receive() {
        Err(tautline::Error::Closed(closed)) => {
            assert_eq!((closed.code.get(), &*closed.reason), (4001, "closed by an operator"));
        }
        other => panic!("{other:?}"),
    }
    eventually("it is gone", || get(&admin, &one).0 == 404);
    other.text("still here").unwrap();
    assert!(other.receive().is_ok());
}

#[test]
fn a_scraper_of_the_older_format_gets_it() {
    let server = serve(Over::Plain, config(), App::default());
    let admin = admin(&server);
    let plain = exchange(tcp(&admin), "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain", "").1;
    assert!(plain.contains("\n# TYPE tautline_websockets_opened_total counter\n"), "{plain}");
    assert!(!plain.contains("# EOF") && !plain.contains("# UNIT"), "{plain}");
    let open = exchange(tcp(&admin), "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*", "").1;
    let samples = |text: &str| -> BTreeSet<String> {
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect()
    };
    assert_eq!(samples(&plain), samples(&open));
}

#[test]
fn a_public_listener_needs_its_token() {
    let server = serve(Over::Plain, config(), App::default());
    let token = AdminToken::new("0123456789abcdef").unwrap();
    let admin = Admin::new(&server.handle).with_token(token).listen("0.0.0.0:0".parse().unwrap()).unwrap();
    let Address::Tcp(address) = &admin.addresses()[0] else { panic!("no TCP") };
    let stream = || TcpStream::connect(("127.0.0.1", address.port())).unwrap();
    let head = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: node7.example:9100");
    for path in ["/", "/metrics", "/healthz", "/readyz", "/connections", "/log", "/nothing"] {
        assert_eq!(exchange(stream(), &head(path), "").0, 401, "{path}");
        let wrong = format!("{}\r\nAuthorization: Bearer 0123456789abcdeF", head(path));
        assert_eq!(exchange(stream(), &wrong, "").0, 401, "{path}");
    }
    let good = format!("{}\r\nAuthorization: Bearer 0123456789abcdef", head("/metrics"));
    assert_eq!(exchange(stream(), &good, "").0, 200);
}

#[test]
fn the_application_can_say_that_it_is_not_ready() {
    let server = serve(Over::Plain, config(), App::default());
    let waits = Arc::new(AtomicBool::new(true));
    let asked = waits.clone();
    let admin = Admin::new(&server.handle).with_readiness(|| None);
    let admin = admin.with_readiness(move || asked.load(Ordering::Relaxed).then(|| "no prices yet".to_owned()));
    let admin = admin.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    assert_eq!(get(&admin, "/readyz"), (503, "no prices yet\n".to_owned()));
    assert_eq!(get(&admin, "/healthz").0, 200);
    waits.store(false, Ordering::Relaxed);
    assert_eq!(get(&admin, "/readyz").0, 200);
}

/// A level in memory, since the level of the crate `log` is the whole process's.
struct Level(Mutex<String>);

impl LogLevel for Level {
    fn get(&self) -> String {
        self.0.lock().unwrap().clone()
    }

    fn set(&self, level: &str) -> Result<(), String> {
        if level.is_empty() {
            return Err("write a level".to_owned());
        }
        level.clone_into(&mut self.0.lock().unwrap());
        Ok(())
    }
}

#[test]
fn the_log_level_changes_by_put_and_post() {
    let server = serve(Over::Plain, config(), App::default());
    let level = Level(Mutex::new("warn".to_owned()));
    let admin = Admin::new(&server.handle).with_log_level(level).listen("127.0.0.1:0".parse().unwrap()).unwrap();
    assert_eq!(get(&admin, "/log"), (200, "warn\n".to_owned()));
    let set =
        |method: &str, body: &str| exchange(tcp(&admin), &format!("{method} /log HTTP/1.1\r\nHost: localhost"), body);
    assert_eq!(set("PUT", "debug\n"), (200, "debug\n".to_owned()));
    assert_eq!(set("POST", "info"), (200, "info\n".to_owned()));
    assert_eq!(set("PUT", " "), (400, "write a level\n".to_owned()));
    assert_eq!(set("DELETE", "").0, 405);
    assert_eq!(get(&admin, "/log"), (200, "info\n".to_owned()));
    assert_eq!(set("PUT", &"x".repeat(2000)).0, 413);
}

#[test]
fn requests_of_web_pages_and_to_other_paths_are_refused() {
    let server = serve(Over::Plain, config(), App::default());
    let admin = admin(&server);
    for head in [
        "GET /metrics HTTP/1.1\r\nHost: evil.example",
        "GET /metrics HTTP/1.1\r\nHost: evil.example:80",
        "PUT /log HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example",
    ] {
        assert_eq!(exchange(tcp(&admin), head, "trace").0, 403, "{head}");
    }
    // A form of another site, the address line, and a page of the listener itself.
    for (site, status) in [("cross-site", 403), ("same-site", 403), ("", 403), ("none", 200), ("same-origin", 200)] {
        for method in ["PUT", "POST"] {
            let head = format!("{method} /log HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: {site}");
            assert_eq!(exchange(tcp(&admin), &head, "info").0, status, "{head}");
        }
    }
    let read = "GET /log HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site";
    assert_eq!(exchange(tcp(&admin), read, "").0, 200, "a link leads here");
    let elsewhere = "GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost";
    assert_eq!(exchange(tcp(&admin), elsewhere, "").0, 403);
    assert_eq!(get(&admin, "/other").0, 404);
    assert_eq!(exchange(tcp(&admin), "POST /metrics HTTP/1.1\r\nHost: localhost", "x").0, 405);
    let upgrade = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13";
    assert_eq!(exchange(tcp(&admin), upgrade, "").0, 200, "there are no WebSockets here");
}

#[test]
fn a_unix_socket_is_for_its_owner_and_group() {
    let server = serve(Over::Plain, config(), App::default());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("admin-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let admin = Admin::new(&server.handle).listen(Address::Unix(path.clone())).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    let head = "GET /readyz HTTP/1.1\r\nHost: any.example";
    assert_eq!(exchange(UnixStream::connect(&path).unwrap(), head, "").0, 200);
    admin.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
    admin.join().unwrap();
}

#[test]
fn addresses_that_others_reach_are_refused() {
    let server = serve(Over::Plain, config(), App::default());
    let open: Address = "0.0.0.0:0".parse().unwrap();
    let error = format!("{:#}", Admin::new(&server.handle).listen(open.clone()).unwrap_err());
    assert!(error.contains("0.0.0.0:0") && error.contains("no login"), "{error}");
    assert!(check_admin_address(&open).is_err());
}

/// A broker that is never reached.
struct Unreachable;

impl Broker for Unreachable {
    fn name(&self) -> &str {
        "unreachable"
    }

    fn run(&mut self, _: &mut BrokerLink) -> Result<(), BrokerError> {
        Err("it is away".into())
    }
}

#[test]
fn metrics_tell_whether_the_broker_is_connected_and_what_it_passes() {
    for (bridge, is_there) in
        [(Bridge::start(MemoryBroker::new()).unwrap(), true), (Bridge::start(Unreachable).unwrap(), false)]
    {
        let server = Server::plain().listen("127.0.0.1:0".parse().unwrap()).shards(1).bridge(bridge.clone());
        let server = server.start(|_| App::default()).unwrap();
        let admin = Admin::new(&server).listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let now = |name: &str| value(&get(&admin, "/metrics").1, &format!("tautline_broker_{name}"));
        let (first, passed) = if is_there {
            ("connects_total", "messages_total{direction=\"sent\"}")
        } else {
            ("failures_total", "messages_dropped_total{reason=\"away\"}")
        };
        eventually("the broker is tried", || now(first) >= 1.0);
        assert_eq!(now("connected"), f64::from(u8::from(is_there)));
        assert_eq!(bridge.publish("news", Outgoing::text("1")) == Reach::AllHosts, is_there);
        eventually("the message is counted", || now(passed) == 1.0);
    }
}
