//! A whole connection: it leads to the same events however its bytes are cut, and all that this end writes is frames of HTTP/2.

use core::time::Duration;
use http::{HeaderMap, Request, StatusCode};
use tautline_buf::Buf;
use tautline_http2::{Connection, Event, Limits, Role};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The bit of the first byte with which we are the client.
const CLIENT: u8 = 0x80;
/// The bit with which the peer's bytes begin with its preface.
const RAW: u8 = 0x40;

/// Input: one byte for the roles and the cuts, then the bytes of the peer.
pub(crate) fn run(data: &[u8]) {
    let Some((&first, bytes)) = data.split_first() else { return };
    let role = if first & CLIENT == 0 { Role::Server } else { Role::Client };
    let mut wire = Vec::new();
    if role == Role::Server && first & RAW == 0 {
        wire.extend_from_slice(PREFACE);
    }
    wire.extend_from_slice(bytes);
    let step = usize::from(first & 0x3f).max(1);
    assert_eq!(serve(role, &wire, usize::MAX), serve(role, &wire, step), "cut into pieces of {step}");
}

/// The events of a connection in words, and its fault.
fn serve(role: Role, wire: &[u8], step: usize) -> (Vec<String>, Option<String>) {
    let limits = Limits::default();
    let (mut conn, mut out, mut told) = (Connection::new(role, limits), Buf::new(), Told::default());
    conn.start(&mut out);
    if role == Role::Client {
        let get = Request::get("https://a.example/").body(()).unwrap_or_default();
        let _ = conn.request(&get, None, true, &mut out);
        let post = Request::post("https://a.example/").body(()).unwrap_or_default();
        let _ = conn.request(&post, None, false, &mut out);
    }
    for piece in wire.chunks(step.min(wire.len().max(1))) {
        let mut piece = piece.to_vec();
        let mut rest = &mut piece[..];
        while !rest.is_empty() {
            let read = match conn.read(rest, Duration::ZERO, &mut out) {
                Ok(read) => read,
                Err(fault) => {
                    conn.go_away(fault.code, fault.why, &mut out);
                    check(role, out.filled());
                    return (told.events, Some(fault.to_string()));
                }
            };
            let used = read.used;
            assert!(used > 0 || read.event.is_some(), "a read makes progress");
            let answer = told.tell(read.event);
            match answer {
                Answer::Nothing => {}
                Answer::Respond(stream) => {
                    conn.respond(stream, StatusCode::OK, &HeaderMap::new(), false, &mut out);
                    let sent = conn.data(stream, b"an answer", true, &mut out);
                    assert!(sent <= 9);
                }
                Answer::Took(stream, len) => conn.took(stream, len, &mut out),
            }
            rest = &mut rest[used..];
        }
        assert!(conn.streams() <= limits.streams as usize + 2, "{} streams", conn.streams());
    }
    check(role, out.filled());
    told.end();
    (told.events, None)
}

/// The answer of the application to an event.
enum Answer {
    Nothing,
    Respond(u32),
    Took(u32, usize),
}

/// Events in words. Pieces of one body that follow each other are one event. A stream that is reset may have had a part of its body
/// or not, so that counts for nothing.
#[derive(Default)]
struct Told {
    events: Vec<String>,
    /// For each event the stream whose body it is, if it is one.
    of_body: Vec<Option<u32>>,
    body: Option<(u32, Vec<u8>)>,
}

impl Told {
    fn tell(&mut self, event: Option<Event<'_>>) -> Answer {
        match event {
            None => Answer::Nothing,
            Some(Event::Data { stream, data, end }) => {
                let len = data.len();
                match &mut self.body {
                    Some((of, body)) if *of == stream => body.extend_from_slice(data),
                    _ => {
                        self.end();
                        self.body = Some((stream, data.to_vec()));
                    }
                }
                if end {
                    self.end();
                    self.push(None, format!("the end of {stream}"));
                }
                Answer::Took(stream, len)
            }
            Some(event) => {
                self.end();
                let text = format!("{event:?}");
                assert!(text.len() < 200 << 10, "an event is bounded");
                if let Event::Reset { stream, .. } = event {
                    self.forget_body(stream);
                }
                self.push(None, text);
                if let Event::Request { stream, .. } = event { Answer::Respond(stream) } else { Answer::Nothing }
            }
        }
    }

    fn end(&mut self) {
        if let Some((stream, body)) = self.body.take() {
            self.push(Some(stream), format!("{} bytes of {stream}: {body:?}", body.len()));
        }
    }

    fn push(&mut self, of_body: Option<u32>, text: String) {
        self.events.push(text);
        self.of_body.push(of_body);
    }

    fn forget_body(&mut self, stream: u32) {
        let (events, of_body) = (std::mem::take(&mut self.events), std::mem::take(&mut self.of_body));
        let kept = events.into_iter().zip(of_body).filter(|(_, of)| *of != Some(stream));
        (self.events, self.of_body) = kept.unzip();
    }
}

/// Checks that bytes are whole frames of lengths and types that this end sends.
fn check(role: Role, mut bytes: &[u8]) {
    if role == Role::Client {
        bytes = bytes.strip_prefix(PREFACE).unwrap_or_default();
    }
    let mut is_over = false;
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let len = (usize::from(head[0]) << 16) | (usize::from(head[1]) << 8) | usize::from(head[2]);
        assert!(len <= 1 << 14 && matches!(head[3], 0 | 1 | 3 | 4 | 6..=9), "{head:?}");
        assert!(!is_over, "a frame behind GOAWAY");
        is_over = head[3] == 7;
        assert!(rest.len() >= len, "half a frame");
        bytes = &rest[len..];
    }
    assert!(bytes.is_empty(), "half a header");
}
