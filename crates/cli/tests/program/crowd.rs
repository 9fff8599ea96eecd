//! Many live clients on one thread, which notice each lost, doubled or reordered message and each pause.

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tautline::layers::engine::connection::{Connection, Context, Event};
use tautline::layers::tls::Engine;
use tautline::layers::tls_rustls::fused;
use tautline::{ClientConfig, Config, Outgoing, Roots, Target};

type Session = <fused::Engine as Engine>::Session;

/// A client asks for new keys before each message whose number is a multiple of this.
const KEY_UPDATE_EVERY: u64 = 32;
/// How long a reply may take before the run fails.
const PATIENCE: Duration = Duration::from_secs(300);

/// Clients of an echo server. They send at a steady rate until they are told to finish.
pub(super) struct Crowd {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<(), String>>,
}

#[derive(Default)]
struct Shared {
    finish: AtomicBool,
    open: AtomicU64,
    replies: AtomicU64,
    key_updates: AtomicU64,
    /// Nanoseconds of the slowest reply since it was last asked for, from the time at which its message was due.
    slowest: AtomicU64,
    /// Nanoseconds of the longest turn of the clients' own loop, likewise.
    turn: AtomicU64,
}

/// Times since they were last asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// The slowest reply, from the time at which its message was due.
    pub(super) reply: Duration,
    /// The longest turn of the clients' own loop: the clients, or the machine, were late by this.
    pub(super) turn: Duration,
}

struct Client {
    socket: TcpStream,
    connection: Connection<Session>,
    sent: u64,
    /// The times at which the messages without a reply were due.
    due: VecDeque<Instant>,
    blocked: bool,
}

impl Crowd {
    /// Connects `count` clients, which then send `rate` messages a second altogether.
    pub(super) fn start(at: SocketAddr, count: usize, rate: u64) -> Self {
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        let thread = std::thread::spawn(move || run(at, count, rate, &own));
        let crowd = Self { shared, thread };
        while crowd.shared.open.load(Ordering::Relaxed) < count as u64 {
            assert!(!crowd.thread.is_finished(), "{:?}", crowd.thread.join());
            std::thread::sleep(Duration::from_millis(5));
        }
        crowd
    }

    /// The slowest times since this was last called. Panics if a client has failed.
    pub(super) fn times(&self) -> Times {
        assert!(!self.thread.is_finished(), "the clients have failed; finish() says why");
        let take = |nanos: &AtomicU64| Duration::from_nanos(nanos.swap(0, Ordering::Relaxed));
        Times { reply: take(&self.shared.slowest), turn: take(&self.shared.turn) }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the replies to all messages. Returns the numbers of replies and of requests for new keys.
    pub(super) fn finish(self) -> (u64, u64) {
        self.shared.finish.store(true, Ordering::Relaxed);
        if let Err(why) = self.thread.join().unwrap() {
            panic!("{why}");
        }
        (self.shared.replies.load(Ordering::Relaxed), self.shared.key_updates.load(Ordering::Relaxed))
    }
}

fn run(at: SocketAddr, count: usize, rate: u64, shared: &Shared) -> Result<(), String> {
    let mut context = Context::new().unwrap();
    let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
    let engine = fused::Engine::new(None, Some(&ClientConfig::default().with_roots(Roots::DangerNone))).unwrap();
    let config = Arc::new(Config::default());
    let mut target = Target::new("wss://localhost/").unwrap();
    target.deflate = None;
    let target = Arc::new(target);
    let mut clients = Vec::with_capacity(count);
    for number in 0..count {
        let session = engine.connect("localhost").unwrap();
        let connection = Connection::client(session, target.clone(), config.clone(), &mut context, Instant::now());
        let mut client = Client {
            socket: TcpStream::connect(at).map_err(|error| format!("client {number} cannot connect: {error}"))?,
            connection: connection.unwrap(),
            sent: 0,
            due: VecDeque::new(),
            blocked: false,
        };
        client.socket.set_nodelay(true).unwrap();
        client.open(&mut context).map_err(|why| format!("client {number}: {why}"))?;
        client.socket.set_nonblocking(true).unwrap();
        epoll::add(
            &epoll,
            &client.socket,
            EventData::new_u64(number as u64),
            EventFlags::IN | EventFlags::OUT | EventFlags::ET,
        )
        .unwrap();
        clients.push(client);
        shared.open.fetch_add(1, Ordering::Relaxed);
        // The others answer pings meanwhile: the server closes silent clients.
        if number % 64 == 0 {
            serve(&epoll, &mut clients, &mut Vec::with_capacity(1024), Duration::ZERO, &mut context, shared)?;
        }
    }
    converse(&epoll, &mut clients, rate, &mut context, shared)
}

/// Sends on schedule and checks the replies, until it is told to finish and all replies are there.
fn converse(
    epoll: &OwnedFd,
    clients: &mut [Client],
    rate: u64,
    context: &mut Context,
    shared: &Shared,
) -> Result<(), String> {
    let interval = Duration::from_secs(1) / u32::try_from(rate).unwrap();
    let (mut next, mut due) = (0, Instant::now());
    let mut events = Vec::with_capacity(1024);
    let mut last = Instant::now();
    let mut replies = 0;
    loop {
        let now = Instant::now();
        shared.turn.fetch_max(nanos(now - last), Ordering::Relaxed);
        last = now;
        let finishes = shared.finish.load(Ordering::Relaxed);
        while due <= now && !finishes {
            clients[next].send(next, due, context, shared).map_err(|why| format!("client {next}: {why}"))?;
            next = (next + 1) % clients.len();
            due += interval;
        }
        if finishes && clients.iter().all(|client| client.due.is_empty()) {
            return Ok(());
        }
        replies += serve(epoll, clients, &mut events, Duration::from_millis(1), context, shared)?;
        shared.replies.store(replies, Ordering::Relaxed);
        // A client in 64 is looked at each time for a reply that does not come.
        let oldest = clients.iter().skip(next % 64).step_by(64).filter_map(|client| client.due.front()).min();
        if oldest.is_some_and(|due| due.elapsed() > PATIENCE) {
            return Err(format!("a reply does not come within {PATIENCE:?}"));
        }
    }
}

/// Reads what has arrived for any client, after a wait of at most `wait`. Returns the number of replies.
fn serve(
    epoll: &OwnedFd,
    clients: &mut [Client],
    events: &mut Vec<epoll::Event>,
    wait: Duration,
    context: &mut Context,
    shared: &Shared,
) -> Result<u64, String> {
    events.clear();
    let wait = Timespec::try_from(wait).unwrap();
    match epoll::wait(epoll, rustix::buffer::spare_capacity(events), Some(&wait)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.to_string()),
    }
    let mut replies = 0;
    for event in &*events {
        let number = usize::try_from(event.data.u64()).unwrap();
        replies += clients[number].turn(number, context, shared).map_err(|why| format!("client {number}: {why}"))?;
    }
    Ok(replies)
}

impl Client {
    /// Waits until the connection is open. The socket blocks.
    fn open(&mut self, context: &mut Context) -> Result<(), String> {
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        loop {
            match self.connection.next(context) {
                Some(Event::Open(_)) => {
                    self.write(context)?;
                    self.connection.rest(context);
                    return Ok(());
                }
                Some(other) => return Err(format!("{other:?}")),
                None => {}
            }
            self.write(context)?;
            let read = self.socket.read(self.connection.window(context)).map_err(|error| error.to_string())?;
            if read == 0 {
                return Err("the server ended the connection in the handshake".into());
            }
            self.connection.filled(read, Instant::now());
        }
    }

    fn send(&mut self, number: usize, due: Instant, context: &mut Context, shared: &Shared) -> Result<(), String> {
        if self.sent % KEY_UPDATE_EVERY == KEY_UPDATE_EVERY - 1 {
            self.connection.update_keys(true).map_err(|error| error.to_string())?;
            shared.key_updates.fetch_add(1, Ordering::Relaxed);
        }
        self.connection
            .send(Outgoing::binary(&content(number, self.sent)), context)
            .map_err(|error| format!("{error:?}"))?;
        self.sent += 1;
        self.due.push_back(due);
        if !self.blocked {
            self.write(context)?;
        }
        self.connection.rest(context);
        Ok(())
    }

    /// Reads all that is there. Returns the number of replies.
    fn turn(&mut self, number: usize, context: &mut Context, shared: &Shared) -> Result<u64, String> {
        let mut replies = 0;
        self.write(context)?;
        loop {
            let read = match self.socket.read(self.connection.window(context)) {
                Ok(0) => return Err("the server ended the connection".into()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.to_string()),
            };
            self.connection.filled(read, Instant::now());
            while let Some(event) = self.connection.next(context) {
                let Event::Message(_) = event else { return Err(format!("a message was expected, and not {event:?}")) };
                let expected = self.sent - self.due.len() as u64;
                let Some(due) = self.due.pop_front() else { return Err("a reply was doubled".into()) };
                if self.connection.payload().data() != content(number, expected) {
                    return Err(format!(
                        "another reply than that to message {expected}: lost, doubled or out of order"
                    ));
                }
                shared.slowest.fetch_max(nanos(due.elapsed()), Ordering::Relaxed);
                replies += 1;
            }
            self.write(context)?;
        }
        self.connection.rest(context);
        Ok(replies)
    }

    fn write(&mut self, context: &mut Context) -> Result<(), String> {
        self.blocked = false;
        while !self.connection.output(context).is_empty() {
            match self.socket.write(self.connection.output(context)) {
                Ok(written) => self.connection.written(written, context),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return Ok(());
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }
}

/// The message with this number: no two are equal. Some are larger than a record.
fn content(client: usize, number: u64) -> Vec<u8> {
    let len = match number % 64 {
        40 => 20_000,
        rest => usize::try_from(rest).unwrap() * 5,
    };
    let mut content = [(client as u64).to_be_bytes(), number.to_be_bytes()].concat();
    content.resize(16 + len, u8::try_from(number % 251).unwrap());
    content
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
