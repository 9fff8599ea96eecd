//! Requests over kept connections.

use super::client::WAIT;
use super::make::config;
use super::resolve::resolved;
use super::server::{PATIENCE, Server, not_connected};
use crate::{Error, Latencies, Measured, Meter, Span};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tautline::layers::engine::{Others, Raw, RawEvent};
use tautline::{Conn, ConnId, ConnectError, DialId, Handler, Message, Target};

/// Most bytes of a response's head.
const MOST_HEAD: usize = 16 << 10;

/// Load of GET requests: each connection sends the next one once it has the whole response. Every body is compared.
#[derive(Clone)]
pub(crate) struct Get {
    /// The server. Its target is [raw](Target::raw).
    pub(crate) server: Server,
    /// Concurrent connections.
    pub(crate) connections: usize,
    /// The path of the requests.
    pub(crate) path: &'static str,
    /// The body of each response.
    pub(crate) body: Vec<u8>,
    /// Length of the measurement.
    pub(crate) span: Span,
}

impl Get {
    /// Connects, runs and measures.
    ///
    /// # Errors
    /// A connection failed or ended, a response is not the expected one, or none came for 5 s.
    pub(crate) fn run(&self) -> Result<Measured, Error> {
        let target: Arc<Target> = Arc::new(resolved(&self.server)?);
        let state = Rc::new(RefCell::new(State::default()));
        let request = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", self.path).into_bytes();
        let app = Box::new(Gets { state: Rc::clone(&state), request, body: self.body.clone() });
        let mut config = config(self.body.len(), 1);
        config.raw = true;
        let mut shard = self.server.make_loop(&self.server.tls, config, app, None)?;
        for _ in 0..self.connections {
            shard.connect(Arc::clone(&target));
        }
        let began = Instant::now();
        let mut last = (0, began);
        let mut meter: Option<Meter> = None;
        loop {
            shard.turn(WAIT)?;
            let now = Instant::now();
            let mut state = state.borrow_mut();
            if let Some(error) = state.error.take() {
                return Err(error);
            }
            if state.answered > last.0 {
                last = (state.answered, now);
            } else if now - last.1 > PATIENCE {
                return Err(Error::Network(format!("no response came for {} s", PATIENCE.as_secs())));
            }
            match meter.take() {
                Some(meter) if now - meter.began() >= self.span.duration => {
                    let latencies = std::mem::take(&mut state.latencies);
                    return meter.stop(state.answered, latencies);
                }
                None if state.waiting.len() == self.connections && now - began >= self.span.warmup => {
                    (state.answered, last.0) = (0, 0);
                    state.latencies.clear();
                    meter = Some(Meter::start(self.server.pid)?);
                }
                running => meter = running,
            }
        }
    }
}

/// State that the load shares with its handler.
#[derive(Default)]
struct State {
    waiting: HashMap<ConnId, Waiting>,
    answered: u64,
    latencies: Latencies,
    error: Option<Error>,
}

/// A connection that waits for a response.
struct Waiting {
    since: Instant,
    /// The bytes so far.
    response: Vec<u8>,
}

/// The handler.
struct Gets {
    state: Rc<RefCell<State>>,
    request: Vec<u8>,
    body: Vec<u8>,
}

impl Gets {
    fn fail(&self, error: Error) {
        self.state.borrow_mut().error.get_or_insert(error);
    }
}

impl Handler for Gets {
    type State = ();

    fn on_raw(&mut self, raw: &mut Raw<'_, ()>, event: RawEvent<'_>) {
        match event {
            RawEvent::Opened => {
                let _ = raw.write(&self.request);
                let waiting = Waiting { since: Instant::now(), response: Vec::new() };
                self.state.borrow_mut().waiting.insert(raw.id(), waiting);
            }
            RawEvent::Finished { .. } | RawEvent::Closed(_) => {
                self.fail(Error::Failed("the server ended a connection that asks for more".to_owned()));
            }
            _ => {}
        }
    }

    fn on_bytes(&mut self, raw: &mut Raw<'_, ()>, bytes: &mut [u8]) -> usize {
        let mut state = self.state.borrow_mut();
        let State { waiting, answered, latencies, .. } = &mut *state;
        let Some(waits) = waiting.get_mut(&raw.id()) else { return bytes.len() };
        waits.response.extend_from_slice(bytes);
        match is_whole(&waits.response, &self.body) {
            Ok(false) => {}
            Ok(true) => {
                let now = Instant::now();
                latencies.record(now - waits.since);
                *answered += 1;
                waits.response.clear();
                waits.since = now;
                let _ = raw.write(&self.request);
            }
            Err(why) => {
                drop(state);
                self.fail(Error::WrongReply(why));
                raw.end();
            }
        }
        bytes.len()
    }

    fn on_raw_failed(&mut self, _: &mut Others<'_, ()>, _: DialId, error: &ConnectError) {
        self.fail(not_connected(error));
    }

    fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}
}

/// Whether this is a whole response with status 200 and this body, or the beginning of one. `Err` says what is wrong.
fn is_whole(response: &[u8], body: &[u8]) -> Result<bool, String> {
    let Some(end) = response.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4) else {
        return if response.len() < MOST_HEAD {
            Ok(false)
        } else {
            Err("the head of a response has no end".to_owned())
        };
    };
    let head = String::from_utf8_lossy(&response[..end]);
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!("the server answers {status:?}"));
    }
    let named =
        |(name, value): (&str, &str)| name.eq_ignore_ascii_case("content-length").then(|| value.trim().to_owned());
    let length = lines.find_map(|line| line.split_once(':').and_then(named));
    if length.as_deref() != Some(body.len().to_string().as_str()) {
        return Err(format!("a response has Content-Length {length:?}, not {}", body.len()));
    }
    let got = &response[end..];
    if body.starts_with(got) { Ok(got.len() == body.len()) } else { Err("a response has another body".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::is_whole;

    #[test]
    fn a_response_is_whole_with_its_last_byte_and_wrong_with_another_body() {
        let whole = b"HTTP/1.1 200 OK\r\nServer: a\r\ncontent-length: 3\r\n\r\nabc";
        for len in 0..whole.len() {
            assert_eq!(is_whole(&whole[..len], b"abc"), Ok(false), "{len}");
        }
        assert_eq!(is_whole(whole, b"abc"), Ok(true));
        for (wrong, body) in [(&whole[..], &b"abd"[..]), (whole, b"ab"), (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", b"abc")]
        {
            assert!(is_whole(wrong, body).is_err());
        }
        assert!(is_whole(&[b'a'; 20_000], b"abc").is_err());
        assert!(is_whole(&[&whole[..], b"more"].concat(), b"abc").is_err());
    }
}
