use super::{Connection, Context, Event};
use crate::{Cause, Closed, Config, Deadline, Outgoing, Prefixes, SlowConsumer, Target};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_tls::{ClientConfig, Engine as _, Roots, ServerConfig, Session, plain};
use tautline_tls_rustls::fused;
use tautline_ws::deflate::DeflateConfig;
use tautline_ws::{CloseCode, Kind};

/// Both ends of a connection, with the bytes between them.
struct Pair<S> {
    ends: [Connection<S>; 2],
    context: Context,
    now: Instant,
    /// Most bytes that are read at a time.
    piece: usize,
}

const SERVER: usize = 0;
const CLIENT: usize = 1;

impl<S: Session> Pair<S> {
    fn new(sessions: [S; 2], config: Config, target: Target) -> Self {
        let (mut context, config, now) = (Context::new().unwrap(), Arc::new(config), Instant::now());
        let [server, client] = sessions;
        let client = Connection::client(client, Arc::new(target), config.clone(), &mut context, now).unwrap();
        Self { ends: [Connection::server(server, config, now), client], context, now, piece: usize::MAX }
    }

    /// Moves bytes from one end to the other; returns their number.
    fn carry(&mut self, from: usize) -> usize {
        let bytes = self.ends[from].output(&mut self.context);
        let bytes = bytes[..bytes.len().min(self.piece)].to_vec();
        self.ends[from].written(bytes.len(), &mut self.context);
        for piece in bytes.chunks(10_000) {
            self.ends[1 - from].window(&mut self.context)[..piece.len()].copy_from_slice(piece);
            self.ends[1 - from].filled(piece.len(), self.now);
        }
        bytes.len()
    }

    /// Runs both ends until nothing happens any more; returns the events of both, with messages as text.
    fn run(&mut self) -> [Vec<String>; 2] {
        let mut events = [Vec::new(), Vec::new()];
        loop {
            let mut moved = 0;
            for end in [SERVER, CLIENT] {
                moved += self.carry(1 - end);
                while let Some(event) = self.ends[end].next(&mut self.context) {
                    if matches!(event, Event::Request) {
                        self.ends[end].upgrade(Default::default(), &mut self.context, self.now).unwrap();
                    }
                    events[end].push(self.describe(end, event));
                }
                self.ends[end].rest(&mut self.context);
            }
            if moved == 0 {
                return events;
            }
        }
    }

    fn describe(&self, end: usize, event: Event) -> String {
        let payload = self.ends[end].payload();
        match event {
            Event::Request => "request".into(),
            Event::Open(_) => "open".into(),
            Event::Message(Kind::Text) if payload.data().len() < 100 => payload.text().unwrap().to_owned(),
            Event::Message(_) => {
                assert!(payload.data().iter().enumerate().all(|(at, byte)| usize::from(*byte) == at % 251));
                format!("{} bytes", payload.data().len())
            }
            Event::Chunk { first, last, .. } => {
                format!("{}{:?}{}", ["", "["][usize::from(first)], payload.data(), ["", "]"][usize::from(last)])
            }
            Event::Pong => format!("pong {:?}", str::from_utf8(payload.data()).unwrap()),
            Event::Closed(closed) => {
                let Closed { code, reason, cause, .. } = *closed;
                format!("closed {} {reason:?}: {cause}", code.get())
            }
            Event::Failed(error) => format!("failed: {error}"),
        }
    }

    fn send(&mut self, end: usize, message: Outgoing<'_>) {
        self.ends[end].send(message, &mut self.context).unwrap();
    }
}

fn plain_pair(config: Config) -> Pair<plain::Session> {
    let target = Target::new("ws://localhost/").unwrap();
    Pair::new([plain::Session, plain::Session], config, target)
}

fn tls_pair(config: Config, target: Target) -> Pair<fused::Session> {
    let [server, client] = tls_sessions();
    Pair::new([server, client], config, target)
}

fn tls_sessions() -> [fused::Session; 2] {
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    let server = fused::Engine::server(&ServerConfig::new([certificate])).unwrap();
    let roots = Roots::Pem(authority.certificate().into());
    let client = fused::Engine::client(&ClientConfig::default().with_roots(roots)).unwrap();
    [server.accept().unwrap(), client.connect("localhost").unwrap()]
}

fn secure() -> Target {
    Target::new("wss://localhost/").unwrap()
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

/// Messages both ways, a ping and the end, for any kind of session.
fn converse<S: Session>(mut pair: Pair<S>) {
    assert_eq!(pair.run(), [vec!["request", "open"], vec!["open"]]);
    let large = bytes(70_000);
    pair.send(CLIENT, Outgoing::text("hello"));
    pair.send(CLIENT, Outgoing::binary(&large));
    pair.send(CLIENT, Outgoing::text(""));
    pair.send(SERVER, Outgoing::binary(&large));
    pair.send(SERVER, Outgoing::text("there"));
    let context = &mut pair.context;
    pair.ends[SERVER].ping(b"alive?", context).unwrap();
    assert_eq!(pair.run(), [vec!["hello", "70000 bytes", "", "pong \"alive?\""], vec!["70000 bytes", "there"]]);
    let now = pair.now;
    pair.ends[CLIENT].close(CloseCode::NORMAL, "bye", &mut pair.context, now);
    assert_eq!(pair.run(), [["closed 1000 \"bye\": closed by the peer"], ["closed 1000 \"\": closed by us"]]);
    assert!(pair.ends.iter().all(|end| end.is_over() && end.is_finished() && end.next_deadline().is_none()));
}

#[test]
fn both_ends_converse_with_bytes_cut_anywhere() {
    for piece in [1, 2, 3, 7, 100, 5000, usize::MAX] {
        let mut plain = plain_pair(Config::default());
        plain.piece = piece;
        converse(plain);
        let mut tls = tls_pair(Config::default(), secure());
        tls.piece = piece;
        converse(tls);
        let mut config = Config::default();
        config.upgrade.deflate = Some(DeflateConfig::with_context_takeover());
        let mut target = secure();
        target.deflate = Some(DeflateConfig::with_context_takeover());
        let mut compressed = tls_pair(config, target);
        compressed.piece = piece;
        converse(compressed);
    }
}

#[test]
fn a_whole_message_lies_in_the_window() {
    let mut pair = plain_pair(Config::default());
    pair.run();
    pair.send(CLIENT, Outgoing::text("in place"));
    let window = pair.ends[SERVER].window(&mut pair.context).as_ptr_range();
    pair.carry(CLIENT);
    assert!(matches!(pair.ends[SERVER].next(&mut pair.context), Some(Event::Message(Kind::Text))));
    let (payload, output) = pair.ends[SERVER].payload_and_output();
    assert!(window.contains(&payload.data().as_ptr()));
    // The answer is taken while the message is borrowed.
    output.send((&payload).into(), &mut pair.context).unwrap();
    assert_eq!(pair.run(), [vec![], vec!["in place"]]);
}

#[test]
fn a_window_has_its_least_bytes_behind_those_that_are_kept() {
    let mut pair = plain_pair(Config::default());
    pair.run();
    pair.send(CLIENT, Outgoing::binary(&bytes(30_000)));
    let output = pair.ends[CLIENT].output(&mut pair.context).to_vec();
    pair.ends[CLIENT].written(output.len(), &mut pair.context);
    let (part, rest) = output.split_at(16 << 10);
    pair.ends[SERVER].window(&mut pair.context)[..part.len()].copy_from_slice(part);
    pair.ends[SERVER].filled(part.len(), pair.now);
    assert!(pair.ends[SERVER].next(&mut pair.context).is_none());
    let least = 64 << 10;
    let window = pair.ends[SERVER].window_with(least, &mut pair.context);
    assert!(window.len() >= least);
    window[..rest.len()].copy_from_slice(rest);
    pair.ends[SERVER].filled(rest.len(), pair.now);
    assert!(matches!(pair.ends[SERVER].next(&mut pair.context), Some(Event::Message(Kind::Binary))));
    assert_eq!(pair.ends[SERVER].payload().data(), bytes(30_000));
}

#[test]
fn many_messages_leave_as_one_record() {
    let mut pair = tls_pair(Config::default(), secure());
    pair.run();
    for _ in 0..100 {
        pair.send(SERVER, Outgoing::text("0123456789"));
    }
    let record = pair.ends[SERVER].output(&mut pair.context);
    assert_eq!(record.len(), 5 + 100 * 12 + 1 + 16);
    assert_eq!(pair.run()[CLIENT].len(), 100);
}

#[test]
fn keys_change_between_messages() {
    let mut pair = tls_pair(Config::default(), secure());
    pair.run();
    for ask in [false, true] {
        for end in [SERVER, CLIENT] {
            pair.ends[end].update_keys(ask).unwrap();
            pair.send(SERVER, Outgoing::text("down"));
            pair.send(CLIENT, Outgoing::text("up"));
            assert_eq!(pair.run(), [["up"], ["down"]]);
        }
    }
}

#[test]
fn limits_end_the_connection_and_tell_the_peer() {
    let mut config = Config::default();
    config.limits.max_message = 1000;
    let mut pair = plain_pair(config);
    pair.run();
    pair.send(CLIENT, Outgoing::binary(&bytes(1001)));
    let [server, client] = pair.run();
    assert!(server[0].starts_with("closed 1006"), "{server:?}");
    assert!(client[0].starts_with("closed 1009"), "{client:?}");
}

#[test]
fn output_that_the_peer_does_not_take_is_bounded() {
    let mut config = Config { slow_consumer: SlowConsumer::Disconnect(10_000), ..Config::default() };
    config.limits.pause_receive_above = 2000;
    let mut pair = plain_pair(config);
    pair.run();
    let mut taken = 0;
    while pair.ends[SERVER].send(Outgoing::binary(&bytes(500)), &mut pair.context).is_ok() {
        taken += 1;
    }
    assert_eq!(taken, 10_000_usize.div_ceil(504));
    // The server reads no more before the client takes the answers.
    pair.send(CLIENT, Outgoing::text("more"));
    pair.carry(CLIENT);
    assert!(pair.ends[SERVER].next(&mut pair.context).is_none() && pair.ends[SERVER].holds_back());
    assert_eq!(pair.run()[SERVER], ["more"]);
}

#[test]
fn the_end_of_the_stream_is_told_with_its_kind() {
    let mut pair = tls_pair(Config::default(), secure());
    pair.run();
    pair.ends[SERVER].ended();
    let [server, client] = pair.run();
    assert_eq!(server, [format!("closed 1006 \"\": {}", Cause::Truncated)]);
    assert_eq!(client, [format!("closed 1006 \"\": {}", Cause::Finished)], "close_notify was sent");
    let mut pair = plain_pair(Config::default());
    pair.run();
    pair.ends[CLIENT].ended();
    assert_eq!(pair.run()[CLIENT], [format!("closed 1006 \"\": {}", Cause::Finished)]);
}

#[test]
fn a_changed_record_fails_with_an_alert() {
    let mut pair = tls_pair(Config::default(), secure());
    pair.run();
    pair.send(CLIENT, Outgoing::text("secret"));
    let mut record = pair.ends[CLIENT].output(&mut pair.context).to_vec();
    let last = record.len() - 1;
    record[last] ^= 1;
    pair.ends[SERVER].window(&mut pair.context)[..record.len()].copy_from_slice(&record);
    pair.ends[SERVER].filled(record.len(), pair.now);
    assert!(matches!(pair.ends[SERVER].next(&mut pair.context), Some(Event::Closed(closed))
        if matches!(closed.cause, Cause::Tls(_))));
    assert!(pair.ends[SERVER].has_output() && pair.ends[SERVER].next(&mut pair.context).is_none());
}

#[test]
fn deadlines_are_values() {
    let mut config = Config::default();
    config.deadlines.handshake = Duration::from_secs(10);
    config.deadlines.ping = Some(Duration::from_secs(30));
    config.deadlines.idle = Some(Duration::from_secs(75));
    config.deadlines.close = Duration::from_secs(5);
    let mut pair = plain_pair(config);
    let start = pair.now;
    let after = |seconds| start + Duration::from_secs(seconds);
    assert_eq!(pair.ends[SERVER].next_deadline(), Some(after(10)));
    pair.run();
    assert_eq!(pair.ends[SERVER].next_deadline(), Some(after(30)));
    pair.now = after(30);
    pair.ends[SERVER].on_time(after(29), &mut pair.context);
    assert!(!pair.ends[SERVER].has_output());
    pair.ends[SERVER].on_time(after(30), &mut pair.context);
    assert_eq!(pair.ends[SERVER].next_deadline(), Some(after(75)));
    assert_eq!(pair.run(), [vec!["pong \"\""], vec![]]);
    assert_eq!(pair.ends[SERVER].next_deadline(), Some(after(60)));
    // A caller that is late pings first, and leaves the peer the usual time to answer.
    pair.ends[SERVER].on_time(after(1000), &mut pair.context);
    assert!(pair.ends[SERVER].is_open());
    assert_eq!(pair.ends[SERVER].next_deadline(), Some(after(1045)));
    pair.ends[SERVER].on_time(after(1045), &mut pair.context);
    assert!(matches!(pair.ends[SERVER].next(&mut pair.context), Some(Event::Closed(closed))
        if matches!(closed.cause, Cause::Timeout(Deadline::Idle))));
    assert!(pair.ends[SERVER].next(&mut pair.context).is_none());
    let [_, client] = pair.run();
    assert!(client[0].starts_with("closed 1001"), "{client:?}");
}

fn silent_after(seconds: u64) -> Config {
    let mut config = Config::default();
    (config.deadlines.ping, config.deadlines.idle) = (None, None);
    config.deadlines.silence = Some(Duration::from_secs(seconds));
    config
}

#[test]
fn a_peer_without_messages_is_given_up_although_it_answers_pings() {
    let mut config = silent_after(60);
    config.deadlines.ping = Some(Duration::from_secs(40));
    let mut pair = plain_pair(config);
    let start = pair.now;
    let after = |seconds| start + Duration::from_secs(seconds);
    pair.run();
    pair.now = after(50);
    pair.send(CLIENT, Outgoing::text("news"));
    pair.run();
    pair.ends[SERVER].on_time(after(60), &mut pair.context);
    assert!(pair.ends[SERVER].is_open(), "a message arrived meanwhile");
    pair.now = after(90);
    pair.ends[SERVER].on_time(after(90), &mut pair.context);
    assert_eq!(pair.run()[SERVER], ["pong \"\""]);
    assert_eq!(pair.ends[SERVER].next_deadline(), Some(after(110)), "a pong is no message");
    pair.ends[SERVER].on_time(after(110), &mut pair.context);
    assert!(matches!(pair.ends[SERVER].next(&mut pair.context), Some(Event::Closed(closed))
        if matches!(closed.cause, Cause::Timeout(Deadline::Silence))));
}

#[test]
fn a_slow_answer_to_a_request_does_not_count_as_silence() {
    let mut pair = plain_pair(silent_after(5));
    pair.carry(CLIENT);
    assert!(matches!(pair.ends[SERVER].next(&mut pair.context), Some(Event::Request)));
    let answered = pair.now + Duration::from_secs(8);
    pair.ends[SERVER].upgrade(Default::default(), &mut pair.context, answered).unwrap();
    assert_eq!(pair.ends[SERVER].next_deadline(), Some(answered + Duration::from_secs(5)));
}

#[test]
fn time_in_which_input_is_held_back_does_not_count_as_silence() {
    let mut config = silent_after(5);
    config.limits.pause_receive_above = 100;
    let mut pair = plain_pair(config);
    pair.run();
    pair.send(SERVER, Outgoing::binary(&bytes(1000)));
    assert!(pair.ends[SERVER].next(&mut pair.context).is_none() && pair.ends[SERVER].holds_back());
    assert_eq!(pair.ends[SERVER].next_deadline(), None);
    let later = pair.now + Duration::from_secs(60);
    pair.run();
    pair.ends[SERVER].on_time(later, &mut pair.context);
    assert_eq!(pair.ends[SERVER].next_deadline(), Some(later + Duration::from_secs(5)));
    pair.ends[SERVER].on_time(later + Duration::from_secs(5), &mut pair.context);
    assert!(!pair.ends[SERVER].is_open());
}

#[test]
fn waiting_for_a_close_frame_and_for_a_reader_ends() {
    let mut pair = plain_pair(Config::default());
    pair.run();
    let now = pair.now;
    pair.ends[SERVER].close(CloseCode::NORMAL, "", &mut pair.context, now);
    pair.carry(SERVER);
    let end = pair.ends[SERVER].next_deadline().unwrap();
    pair.ends[SERVER].on_time(end, &mut pair.context);
    assert!(matches!(pair.ends[SERVER].next(&mut pair.context), Some(Event::Closed(closed))
        if matches!(closed.cause, Cause::Timeout(Deadline::Close))));

    let mut pair = plain_pair(Config::default());
    pair.run();
    pair.send(SERVER, Outgoing::text("unread"));
    let now = pair.now;
    pair.ends[SERVER].blocked(now);
    let end = now + Config::default().deadlines.send;
    assert_eq!(pair.ends[SERVER].send_deadline(), Some(end));
    pair.ends[SERVER].on_time(end, &mut pair.context);
    assert!(!pair.ends[SERVER].has_output() && pair.ends[SERVER].is_finished());
}

#[test]
fn requests_are_answered_and_refused() {
    let mut pair = plain_pair(Config::default());
    pair.carry(CLIENT);
    assert!(matches!(pair.ends[SERVER].next(&mut pair.context), Some(Event::Request)));
    assert_eq!(pair.ends[SERVER].request().unwrap().uri(), "/");
    let response = http::Response::builder().status(403).body("no").unwrap();
    pair.ends[SERVER].respond(&response, &mut pair.context, pair.now).unwrap();
    assert!(pair.ends[SERVER].respond(&response, &mut pair.context, pair.now).is_err());
    pair.carry(SERVER);
    let Some(Event::Failed(error)) = pair.ends[CLIENT].next(&mut pair.context) else { panic!("no failure") };
    assert_eq!(error.refusal().map(http::Response::body), Some(&b"no".to_vec()));

    for (request, status) in [("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "426"), ("nonsense\r\n\r\n", "400")] {
        let mut pair = plain_pair(Config::default());
        let server = &mut pair.ends[SERVER];
        server.window(&mut pair.context)[..request.len()].copy_from_slice(request.as_bytes());
        server.filled(request.len(), pair.now);
        if let Some(Event::Request) = server.next(&mut pair.context) {
            server.upgrade(Default::default(), &mut pair.context, pair.now).unwrap();
            assert!(matches!(server.next(&mut pair.context), Some(Event::Failed(_))));
        }
        let answer = String::from_utf8(server.output(&mut pair.context).to_vec()).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        assert!(has_date_of_now(&answer), "{answer}");
    }
}

/// Whether an answer has one `Date`, of less than a minute ago.
fn has_date_of_now(answer: &str) -> bool {
    let dates: Vec<_> = answer.lines().filter_map(|line| line.strip_prefix("Date: ")).collect();
    let [date] = dates[..] else { return false };
    let age = std::time::SystemTime::now().duration_since(httpdate::parse_http_date(date).unwrap());
    age.is_ok_and(|age| age < Duration::from_secs(60))
}

#[test]
fn every_answer_but_an_upgrade_has_a_date() {
    let answer = |status: u16| {
        let mut pair = plain_pair(Config::default());
        pair.carry(CLIENT);
        let server = &mut pair.ends[SERVER];
        assert!(matches!(server.next(&mut pair.context), Some(Event::Request)));
        if status == 101 {
            server.upgrade(Default::default(), &mut pair.context, pair.now).unwrap();
        } else {
            let response = http::Response::builder().status(status).body("").unwrap();
            server.respond(&response, &mut pair.context, pair.now).unwrap();
        }
        String::from_utf8(server.output(&mut pair.context).to_vec()).unwrap()
    };
    for status in [200, 204, 304, 404, 503] {
        assert!(has_date_of_now(&answer(status)), "{status}");
    }
    assert!(!answer(101).contains("\r\nDate: "));
}

#[test]
fn messages_come_in_pieces_if_the_configuration_says_so() {
    let config = Config { streaming: true, ..Config::default() };
    for piece in [1, 3, usize::MAX] {
        let mut pair = plain_pair(config.clone());
        pair.run();
        pair.piece = piece;
        pair.send(CLIENT, Outgoing::binary(&[1, 2, 3, 4, 5]));
        pair.send(CLIENT, Outgoing::binary(&[]));
        let [server, _] = pair.run();
        let all = server.concat();
        assert_eq!(all.matches('[').count() - server.len(), 2, "{all}");
        let digits: String = all.chars().filter(char::is_ascii_digit).collect();
        assert_eq!(digits, "12345");
        assert_eq!(server.len() > 2, piece < 5, "{server:?}");
    }
}

#[test]
fn a_client_goes_through_a_proxy() {
    let mut target = secure();
    target.proxy = Some("http://proxy.example".parse().unwrap());
    let mut pair = tls_pair(Config::default(), target);
    let head = String::from_utf8(pair.ends[CLIENT].output(&mut pair.context).to_vec()).unwrap();
    assert!(head.starts_with("CONNECT localhost:443 HTTP/1.1\r\n"), "{head}");
    pair.ends[CLIENT].written(head.len(), &mut pair.context);
    let answer = b"HTTP/1.1 200 Fine\r\n\r\n";
    pair.ends[CLIENT].window(&mut pair.context)[..answer.len()].copy_from_slice(answer);
    pair.ends[CLIENT].filled(answer.len(), pair.now);
    assert!(pair.ends[CLIENT].next(&mut pair.context).is_none());
    converse(pair);
}

#[test]
fn a_client_may_send_a_header_before_tls() {
    let mut target = secure();
    target.preface = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n".to_vec();
    let len = target.preface.len();
    let mut pair = tls_pair(Config::default(), target);
    let sent = pair.ends[CLIENT].output(&mut pair.context).to_vec();
    assert!(sent.starts_with(b"PROXY TCP4 192.0.2.7 ") && sent[len..].starts_with(&[22, 3]), "{sent:?}");
    pair.ends[CLIENT].written(len, &mut pair.context);
    converse(pair);
}

/// A pair whose server knows its peer, 10.0.0.1, from which a header of the PROXY protocol comes.
fn proxied(config: Config) -> Pair<fused::Session> {
    let [server, client] = tls_sessions();
    let [other, _] = tls_sessions();
    let mut pair = Pair::new([other, client], config.clone(), secure());
    let peer = "10.0.0.1:4711".parse().unwrap();
    pair.ends[SERVER] = Connection::server_from(server, peer, Arc::new(config), pair.now);
    pair
}

fn front() -> Config {
    let mut config = Config::default();
    config.front.proxy_protocol_from = Prefixes::list(&["10.0.0.0/8"]).unwrap();
    config
}

#[test]
fn a_header_of_the_proxy_protocol_comes_before_tls() {
    let header = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n";
    for piece in [1, 7, header.len()] {
        let mut pair = proxied(front());
        for piece in header.chunks(piece) {
            let Pair { ends, context, now, .. } = &mut pair;
            assert!(ends[SERVER].next(context).is_none());
            ends[SERVER].window(context)[..piece.len()].copy_from_slice(piece);
            ends[SERVER].filled(piece.len(), *now);
        }
        let [server, client] = pair.run();
        assert!(pair.ends[SERVER].is_open() && pair.ends[CLIENT].is_open(), "{server:?} {client:?}");
        assert_eq!(pair.ends[SERVER].peer(), Some(&"192.0.2.7:4711".parse().unwrap()));
        assert_eq!(pair.ends[SERVER].via().unwrap().direct, "10.0.0.1:4711".parse().unwrap());
    }
}

#[test]
fn without_its_header_a_connection_fails() {
    let failure = |config: Config| {
        let mut pair = proxied(config);
        let [server, _] = pair.run();
        assert!(pair.ends[SERVER].is_over() && !pair.ends[SERVER].has_output());
        server.concat()
    };
    assert!(failure(front()).contains("no header of the PROXY protocol, but TLS"), "{}", failure(front()));
    let mut others = front();
    others.front.proxy_protocol_from = Prefixes::list(&["192.0.2.0/24"]).unwrap();
    assert!(failure(others.clone()).contains("not among the proxies"));
    others.front.others_without_header = true;
    let mut pair = proxied(others);
    pair.run();
    assert!(pair.ends[SERVER].is_open() && pair.ends[SERVER].via().is_none());
}
