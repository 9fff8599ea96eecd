use crate::connection::{self, Connection, Context};
use crate::fake::{Event, Fake};
use crate::http::content::Content;
use crate::topics::publications::Publication;
use crate::turn::visit::{BYTES, RESTING, TIME};
use crate::{Config, Conn, Handler, Opening, Outgoing, Reply, Request, Shard, SlowConsumer, Target};
use http::Response;
use std::cell::Cell;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline_testkit::rustls_peer::Fixture;
use tautline_tls::{Engine, Versions, plain};
use tautline_tls_rustls::fused;
use tautline_ws::Message;
use tautline_ws::deflate::DeflateConfig;

/// Bytes of a request, and of its answer: 10,000 times as many.
const ASKED: usize = 62;
const ANSWER: usize = ASKED * 10_000;
/// Time that an answer takes.
const COST: Duration = Duration::from_micros(300);
/// Most time of a turn in which two connections have events: a visit of each, and what rests. Where few bytes tell how much is done,
/// the clock is first read after seven messages, and then after as many again.
fn most_time() -> Duration {
    2 * TIME + RESTING + 16 * COST
}

/// Most bytes to one connection in a turn, in which it may have a visit for an event and another one: each ends with an answer.
const MOST_BYTES: usize = 2 * (BYTES + 2 * ANSWER);

/// Answers with ten thousand times the bytes of the question, in one way or another.
struct Amplifier {
    now: Rc<Cell<Duration>>,
    answer: String,
    /// How many times `on_drain` sends another answer.
    drains: usize,
    answered: usize,
}

impl Amplifier {
    fn work(&mut self) {
        self.answered += 1;
        self.now.set(self.now.get() + COST);
    }
}

/// Content of this many bytes.
struct Made(usize);

impl Read for Made {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let read = out.len().min(self.0);
        out[..read].fill(b'x');
        self.0 -= read;
        Ok(read)
    }
}

impl Handler for Amplifier {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        match request.http.uri().path() {
            "/answer" => {
                self.work();
                Reply::Respond(Response::new(self.answer.clone().into_bytes()))
            }
            "/stream" => {
                self.work();
                Reply::Stream(Response::new(Content::with_len(Made(ANSWER), ANSWER as u64)))
            }
            _ => Reply::upgrade(),
        }
    }

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
        conn.subscribe("all");
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        match message.data() {
            [b'?', ..] => {
                self.work();
                conn.text(&self.answer);
            }
            [b'!', ..] => {
                self.work();
                self.drains = 100;
                (0..2).for_each(|_| _ = conn.text(&self.answer));
            }
            [b'#', ..] => {
                self.work();
                conn.publish("all", Outgoing::text(&self.answer[..ANSWER / 10]));
            }
            [0, ..] => self.work(),
            _ => _ = conn.send(Outgoing::from(&message)),
        }
    }

    fn save_state(&mut self, (): &mut (), _: &mut Vec<u8>) -> bool {
        true
    }

    fn restore_state(&mut self, _: &[u8]) -> Option<()> {
        Some(())
    }

    fn on_drain(&mut self, conn: &mut Conn<'_, ()>) {
        if self.drains > 0 {
            self.drains -= 1;
            self.work();
            (0..2).for_each(|_| _ = conn.text(&self.answer));
        }
    }
}

struct Peer<S> {
    connection: Connection<S>,
    /// Bytes of whole messages that have come, and their number.
    bytes: usize,
    messages: Vec<usize>,
}

/// Peer 0 asks for much, and peer 1 is honest.
struct Bench<E: Engine> {
    kernel: Fake,
    shard: Shard<E, Amplifier>,
    context: Context,
    now: Rc<Cell<Duration>>,
    peers: Vec<Peer<E::Session>>,
}

fn amplifier<E: Engine>(engine: E, kernel: &Fake, now: &Rc<Cell<Duration>>, deflates: bool) -> Shard<E, Amplifier> {
    kernel.0.borrow_mut().room = usize::MAX;
    let amplifier = Amplifier { now: now.clone(), answer: "x".repeat(ANSWER), drains: 0, answered: 0 };
    let mut config = Config { slow_consumer: SlowConsumer::Disconnect(64 << 20), ..Config::default() };
    let mut deflate = DeflateConfig::default();
    deflate.max_ratio = u32::MAX;
    config.upgrade.deflate = deflates.then_some(deflate);
    let mut shard = Shard::new(0, Arc::new(config), engine, kernel.clone(), amplifier).unwrap();
    let clock = now.clone();
    shard.danger_simulate(move || clock.get(), [0; 32]);
    shard
}

impl<E: Engine> Bench<E> {
    fn new(engine: E, client: impl Fn() -> E::Session, peers: u32, deflates: bool) -> Self {
        let (kernel, now) = (Fake::default(), Rc::new(Cell::new(Duration::from_secs(5))));
        let is_plain = engine.is_plain();
        let shard = amplifier(engine, &kernel, &now, deflates);
        let mut bench = Self { kernel, shard, context: Context::new().unwrap(), now, peers: Vec::new() };
        for index in 0..peers {
            let uri = if is_plain { "ws://localhost/" } else { "wss://localhost/" };
            let mut target = Target::new(uri).unwrap();
            target.deflate = deflates.then(DeflateConfig::default);
            let connection =
                Connection::client(client(), Arc::new(target), Arc::default(), &mut bench.context, Instant::now())
                    .unwrap();
            bench.peers.push(Peer { connection, bytes: 0, messages: Vec::new() });
            bench.kernel.push(Event::Accept);
            while bench.shard.counters().open <= u64::from(index) {
                bench.speak(index);
                bench.shard.turn(None).unwrap();
                bench.hear(index);
            }
        }
        bench
    }

    /// Gives the shard what a peer sends.
    fn speak(&mut self, index: u32) {
        let connection = &mut self.peers[index as usize].connection;
        let bytes = connection.output(&mut self.context).to_vec();
        connection.written(bytes.len(), &mut self.context);
        if !bytes.is_empty() {
            self.kernel.push(Event::Bytes(index, bytes));
        }
    }

    /// Gives a peer what the shard has sent, and returns its bytes.
    fn hear(&mut self, index: u32) -> usize {
        let received = self.kernel.received(index);
        let peer = &mut self.peers[index as usize];
        let mut rest = &received[..];
        loop {
            while let Some(event) = peer.connection.next(&mut self.context) {
                match event {
                    connection::Event::Message(_) => {
                        let len = peer.connection.payload().data().len();
                        peer.messages.push(len);
                        peer.bytes += len;
                    }
                    connection::Event::Open(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            if rest.is_empty() {
                return received.len();
            }
            let window = peer.connection.window(&mut self.context);
            let n = window.len().min(rest.len());
            window[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            peer.connection.filled(n, Instant::now());
        }
    }

    fn say(&mut self, index: u32, message: Outgoing<'_>) {
        self.peers[index as usize].connection.send(message, &mut self.context).unwrap();
    }

    /// Turns until nothing waits. In each turn the honest peer has an echo, and the amplifier no more than its part.
    fn turn_until_all_is_done(&mut self) -> usize {
        let mut turns = 0;
        loop {
            let heard = self.peers[1].messages.iter().filter(|len| **len == 2).count();
            self.say(1, Outgoing::text("hi"));
            self.speak(1);
            let begun = self.now.get();
            self.shard.turn(None).unwrap();
            turns += 1;
            assert!(turns < 10_000, "no end");
            let took = self.now.get() - begun;
            assert!(took <= most_time(), "a turn of {took:?}");
            let bytes = self.hear(0);
            assert!(bytes <= MOST_BYTES, "{bytes} bytes in a turn");
            self.hear(1);
            let now_heard = self.peers[1].messages.iter().filter(|len| **len == 2).count();
            assert_eq!(now_heard, heard + 1, "an honest peer has its echo in each turn");
            let is_done = self.kernel.0.borrow().events.is_empty() && self.shard.reactor.core.shared.resting.is_empty();
            if is_done && self.shard.reactor.core.shared.publications.is_empty() {
                return turns;
            }
        }
    }
}

fn plain_bench(deflates: bool) -> Bench<plain::Engine> {
    Bench::new(plain::Engine, || plain::Session, 2, deflates)
}

fn secure_bench(deflates: bool) -> Bench<fused::Engine> {
    let fixture = Fixture::default();
    let (server, client) = (fixture.server(Versions::All), fixture.client(Versions::All));
    let engine = fused::Engine::new(Some(&server), Some(&client)).unwrap();
    let other = fused::Engine::client(&client).unwrap();
    Bench::new(engine, move || other.connect("localhost").unwrap(), 2, deflates)
}

/// A question that begins with this byte.
fn question(first: char) -> String {
    format!("{first}{}", "q".repeat(ASKED - 1))
}

fn answers_of_ten_thousand_times_the_question<E: Engine>(mut bench: Bench<E>) {
    const QUESTIONS: usize = 60;
    for _ in 0..QUESTIONS {
        bench.say(0, Outgoing::text(&question('?')));
    }
    // All of them lie in one record.
    bench.speak(0);
    let turns = bench.turn_until_all_is_done();
    assert!(turns >= QUESTIONS / 4, "{turns}");
    assert_eq!(bench.peers[0].messages, [ANSWER; QUESTIONS]);
    // The connection is as before.
    bench.say(0, Outgoing::text("hello"));
    bench.speak(0);
    bench.turn_until_all_is_done();
    assert_eq!(bench.peers[0].messages.last(), Some(&5));
}

#[test]
fn a_turn_is_bounded_whatever_one_peer_asks_for() {
    for deflates in [false, true] {
        answers_of_ten_thousand_times_the_question(plain_bench(deflates));
        answers_of_ten_thousand_times_the_question(secure_bench(deflates));
    }
}

fn a_handler_that_answers_drains<E: Engine>(mut bench: Bench<E>) {
    bench.say(0, Outgoing::text(&question('!')));
    bench.speak(0);
    bench.turn_until_all_is_done();
    let answers = bench.peers[0].messages.len();
    assert!(answers >= 2, "{answers}");
    assert_eq!(bench.peers[0].bytes, answers * ANSWER);
}

#[test]
fn drains_are_bounded() {
    a_handler_that_answers_drains(plain_bench(false));
    a_handler_that_answers_drains(secure_bench(false));
}

#[test]
fn messages_that_inflate_are_bounded() {
    const BOMBS: usize = 50;
    let mut bench = secure_bench(true);
    for _ in 0..BOMBS {
        bench.say(0, Outgoing::binary(&vec![0; ANSWER]));
    }
    bench.speak(0);
    bench.turn_until_all_is_done();
    assert_eq!(bench.shard.handler().answered, BOMBS);
}

#[test]
fn a_crowd_that_was_restored_with_input_is_bounded() {
    const MOVED: u32 = 20;
    const QUESTIONS: usize = 20;
    let mut bench = Bench::new(plain::Engine, || plain::Session, MOVED, false);
    for index in 0..MOVED {
        (0..QUESTIONS).for_each(|_| bench.say(index, Outgoing::text(&question('?'))));
        bench.speak(index);
    }
    bench.shard.turn(None).unwrap();
    let (kernel, now) = (Fake::default(), bench.now.clone());
    let mut new = amplifier(plain::Engine, &kernel, &now, false);
    bench.shard.begin_move();
    bench.shard.hold_still().unwrap();
    let move_one = &mut |_, sockets: &[BorrowedFd<'_>], saved: &[u8]| {
        new.restore(vec![sockets[0].try_clone_to_owned()?], saved).map(drop)
    };
    assert_eq!(bench.shard.save(move_one).unwrap().total(), 0);
    let before = now.get();
    assert_eq!(new.begin_restored(), MOVED as usize);
    assert_eq!(now.get(), before, "their input waits for its turns");
    let answered = bench.shard.handler().answered;
    while answered + new.handler().answered < MOVED as usize * QUESTIONS {
        let before = now.get();
        new.turn(None).unwrap();
        let took = now.get() - before;
        assert!(Duration::ZERO < took && took <= most_time(), "a turn of {took:?}");
    }
}

const REQUESTS: usize = 50;

/// Sends many requests at once. Returns how many are answered.
fn pipelined_requests(path: &str) -> usize {
    let mut bench = plain_bench(false);
    bench.kernel.push(Event::Accept);
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    bench.kernel.push(Event::Bytes(2, request.repeat(REQUESTS).into_bytes()));
    let mut total = 0;
    for _ in 0..10 * REQUESTS {
        let begun = bench.now.get();
        bench.shard.turn(None).unwrap();
        let (took, bytes) = (bench.now.get() - begun, bench.kernel.received(2).len());
        assert!(took <= most_time() && bytes <= MOST_BYTES, "{path}: {bytes} bytes in a turn of {took:?}");
        total += bytes;
    }
    let answered = bench.shard.handler().answered;
    assert!(total > answered * ANSWER && total < answered * (ANSWER + 500), "{path}: {total}");
    answered
}

#[test]
fn pipelined_requests_are_bounded() {
    // If too many bytes wait, the last answer says that the connection ends.
    assert!(pipelined_requests("/answer") >= 2);
    assert_eq!(pipelined_requests("/stream"), REQUESTS);
}

#[test]
fn publications_are_bounded_by_their_bytes() {
    const MANY: u32 = 60;
    let mut bench = Bench::new(plain::Engine, || plain::Session, MANY, false);
    for _ in 0..20 {
        bench.say(0, Outgoing::text(&question('#')));
    }
    bench.speak(0);
    let mut total = 0;
    for _ in 0..2_000 {
        bench.shard.turn(None).unwrap();
        let bytes: usize = (0..MANY).map(|index| bench.hear(index)).sum();
        // Two batches in a turn, of a run to its next subscribers each.
        assert!(bytes <= 2 * (3 << 20), "{bytes} bytes in a turn");
        total += bytes;
    }
    assert!(total >= 20 * MANY as usize * ANSWER / 10, "{total}");
}

#[test]
fn many_publications_at_once_are_bounded_by_time() {
    const MANY: usize = 20_000;
    let mut bench = plain_bench(false);
    let now = bench.now.clone();
    // Each look at the clock finds that time has gone by.
    bench.shard.danger_simulate(
        move || {
            now.set(now.get() + TIME / 2);
            now.get()
        },
        [0; 32],
    );
    let shared = &mut bench.shard.reactor.core.shared;
    for _ in 0..MANY {
        let publication = Publication::to_topic("all", Outgoing::text("news"), &shared.published);
        shared.publications.push(publication);
    }
    let (mut turns, mut left) = (0, MANY);
    while left > 0 {
        bench.shard.turn(None).unwrap();
        let now = bench.shard.reactor.core.shared.publications.waiting();
        // Twice in a turn, a batch to both subscribers before each look at the clock.
        assert!(left - now <= 8 * 512, "{left} to {now}");
        (turns, left) = (turns + 1, now);
    }
    assert!(turns >= MANY / (8 * 512), "{turns}");
}

#[test]
fn commands_of_other_threads_are_bounded() {
    const COMMANDS: usize = 5_000;
    let mut bench = plain_bench(false);
    let handle = bench.shard.handle();
    for _ in 0..COMMANDS {
        handle.with_handler(|amplifier: &mut Amplifier, _| amplifier.work()).unwrap();
    }
    bench.shard.reactor.commands_left = true;
    let mut before = 0;
    while bench.shard.handler().answered < COMMANDS {
        bench.shard.turn(None).unwrap();
        let answered = bench.shard.handler().answered;
        // Twice in a turn, with a look at the clock after each sixteen.
        assert!(answered > before && answered - before <= 100, "{}", answered - before);
        before = answered;
    }
}
