//! Cases of RFC 9113 that h2spec lacks.

use super::{Bench, GET, bench, frame};
use crate::block::encode;
use crate::code::{Code, Fault};
use crate::event::Event;
use crate::frame::{flag, kind};
use crate::limits::Limits;
use core::time::Duration;
use http::{HeaderMap, StatusCode};

type Fields<'f> = &'f [(&'f [u8], &'f [u8])];

/// A request that is right, with further fields.
fn get_with<'f>(more: &[(&'f [u8], &'f [u8])]) -> Vec<(&'f [u8], &'f [u8])> {
    GET.iter().chain(more).copied().collect()
}

/// The fields of the next request.
fn fields(bench: &mut Bench, mut wire: Vec<u8>) -> HeaderMap {
    match bench.server.read(&mut wire, Duration::ZERO, &mut bench.out).unwrap().event {
        Some(Event::Request { head, .. }) => head.request.headers().clone(),
        other => panic!("{other:?}"),
    }
}

fn whole(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, block)
}

/// The code by which a stream or the connection ends.
fn ends(bench: &mut Bench, sent: Result<(), Fault>) -> Option<Code> {
    sent.err().map(|fault| fault.code).or_else(|| bench.reset())
}

#[test]
fn crumbs_of_cookies_are_one_field() {
    // Section 8.2.3: other fields may lie between.
    let crumbs: [(&[u8], &[u8]); 5] =
        [(b"cookie", b"a=b"), (b"x-own", b"1"), (b"cookie", b"c=d"), (b"x-own", b"2"), (b"cookie", b"e=f; g=h")];
    let headers = fields(&mut bench(), whole(1, &encode(get_with(&crumbs))));
    assert_eq!(headers.get_all("cookie").iter().collect::<Vec<_>>(), ["a=b; c=d; e=f; g=h"]);
    assert_eq!(headers.get_all("x-own").iter().collect::<Vec<_>>(), ["1", "2"]);
}

#[test]
fn fields_of_one_connection_are_malformed() {
    // Section 8.2.2.
    let mut stream = 1;
    for name in ["connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"] {
        let mut bench = bench();
        bench.ask(stream, &get_with(&[(name.as_bytes(), b"x")]), true).unwrap();
        assert_eq!(bench.reset(), Some(Code::PROTOCOL_ERROR), "{name}");
        // As trailers, too.
        stream += 2;
        bench.ask(stream, &GET, false).unwrap();
        bench.ask(stream, &[(name.as_bytes(), b"x")], true).unwrap();
        assert_eq!(bench.reset(), Some(Code::PROTOCOL_ERROR), "{name}");
        stream += 2;
    }
    for (value, is_right) in [("trailers", true), ("trailers, deflate", false), ("Trailers", false), ("", false)] {
        let mut bench = bench();
        bench.ask(1, &get_with(&[(b"te", value.as_bytes())]), true).unwrap();
        assert_eq!(bench.reset().is_none(), is_right, "te: {value}");
    }
}

#[test]
fn names_and_values_of_fields_have_their_bytes() {
    // Section 8.2.1.
    let wrong: [(&[u8], &[u8]); 12] = [
        (b"", b"x"),
        (b"Upper", b"x"),
        (b"x-uppeR", b"x"),
        (b"a:b", b"x"),
        (b"a b", b"x"),
        (b"a\0", b"x"),
        (b"a\x7f", b"x"),
        (b"\xc3\xa4", b"x"),
        (b"x-a", b"\nx"),
        (b"x-a", b"a\rb"),
        (b"x-a", b"x\t"),
        (b"x-a", b"\0"),
    ];
    for (name, value) in wrong {
        let mut bench = bench();
        bench.ask(1, &get_with(&[(name, value)]), true).unwrap();
        assert_eq!(bench.reset(), Some(Code::PROTOCOL_ERROR), "{}", name.escape_ascii());
        let said = bench.take();
        assert!(said.len() == 1 && said[0].starts_with("1 refused: "), "{said:?}");
    }
    let headers = fields(&mut bench(), whole(1, &encode(get_with(&[(b"x-a", b""), (b"x-b", b"a\tb \xc3\xa4")]))));
    assert_eq!((headers["x-a"].as_bytes(), headers["x-b"].as_bytes()), (&b""[..], &b"a\tb \xc3\xa4"[..]));
}

#[test]
fn pseudo_header_fields_say_one_thing() {
    // Section 8.3.1, and RFC 8441, section 4.
    let (method, scheme, path, authority) = (GET[0], GET[1], GET[2], GET[3]);
    let connect: (&[u8], &[u8]) = (b":method", b"CONNECT");
    let websocket: (&[u8], &[u8]) = (b":protocol", b"websocket");
    let cases: [(&str, Fields<'_>, bool); 14] = [
        ("host alone", &[method, scheme, path, (b"host", b"example.org")], true),
        ("host in upper case", &[method, scheme, path, authority, (b"host", b"EXAMPLE.org")], true),
        ("another port", &[method, scheme, path, authority, (b"host", b"example.org:444")], false),
        ("user information", &[method, scheme, path, (b":authority", b"a@example.org")], false),
        ("empty path", &[method, scheme, (b":path", b""), authority], false),
        ("no path", &[method, scheme, (b":path", b"a"), authority], false),
        ("asterisk", &[method, scheme, (b":path", b"*"), authority], false),
        ("OPTIONS", &[(b":method", b"OPTIONS"), scheme, (b":path", b"*"), authority], true),
        ("fragment", &[method, scheme, (b":path", b"/a#b"), authority], false),
        ("space", &[method, scheme, (b":path", b"/a b"), authority], false),
        ("CONNECT with a path", &[connect, path, authority], false),
        ("CONNECT", &[connect, authority], true),
        ("extended without a path", &[connect, websocket, scheme, authority], false),
        ("extended", &[connect, websocket, scheme, path, authority], true),
    ];
    for (name, fields, is_right) in cases {
        let mut bench = bench();
        bench.ask(1, fields, false).unwrap();
        assert_eq!(ends(&mut bench, Ok(())), (!is_right).then_some(Code::PROTOCOL_ERROR), "{name}");
        let said = bench.take();
        assert!(said.len() == 1 && said[0].starts_with("1 refused: ") != is_right, "{name}: {said:?}");
    }
    let twice = [connect, websocket, websocket, scheme, path, authority];
    let mut bench = Bench::new(Limits { websockets: false, ..Limits::default() });
    for (stream, fields) in [(1, &twice[..]), (3, &twice[1..])] {
        bench.ask(stream, fields, false).unwrap();
        assert_eq!(bench.reset(), Some(Code::PROTOCOL_ERROR));
    }
}

#[test]
fn trailers_end_a_stream_and_have_no_pseudo_header_fields() {
    // Section 8.1.
    for (trailers, end, is_right) in
        [((&b"x-sum"[..], &b"1"[..]), true, true), ((b"x-sum", b"1"), false, false), ((b":path", b"/"), true, false)]
    {
        let mut bench = bench();
        bench.ask(1, &GET, false).unwrap();
        bench.send(kind::DATA, 0, 1, b"body").unwrap();
        bench.ask(1, &[trailers], end).unwrap();
        assert_eq!(ends(&mut bench, Ok(())), (!is_right).then_some(Code::PROTOCOL_ERROR));
    }
}

#[test]
fn padding_is_no_content_and_takes_the_windows() {
    // Sections 6.1 and 8.1.1.
    let mut bench = bench();
    bench.ask(1, &get_with(&[(b"content-length", b"2")]), false).unwrap();
    bench.send(kind::DATA, flag::PADDED | flag::END_STREAM, 1, b"\x04ab\0\0\0\0").unwrap();
    assert_eq!((bench.reset(), &bench.data[..]), (None, &b"ab"[..]));
    bench.ask(3, &GET, false).unwrap();
    let fault = bench.send(kind::DATA, flag::PADDED, 3, b"\x04abc").unwrap_err();
    assert_eq!(fault.code, Code::PROTOCOL_ERROR);

    let mut bench = Bench::new(Limits { stream_window: 1000, ..Limits::default() });
    bench.ask(1, &GET, false).unwrap();
    let padded = [&[255][..], &[7; 200], &[0; 255]].concat();
    for _ in 0..8 {
        // Without the bytes of the padding the window would end first.
        bench.send(kind::DATA, flag::PADDED, 1, &padded).unwrap();
        bench.server.took(1, 200, &mut bench.out);
    }
    assert_eq!(bench.reset(), None);
    bench.ask(3, &GET, false).unwrap();
    bench.send(kind::DATA, flag::PADDED, 3, &[&[255][..], &[7; 1000]].concat()).unwrap();
    assert_eq!(bench.reset(), Some(Code::FLOW_CONTROL_ERROR), "1,001 bytes with the length of the padding");
}

#[test]
fn the_window_of_the_connection_bounds_all_streams() {
    // Section 6.9.1. The connection's window is the first one, and stays it: what comes back is half of it at a time.
    let limits = Limits { connection_window: 0, stream_window: 1 << 20, ..Limits::default() };
    let mut bench = Bench::new(limits);
    bench.ask(1, &GET, false).unwrap();
    bench.ask(3, &GET, false).unwrap();
    let piece = [7; 16 << 10];
    for stream in [1, 3, 1, 3, 1, 3] {
        bench.send(kind::DATA, 0, stream, &piece).unwrap();
    }
    let back: Vec<_> = bench.answers().into_iter().map(|(kind, _, stream, _)| (kind, stream)).collect();
    assert_eq!(back, [(kind::WINDOW_UPDATE, 0); 3], "each 32 KiB come back, though nobody has taken a byte");
    // The header alone says that it is too much.
    let mut bench = Bench::new(limits);
    bench.ask(1, &GET, false).unwrap();
    bench.server.credit = 99;
    let fault = bench.send_bytes(&frame(kind::DATA, 0, 1, &[0; 100])[..9]).unwrap_err();
    assert_eq!(fault.code, Code::FLOW_CONTROL_ERROR);
}

#[test]
fn a_setting_may_not_make_a_window_too_large() {
    // Section 6.9.2: the window of a stream and not that of the connection.
    let mut bench = bench();
    bench.ask(1, &GET, true).unwrap();
    bench.send(kind::WINDOW_UPDATE, 0, 1, &0x7fff_0000_u32.to_be_bytes()).unwrap();
    let fault = bench.send(kind::SETTINGS, 0, 0, &[0, 4, 0, 2, 0, 0]).unwrap_err();
    assert_eq!(fault.code, Code::FLOW_CONTROL_ERROR);
}

#[test]
fn streams_behind_go_away_are_ignored() {
    // Section 6.8: their frames still count for the compression and the window of the connection.
    let mut bench = bench();
    bench.ask(1, &GET, false).unwrap();
    bench.server.go_away(Code::NO_ERROR, "", &mut bench.out);
    bench.answers();
    // `x-own: 1` enters the table.
    let indexed = [&encode(GET)[..], b"\x40\x05x-own\x011"].concat();
    bench.send(kind::HEADERS, flag::END_HEADERS, 3, &indexed).unwrap();
    for _ in 0..40 {
        bench.send(kind::DATA, 0, 3, &[7; 16 << 10]).unwrap();
    }
    bench.send(kind::RST_STREAM, 0, 3, &[0; 4]).unwrap();
    bench.send(kind::WINDOW_UPDATE, 0, 3, &[0, 0, 0, 9]).unwrap();
    let answers = bench.answers();
    assert!(answers.iter().all(|(kind, _, stream, _)| (*kind, *stream) == (kind::WINDOW_UPDATE, 0)), "{answers:?}");
    assert!(!answers.is_empty(), "the window of the connection comes back");
    assert_eq!(bench.take(), ["1 GET https://example.org/a?b false"]);
    // Trailers of the stream that goes on name the entry of the table.
    bench.send(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, b"\xbe").unwrap();
    assert_eq!(bench.take(), ["1 ends"]);
}

#[test]
fn a_client_that_goes_away_gets_its_answers() {
    let mut bench = bench();
    bench.ask(1, &GET, true).unwrap();
    bench.send(kind::GOAWAY, 0, 0, &[0; 8]).unwrap();
    assert!(!bench.server.is_done());
    assert!(bench.server.respond(1, StatusCode::OK, &HeaderMap::new(), true, &mut bench.out));
    assert!(bench.server.is_done());
}

#[test]
fn nothing_comes_between_the_frames_of_a_field_section() {
    // Section 6.10.
    let block = encode(GET);
    let between: [(u8, u32, &[u8]); 7] = [
        (kind::CONTINUATION, 3, b""),
        (kind::HEADERS, 1, b""),
        (kind::HEADERS, 3, b""),
        (kind::DATA, 1, b"x"),
        (kind::WINDOW_UPDATE, 0, &[0, 0, 0, 1]),
        (kind::RST_STREAM, 1, &[0; 4]),
        (0xfa, 0, b""),
    ];
    for (kind, stream, payload) in between {
        let mut bench = bench();
        bench.send(kind::HEADERS, flag::END_STREAM, 1, &block[..5]).unwrap();
        let fault = bench.send(kind, 0, stream, payload).unwrap_err();
        assert_eq!(fault.code, Code::PROTOCOL_ERROR, "{kind} {stream}");
        assert!(bench.take().is_empty());
    }
    // Trailers in two frames.
    let mut bench = bench();
    bench.ask(1, &GET, false).unwrap();
    let trailers = encode([(&b"x-sum"[..], &b"12345"[..])]);
    bench.send(kind::HEADERS, flag::END_STREAM, 1, &trailers[..2]).unwrap();
    bench.send(kind::CONTINUATION, flag::END_HEADERS, 1, &trailers[2..]).unwrap();
    assert_eq!(bench.take().last().unwrap(), "1 ends");
}

#[test]
fn refused_requests_keep_the_tables_of_both_ends_alike() {
    // Section 4.3: a section is decoded whatever becomes of its stream.
    let refused: [(&str, Limits, &[u8]); 3] = [
        ("malformed", Limits::default(), b"\x40\x0ax-bad name\x01x"),
        ("too many fields", Limits { field_count: 4, ..Limits::default() }, b""),
        ("too many streams", Limits { streams: 0, ..Limits::default() }, b""),
    ];
    for (name, limits, more) in refused {
        let mut bench = Bench::new(limits);
        // The last entry of the table is `x-own: kept`.
        let block = [&encode(GET)[..], more, b"\x40\x05x-own\x04kept"].concat();
        bench.send_bytes(&whole(1, &block)).unwrap();
        let said = bench.take();
        assert!(said.len() == 1 && said[0].starts_with("1 refused: "), "{name}: {said:?}");
        bench.server.limits = Limits::default();
        let headers = fields(&mut bench, whole(3, &[&encode(GET)[..], b"\xbe"].concat()));
        assert_eq!(headers["x-own"], "kept", "{name}");
    }
}

#[test]
fn a_section_that_cannot_be_decoded_ends_the_connection() {
    // Section 4.3. The stream may be any.
    for stream in [1, 3] {
        let mut bench = bench();
        bench.ask(1, &GET, false).unwrap();
        let fault = bench.send_bytes(&whole(stream, b"\xff\xff\xff\xff\xff\xff")).unwrap_err();
        assert_eq!(fault.code, Code::COMPRESSION_ERROR);
    }
}

#[test]
fn frames_for_ended_streams_do_no_harm() {
    // Section 5.1: WINDOW_UPDATE and RST_STREAM may come behind the end, and PRIORITY at any time.
    let mut bench = bench();
    bench.ask(1, &GET, true).unwrap();
    assert!(bench.server.respond(1, StatusCode::OK, &HeaderMap::new(), true, &mut bench.out));
    bench.take();
    bench.answers();
    bench.send(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]).unwrap();
    bench.send(kind::RST_STREAM, 0, 1, &[0; 4]).unwrap();
    bench.send(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 9]).unwrap();
    bench.send(kind::PRIORITY, 0, 77, &[0, 0, 0, 1, 9]).unwrap();
    assert_eq!((bench.take().len(), bench.answers().len()), (0, 0));
    bench.ask(3, &GET, true).unwrap();
    assert_eq!(bench.take(), ["3 GET https://example.org/a?b true"], "77 has not begun by its priority");
}

#[test]
fn reserved_bits_and_unknown_flags_are_ignored() {
    // Section 4.1.
    let mut bytes = whole(1, &encode(GET));
    bytes[4] |= 0xd2;
    bytes[5] |= 0x80;
    let mut bench = bench();
    bench.send_bytes(&bytes).unwrap();
    assert_eq!(bench.take(), ["1 GET https://example.org/a?b true"]);
    bench.send(kind::WINDOW_UPDATE, 0, 1, &[0x80, 0, 0, 5]).unwrap();
    assert_eq!(bench.take(), ["window Some(1)"]);
}

#[test]
fn a_pong_and_an_acknowledgement_get_no_answer() {
    let mut bench = bench();
    bench.send(kind::PING, flag::ACK, 0, &[7; 8]).unwrap();
    bench.send(kind::SETTINGS, flag::ACK, 0, &[]).unwrap();
    assert!(bench.answers().is_empty());
    let unknown = [0xfa, 0xce, 0, 0, 0, 1, 0, 3, 0, 0, 0, 0];
    bench.send(kind::SETTINGS, 0, 0, &unknown).unwrap();
    assert_eq!(bench.answers(), [(kind::SETTINGS, flag::ACK, 0, Vec::new())]);
}

#[test]
fn frames_are_as_large_as_the_peer_takes_them() {
    // Section 4.2.
    let mut bench = bench();
    bench.send(kind::SETTINGS, 0, 0, &[0, 5, 0, 0, 0x50, 0]).unwrap();
    bench.ask(1, &GET, true).unwrap();
    bench.server.respond(1, StatusCode::OK, &HeaderMap::new(), false, &mut bench.out);
    bench.answers();
    assert_eq!(bench.server.data(1, &[7; 50_000], true, &mut bench.out), 50_000);
    let sizes: Vec<_> = bench.answers().into_iter().map(|(_, flags, _, payload)| (payload.len(), flags)).collect();
    assert_eq!(sizes, [(20_480, 0), (20_480, 0), (9_040, flag::END_STREAM)]);
}
