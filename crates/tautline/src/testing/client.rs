use super::event::Event;
use super::net::{ClientEnd, Pipe};
use super::world::World;
use crate::{CloseCode, HeadLimits, Outgoing};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{Response, StatusCode};
use std::time::Duration;
use tautline_engine::connection;
use tautline_ws::handshake::HeadReader;

/// How long a test waits for other threads.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of a handler under test. See the [module](super) for an example.
///
/// Dropping it leaves its connection open; [`disconnect`](Self::disconnect) ends it.
#[derive(Clone)]
pub struct Client {
    world: World,
    number: usize,
}

impl Client {
    pub(super) const fn new(world: World, number: usize) -> Self {
        Self { world, number }
    }

    /// The next event that has happened.
    #[must_use]
    pub fn next(&self) -> Option<Event> {
        self.world.run();
        self.with(|pipe| match &mut pipe.end {
            ClientEnd::WebSocket { events, .. } => events.pop_front(),
            ClientEnd::Http { .. } => None,
        })
    }

    /// The next event. If there is none yet, waits in real time until another thread has caused one.
    ///
    /// # Panics
    /// If there is none after a minute.
    #[must_use]
    pub fn wait(&self) -> Event {
        wait_for(&self.world, || self.next())
    }

    /// The text messages that have arrived. Other events are dropped.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        std::iter::from_fn(|| self.next())
            .filter_map(|event| if let Event::Text(text) = event { Some(text) } else { None })
            .collect()
    }

    /// Sends a text message. It is discarded if the WebSocket is not open.
    pub fn text(&self, text: &str) {
        self.send(Outgoing::text(text));
    }

    /// Sends a binary message. It is discarded if the WebSocket is not open.
    pub fn binary(&self, data: &[u8]) {
        self.send(Outgoing::binary(data));
    }

    /// Sends a message. It is discarded if the WebSocket is not open.
    pub fn send(&self, message: Outgoing<'_>) {
        self.act(|connection, context, _| _ = connection.send(message, context));
    }

    /// Sends a ping with a payload of at most 125 bytes. Its pong is an [`Event::Pong`].
    pub fn ping(&self, payload: &[u8]) {
        self.act(|connection, context, _| _ = connection.ping(payload, context));
    }

    /// Closes the WebSocket.
    pub fn close(&self, code: CloseCode, reason: &str) {
        self.act(|connection, context, now| connection.close(code, reason, context, now));
    }

    /// Ends the connection without a close frame.
    pub fn disconnect(&self) {
        self.with(|pipe| pipe.client_ended = true);
        self.world.run();
    }

    /// Stops (`false`) or resumes reading. At most 64 KiB then leave the loop, and further messages wait in its queue.
    pub fn read(&self, reads: bool) {
        self.with(|pipe| pipe.reads = reads);
        self.world.run();
    }

    fn with<R>(&self, act: impl FnOnce(&mut Pipe) -> R) -> R {
        act(&mut self.world.net.borrow_mut().pipes[self.number])
    }

    fn act(
        &self,
        act: impl FnOnce(
            &mut connection::Connection<tautline_tls::plain::Session>,
            &mut connection::Context,
            std::time::Instant,
        ),
    ) {
        {
            let net = &mut *self.world.net.borrow_mut();
            let now = net.begin + net.now;
            if let ClientEnd::WebSocket { connection, .. } = &mut net.pipes[self.number].end {
                act(connection, &mut net.context, now);
            }
        }
        self.world.run();
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.number)
    }
}

/// An HTTP request whose response comes later.
pub struct Fetch {
    world: World,
    number: usize,
}

impl Fetch {
    pub(super) const fn new(world: World, number: usize) -> Self {
        Self { world, number }
    }

    pub(super) const fn number(&self) -> usize {
        self.number
    }

    /// Sends further bytes, for a request that comes in pieces.
    pub fn send_raw(&self, bytes: &[u8]) {
        self.world.net.borrow_mut().pipes[self.number].inbound.extend(bytes);
        self.world.run();
    }

    /// The bytes that have arrived and were not taken by [`next`](Self::next).
    #[must_use]
    pub fn received_raw(&self) -> Vec<u8> {
        self.world.run();
        match &self.world.net.borrow().pipes[self.number].end {
            ClientEnd::Http { received, .. } => received.clone(),
            ClientEnd::WebSocket { .. } => Vec::new(),
        }
    }

    /// Leaves, before its response is whole.
    pub fn disconnect(&self) {
        self.world.net.borrow_mut().pipes[self.number].client_ended = true;
        self.world.run();
    }

    /// Whether the server has ended the connection.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.world.run();
        let net = self.world.net.borrow();
        net.pipes[self.number].loop_ended || net.pipes[self.number].is_released
    }

    /// Stops (`false`) or resumes reading.
    pub fn read(&self, reads: bool) {
        self.world.net.borrow_mut().pipes[self.number].reads = reads;
        self.world.run();
    }

    /// The next response, if it is whole. `Transfer-Encoding` is undone, and its header removed.
    #[must_use]
    pub fn next(&self) -> Option<Response<Vec<u8>>> {
        let is_over = self.is_over();
        let mut net = self.world.net.borrow_mut();
        let ClientEnd::Http { received, head_only } = &mut net.pipes[self.number].end else { return None };
        let (response, used) = parsed(received, *head_only, is_over)?;
        received.drain(..used);
        Some(response)
    }

    /// The next response. If there is none yet, waits in real time until another thread has caused one.
    ///
    /// # Panics
    /// If there is none after a minute.
    #[must_use]
    pub fn wait(&self) -> Response<Vec<u8>> {
        wait_for(&self.world, || self.next())
    }
}

impl std::fmt::Debug for Fetch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fetch({})", self.number)
    }
}

/// Waits until other threads have caused what `next` finds.
fn wait_for<T>(world: &World, mut next: impl FnMut() -> Option<T>) -> T {
    let wake = world.net.borrow().wake.clone();
    loop {
        if let Some(found) = next() {
            return found;
        }
        assert!(wake.wait(PATIENCE), "nothing happened for a minute; virtual time passes only by `advance`");
    }
}

/// The response at the front of `bytes`, and its length.
fn parsed(bytes: &[u8], head_only: bool, is_over: bool) -> Option<(Response<Vec<u8>>, usize)> {
    let (head, used) = HeadReader::new(HeadLimits::new(1 << 20, 1000)).response(bytes).ok()??;
    let (mut parts, ()) = head.into_parts();
    let rest = &bytes[used..];
    let bodiless = head_only
        || parts.status.is_informational()
        || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let (body, len) = if bodiless {
        (Vec::new(), 0)
    } else if parts.headers.remove(TRANSFER_ENCODING).is_some() {
        dechunked(rest)?
    } else if let Some(len) = parts.headers.get(CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse().ok()) {
        (rest.get(..len)?.to_vec(), len)
    } else if is_over {
        (rest.to_vec(), rest.len())
    } else {
        return None;
    };
    Some((Response::from_parts(parts, body), used + len))
}

/// The content of a chunked body and its length on the wire; `None` if it is not whole.
fn dechunked(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut content, mut at) = (Vec::new(), 0);
    loop {
        let line = bytes[at..].windows(2).position(|pair| pair == b"\r\n")?;
        let size = str::from_utf8(&bytes[at..at + line]).ok()?;
        let size = usize::from_str_radix(size, 16).ok()?;
        at += line + 2;
        content.extend_from_slice(bytes.get(at..at + size)?);
        at += size;
        if bytes.get(at..at + 2)? != b"\r\n" {
            return None;
        }
        at += 2;
        if size == 0 {
            return Some((content, at));
        }
    }
}
