//! An open WebSocket: pings, new keys, the closing handshake, announced sizes, silence. It sends no messages.

use super::dialer::{Dialer, Kind};
use super::facts::{Close, Idle, Session};
use super::request::Upgraded;
use super::stream::{Stream, is_timeout};
use rustls::crypto::SecureRandom;
use std::time::{Duration, Instant};
use tautline::CloseCode;
use tautline::layers::buf::{Buf, Pool};
use tautline::layers::ws::deflate::Inflater;
use tautline::layers::ws::{Decoder, Encoder, Event, Header, Opcode, Role};

/// Longest message that is received: more ends the connection.
const MOST_MESSAGE: usize = 16 << 20;

/// Longest wait for a pong, and for each step of the closing handshake.
const ANSWER: Duration = Duration::from_secs(1);

/// An open WebSocket.
pub(crate) struct WebSocket<'a> {
    stream: Stream,
    decoder: Decoder,
    encoder: Encoder,
    pool: Pool,
    /// Bytes that were received and not decoded.
    input: Vec<u8>,
    random: &'a dyn SecureRandom,
    opened: Instant,
    seen: Session,
    server_pings: usize,
}

/// An event that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Arrived {
    Message,
    Pong(Vec<u8>),
    Ping,
    /// A close frame with its code, 1005 if it has none.
    Close(u16, String),
    /// The connection ended, with the reason.
    End(String),
    Nothing,
}

impl<'a> WebSocket<'a> {
    pub(crate) fn new(stream: Stream, upgraded: Upgraded, random: &'a dyn SecureRandom) -> Self {
        let mut decoder = Decoder::new(Role::Client, MOST_MESSAGE);
        if let Some(params) = &upgraded.deflate {
            decoder = decoder.with_inflater(Inflater::new(params, Role::Client, 1000));
        }
        Self {
            stream,
            decoder,
            encoder: Encoder::new(Role::Client),
            pool: Pool::new(1 << 20),
            input: upgraded.early,
            random,
            opened: upgraded.at,
            seen: Session::default(),
            server_pings: 0,
        }
    }

    /// Waits for the first message.
    pub(crate) fn wait_for_message(&mut self, wait: Duration) {
        let until = Instant::now() + wait;
        while self.seen.first_message_ms.is_none() && self.seen.lost.is_none() {
            match self.next(until) {
                Arrived::Nothing => return,
                arrived => self.note_end(&arrived),
            }
        }
    }

    /// Sends pings one after the other, and times the answers.
    pub(crate) fn ping(&mut self, dialer: &Dialer, count: usize) {
        for number in 0..count {
            if self.seen.lost.is_some() {
                return;
            }
            self.seen.pings_sent += 1;
            let Some(ms) = self.round_trip(dialer, number) else { return };
            self.seen.pings_ms.push(ms);
        }
    }

    /// Milliseconds until the answer to one ping; `None` if there is none.
    fn round_trip(&mut self, dialer: &Dialer, number: usize) -> Option<f64> {
        if self.seen.lost.is_some() || !dialer.allows(Kind::Ping) {
            return None;
        }
        let payload = number.to_be_bytes();
        let key = self.key();
        let mut out = Buf::new();
        self.encoder.ping(&payload, || key, &mut out).ok()?;
        let start = Instant::now();
        self.write(&out)?;
        loop {
            match self.next(start + ANSWER) {
                Arrived::Pong(answer) if answer == payload => return Some(start.elapsed().as_secs_f64() * 1e3),
                Arrived::Nothing => return None,
                arrived => {
                    self.note_end(&arrived);
                    if self.seen.lost.is_some() {
                        return None;
                    }
                }
            }
        }
    }

    /// Sends new keys and asks for new ones. Then the connection must still answer a ping.
    pub(crate) fn update_keys(&mut self, dialer: &Dialer) {
        if self.seen.lost.is_some() || self.seen.pings_ms.is_empty() {
            return;
        }
        if let Some(tls) = self.stream.tls()
            && tls.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3)
            && tls.refresh_traffic_keys().is_ok()
        {
            self.seen.key_update = Some(self.round_trip(dialer, usize::MAX).is_some());
        }
    }

    /// Closes with code 1000, and looks how the server ends the connection.
    pub(crate) fn close(mut self) -> Session {
        if self.seen.lost.is_some() {
            return self.seen;
        }
        let key = self.key();
        let mut out = Buf::new();
        let start = Instant::now();
        let mut close = Close::default();
        if self.encoder.close(Some((CloseCode::NORMAL, "")), || key, &mut out).is_ok() && self.write(&out).is_some() {
            loop {
                match self.next(start + ANSWER) {
                    Arrived::Close(code, reason) => {
                        (close.code, close.reason) = (Some(code), reason);
                        break;
                    }
                    Arrived::End(_) | Arrived::Nothing => break,
                    _ => {}
                }
            }
        }
        close.ms = start.elapsed().as_secs_f64() * 1e3;
        (close.close_notify, close.tcp_closed) = self.stream.wait_for_end(Instant::now() + ANSWER);
        self.seen.close = Some(close);
        self.seen
    }

    /// Announces a message of this size without sending it, and waits for a refusal.
    ///
    /// Returns the close code of the refusal, 1005 and 1006 if it has none, or `None` if nothing happened.
    pub(crate) fn announce(mut self, dialer: &Dialer, size: u64, wait: Duration) -> Option<u16> {
        if !dialer.allows(Kind::MessageHeader) {
            return None;
        }
        let header = Header { fin: true, rsv1: false, opcode: Opcode::Binary, key: Some(self.key()), len: size };
        let mut bytes = [0; Header::MAX_LEN];
        let len = header.encode_to(&mut bytes);
        let until = Instant::now() + wait;
        if self.stream.write(&bytes[..len], until).is_err() {
            return Some(1006);
        }
        loop {
            match self.next(until) {
                Arrived::Close(code, _) => return Some(code),
                Arrived::End(_) => return Some(1006),
                Arrived::Nothing => return None,
                _ => {}
            }
        }
    }

    /// Stays silent until the server ends the connection, or for this time. Pings of the server are answered.
    pub(crate) fn idle(mut self, asked: Duration) -> Idle {
        let mut idle = Idle { asked_s: asked.as_secs_f64(), ..Idle::default() };
        let (start, until) = (Instant::now(), Instant::now() + asked);
        loop {
            match self.next(until) {
                Arrived::Nothing => break,
                end @ (Arrived::Close(..) | Arrived::End(_)) => {
                    idle.closed_after_s = Some(start.elapsed().as_secs_f64());
                    idle.code = if let Arrived::Close(code, _) = end { Some(code) } else { None };
                    break;
                }
                _ => {}
            }
        }
        idle.server_pings = self.server_pings;
        if idle.closed_after_s.is_none() {
            let _ = self.close();
        }
        idle
    }

    fn note_end(&mut self, arrived: &Arrived) {
        match arrived {
            Arrived::Close(code, reason) => self.seen.lost = Some(format!("the server closed with {code} {reason:?}")),
            Arrived::End(reason) => self.seen.lost = Some(reason.clone()),
            _ => {}
        }
    }

    /// Decodes what has arrived, and waits for more until then.
    fn next(&mut self, until: Instant) -> Arrived {
        let mut chunk = [0; 16 << 10];
        loop {
            if !self.input.is_empty() {
                let arrived = self.decode();
                if let Arrived::Ping = arrived {
                    self.server_pings += 1;
                }
                if arrived != Arrived::Nothing {
                    return arrived;
                }
            }
            match self.stream.read(&mut chunk, until) {
                Ok(0) => return Arrived::End("the server closed the connection without a close frame".to_owned()),
                Ok(n) => self.input.extend_from_slice(&chunk[..n]),
                Err(error) if is_timeout(&error) => return Arrived::Nothing,
                Err(error) => return Arrived::End(format!("the connection broke: {error}")),
            }
        }
    }

    /// Decodes one event of the input.
    fn decode(&mut self) -> Arrived {
        let mut answer = None;
        let (used, arrived) = match self.decoder.decode(&mut self.input, &mut self.pool) {
            Err(error) => {
                self.input.clear();
                return Arrived::End(format!("the server broke RFC 6455: {error}"));
            }
            Ok(decoded) => {
                let arrived = match decoded.event {
                    None => Arrived::Nothing,
                    Some(Event::Message(message)) => {
                        self.seen.messages += 1;
                        self.seen.bytes += message.data().len();
                        let ms = self.opened.elapsed().as_secs_f64() * 1e3;
                        self.seen.first_message_ms.get_or_insert(ms);
                        Arrived::Message
                    }
                    Some(Event::Pong(payload)) => Arrived::Pong(payload.to_vec()),
                    Some(Event::Ping(payload)) => {
                        answer = Some(payload.to_vec());
                        Arrived::Ping
                    }
                    Some(Event::Close(close)) => close.map_or_else(
                        || Arrived::Close(1005, String::new()),
                        |close| Arrived::Close(close.code.get(), close.reason.to_owned()),
                    ),
                    Some(_) => Arrived::Nothing,
                };
                (decoded.used, arrived)
            }
        };
        self.input.drain(..used);
        if let Some(payload) = answer {
            let key = self.key();
            let mut out = Buf::new();
            if self.encoder.pong(&payload, || key, &mut out).is_ok() {
                let _ = self.stream.write(out.filled(), Instant::now() + ANSWER);
            }
        }
        arrived
    }

    fn write(&mut self, out: &Buf) -> Option<()> {
        let written = self.stream.write(out.filled(), Instant::now() + ANSWER);
        written.map_err(|error| self.seen.lost = Some(format!("the connection broke: {error}"))).ok()
    }

    /// A masking key.
    fn key(&self) -> [u8; 4] {
        let mut key = [0; 4];
        // A mask protects proxies from what an application chooses (RFC 6455, section 10.3); here there is none.
        let _ = self.random.fill(&mut key);
        key
    }
}
