//! The course and the messages of `taut load` as a server gets them, and errors that the load goes on in spite of.

use super::Home;
use super::load::{results, value};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline::http::StatusCode;
use tautline::{Address, CloseCode, Conn, Handler, Message, Opening, Outgoing, Reply, Request, Server, ServerHandle};

/// The record of a server.
#[derive(Default)]
struct Got {
    requests: usize,
    opened: Vec<Instant>,
    /// Each message with the number of its connection.
    messages: Vec<(usize, String, Instant)>,
}

/// An echo, or a broadcast, that notes what it gets.
struct Noted {
    got: Arc<Mutex<Got>>,
    /// The third of each three requests is refused.
    refuses: bool,
    broadcasts: bool,
}

impl Handler for Noted {
    type State = usize;

    fn on_request(&mut self, _: &Request<'_>) -> Reply<usize> {
        let mut got = self.got.lock().unwrap();
        got.requests += 1;
        let is_refused = self.refuses && got.requests.is_multiple_of(3);
        if is_refused { Reply::status(StatusCode::SERVICE_UNAVAILABLE) } else { Reply::upgrade() }
    }

    fn on_open(&mut self, conn: &mut Conn<'_, usize>, _: &Opening<'_>) {
        let mut got = self.got.lock().unwrap();
        *conn.state() = got.opened.len();
        got.opened.push(Instant::now());
        conn.subscribe("all");
    }

    fn on_message(&mut self, conn: &mut Conn<'_, usize>, message: Message<'_>) {
        let text = message.text().unwrap_or_default().to_owned();
        self.got.lock().unwrap().messages.push((*conn.state(), text, Instant::now()));
        if self.broadcasts {
            conn.publish("all", Outgoing::from(&message));
        } else {
            conn.send(Outgoing::from(&message));
        }
    }
}

struct Running {
    got: Arc<Mutex<Got>>,
    handle: ServerHandle,
    url: String,
}

impl Running {
    fn new(refuses: bool, broadcasts: bool) -> Self {
        let got = Arc::new(Mutex::new(Got::default()));
        let noted = Arc::clone(&got);
        let server = Server::plain().listen("127.0.0.1:0".parse().unwrap());
        let handle = server.start(move |_| Noted { got: Arc::clone(&noted), refuses, broadcasts }).unwrap();
        let Address::Tcp(address) = &handle.addresses()[0] else { panic!("not TCP") };
        let url = format!("ws://{address}/");
        Self { got, handle, url }
    }

    fn stop(self) -> Got {
        self.handle.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
        self.handle.join().unwrap();
        std::mem::take(&mut *self.got.lock().unwrap())
    }
}

#[test]
fn a_ramp_spreads_the_connections() {
    let server = Running::new(false, false);
    let load = ["load", &server.url, "-c", "5", "--ramp", "1s", "--duration", "0.1", "--warmup", "0"];
    assert_eq!(Home::new().run(&load).code, Some(0));
    let opened = server.stop().opened;
    assert_eq!(opened.len(), 5);
    let each: Vec<Duration> = opened.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(opened[4] - opened[0] >= Duration::from_millis(700), "{each:?}");
    assert!(each.iter().all(|wait| *wait < Duration::from_millis(600)), "{each:?}");
}

#[test]
fn connections_think_before_their_next_message() {
    let server = Running::new(false, false);
    let load = ["load", &server.url, "-c", "2", "--think", "40ms-80ms", "--duration", "0.6", "--warmup", "0"];
    assert_eq!(Home::new().run(&load).code, Some(0));
    let got = server.stop();
    for connection in 0..2 {
        let of_one = got.messages.iter().filter(|(from, ..)| *from == connection).map(|(.., at)| *at);
        let at: Vec<Instant> = of_one.collect();
        let waits: Vec<Duration> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(waits.len() > 2 && waits.iter().all(|wait| *wait >= Duration::from_millis(40)), "{waits:?}");
    }
}

/// The rate rises for a part of the load, stays, and falls: 50, 100 and 50 messages. None is sent before it is due.
#[test]
fn stages_lead_evenly_from_rate_to_rate() {
    let server = Running::new(false, false);
    let stages = ["--stage", "200:500ms", "--stage", "200:500ms", "--stage", "0:500ms"];
    let said = Home::new().run(&[&["load", &server.url, "-c", "2"][..], &stages].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    let messages = server.stop().messages;
    assert!((180..=200).contains(&messages.len()), "{} messages", messages.len());
    let after = |count: usize| messages[count].2 - messages[0].2;
    let times = [after(50), after(150), after(179)];
    // The first message is due within 71 ms.
    for (time, least) in times.into_iter().zip([400, 900, 1080]) {
        assert!(time >= Duration::from_millis(least), "{times:?}");
    }
}

#[test]
fn messages_come_from_the_lines_of_a_file() {
    let home = Home::new();
    std::fs::write(home.0.join("messages"), "first {{value}}\n\nsecond {{message}}\n").unwrap();
    std::fs::write(home.0.join("values"), "ann\nbob\n").unwrap();
    let server = Running::new(false, false);
    let load = ["load", &server.url, "-c", "2", "--think", "20ms", "--duration", "0.4", "--warmup", "0"];
    let said = home.run(&[&load[..], &["--payload-file", "messages", "--values", "values"]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    let got = server.stop();
    let of = |connection: usize| {
        let of_one = got.messages.iter().filter(|(from, ..)| *from == connection).map(|(_, text, _)| text.as_str());
        of_one.take(4).collect::<Vec<_>>()
    };
    let mut names = [of(0)[0], of(1)[0]];
    names.sort_unstable();
    assert_eq!(names, ["first ann", "first bob"]);
    assert_eq!(of(0), [of(0)[0], "second 1", of(0)[0], "second 3"]);
}

#[test]
fn messages_of_a_template_may_grow() {
    let server = Running::new(false, false);
    let text = format!("{}{{{{message}}}}", "x".repeat(2000));
    let load = ["load", &server.url, "-c", "1", "--duration", "0.3", "--warmup", "0", "--payload", &text];
    let said = Home::new().run(&load);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(server.stop().messages.iter().any(|(_, text, _)| text.len() == 2002));
}

#[test]
fn subscriptions_are_sent_first_and_all_messages_count() {
    let server = Running::new(false, true);
    let load = ["load", &server.url, "-c", "3", "--duration", "0.3", "--warmup", "0"];
    let topics = ["--subscribe", "room{{connection}}", "--subscribe", "b"];
    let said = Home::new().run(&[&load[..], &topics].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    let got = server.stop();
    for connection in 0..3 {
        let of_one = got.messages.iter().filter(|(from, ..)| *from == connection).map(|(_, text, _)| text.as_str());
        let texts: Vec<&str> = of_one.collect();
        assert!(texts.len() == 2 && texts[0].starts_with("room") && texts[1] == "b", "{texts:?}");
    }
    let first = |text: &str| got.messages.iter().filter(|(_, sent, _)| sent == text).count();
    assert_eq!([first("room0"), first("room1"), first("room2")], [1, 1, 1]);
}

#[test]
fn errors_of_handshakes_broadcasts_and_idle_connections_are_counted_with_the_figures() {
    let home = Home::new();
    for (load, metric) in [("--handshakes", "handshakes"), ("--broadcast", "throughput"), ("--idle", "opened")] {
        let server = Running::new(true, load == "--broadcast");
        let run = ["load", &server.url, load, "-c", "6", "--duration", "0.3"];
        let said = home.run(&run);
        assert_eq!(said.code, Some(1), "{said:?}");
        let counted = said.out.contains("  errors      ") && said.out.contains("upgrade refused with 503");
        assert!(counted && said.err.contains("most of them upgrade refused with 503"), "{said:?}");
        let said = home.run(&[&run[..], &["--json", "--slo", "errors=90%"]].concat());
        assert_eq!(said.code, Some(0), "a threshold permits them: {said:?}");
        let lines = results(&said.out);
        assert!(value(&lines, metric) > 0.0 && value(&lines, "errors") > 0.0, "{said:?}");
        let said = home.run(&[&run[..], &["--slo", "errors=0"]].concat());
        assert!(said.code == Some(1) && said.err.contains("missed errors=0"), "{said:?}");
        server.stop();
    }
}

#[test]
fn a_server_that_ends_leaves_the_figures_until_then() {
    let server = Running::new(false, false);
    let url = server.url.clone();
    let load = std::thread::spawn(move || {
        Home::new().run(&["load", &url, "-c", "3", "--think", "1ms", "--duration", "600", "--warmup", "0"])
    });
    while server.got.lock().unwrap().messages.len() < 100 {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.stop();
    let said = load.join().unwrap();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("  throughput") && said.out.contains("  latency"), "{said:?}");
    assert!(said.err.contains("3 errors, most of them closed with 100"), "{said:?}");
}

/// A server that is full accepts no more connections: some open, and the others hear nothing.
#[test]
fn connections_that_nobody_accepts_are_counted_with_the_figures() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--max-connections", "2"]);
    let said = home.run(&["load", &server.url, "-c", "5", "--duration", "0.3"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("throughput"), "{said:?}");
    // The server may also reset those that it accepted while others ended.
    let why = [" not opened: ", " connect: cannot connect to "];
    assert!(why.iter().any(|why| said.out.contains(why)), "{said:?}");
    assert!(said.err.contains(" errors, most of them "), "{said:?}");
}

#[test]
fn options_without_effect_are_refused() {
    let home = Home::new();
    std::fs::write(home.0.join("values"), "ann\n").unwrap();
    for (line, remedy) in [
        ("--idle --slo p99=1s", "--slo p99=1s: a load with --idle has no such figure"),
        ("--idle --slo rate=1", "--idle"),
        ("--subscribe a --slo max=1s", "a load with --subscribe has no such figure"),
        ("--idle --ramp 1s", "--ramp"),
        ("--handshakes --ramp 1s", "--ramp"),
        ("--broadcast --ramp 1s", "--ramp"),
        ("--values values", "{{value}}"),
        ("--values values --payload text", "{{value}}"),
        ("--idle --percentiles 50", "--percentiles"),
        ("--subscribe a --percentiles 50", "--percentiles"),
        ("--idle --warmup 1", "--warmup"),
        ("--stage 1:1s --warmup 1", "--warmup"),
    ] {
        // Nobody listens at port 1.
        let said = home.run(&["load", "ws://127.0.0.1:1/"].into_iter().chain(line.split(' ')).collect::<Vec<_>>());
        assert!(said.code == Some(2) && said.err.contains(remedy), "{line}: {said:?}");
    }
}
