use super::server::BUFFER;
use crate::payload::Payload;
use crate::{Error, Latencies, Measured, Meter, Span};
use rustix::event::epoll::EventFlags;
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tautline_measure::poll::{self, Poll};

/// Time without any reply after which the run has failed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest wait for events, which bounds how late a phase ends.
const WAIT: Duration = Duration::from_millis(50);

/// Load on a TCP echo server: a closed loop from one thread.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// Address of the server.
    pub(crate) address: SocketAddr,
    /// Concurrent connections.
    pub(crate) connections: usize,
    /// Bytes per message.
    pub(crate) size: usize,
    /// Messages in flight per connection.
    pub(crate) pipeline: usize,
    /// Length of the measurement.
    pub(crate) span: Span,
    /// Process of the server, to measure its CPU time.
    pub(crate) server_pid: Option<u32>,
}

/// One connection of the closed loop.
struct Connection {
    stream: TcpStream,
    /// Send times of the messages in flight, oldest first.
    in_flight: VecDeque<Instant>,
    /// Number of the next message to send.
    next: u64,
    /// Number of the message whose reply is next, and the bytes of that reply received so far.
    expected: u64,
    offset: usize,
    /// Bytes that the socket did not take, and whether the loop waits for it to take more.
    unsent: Vec<u8>,
    blocked: bool,
}

impl Load {
    /// Connects, runs and measures. Every reply is compared with its message.
    pub(crate) fn run(&self) -> Result<Measured, Error> {
        if self.connections == 0 || self.size == 0 || self.pipeline == 0 {
            return Err(Error::Usage("connections, size and pipeline must be at least 1".into()));
        }
        let mut run = Run::connect(self)?;
        run.until(Instant::now() + self.span.warmup)?;
        run.answered = 0;
        run.latencies.clear();
        let meter = Meter::start(self.server_pid)?;
        run.until(meter.began() + self.span.duration)?;
        meter.stop(run.answered, run.latencies)
    }
}

/// A run in progress.
struct Run {
    poll: Poll,
    connections: Vec<Connection>,
    payload: Payload,
    buffer: Vec<u8>,
    answered: u64,
    latencies: Latencies,
    last_reply: Instant,
}

impl Run {
    fn connect(load: &Load) -> Result<Self, Error> {
        let failed = |error| Error::io(format_args!("connect to {}", load.address), error);
        let poll = Poll::new().map_err(|error| Error::io("epoll", error))?;
        let mut payload = Payload::new(load.size);
        let mut connections = Vec::with_capacity(load.connections);
        for index in 0..load.connections {
            let stream = TcpStream::connect_timeout(&load.address, PATIENCE).map_err(failed)?;
            stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(failed)?;
            poll.add(&stream, index, EventFlags::IN).map_err(|error| failed(error.into()))?;
            connections.push(Connection {
                stream,
                in_flight: VecDeque::with_capacity(load.pipeline),
                next: 0,
                expected: 0,
                offset: 0,
                unsent: Vec::new(),
                blocked: false,
            });
        }
        for (index, connection) in connections.iter_mut().enumerate() {
            connection.send(&poll, index, &mut payload, load.pipeline, Instant::now())?;
        }
        Ok(Self {
            poll,
            connections,
            payload,
            buffer: vec![0; BUFFER],
            answered: 0,
            latencies: Latencies::new(),
            last_reply: Instant::now(),
        })
    }

    fn until(&mut self, end: Instant) -> Result<(), Error> {
        while Instant::now() < end {
            self.poll.wait(WAIT).map_err(|error| Error::io("epoll_wait", error))?;
            for i in 0..self.poll.events() {
                self.event(self.poll.key(i), self.poll.flags(i))?;
            }
            if self.last_reply.elapsed() > PATIENCE {
                return Err(Error::Failed(format!("no reply for {} s", PATIENCE.as_secs())));
            }
        }
        Ok(())
    }

    fn event(&mut self, index: usize, flags: EventFlags) -> Result<(), Error> {
        let connection = &mut self.connections[index];
        if flags.contains(EventFlags::OUT) {
            connection.flush(&self.poll, index)?;
        }
        if flags == EventFlags::OUT {
            return Ok(());
        }
        let received = poll::receive(&connection.stream, &mut self.buffer);
        let received = match received.map_err(|error| Error::io("receive", error))? {
            Some(0) => return Err(Error::Failed("the server closed a connection".into())),
            Some(received) => received,
            None => return Ok(()),
        };
        let now = Instant::now();
        let answered = connection.check(&self.payload, &self.buffer[..received], now, &mut self.latencies)?;
        if answered > 0 {
            self.last_reply = now;
            self.answered += answered as u64;
            connection.send(&self.poll, index, &mut self.payload, answered, now)?;
        }
        Ok(())
    }
}

impl Connection {
    /// Compares received bytes with the messages sent; returns the number of replies that they complete.
    fn check(
        &mut self,
        payload: &Payload,
        mut bytes: &[u8],
        now: Instant,
        latencies: &mut Latencies,
    ) -> Result<usize, Error> {
        let mut answered = 0;
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(payload.len() - self.offset));
            if !payload.matches(self.expected, self.offset, part) {
                let place = format!("message {}, near byte {}", self.expected, self.offset);
                return Err(Error::WrongReply(format!("{place}: other bytes than were sent")));
            }
            self.offset += part.len();
            bytes = rest;
            if self.offset == payload.len() {
                let Some(sent) = self.in_flight.pop_front() else {
                    return Err(Error::WrongReply("more replies than messages".into()));
                };
                latencies.record(now - sent);
                (self.offset, self.expected) = (0, self.expected + 1);
                answered += 1;
            }
        }
        Ok(answered)
    }

    /// Sends the next `count` messages at once.
    fn send(
        &mut self,
        poll: &Poll,
        index: usize,
        payload: &mut Payload,
        count: usize,
        now: Instant,
    ) -> Result<(), Error> {
        let waiting = !self.unsent.is_empty();
        for _ in 0..count {
            self.unsent.extend_from_slice(payload.stamp(self.next));
            self.in_flight.push_back(now);
            self.next += 1;
        }
        if waiting { Ok(()) } else { self.flush(poll, index) }
    }

    fn flush(&mut self, poll: &Poll, index: usize) -> Result<(), Error> {
        let sent = poll::send(&self.stream, &self.unsent).map_err(|error| Error::io("send", error))?;
        self.unsent.drain(..sent);
        let blocked = !self.unsent.is_empty();
        if blocked != self.blocked {
            let interest = if blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            poll.modify(&self.stream, index, interest).map_err(|error| Error::io("epoll_ctl", error))?;
            self.blocked = blocked;
        }
        Ok(())
    }
}
