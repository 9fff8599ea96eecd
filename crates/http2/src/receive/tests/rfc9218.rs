//! Priorities (RFC 9218): read and ignored, but for the rules of section 7.1.

use super::{Bench, GET, bench, frame};
use crate::block::encode;
use crate::code::{Code, Fault};
use crate::connection::Connection;
use crate::frame::{flag, kind};
use crate::limits::Limits;
use crate::role::Role;
use core::time::Duration;
use http::{HeaderMap, StatusCode};
use tautline_buf::Buf;

/// The payload of PRIORITY_UPDATE for a stream.
fn payload(stream: u32, value: &[u8]) -> Vec<u8> {
    [&stream.to_be_bytes()[..], value].concat()
}

fn update(bench: &mut Bench, stream: u32, value: &[u8]) -> Result<(), Fault> {
    bench.send(kind::PRIORITY_UPDATE, 0, 0, &payload(stream, value))
}

/// Values of a priority: right ones, parameters that are out of range or unknown, and text that is no dictionary.
const VALUES: [&[u8]; 9] =
    [b"u=0, i", b"", b"u=7,i=?0,x=\"y\"", b"u=8", b"u=-1", b"u=?1", b"((", b"\xff\0\r\n", &[b'u'; 12_000]];

#[test]
fn priorities_of_any_text_are_ignored() {
    let mut bench = bench();
    bench.ask(1, &GET, true).unwrap();
    bench.ask(3, &GET, true).unwrap();
    assert!(bench.server.respond(1, StatusCode::OK, &HeaderMap::new(), true, &mut bench.out));
    bench.take();
    bench.answers();
    // An ended stream, an open one and one that has not begun. The reserved bit counts for nothing.
    for stream in [1, 3, 7, 0x8000_0003] {
        for value in VALUES {
            update(&mut bench, stream, value).unwrap();
        }
    }
    // Flags have no meaning.
    bench.send(kind::PRIORITY_UPDATE, 0xff, 0, &payload(3, b"u=1")).unwrap();
    assert_eq!((bench.take().len(), bench.answers().len()), (0, 0));
    bench.ask(7, &GET, true).unwrap();
    assert_eq!(bench.take(), ["7 GET https://example.org/a?b true"]);
}

#[test]
fn the_field_of_a_request_is_one_for_the_application() {
    for value in VALUES.into_iter().filter(|value| value.len() < 100 && !value.contains(&0)) {
        let mut bench = bench();
        let request = [GET[0], GET[1], GET[2], GET[3], (b"priority", value)];
        bench.ask(1, &request, true).unwrap();
        assert_eq!(bench.take(), ["1 GET https://example.org/a?b true"], "{value:?}");
    }
}

#[test]
fn a_priority_update_that_breaks_a_rule_ends_the_connection() {
    let rules: [(&str, u32, &[u8], Code); 7] = [
        ("on a stream that is open", 1, &payload(1, b"u=1"), Code::PROTOCOL_ERROR),
        ("on a stream that has not begun", 9, &payload(1, b"u=1"), Code::PROTOCOL_ERROR),
        ("for the stream 0", 0, &payload(0, b"u=1"), Code::PROTOCOL_ERROR),
        ("for the stream 0 with the reserved bit", 0, &payload(1 << 31, b"u=1"), Code::PROTOCOL_ERROR),
        ("for a push that was not promised", 0, &payload(2, b"u=1"), Code::PROTOCOL_ERROR),
        ("of three bytes", 0, &[0, 0, 0], Code::FRAME_SIZE_ERROR),
        ("of nothing", 0, &[], Code::FRAME_SIZE_ERROR),
    ];
    for (name, on, payload, code) in rules {
        let mut bench = bench();
        bench.ask(1, &GET, false).unwrap();
        let fault = bench.send(kind::PRIORITY_UPDATE, 0, on, payload).unwrap_err();
        assert_eq!(fault.code, code, "{name}: {fault}");
    }
}

#[test]
fn open_and_prioritized_streams_are_at_most_those_that_may_be_open() {
    let mut bench = bench();
    for number in 0..100 {
        // Again for each, which is no further stream.
        update(&mut bench, 2 * number + 1, b"u=1").unwrap();
        update(&mut bench, 2 * number + 1, b"u=2").unwrap();
    }
    bench.ask(1, &GET, false).unwrap();
    update(&mut bench, 3, b"u=1").unwrap();
    assert_eq!(update(&mut bench, 201, b"u=1").unwrap_err().code, Code::PROTOCOL_ERROR);

    // A stream that begins ends those below it that have not begun.
    let mut bench = self::bench();
    for number in 0..100 {
        update(&mut bench, 2 * number + 1, b"u=1").unwrap();
    }
    bench.ask(199, &GET, false).unwrap();
    for number in 0..99 {
        update(&mut bench, 2 * number + 201, b"u=1").unwrap();
    }
    assert_eq!(update(&mut bench, 399, b"u=1").unwrap_err().code, Code::PROTOCOL_ERROR);
}

#[test]
fn a_priority_update_is_no_part_of_a_field_section() {
    let mut bench = bench();
    let block = encode(GET);
    bench.send(kind::HEADERS, flag::END_STREAM, 1, &block[..3]).unwrap();
    assert_eq!(update(&mut bench, 1, b"u=1").unwrap_err().code, Code::PROTOCOL_ERROR);
}

#[test]
fn a_server_sends_no_priority_update() {
    let (mut client, mut out) = (Connection::new(Role::Client, Limits::default()), Buf::new());
    client.start(&mut out);
    let mut wire = [frame(kind::SETTINGS, 0, 0, &[]), frame(kind::PRIORITY_UPDATE, 0, 0, &payload(1, b"u=1"))].concat();
    let fault = client.read(&mut wire, Duration::ZERO, &mut out).unwrap_err();
    assert_eq!(fault.code, Code::PROTOCOL_ERROR);
}

#[test]
fn the_setting_of_no_old_priorities_is_zero_or_one() {
    // Section 2.1.
    for (value, is_right) in [(0, true), (1, true), (2, false), (u32::MAX, false)] {
        let mut bench = bench();
        let sent = bench.send(kind::SETTINGS, 0, 0, &[&[0, 9][..], &u32::to_be_bytes(value)].concat());
        assert_eq!(sent.err().map(|fault| fault.code), (!is_right).then_some(Code::PROTOCOL_ERROR), "{value}");
    }
}

#[test]
fn a_stream_that_depends_on_itself_does_not_begin() {
    // RFC 7540, section 5.3.1, also in a field section of several frames.
    let block = [&[0, 0, 0, 1, 16][..], &encode(GET)].concat();
    for cut in [block.len(), 9] {
        let mut bench = bench();
        let (first, rest) = block.split_at(cut);
        let flags = flag::PRIORITY | flag::END_STREAM | if rest.is_empty() { flag::END_HEADERS } else { 0 };
        bench.send(kind::HEADERS, flags, 1, first).unwrap();
        if !rest.is_empty() {
            assert!(bench.answers().is_empty());
            bench.send(kind::CONTINUATION, flag::END_HEADERS, 1, rest).unwrap();
        }
        assert_eq!(bench.take(), ["1 refused: a stream depends on itself"], "{cut}");
        assert_eq!((bench.reset(), bench.server.streams()), (Some(Code::PROTOCOL_ERROR), 0));
        bench.ask(3, &GET, true).unwrap();
        assert_eq!(bench.take(), ["3 GET https://example.org/a?b true"]);
    }
}
