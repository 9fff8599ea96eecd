use crate::block::encode;
use crate::code::{Code, Fault};
use crate::connection::Connection;
use crate::event::Event;
use crate::frame::{FrameHeader, HEADER, PREFACE, flag, kind, put};
use crate::limits::Limits;
use crate::role::Role;
use core::time::Duration;
use http::{HeaderMap, Request, StatusCode};
use tautline_buf::Buf;

mod rfc9113;
mod rfc9218;
mod windows;

const GET: [(&[u8], &[u8]); 4] =
    [(b":method", b"GET"), (b":scheme", b"https"), (b":path", b"/a?b"), (b":authority", b"example.org")];

/// A server, and what a client that writes frames by hand sees of it.
struct Bench {
    server: Connection,
    out: Buf,
    now: Duration,
    /// The events, in words.
    seen: Vec<String>,
    data: Vec<u8>,
}

impl Bench {
    /// A client that knows the server's settings.
    fn new(limits: Limits) -> Self {
        let mut bench = Self::begun(limits);
        bench.send(kind::SETTINGS, flag::ACK, 0, &[]).unwrap();
        bench
    }

    /// A client that has not got them.
    fn begun(limits: Limits) -> Self {
        let (server, out) = (Connection::new(Role::Server, limits), Buf::new());
        let mut bench = Self { server, out, now: Duration::ZERO, seen: Vec::new(), data: Vec::new() };
        bench.server.start(&mut bench.out);
        bench.send_bytes(PREFACE).unwrap();
        bench.send(kind::SETTINGS, 0, 0, &[]).unwrap();
        bench.answers();
        bench
    }

    fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.send_in(bytes, usize::MAX)
    }

    /// Gives the server bytes in pieces of `most`.
    fn send_in(&mut self, bytes: &[u8], most: usize) -> Result<(), Fault> {
        for piece in bytes.chunks(most.min(bytes.len().max(1))) {
            let mut piece = piece.to_vec();
            let mut rest = &mut piece[..];
            while !rest.is_empty() {
                let read = self.server.read(rest, self.now, &mut self.out)?;
                let used = read.used;
                match read.event {
                    Some(Event::Request { stream, head, end }) => {
                        let uri = head.request.uri();
                        self.seen.push(format!("{stream} {} {uri} {end}", head.request.method()));
                    }
                    Some(Event::Data { stream, data, end }) => {
                        self.data.extend_from_slice(data);
                        self.seen.push(format!("{stream} {} {end}", data.len()));
                    }
                    Some(Event::End { stream }) => self.seen.push(format!("{stream} ends")),
                    Some(Event::Reset { stream, code, why }) => {
                        let why = why.map_or_else(|| "by the peer".to_owned(), |why| why.to_string());
                        self.seen.push(format!("{stream} reset {code}: {why}"));
                    }
                    Some(Event::Refused { stream, why }) => self.seen.push(format!("{stream} refused: {why}")),
                    Some(Event::Window { stream }) => self.seen.push(format!("window {stream:?}")),
                    Some(other) => self.seen.push(format!("{other:?}")),
                    None => assert_eq!(used, rest.len(), "without an event all bytes are used"),
                }
                rest = &mut rest[used..];
            }
        }
        Ok(())
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<(), Fault> {
        self.send_bytes(&frame(kind, flags, stream, payload))
    }

    fn ask(&mut self, stream: u32, fields: &[(&[u8], &[u8])], end: bool) -> Result<(), Fault> {
        let flags = flag::END_HEADERS | if end { flag::END_STREAM } else { 0 };
        self.send(kind::HEADERS, flags, stream, &encode(fields.iter().copied()))
    }

    /// The events since the last call.
    fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.seen)
    }

    /// The frames that the server has written since the last call: kind, flags, stream and payload.
    fn answers(&mut self) -> Vec<(u8, u8, u32, Vec<u8>)> {
        let (mut rest, mut answers) = (self.out.filled(), Vec::new());
        while let Some(header) = rest.first_chunk::<HEADER>() {
            let header = FrameHeader::parse(*header);
            let end = HEADER + header.len as usize;
            answers.push((header.kind, header.flags, header.stream, rest[HEADER..end].to_vec()));
            rest = &rest[end..];
        }
        self.out.clear();
        answers
    }

    /// The code of the RST_STREAM that the server has written since the last call.
    fn reset(&mut self) -> Option<Code> {
        let resets =
            |(kind, _, _, payload): &(u8, u8, u32, Vec<u8>)| (*kind == kind::RST_STREAM).then(|| payload.clone());
        let payload = self.answers().iter().find_map(resets)?;
        Some(Code(u32::from_be_bytes(payload.try_into().unwrap())))
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Buf::new();
    put(kind, flags, stream, payload, &mut out);
    out.filled().to_vec()
}

fn bench() -> Bench {
    Bench::new(Limits::default())
}

#[test]
fn requests_and_bodies_are_read_in_pieces_of_any_size() {
    for most in [1, 2, 7, 9, 10, 1000] {
        let mut bench = bench();
        let mut bytes = frame(kind::HEADERS, flag::END_HEADERS, 1, &encode([GET[0], GET[1], GET[2], GET[3]]));
        bytes.extend(frame(kind::DATA, 0, 1, b"hello "));
        bytes.extend(frame(kind::DATA, flag::PADDED | flag::END_STREAM, 1, b"\x03world\0\0\0"));
        bytes.extend(frame(kind::PING, 0, 0, b"12345678"));
        bench.send_in(&bytes, most).unwrap();
        assert_eq!(bench.data, b"hello world", "{most}");
        assert_eq!(bench.seen[0], "1 GET https://example.org/a?b false");
        assert!(bench.seen.last().unwrap().ends_with("true"), "{:?}", bench.seen);
        let pong = bench.answers().pop().unwrap();
        assert_eq!(pong, (kind::PING, flag::ACK, 0, b"12345678".to_vec()));
    }
}

#[test]
fn a_field_section_comes_in_several_frames_that_nothing_interrupts() {
    let block = encode(GET);
    let mut bench = bench();
    bench.send(kind::HEADERS, flag::END_STREAM, 1, &block[..3]).unwrap();
    bench.send(kind::CONTINUATION, 0, 1, &block[3..4]).unwrap();
    bench.send(kind::CONTINUATION, flag::END_HEADERS, 1, &block[4..]).unwrap();
    assert_eq!(bench.take(), ["1 GET https://example.org/a?b true"]);
    bench.send(kind::HEADERS, flag::END_STREAM, 3, &block[..3]).unwrap();
    let fault = bench.send(kind::PING, 0, 0, &[0; 8]).unwrap_err();
    assert_eq!(fault.code, Code::PROTOCOL_ERROR);
}

#[test]
fn windows_bound_both_directions() {
    let mut bench = Bench::new(Limits { stream_window: 1 << 16, ..Limits::default() });
    bench.ask(1, &GET, false).unwrap();
    let piece = [7; 16 << 10];
    for _ in 0..4 {
        bench.send(kind::DATA, 0, 1, &piece).unwrap();
    }
    assert!(bench.answers().is_empty(), "nobody has taken a byte");
    bench.send(kind::DATA, 0, 1, b"x").unwrap();
    assert_eq!(bench.reset(), Some(Code::FLOW_CONTROL_ERROR));

    bench.ask(3, &GET, false).unwrap();
    for _ in 0..4 {
        bench.send(kind::DATA, 0, 3, &piece).unwrap();
        bench.server.took(3, piece.len(), &mut bench.out);
    }
    let back: u32 = bench
        .answers()
        .iter()
        .filter(|(kind, _, stream, _)| (*kind, *stream) == (kind::WINDOW_UPDATE, 3))
        .map(|(_, _, _, payload)| u32::from_be_bytes(payload.clone().try_into().unwrap()))
        .sum();
    assert_eq!(back, 4 * (16 << 10));

    // Ours: 65,535 bytes on the connection.
    let long = vec![1; 100_000];
    bench.server.respond(3, StatusCode::OK, &HeaderMap::new(), false, &mut bench.out);
    assert_eq!(bench.server.data(3, &long, true, &mut bench.out), 65_535);
    assert_eq!(bench.server.data(3, &long, true, &mut bench.out), 0);
    bench.take();
    bench.send(kind::WINDOW_UPDATE, 0, 0, &10_u32.to_be_bytes()).unwrap();
    bench.send(kind::WINDOW_UPDATE, 0, 3, &20_u32.to_be_bytes()).unwrap();
    assert_eq!(bench.take(), ["window None", "window Some(3)"]);
    assert_eq!(bench.server.room(3), Some(10));
    // A smaller first window makes that of a stream negative.
    bench.send(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]).unwrap();
    assert_eq!(bench.server.room(3), Some(0));
    for (stream, code) in [(0, Code::FLOW_CONTROL_ERROR), (3, Code::FLOW_CONTROL_ERROR)] {
        let mut bench = self::bench();
        bench.ask(3, &GET, false).unwrap();
        let sent = bench.send(kind::WINDOW_UPDATE, 0, stream, &0x7fff_ffff_u32.to_be_bytes());
        assert_eq!(sent.err().map(|fault| fault.code).or_else(|| bench.reset()), Some(code));
    }
}

#[test]
fn a_body_has_the_length_that_was_said() {
    let with_length = |length: &'static [u8]| [GET[0], GET[1], GET[2], GET[3], (b"content-length", length)];
    let mut bench = bench();
    bench.ask(1, &with_length(b"3"), false).unwrap();
    bench.send(kind::DATA, flag::END_STREAM, 1, b"abc").unwrap();
    assert_eq!(bench.reset(), None);
    for (stream, body) in [(3, &b"ab"[..]), (5, b"abcd")] {
        bench.ask(stream, &with_length(b"3"), false).unwrap();
        bench.send(kind::DATA, flag::END_STREAM, stream, body).unwrap();
        assert_eq!(bench.reset(), Some(Code::PROTOCOL_ERROR), "{stream}");
    }
    bench.ask(7, &with_length(b"3"), true).unwrap();
    assert_eq!(bench.reset(), Some(Code::PROTOCOL_ERROR));
    bench.ask(9, &with_length(b"3, 4"), false).unwrap();
    assert_eq!(bench.reset(), Some(Code::PROTOCOL_ERROR));
    // Trailers end a body, too.
    bench.ask(11, &with_length(b"3"), false).unwrap();
    bench.send(kind::DATA, 0, 11, b"abc").unwrap();
    bench.ask(11, &[(b"x-sum", b"1")], true).unwrap();
    assert!(bench.take().contains(&"11 ends".to_owned()));
    assert_eq!(bench.server.streams(), 2, "1 and 11 wait for answers");
}

#[test]
fn requests_that_could_smuggle_another_are_refused() {
    let wrong: [&[(&[u8], &[u8])]; 18] = [
        &[(b"transfer-encoding", b"chunked")],
        &[(b"connection", b"close")],
        &[(b"upgrade", b"websocket")],
        &[(b"te", b"gzip")],
        &[(b"X-Upper", b"a")],
        &[(b"x-a", b"b\r\nc: d")],
        &[(b"x-a", b"b\0")],
        &[(b"x a", b"b")],
        &[(b"x-a", b" b")],
        &[(b"host", b"other.example")],
        &[(b"host", b"example.org"), (b"host", b"example.org")],
        &[(b"content-length", b"1"), (b"content-length", b"2")],
        &[(b"content-length", b"+1")],
        &[(b":path", b"/again")],
        &[(b"x-a", b"b"), (b":scheme", b"https")],
        &[(b":status", b"200")],
        &[(b":unknown", b"x")],
        &[(b":protocol", b"websocket")],
    ];
    let mut bench = bench();
    for (number, more) in wrong.iter().enumerate() {
        let fields: Vec<_> = GET.iter().chain(*more).copied().collect();
        let stream = 2 * u32::try_from(number).unwrap() + 1;
        bench.ask(stream, &fields, true).unwrap();
        assert_eq!(
            bench.reset(),
            Some(Code::PROTOCOL_ERROR),
            "{:?}",
            more.iter().map(|f| f.0.escape_ascii()).collect::<Vec<_>>()
        );
    }
    for without in 0..3 {
        let mut fields = GET.to_vec();
        fields.remove(without);
        let stream = 101 + 2 * u32::try_from(without).unwrap();
        bench.ask(stream, &fields, true).unwrap();
        assert_eq!(bench.reset(), Some(Code::PROTOCOL_ERROR), "without {without}");
    }
    assert_eq!(bench.server.streams(), 0);
    bench.ask(201, &[GET[0], GET[1], GET[2], GET[3], (b"cookie", b"a=1"), (b"cookie", b"b=2")], true).unwrap();
    assert_eq!(bench.reset(), None);
}

#[test]
fn streams_have_the_states_of_the_rfc() {
    // RFC 9113, section 5.1: the frame, and the code of the stream or connection that it ends.
    let begun = |bench: &mut Bench| bench.ask(1, &GET, true).unwrap();
    let reset = |bench: &mut Bench| {
        bench.ask(1, &GET, false).unwrap();
        bench.send(kind::RST_STREAM, 0, 1, &[0; 4]).unwrap();
    };
    type Case<'a> = (&'a str, &'a dyn Fn(&mut Bench), u8, u32, &'a [u8], Code);
    let cases: [Case<'_>; 11] = [
        ("idle", &|_| {}, kind::DATA, 1, b"x", Code::PROTOCOL_ERROR),
        ("idle", &|_| {}, kind::RST_STREAM, 1, &[0; 4], Code::PROTOCOL_ERROR),
        ("idle", &|_| {}, kind::WINDOW_UPDATE, 1, &[0, 0, 0, 1], Code::PROTOCOL_ERROR),
        ("idle", &|_| {}, kind::CONTINUATION, 1, b"", Code::PROTOCOL_ERROR),
        ("half closed", &begun, kind::DATA, 1, b"x", Code::STREAM_CLOSED),
        ("half closed", &begun, kind::HEADERS, 1, b"\x82", Code::STREAM_CLOSED),
        ("reset", &reset, kind::DATA, 1, b"x", Code::STREAM_CLOSED),
        ("reset", &reset, kind::HEADERS, 1, b"\x82", Code::STREAM_CLOSED),
        ("even", &|_| {}, kind::HEADERS, 2, b"\x82", Code::PROTOCOL_ERROR),
        ("push", &|_| {}, kind::PUSH_PROMISE, 1, b"\0\0\0\x02", Code::PROTOCOL_ERROR),
        ("too large", &|_| {}, kind::DATA, 1, &[0; 16_385], Code::FRAME_SIZE_ERROR),
    ];
    for (state, prepare, kind, stream, payload, code) in cases {
        let mut bench = bench();
        prepare(&mut bench);
        bench.answers();
        let flags = if kind == kind::HEADERS { flag::END_HEADERS | flag::END_STREAM } else { 0 };
        let sent = bench.send(kind, flags, stream, payload);
        assert_eq!(sent.err().map(|fault| fault.code).or_else(|| bench.reset()), Some(code), "{state} {kind}");
    }
}

#[test]
fn floods_end_the_connection() {
    type Send = Box<dyn FnMut(&mut Bench, u32) -> Result<(), Fault>>;
    let flood = |name: &str, mut send: Send| {
        let mut bench = bench();
        let fault = (0..10_000).find_map(|number| send(&mut bench, number).err());
        assert_eq!(fault.map(|fault| fault.code), Some(Code::ENHANCE_YOUR_CALM), "{name}");
        assert!(bench.server.streams() <= 100);
    };
    flood("SETTINGS", Box::new(|bench, _| bench.send(kind::SETTINGS, 0, 0, &[])));
    flood("PING", Box::new(|bench, _| bench.send(kind::PING, 0, 0, &[0; 8])));
    flood("PRIORITY", Box::new(|bench, _| bench.send(kind::PRIORITY, 0, 1, &[0, 0, 0, 3, 0])));
    flood("PRIORITY_UPDATE", Box::new(|bench, _| bench.send(kind::PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 1])));
    flood("unknown", Box::new(|bench, _| bench.send(0xfa, 0, 0, b"")));
    flood("windows of one byte", Box::new(|bench, _| bench.send(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])));
    // CVE-2023-44487.
    flood(
        "reset",
        Box::new(|bench, number| {
            bench.ask(2 * number + 1, &GET, true)?;
            bench.send(kind::RST_STREAM, 0, 2 * number + 1, &[0; 4])
        }),
    );
    // CVE-2025-8671: the server resets.
    flood(
        "made to reset",
        Box::new(|bench, number| {
            bench.ask(2 * number + 1, &GET, true)?;
            bench.send(kind::WINDOW_UPDATE, 0, 2 * number + 1, &[0; 4])
        }),
    );
    flood("too many streams", Box::new(|bench, number| bench.ask(2 * number + 1, &GET, false)));
    flood(
        "DATA without bytes",
        Box::new(|bench, number| {
            if number == 0 {
                bench.ask(1, &GET, false)?;
            }
            bench.send(kind::DATA, 0, 1, b"")
        }),
    );
    flood(
        "DATA without bytes for a stream that was reset",
        Box::new(|bench, number| {
            if number == 0 {
                bench.ask(1, &GET, false)?;
                bench.server.reset(1, Code::CANCEL, &mut bench.out);
            }
            bench.send(kind::DATA, 0, 1, b"")
        }),
    );
    flood(
        "DATA of padding alone",
        Box::new(|bench, number| {
            if number == 0 {
                bench.ask(1, &GET, false)?;
            }
            bench.send(kind::DATA, flag::PADDED, 1, b"\x01\0")
        }),
    );
    flood(
        "CONTINUATION",
        Box::new(|bench, number| {
            let kind = if number == 0 { kind::HEADERS } else { kind::CONTINUATION };
            bench.send(kind, 0, 1, b"")
        }),
    );
}

#[test]
fn a_peer_that_reads_much_may_return_windows_often() {
    let mut bench = bench();
    bench.ask(1, &GET, true).unwrap();
    bench.server.respond(1, StatusCode::OK, &HeaderMap::new(), false, &mut bench.out);
    for _ in 0..20_000 {
        assert_eq!(bench.server.data(1, &[0; 64], false, &mut bench.out), 64);
        bench.out.clear();
        for stream in [0, 1] {
            bench.send(kind::WINDOW_UPDATE, 0, stream, &64_u32.to_be_bytes()).unwrap();
        }
    }
}

#[test]
fn a_head_that_is_too_large_gets_status_431() {
    let mut bench = bench();
    let value = [b'v'; 8_100];
    bench.ask(1, &[GET[0], GET[1], GET[2], GET[3], (b"a", &value), (b"b", &value)], true).unwrap();
    let answers = bench.answers();
    assert_eq!(answers.len(), 1);
    let (kind, flags, stream, payload) = &answers[0];
    assert_eq!((*kind, *flags, *stream), (kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1));
    assert!(payload.ends_with(b"431"));
    bench.ask(3, &GET, true).unwrap();
    assert_eq!(bench.take()[1..], ["3 GET https://example.org/a?b true"]);
}

#[test]
fn a_fault_of_one_stream_names_its_limit_or_rule() {
    let mut bench = Bench::new(Limits { streams: 1, stream_window: 10, field_count: 6, ..Limits::default() });
    bench.ask(1, &GET, false).unwrap();
    bench.ask(3, &GET, true).unwrap();
    assert_eq!(bench.take()[1..], ["3 refused: too many streams at once"]);
    assert_eq!(bench.reset(), Some(Code::REFUSED_STREAM));
    bench.send(kind::DATA, 0, 1, &[7; 11]).unwrap();
    assert_eq!(bench.take(), ["1 reset FLOW_CONTROL_ERROR: more DATA than the stream's window allows"]);
    bench.ask(5, &[GET[0], GET[1], GET[2], GET[3], (b"a", b"b"), (b"a", b"b"), (b"a", b"b")], true).unwrap();
    assert_eq!(bench.take(), ["5 refused: more header fields, or longer ones, than are taken"]);
    bench.ask(7, &[GET[0], GET[1]], true).unwrap();
    assert!(bench.take()[0].starts_with("7 refused: "));
    bench.ask(9, &GET, true).unwrap();
    assert!(bench.server.respond(9, StatusCode::OK, &HeaderMap::new(), true, &mut bench.out));
    bench.take();
    bench.answers();
    bench.send(kind::DATA, 0, 9, b"x").unwrap();
    assert_eq!(bench.take(), ["9 refused: DATA for a stream that has ended"]);
    assert_eq!(bench.reset(), Some(Code::STREAM_CLOSED));
}

/// A client may repeat what GOAWAY does not name (section 8.7), and a head that is too large would come again and again.
#[test]
fn a_head_that_is_too_large_is_not_to_be_repeated() {
    let mut bench = bench();
    bench.send(kind::HEADERS, flag::END_STREAM, 5, &[0; 16_000]).unwrap();
    bench.send(kind::CONTINUATION, 0, 5, &[0; 16_000]).unwrap();
    let fault = bench.send(kind::CONTINUATION, 0, 5, &[0; 16_000]).unwrap_err();
    bench.out.clear();
    bench.server.go_away(fault.code, fault.why, &mut bench.out);
    let answers = bench.answers();
    let (kind, _, _, payload) = &answers[0];
    assert_eq!((*kind, &payload[..8]), (kind::GOAWAY, &[0, 0, 0, 5, 0, 0, 0, 11][..]));
}

#[test]
fn behind_go_away_no_stream_begins_and_begun_ones_end() {
    let mut bench = bench();
    bench.ask(1, &GET, true).unwrap();
    bench.server.go_away(Code::NO_ERROR, "", &mut bench.out);
    bench.ask(3, &GET, true).unwrap();
    assert_eq!(bench.take(), ["1 GET https://example.org/a?b true"]);
    assert!(!bench.server.is_done());
    assert!(bench.server.respond(1, StatusCode::OK, &HeaderMap::new(), true, &mut bench.out));
    assert!(bench.server.is_done());
}

#[test]
fn a_websocket_is_an_extended_connect() {
    let (mut client, mut server) =
        (Connection::new(Role::Client, Limits::default()), Connection::new(Role::Server, Limits::default()));
    let (mut up, mut down) = (Buf::new(), Buf::new());
    client.start(&mut up);
    server.start(&mut down);
    let request = Request::connect("https://example.org/chat").header("sec-websocket-version", "13").body(()).unwrap();
    let stream = client.request(&request, Some("websocket"), false, &mut up).unwrap();
    assert_eq!(client.data(stream, b"up", false, &mut up), 2);
    let mut seen = Vec::new();
    while !up.is_empty() {
        let read = server.read(up.filled_mut(), Duration::ZERO, &mut down).unwrap();
        let used = read.used;
        match read.event {
            Some(Event::Request { stream, head, end: false }) => {
                assert_eq!(head.protocol.as_deref(), Some("websocket"));
                assert_eq!(head.request.uri(), "https://example.org/chat");
                server.respond(stream, StatusCode::OK, &HeaderMap::new(), false, &mut down);
            }
            Some(Event::Data { data, end: false, .. }) => seen.extend_from_slice(data),
            Some(Event::Window { .. }) | None => {}
            other => panic!("{other:?}"),
        }
        up.take(used);
    }
    assert_eq!(seen, b"up");
    assert_eq!(server.data(stream, b"down", true, &mut down), 4);
    let (mut opened, mut data) = (false, Vec::new());
    while !down.is_empty() {
        let read = client.read(down.filled_mut(), Duration::ZERO, &mut up).unwrap();
        let used = read.used;
        match read.event {
            Some(Event::Response { head, end: false, .. }) => opened = head.response.status() == StatusCode::OK,
            Some(Event::Data { data: more, .. }) => data.extend_from_slice(more),
            Some(Event::Window { .. }) | None => {}
            other => panic!("{other:?}"),
        }
        down.take(used);
    }
    assert!(opened && client.offers_websockets());
    assert_eq!(data, b"down");
}
