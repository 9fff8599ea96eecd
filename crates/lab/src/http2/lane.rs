//! A connection of a loop without TLS, which speaks HTTP/1.1. Each of its requests is a stream.

use tautline::http::header::{CONTENT_LENGTH, HOST, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, TRANSFER_ENCODING};
use tautline::http::{HeaderValue, Method, Request, StatusCode, Uri};
use tautline::http2::{Code, Connection, ResponseHead};
use tautline::layers::buf::Buf;
use tautline::layers::io::slots::Slots;
use tautline::layers::ws::handshake::{HeadLimits, HeadReader, Origins, Policy, accept, is_upgrade};

/// All lanes of a driver, by their tokens.
pub(super) type Lanes = Slots<Box<Lane>>;

/// A lane.
pub(super) struct Lane {
    /// The place of the connection that carries it, which is the index of its socket.
    pub(super) carrier: usize,
    /// The stream of its request, until both directions have ended.
    pub(super) stream: Option<u32>,
    state: State,
    /// Bytes of a request that has not begun.
    head: Vec<u8>,
    /// Bytes for the loop.
    pub(super) inbound: Buf,
    /// Bytes of the stream's body among them, which its window gets back once the loop has taken them.
    pub(super) owed: usize,
    /// Whether the loop pauses.
    pub(super) is_paused: bool,
    /// Whether no more bytes come.
    pub(super) peer_ended: bool,
    /// Whether the loop knows that.
    pub(super) told: bool,
    /// Bytes of the loop for which the windows had no room.
    unsent: Buf,
    /// The buffer that the loop gets back once they have left.
    kept: Option<Buf>,
    /// Whether our direction ends behind them.
    ends: bool,
    has_ended: bool,
}

enum State {
    /// A request of the loop comes next.
    Idle,
    /// A WebSocket was asked for. The answer to its key.
    Upgrading(HeaderValue),
    /// A page was asked for. Whether the lane ends behind the response, whose length the server does not say.
    Asked { is_last: bool },
    /// A WebSocket is open.
    Tunnel,
}

impl Lane {
    pub(super) const fn new(carrier: usize) -> Self {
        Self {
            carrier,
            stream: None,
            state: State::Idle,
            head: Vec::new(),
            inbound: Buf::new(),
            owed: 0,
            is_paused: false,
            peer_ended: false,
            told: false,
            unsent: Buf::new(),
            kept: None,
            ends: false,
            has_ended: false,
        }
    }

    /// Bytes that wait for a window.
    pub(super) const fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Takes bytes of the loop. `room`: the bytes that the carrier takes now.
    ///
    /// # Errors
    /// The request cannot be made. The loop learns why.
    pub(super) fn send(
        &mut self,
        buf: Buf,
        conn: &mut Connection,
        room: usize,
        out: &mut Buf,
    ) -> Result<Option<Buf>, String> {
        let mut buf = buf;
        if !matches!(self.state, State::Tunnel) {
            self.head.extend_from_slice(buf.filled());
            buf.clear();
            self.begin(conn, out)?;
            return Ok(Some(buf));
        }
        let mut sent = 0;
        if let Some(stream) = self.stream.filter(|_| self.unsent.is_empty()) {
            let most = room.min(buf.len());
            sent = conn.data(stream, &buf.filled()[..most], false, out);
        }
        self.unsent.put(&buf.filled()[sent..]);
        buf.clear();
        if self.unsent.is_empty() {
            return Ok(Some(buf));
        }
        self.kept = Some(buf);
        Ok(None)
    }

    /// Makes the request that has come, if the one before it is done.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn begin(&mut self, conn: &mut Connection, out: &mut Buf) -> Result<(), String> {
        if !matches!(self.state, State::Idle) {
            return Ok(());
        }
        let read = HeadReader::new(HeadLimits::default()).request(&self.head);
        let Some((request, used)) = read.map_err(|error| error.to_string())? else { return Ok(()) };
        self.head.drain(..used);
        self.ask(&request, conn, out)
    }

    fn ask(&mut self, request: &Request<()>, conn: &mut Connection, out: &mut Buf) -> Result<(), String> {
        let headers = request.headers();
        let has_body = headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0");
        if has_body || headers.contains_key(TRANSFER_ENCODING) {
            return Err("a load sends no bodies over HTTP/2".to_owned());
        }
        let is_websocket = is_upgrade(request);
        if is_websocket && !conn.offers_websockets() {
            return Err(
                "the server takes no WebSockets over HTTP/2: its SETTINGS have no ENABLE_CONNECT_PROTOCOL (RFC 8441)"
                    .to_owned(),
            );
        }
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let uri = Uri::builder().scheme("https").authority(host).path_and_query(path).build();
        let mut asked = Request::new(());
        *asked.uri_mut() = uri.map_err(|error| error.to_string())?;
        *asked.method_mut() = if is_websocket { Method::CONNECT } else { request.method().clone() };
        headers.clone_into(asked.headers_mut());
        asked.headers_mut().remove(SEC_WEBSOCKET_KEY);
        self.state =
            if is_websocket { State::Upgrading(answer_to_key(request)?) } else { State::Asked { is_last: false } };
        let stream = conn.request(&asked, is_websocket.then_some("websocket"), !is_websocket, out);
        let most = conn.peer_settings().map_or(0, |settings| settings.max_streams);
        let too_many =
            || format!("the server takes {most} streams of a connection at once: use --streams {most} at most");
        self.stream = Some(stream.ok_or_else(too_many)?);
        self.has_ended = !is_websocket;
        Ok(())
    }

    /// The response to its request begins.
    pub(super) fn respond(&mut self, head: &ResponseHead) {
        let (response, out) = (&head.response, &mut self.inbound);
        let mut line = |parts: &[&[u8]]| parts.iter().for_each(|part| out.put(part));
        if let State::Upgrading(accept) = &self.state
            && response.status().is_success()
        {
            line(&[b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n"]);
            line(&[SEC_WEBSOCKET_ACCEPT.as_str().as_bytes(), b": ", accept.as_bytes(), b"\r\n"]);
            self.state = State::Tunnel;
        } else {
            let reason = response.status().canonical_reason().unwrap_or_default();
            line(&[b"HTTP/1.1 ", response.status().as_str().as_bytes(), b" ", reason.as_bytes(), b"\r\n"]);
            let has_no_body = matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
            let is_refusal = matches!(self.state, State::Upgrading(_));
            self.state = State::Asked { is_last: is_refusal || head.length.is_none() && !has_no_body };
        }
        let is_open = matches!(self.state, State::Tunnel);
        // HTTP/2 has no keys (RFC 8441, section 5). HAProxy passes on what the server behind it answers to a key of HAProxy's own.
        let is_left_out = |name| is_open && name == SEC_WEBSOCKET_ACCEPT;
        for (name, value) in response.headers().iter().filter(|(name, _)| !is_left_out(*name)) {
            line(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
        }
        line(&[b"\r\n"]);
    }

    /// A part of the response's body.
    pub(super) fn take(&mut self, data: &[u8]) {
        self.inbound.put(data);
        self.owed += data.len();
    }

    /// The peer has ended the stream. The next request can begin, or none will.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(super) fn end(&mut self, conn: &mut Connection, out: &mut Buf) -> Result<(), String> {
        if let State::Asked { is_last: false } = self.state {
            (self.state, self.stream) = (State::Idle, None);
            return self.begin(conn, out);
        }
        self.peer_ended = true;
        Ok(())
    }

    /// The loop ends its direction.
    pub(super) fn shut(&mut self, conn: &mut Connection, room: usize, out: &mut Buf) {
        self.ends = true;
        self.go_on(conn, room, out);
    }

    /// Sends bytes that waited, and the end.
    pub(super) fn go_on(&mut self, conn: &mut Connection, room: usize, out: &mut Buf) {
        let Some(stream) = self.stream.filter(|_| !self.has_ended) else { return };
        let most = room.min(self.unsent.len());
        let end = self.ends && most == self.unsent.len();
        let sent = conn.data(stream, &self.unsent.filled()[..most], end, out);
        self.unsent.take(sent);
        if self.unsent.is_empty() {
            self.unsent = Buf::new();
            self.has_ended = end;
        }
    }

    /// The loop's buffer, if it waits and all its bytes have left.
    pub(super) fn take_kept(&mut self) -> Option<Buf> {
        if self.unsent.is_empty() { self.kept.take() } else { None }
    }

    /// The loop has closed the lane: ends its stream.
    pub(super) fn close(&mut self, abort: bool, conn: &mut Connection, room: usize, out: &mut Buf) {
        if self.peer_ended && !abort {
            self.shut(conn, room, out);
        }
        if let Some(stream) = self.stream {
            // Does nothing if both directions have ended.
            conn.reset(stream, Code::CANCEL, out);
        }
    }
}

/// The `Sec-WebSocket-Accept` that the loop awaits: it knows nothing of HTTP/2, which has no keys.
fn answer_to_key(request: &Request<()>) -> Result<HeaderValue, String> {
    let mut policy = Policy::default();
    policy.origins = Origins::Any;
    let accepted = accept(request, &policy).map_err(|refused| refused.to_string())?;
    accepted.response.headers().get(SEC_WEBSOCKET_ACCEPT).cloned().ok_or_else(|| "a request has no key".to_owned())
}

#[cfg(test)]
mod tests {
    use super::Lane;
    use std::time::Duration;
    use tautline::http::{HeaderMap, HeaderValue, StatusCode};
    use tautline::http2::{Connection, Event, Limits, Role};
    use tautline::layers::buf::Buf;

    /// Has an end read all bytes for it, and calls `take` with each event.
    fn read(end: &mut Connection, wire: &mut Buf, out: &mut Buf, mut take: impl FnMut(Event<'_>)) {
        while !wire.is_empty() {
            let read = end.read(wire.filled_mut(), Duration::ZERO, out).unwrap();
            let used = read.used;
            read.event.into_iter().for_each(&mut take);
            wire.take(used);
        }
    }

    #[test]
    fn an_answer_to_a_key_that_is_not_ours_is_left_out() {
        let ends = [Role::Client, Role::Server].map(|role| Connection::new(role, Limits::default()));
        let [mut client, mut server] = ends;
        let (mut up, mut down, mut lane) = (Buf::new(), Buf::new(), Lane::new(0));
        client.start(&mut up);
        server.start(&mut down);
        read(&mut client, &mut down, &mut up, |_| {});
        let mut asked = Buf::new();
        asked.put(
            b"GET /chat HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
              Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        );
        lane.send(asked, &mut client, usize::MAX, &mut up).unwrap();
        read(&mut server, &mut up, &mut down, |_| {});
        let headers = [("sec-websocket-accept", "AAAAAAAAAAAAAAAAAAAAAAAAAAA="), ("sec-websocket-protocol", "chat")];
        let headers = headers.map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        assert!(server.respond(1, StatusCode::OK, &HeaderMap::from_iter(headers), false, &mut down));
        read(&mut client, &mut down, &mut up, |event| {
            if let Event::Response { head, .. } = event {
                assert!(head.response.headers().contains_key("sec-websocket-accept"));
                lane.respond(&head);
            }
        });
        let head = String::from_utf8(lane.inbound.filled().to_vec()).unwrap();
        let accepts: Vec<_> = head.lines().filter(|line| line.starts_with("sec-websocket-accept")).collect();
        assert_eq!(accepts, ["sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="]);
        assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("sec-websocket-protocol: chat\r\n"), "{head}");
    }
}
