use super::{Job, PATIENCE, Server};
use crate::limit::Poll;
use crate::{Error, Latencies, Measured, Meter};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tautline::Kind;
use tautline::layers::io::Driver;
use tautline::layers::tls::{Content, Engine, Handshake, Session};
use tautline::layers::window::{Buf, Pool};
use tautline::layers::ws::handshake::{Opening, Options, parse_uri};
use tautline::layers::ws::{Decoder, Encoder, Event, Role};

/// Bytes discarded at a time.
const DISCARD: usize = 1 << 20;

/// How long one wait for events may last.
const WAIT: Duration = Duration::from_millis(50);

/// Load on a server that answers with as many bytes as a message asks for: as much as it can seal and send.
///
/// Each connection asks for the next answer when the last one is here. The first is opened and checked; all that follow are
/// counted and thrown away in the kernel, neither copied nor opened, so that this side takes little of the machine that
/// it shares with the server.
#[derive(Clone)]
pub struct Sink {
    /// The server.
    pub server: Server,
    /// Where it listens; connections are dealt out in turn.
    pub addresses: Vec<SocketAddr>,
    /// Concurrent connections.
    pub connections: usize,
    /// Payload bytes of each answer.
    pub size: usize,
    /// Looks for answers at intervals of this length instead of being woken by them. To wake a processor that sleeps costs whoever
    /// sends, on one machine, as much as to seal what it sends.
    pub interval: Option<Duration>,
    /// How long to run before measuring begins.
    pub warmup: Duration,
    /// How long to measure.
    pub duration: Duration,
}

impl Sink {
    /// Connects, runs, measures. A count is an answer.
    ///
    /// # Errors
    /// A connection failed or ended, the first answer was wrong, none came for 5 s, or the arguments make no sense.
    pub fn run(&self) -> Result<Measured, Error> {
        if self.connections == 0 || self.size == 0 || self.addresses.is_empty() {
            return Err(Error::Usage("connections, size and addresses must be at least 1".into()));
        }
        self.server.with_engine(&self.server.tls, Run(self))
    }
}

struct Run<'a>(&'a Sink);

impl Job for Run<'_> {
    type Output = Measured;

    fn run<E: Engine, D: Driver>(self, engine: E, _driver: D) -> Result<Measured, Error> {
        let sink = self.0;
        let poll = Poll::new().map_err(|error| Error::io("epoll", error))?;
        let mut asking = Vec::with_capacity(sink.connections);
        for index in 0..sink.connections {
            let mut asks = Asks::open(sink, &engine, sink.addresses[index % sink.addresses.len()])?;
            asks.stream.set_nonblocking(true).map_err(|error| Error::io("a socket", error))?;
            if sink.interval.is_none() {
                poll.add(&asks.stream, index, EventFlags::IN).map_err(|error| Error::io("epoll_ctl", error))?;
            }
            asks.ask(Instant::now())?;
            asking.push(asks);
        }
        let (interval, buffer) = (sink.interval, vec![0; DISCARD]);
        let mut sunk = Sunk { poll, interval, asking, buffer, latencies: Latencies::new(), last: Instant::now() };
        sunk.until(Instant::now() + sink.warmup)?;
        sunk.latencies.clear();
        let meter = Meter::start(sink.server.pid)?;
        let answers = sunk.until(meter.began() + sink.duration)?;
        meter.stop(answers, sunk.latencies)
    }
}

/// A connection.
struct Asks<S> {
    stream: TcpStream,
    session: S,
    encoder: Encoder,
    /// Bytes on the wire of an answer, and of the one that is on its way.
    whole: usize,
    left: usize,
    /// What is asked for.
    size: u64,
    asked: Instant,
}

impl<S: Session> Asks<S> {
    /// Connects, upgrades, and checks one answer.
    fn open<E: Engine<Session = S>>(sink: &Sink, engine: &E, address: SocketAddr) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::io(format_args!("connect to {address}"), error);
        let refused = |error: &dyn std::fmt::Display| Error::Failed(format!("{address}: {error}"));
        let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
        stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE))).map_err(failed)?;
        let session = engine.connect(&address.ip().to_string()).map_err(|error| refused(&error))?;
        let (now, size) = (Instant::now(), sink.size as u64);
        let mut asks =
            Self { stream, session, encoder: Encoder::new(Role::Client), whole: 0, left: 0, size, asked: now };
        let (mut wire, mut out) = (Buf::new(), Buf::new());
        loop {
            let step = asks.session.handshake(wire.filled_mut(), &mut out);
            let (used, step) = step.map_err(|error| refused(&error))?;
            wire.take(used);
            asks.stream.write_all(out.filled()).map_err(failed)?;
            out.clear();
            if step == Handshake::Complete {
                break;
            }
            asks.receive(&mut wire)?;
        }
        let uri = parse_uri(&format!("wss://{address}/")).map_err(|error| refused(&error))?;
        // Nobody is in between whom a predictable nonce could help.
        let mut opening = Opening::new(&uri, [7; 16], &Options::default()).map_err(|error| refused(&error))?;
        let mut request = Buf::new();
        opening.write(&mut request);
        asks.session.seal(&[request.filled()], &mut out).map_err(|error| refused(&error))?;
        asks.stream.write_all(out.filled()).map_err(failed)?;
        let mut head = Vec::new();
        asks.data(&mut wire, |_, plain| {
            head.extend_from_slice(plain);
            opening.read(&head).map(|done| done.is_some()).map_err(|error| refused(&error))
        })?;
        asks.ask(now)?;
        let mut decoder = Decoder::new(Role::Client, sink.size);
        let (mut pool, mut whole) = (Pool::new(2 * sink.size), 0);
        asks.data(&mut wire, |used, plain| {
            whole += used;
            let decoded = decoder.decode(plain, &mut pool).map_err(|error| refused(&error))?;
            match decoded.event {
                None => Ok(false),
                Some(Event::Message(message)) if message.data() == vec![b'.'; sink.size] => Ok(true),
                Some(_) => Err(Error::WrongReply(format!("{address}: not {} bytes of what was asked for", sink.size))),
            }
        })?;
        asks.whole = whole;
        Ok(asks)
    }

    /// Gives `each` the data of one record after the other, and its bytes on the wire, until it has enough.
    fn data(
        &mut self,
        wire: &mut Buf,
        mut each: impl FnMut(usize, &mut [u8]) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let (mut scratch, mut out) = (Buf::new(), Buf::new());
        loop {
            let opened = self.session.open(wire.filled_mut(), &mut scratch, &mut out);
            let opened = opened.map_err(|error| Error::Failed(format!("open: {error}")))?;
            let used = opened.used;
            match opened.content {
                Content::Data(plain) => {
                    let enough = each(used, plain)?;
                    wire.take(used);
                    if enough {
                        return Ok(());
                    }
                }
                Content::Control => wire.take(used),
                Content::Partial => self.receive(wire)?,
                Content::Closed => return Err(Error::Failed("the server closed a connection".to_owned())),
            }
        }
    }

    fn receive(&mut self, wire: &mut Buf) -> Result<(), Error> {
        match self.stream.read(wire.reserve(DISCARD)) {
            Ok(0) => Err(Error::Failed("the server closed a connection".to_owned())),
            Ok(received) => {
                wire.commit(received);
                Ok(())
            }
            Err(error) => Err(Error::io("receive", error)),
        }
    }

    /// Asks for the next answer.
    fn ask(&mut self, now: Instant) -> Result<(), Error> {
        let (mut cork, mut out, mut pool) = (Buf::new(), Buf::new(), Pool::new(0));
        let asked =
            self.encoder.message(Kind::Binary, &self.size.to_le_bytes(), false, || [1, 2, 3, 4], &mut cork, &mut pool);
        asked.map_err(|error| Error::Failed(format!("encode: {error}")))?;
        let sealed = self.session.seal(&[cork.filled()], &mut out);
        sealed.map_err(|error| Error::Failed(format!("seal: {error}")))?;
        // A socket that nothing waits in takes as little as this at once.
        (&self.stream).write_all(out.filled()).map_err(|error| Error::io("send", error))?;
        (self.left, self.asked) = (self.whole, now);
        Ok(())
    }
}

/// A run in progress.
struct Sunk<S> {
    poll: Poll,
    interval: Option<Duration>,
    asking: Vec<Asks<S>>,
    buffer: Vec<u8>,
    latencies: Latencies,
    last: Instant,
}

impl<S: Session> Sunk<S> {
    /// Returns how many answers came.
    fn until(&mut self, end: Instant) -> Result<u64, Error> {
        let mut answers = 0;
        while Instant::now() < end {
            if let Some(interval) = self.interval {
                std::thread::sleep(interval);
                for index in 0..self.asking.len() {
                    // All that came meanwhile.
                    while self.receive(index, &mut answers)? {}
                }
            } else {
                self.poll.wait(WAIT).map_err(|error| Error::io("epoll_wait", error))?;
                for i in 0..self.poll.events() {
                    self.receive(self.poll.key(i), &mut answers)?;
                }
            }
            if self.last.elapsed() > PATIENCE {
                return Err(Error::Failed(format!("no answer for {} s", PATIENCE.as_secs())));
            }
        }
        Ok(answers)
    }

    /// Throws away what came; says whether more of the same answer may be there.
    fn receive(&mut self, index: usize, answers: &mut u64) -> Result<bool, Error> {
        let asks = &mut self.asking[index];
        // No further than this answer, so that the count stays exact. tcp(7): with MSG_TRUNC nothing is copied.
        let most = asks.left.min(DISCARD);
        match net::recv(&asks.stream, &mut self.buffer[..most], RecvFlags::TRUNC) {
            Ok((_, 0)) => return Err(Error::Failed("the server closed a connection".into())),
            Ok((_, received)) => asks.left = asks.left.saturating_sub(received),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(error) => return Err(Error::io("receive", error)),
        }
        if asks.left > 0 {
            return Ok(true);
        }
        let now = Instant::now();
        self.latencies.record(now.saturating_duration_since(asks.asked));
        self.last = now;
        *answers += 1;
        asks.ask(now)?;
        Ok(false)
    }
}
