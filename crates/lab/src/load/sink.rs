use super::server::{PATIENCE, Server};
use crate::{Error, Latencies, Measured, Meter, Span};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tautline::layers::buf::{Buf, Pool};
use tautline::layers::tls::{Content, Engine, Handshake, Session};
use tautline::layers::ws::handshake::{Opening, Options, parse_uri};
use tautline::layers::ws::{Decoder, Encoder, Event, Role};
use tautline::{EngineChoice as _, EngineKind, Kind, Then};
use tautline_measure::poll::Poll;

/// Bytes discarded at a time.
const DISCARD: usize = 1 << 20;

/// Longest wait for events.
const WAIT: Duration = Duration::from_millis(50);

/// Load on a server that answers with as many bytes as a message asks for, as fast as it can seal and send them.
///
/// Each connection asks for the next answer when the last one is complete. The first answer is opened and checked. Later
/// ones are counted and discarded in the kernel, neither copied nor opened. The load thus leaves the machine to the
/// server.
#[derive(Clone)]
pub(crate) struct Sink {
    /// The server.
    pub(crate) server: Server,
    /// Its addresses; connections are distributed over them in turn.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Concurrent connections.
    pub(crate) connections: usize,
    /// Payload bytes of each answer.
    pub(crate) size: usize,
    /// Interval at which the load looks for answers, instead of being woken by them.
    ///
    /// To wake a sleeping CPU of the same machine costs the sender as much as sealing its bytes.
    pub(crate) interval: Option<Duration>,
    /// Length of the measurement.
    pub(crate) span: Span,
}

impl Sink {
    /// Connects, runs and measures. The count is that of answers.
    pub(crate) fn run(&self) -> Result<Measured, Error> {
        if self.connections == 0 || self.size == 0 || self.addresses.is_empty() {
            return Err(Error::Usage("connections, size and addresses must be at least 1".into()));
        }
        self.server.engine().choose(Run(self))
    }
}

/// A run before its engine is known.
struct Run<'a>(&'a Sink);

impl Then for Run<'_> {
    type Output = Result<Measured, Error>;

    fn with<K: EngineKind>(self, kind: K) -> Self::Output {
        let sink = self.0;
        let engine = kind.client(&sink.server.tls).map_err(Error::usage)?;
        let poll = Poll::new().map_err(|error| Error::io("epoll", error))?;
        let mut askers = Vec::with_capacity(sink.connections);
        for index in 0..sink.connections {
            let mut asker = Asker::open(sink, &engine, sink.addresses[index % sink.addresses.len()])?;
            asker.stream.set_nonblocking(true).map_err(|error| Error::io("a socket", error))?;
            if sink.interval.is_none() {
                poll.add(&asker.stream, index, EventFlags::IN).map_err(|error| Error::io("epoll_ctl", error))?;
            }
            asker.ask(Instant::now())?;
            askers.push(asker);
        }
        let (interval, buffer) = (sink.interval, vec![0; DISCARD]);
        let mut run = Askers { poll, interval, askers, buffer, latencies: Latencies::new(), last: Instant::now() };
        run.until(Instant::now() + sink.span.warmup)?;
        run.latencies.clear();
        let meter = Meter::start(sink.server.pid)?;
        let answers = run.until(meter.began() + sink.span.duration)?;
        meter.stop(answers, run.latencies)
    }
}

/// A connection that asks for answers.
struct Asker<S> {
    stream: TcpStream,
    session: S,
    encoder: Encoder,
    /// Bytes on the wire of an answer, and those still missing of the current one.
    whole: usize,
    left: usize,
    /// Bytes to ask for.
    size: u64,
    asked: Instant,
}

impl<S: Session> Asker<S> {
    /// Connects, upgrades, and checks one answer.
    fn open<E: Engine<Session = S>>(sink: &Sink, engine: &E, address: SocketAddr) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::io(format_args!("connect to {address}"), error);
        let refused = |error: &dyn std::fmt::Display| Error::Failed(format!("{address}: {error}"));
        let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
        stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE))).map_err(failed)?;
        let session = engine.connect(&address.ip().to_string()).map_err(|error| refused(&error))?;
        let (now, size) = (Instant::now(), sink.size as u64);
        let mut asker =
            Self { stream, session, encoder: Encoder::new(Role::Client), whole: 0, left: 0, size, asked: now };
        let (mut wire, mut out) = (Buf::new(), Buf::new());
        loop {
            let step = asker.session.handshake(wire.filled_mut(), &mut out);
            let (used, step) = step.map_err(|error| refused(&error))?;
            wire.take(used);
            asker.stream.write_all(out.filled()).map_err(failed)?;
            out.clear();
            if step == Handshake::Complete {
                break;
            }
            asker.receive(&mut wire)?;
        }
        let uri = parse_uri(&format!("wss://{address}/")).map_err(|error| refused(&error))?;
        // No cache stands in between that a predictable nonce could mislead.
        let mut opening = Opening::new(&uri, [7; 16], &Options::default()).map_err(|error| refused(&error))?;
        let mut request = Buf::new();
        opening.write(&mut request);
        asker.session.seal(&[request.filled()], &mut out).map_err(|error| refused(&error))?;
        asker.stream.write_all(out.filled()).map_err(failed)?;
        let mut head = Vec::new();
        asker.data(&mut wire, |_, plain| {
            head.extend_from_slice(plain);
            opening.read(&head).map(|done| done.is_some()).map_err(|error| refused(&error))
        })?;
        asker.ask(now)?;
        let mut decoder = Decoder::new(Role::Client, sink.size);
        let (mut pool, mut whole) = (Pool::new(2 * sink.size), 0);
        asker.data(&mut wire, |used, plain| {
            whole += used;
            let decoded = decoder.decode(plain, &mut pool).map_err(|error| refused(&error))?;
            match decoded.event {
                None => Ok(false),
                Some(Event::Message(message)) if message.data() == vec![b'.'; sink.size] => Ok(true),
                Some(_) => Err(Error::WrongReply(format!("{address}: not {} bytes of what was asked for", sink.size))),
            }
        })?;
        asker.whole = whole;
        Ok(asker)
    }

    /// Passes the data of each record and its bytes on the wire to `each`, until that returns true.
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
                    let is_enough = each(used, plain.bytes(wire.filled_mut(), &mut scratch))?;
                    wire.take(used);
                    if is_enough {
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
        // An empty socket takes these few bytes at once.
        (&self.stream).write_all(out.filled()).map_err(|error| Error::io("send", error))?;
        (self.left, self.asked) = (self.whole, now);
        Ok(())
    }
}

/// All connections of a run.
struct Askers<S> {
    poll: Poll,
    interval: Option<Duration>,
    askers: Vec<Asker<S>>,
    buffer: Vec<u8>,
    latencies: Latencies,
    last: Instant,
}

impl<S: Session> Askers<S> {
    /// Runs until `end`; returns the number of answers.
    fn until(&mut self, end: Instant) -> Result<u64, Error> {
        let mut answers = 0;
        while Instant::now() < end {
            if let Some(interval) = self.interval {
                std::thread::sleep(interval);
                for index in 0..self.askers.len() {
                    // Everything that arrived meanwhile.
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

    /// Discards received bytes; returns whether more of the same answer may have arrived.
    fn receive(&mut self, index: usize, answers: &mut u64) -> Result<bool, Error> {
        let asker = &mut self.askers[index];
        // At most the rest of this answer, so that the count stays exact. tcp(7): with MSG_TRUNC nothing is copied.
        let most = asker.left.min(DISCARD);
        match net::recv(&asker.stream, &mut self.buffer[..most], RecvFlags::TRUNC) {
            Ok((_, 0)) => return Err(Error::Failed("the server closed a connection".into())),
            Ok((_, received)) => asker.left = asker.left.saturating_sub(received),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(error) => return Err(Error::io("receive", error)),
        }
        if asker.left > 0 {
            return Ok(true);
        }
        let now = Instant::now();
        self.latencies.record(now.saturating_duration_since(asker.asked));
        self.last = now;
        *answers += 1;
        asker.ask(now)?;
        Ok(false)
    }
}
