use super::link::{BUFFER, Link, wait};
use super::maker::{Maker, Side};
use rustix::event::{PollFd, PollFlags};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tautline_measure::cpu::{Pinned, Placement, thread_time};
use tautline_measure::{Error, Span};

/// Bytes of the answer's body.
const BODY: usize = 16 << 10;

/// Time beyond the planned one until every client must have its answer.
const PATIENCE: Duration = Duration::from_secs(20);

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 16384\r\nContent-Type: application/octet-stream\r\n\r\n";

/// HTTPS requests for 16 KiB over loopback: one thread for the server, one for the clients.
pub struct Gets<'a> {
    /// Makes the ends.
    pub maker: &'a Maker,
    /// Requests in flight, each on its own connection.
    pub in_flight: usize,
    /// Whether each request opens a new connection with a full handshake.
    pub closes: bool,
    /// CPUs of both threads.
    pub placement: Placement,
    /// Length of the measurement.
    pub span: Span,
}

/// Result of [`Gets`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GetRates {
    /// Answers per second.
    pub rate: f64,
    /// CPU time of the server's thread per answer, in us.
    pub server_us: f64,
}

impl Gets<'_> {
    /// Connects, runs and measures.
    pub fn run(&self) -> Result<GetRates, Error> {
        let failed = |error| Error::io("listen", error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                let _pinned = Pinned::to(self.placement.server)?;
                self.serve(&listener, &over)
            });
            let asked = self.ask(address);
            over.store(true, Ordering::Relaxed);
            let joined = server.join().map_err(|_| Error::Failed("the server's thread panicked".to_owned()))?;
            let ((rate, answers), cpu) = (asked?, joined?);
            Ok(GetRates { rate, server_us: cpu.as_secs_f64() * 1e6 / answers.max(1) as f64 })
        })
    }

    /// Serves until `over` is set; returns the CPU time used.
    fn serve(&self, listener: &TcpListener, over: &AtomicBool) -> Result<Duration, Error> {
        let answer: Vec<u8> = HEAD.iter().copied().chain((0..=250).cycle().take(BODY)).collect();
        let mut links: Vec<(Link, Vec<u8>)> = Vec::new();
        let began = thread_time();
        while !over.load(Ordering::Relaxed) {
            let listening = PollFd::new(listener, PollFlags::IN);
            wait(links.iter().map(|(link, _)| link), std::iter::once(listening))?;
            loop {
                match listener.accept() {
                    Ok((stream, _)) => {
                        links.push((Link::new(stream, self.maker.end(Side::Server)?)?, Vec::new()));
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // The client has closed it already.
                    Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                    Err(error) => return Err(Error::io("accept", error)),
                }
            }
            for (link, asked) in &mut links {
                link.exchange()?;
                let Link { end, inbox, out, is_open: true, .. } = link else { continue };
                loop {
                    let used = end.open(inbox.filled_mut(), out, &mut |plain| asked.extend_from_slice(plain))?;
                    if used == 0 {
                        break;
                    }
                    inbox.take(used);
                }
                while asked.starts_with(REQUEST) {
                    asked.drain(..REQUEST.len());
                    end.seal(&answer, out)?;
                }
                link.send()?;
            }
            links.retain(|(link, _)| !link.is_over);
        }
        Ok(thread_time().saturating_sub(began))
    }

    /// Sends requests for the whole time; returns answers per second, and all answers.
    fn ask(&self, address: SocketAddr) -> Result<(f64, u64), Error> {
        let mut clients = Vec::with_capacity(self.in_flight);
        for _ in 0..self.in_flight {
            clients.push(Client { link: self.connect(address)?, has_asked: false, received: 0 });
        }
        let mut place = vec![0; BUFFER];
        let (mut answers, mut before) = (0_u64, 0);
        let (mut began, mut is_warm) = (Instant::now(), false);
        loop {
            let mut moved = false;
            for client in &mut clients {
                moved |= client.link.exchange()?;
                if client.link.is_over {
                    return Err(Error::Network("the server ended a connection".to_owned()));
                }
                if !client.step(&mut place)? {
                    continue;
                }
                answers += 1;
                if self.closes {
                    client.link.drop_at_once();
                    *client = Client { link: self.connect(address)?, has_asked: false, received: 0 };
                }
            }
            let elapsed = began.elapsed();
            if !is_warm && elapsed >= self.span.warmup {
                (is_warm, began, before) = (true, Instant::now(), answers);
            } else if is_warm && elapsed >= self.span.duration && answers - before >= self.in_flight as u64 {
                let rate = (answers - before) as f64 / elapsed.as_secs_f64().max(1e-9);
                clients.iter().for_each(|client| client.link.drop_at_once());
                return Ok((rate, answers));
            }
            if elapsed > self.span.duration + PATIENCE {
                return Err(Error::Network("no answers came in time".to_owned()));
            }
            if !moved {
                wait(clients.iter().map(|client| &client.link), std::iter::empty())?;
            }
        }
    }

    fn connect(&self, address: SocketAddr) -> Result<Link, Error> {
        let stream = TcpStream::connect(address).map_err(|error| Error::io("connect", error))?;
        let mut link = Link::new(stream, self.maker.end(Side::Client)?)?;
        link.handshake()?;
        Ok(link)
    }
}

struct Client {
    link: Link,
    has_asked: bool,
    /// Bytes of the answer so far.
    received: usize,
}

impl Client {
    /// Sends the request or reads the answer; returns whether the answer is complete.
    fn step(&mut self, place: &mut [u8]) -> Result<bool, Error> {
        let Link { end, inbox, out, is_open: true, .. } = &mut self.link else { return Ok(false) };
        if !self.has_asked {
            end.seal(REQUEST, out)?;
            (self.has_asked, self.received) = (true, 0);
        }
        loop {
            let (used, len) = end.read(inbox.filled_mut(), place, out)?;
            if used == 0 {
                break;
            }
            inbox.take(used);
            if self.received == 0 && len > 0 && !place[..len].starts_with(b"HTTP/1.1 200 OK\r\n") {
                return Err(Error::WrongReply("an answer does not begin with HTTP/1.1 200 OK".to_owned()));
            }
            self.received += len;
        }
        self.link.send()?;
        let is_whole = self.received == HEAD.len() + BODY;
        if self.received > HEAD.len() + BODY {
            return Err(Error::WrongReply("an answer is too long".to_owned()));
        }
        self.has_asked &= !is_whole;
        Ok(is_whole)
    }
}
