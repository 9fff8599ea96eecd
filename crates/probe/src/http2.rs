//! HTTP/2 of the endpoint: what its SETTINGS announce, and whether a WebSocket opens on a stream (RFC 8441).

use super::dialer::{Dialer, Kind};
use super::facts::Http2;
use super::request::{Request, opening};
use super::stream::{Stream, io_trouble};
use rustls::crypto::SecureRandom;
use std::io;
use std::time::{Duration, Instant};
use tautline::CloseCode;
use tautline::http::header::{SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY};
use tautline::http::{self, Method, Uri};
use tautline::http2::{Connection, Event, Limits, Role};
use tautline::layers::buf::{Buf, Pool};
use tautline::layers::ws::{self, Decoder, Encoder};

/// The protocols that this step offers by ALPN.
pub(crate) const ALPN: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Longest message that is received.
const MOST_MESSAGE: usize = 1 << 20;

/// A connection of HTTP/2 that is looked at.
struct Look<'a> {
    stream: &'a mut Stream,
    conn: Connection,
    out: Buf,
    begun: Instant,
    until: Instant,
    /// The status of the request's response.
    status: Option<u16>,
    /// Bytes of the response's body.
    body: Vec<u8>,
    /// Why the stream or the connection ended.
    end: Option<String>,
}

/// Looks at a connection whose TLS is established. Only a request for a WebSocket is sent, and only if the server announces that
/// it takes them.
pub(crate) fn look(stream: &mut Stream, dialer: &Dialer, request: &Request, random: &dyn SecureRandom) -> Http2 {
    let chosen = stream.tls().and_then(|tls| tls.alpn_protocol());
    let mut found = Http2 { offered: chosen == Some(b"h2"), ..Http2::default() };
    if !found.offered {
        return found;
    }
    let conn = Connection::new(Role::Client, Limits::default());
    let (begun, until) = (Instant::now(), dialer.until());
    let mut look = Look { stream, conn, out: Buf::new(), begun, until, status: None, body: Vec::new(), end: None };
    look.conn.start(&mut look.out);
    found.error = look.all(dialer, request, random, &mut found).err();
    look.conn.go_away(tautline::http2::Code::NO_ERROR, "", &mut look.out);
    let _ = look.flush();
    found
}

impl Look<'_> {
    fn all(
        &mut self,
        dialer: &Dialer,
        request: &Request,
        random: &dyn SecureRandom,
        found: &mut Http2,
    ) -> Result<(), String> {
        let settings = loop {
            if let Some(settings) = self.conn.peer_settings() {
                break settings;
            }
            self.step()?;
        };
        found.websockets = Some(settings.websockets);
        found.max_streams = Some(settings.max_streams).filter(|most| *most < u32::MAX);
        found.window = Some(settings.initial_window);
        found.max_frame = Some(settings.max_frame);
        found.max_fields = settings.max_fields;
        if !request.websocket || !settings.websockets || !dialer.allows(Kind::Request) {
            return Ok(());
        }
        let asked = extended_connect(request)?;
        let start = Instant::now();
        let stream = self.conn.request(&asked, Some("websocket"), false, &mut self.out);
        let stream = stream.ok_or("the server takes no stream at all")?;
        while self.status.is_none() {
            self.step()?;
        }
        found.ms = Some(start.elapsed().as_secs_f64() * 1e3);
        found.status = self.status;
        if self.status.is_some_and(|status| (200..300).contains(&status)) && dialer.allows(Kind::Ping) {
            found.pong_ms = Some(self.ping(stream, random)?);
        }
        Ok(())
    }

    /// Sends a ping on the WebSocket and closes it. Returns the milliseconds until the answer.
    fn ping(&mut self, stream: u32, random: &dyn SecureRandom) -> Result<f64, String> {
        const PAYLOAD: &[u8] = b"taut";
        let (mut encoder, mut frames) = (Encoder::new(ws::Role::Client), Buf::new());
        let key = || {
            let mut key = [0; 4];
            // A mask protects proxies from what an application chooses (RFC 6455, section 10.3); here there is none.
            let _ = random.fill(&mut key);
            key
        };
        let unsent = |error: ws::Error| error.to_string();
        encoder.ping(PAYLOAD, key, &mut frames).map_err(unsent)?;
        let start = Instant::now();
        self.conn.data(stream, frames.filled(), false, &mut self.out);
        let (mut decoder, mut pool) = (Decoder::new(ws::Role::Client, MOST_MESSAGE), Pool::new(1 << 20));
        loop {
            self.step()?;
            while !self.body.is_empty() {
                let decoded = decoder.decode(&mut self.body, &mut pool);
                let decoded = decoded.map_err(|error| format!("the server broke RFC 6455: {error}"))?;
                let used = decoded.used;
                let is_pong = matches!(&decoded.event, Some(ws::Event::Pong(payload)) if *payload == PAYLOAD);
                let is_close = matches!(&decoded.event, Some(ws::Event::Close(_)));
                let waits = used == 0 && decoded.event.is_none();
                self.body.drain(..used);
                if is_pong {
                    let ms = start.elapsed().as_secs_f64() * 1e3;
                    frames.clear();
                    encoder.close(Some((CloseCode::NORMAL, "")), key, &mut frames).map_err(unsent)?;
                    self.conn.data(stream, frames.filled(), true, &mut self.out);
                    return Ok(ms);
                }
                if is_close {
                    return Err("the server closed the WebSocket before it answered a ping".to_owned());
                }
                if waits {
                    break;
                }
            }
        }
    }

    /// Sends what waits, and reads once.
    fn step(&mut self) -> Result<(), String> {
        if let Some(end) = &self.end {
            return Err(end.clone());
        }
        let text = |error: io::Error| io_trouble(&error).text;
        self.flush().map_err(text)?;
        let mut chunk = [0; 16 << 10];
        let len = self.stream.read(&mut chunk, self.until).map_err(text)?;
        if len == 0 {
            return Err("the server closed the connection".to_owned());
        }
        let now: Duration = self.begun.elapsed();
        let mut rest = &mut chunk[..len];
        while !rest.is_empty() {
            let read = self.conn.read(rest, now, &mut self.out).map_err(|fault| fault.to_string())?;
            let used = read.used;
            match read.event {
                Some(Event::Response { head, .. }) => self.status = Some(head.response.status().as_u16()),
                Some(Event::Data { stream, data, end }) => {
                    self.body.extend_from_slice(data);
                    let len = data.len();
                    self.conn.took(stream, len, &mut self.out);
                    if end {
                        self.end = Some("the server ended the stream".to_owned());
                    }
                }
                Some(Event::End { .. }) => self.end = Some("the server ended the stream".to_owned()),
                Some(Event::Reset { code, .. }) => self.end = Some(format!("the server reset the stream: {code}")),
                Some(Event::GoAway { code, .. }) => self.end = Some(format!("the server goes away: {code}")),
                _ => {}
            }
            rest = &mut rest[used..];
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self.stream.write(self.out.filled(), self.until);
        self.out.clear();
        written
    }
}

/// The request for a WebSocket (RFC 8441, section 5), without an offer of compression.
fn extended_connect(request: &Request) -> Result<http::Request<()>, String> {
    let opening = opening(request, [0; 16]).map_err(|error| error.to_string())?;
    let upgrade = opening.request();
    let host = upgrade.headers().get(http::header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let path = upgrade.uri().path_and_query().map_or("/", |path| path.as_str());
    let uri = Uri::builder().scheme("https").authority(host).path_and_query(path).build();
    let mut asked = http::Request::new(());
    *asked.method_mut() = Method::CONNECT;
    *asked.uri_mut() = uri.map_err(|error| error.to_string())?;
    upgrade.headers().clone_into(asked.headers_mut());
    for name in [SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_EXTENSIONS] {
        asked.headers_mut().remove(name);
    }
    Ok(asked)
}
