//! Streams yield the same events however they are cut.

use super::{LIMIT, Seen, feed, frame, join};
use crate::{Decoder, Kind, Role};
use tautline_buf::Pool;

/// A stream with frames of every kind, and its events.
fn stream(role: Role) -> (Vec<u8>, Vec<Seen>) {
    let long = "äöü€".repeat(40);
    let (begin, end) = long.as_bytes().split_at(101);
    let frames = [
        frame(role, 0x81, b"short"),
        frame(role, 0x89, b"ping"),
        frame(role, 0x82, &[0xee; 200]),
        frame(role, 0x81, b""),
        frame(role, 0x01, begin),
        frame(role, 0x89, &[b'p'; 125]),
        frame(role, 0x00, b""),
        frame(role, 0x8a, b""),
        frame(role, 0x80, end),
        frame(role, 0x02, b""),
        frame(role, 0x80, b""),
        frame(role, 0x02, b""),
        frame(role, 0x00, b"ab"),
        frame(role, 0x80, b"cd"),
        frame(role, 0x88, b"\x03\xe9bye"),
        b"ignored".to_vec(),
    ];
    let events = [
        Seen::Message(Kind::Text, b"short".into()),
        Seen::Ping(b"ping".into()),
        Seen::Message(Kind::Binary, vec![0xee; 200]),
        Seen::Message(Kind::Text, vec![]),
        Seen::Ping(vec![b'p'; 125]),
        Seen::Pong(vec![]),
        Seen::Message(Kind::Text, long.into()),
        Seen::Message(Kind::Binary, vec![]),
        Seen::Message(Kind::Binary, b"abcd".into()),
        Seen::Close(Some((1001, "bye".into()))),
    ];
    (frames.concat(), events.to_vec())
}

fn check(role: Role, streaming: bool, ends: impl IntoIterator<Item = usize>) {
    let (wire, expected) = stream(role);
    let mut pool = Pool::new(1 << 20);
    let mut decoder = Decoder::new(role, LIMIT);
    decoder.set_streaming(streaming);
    let (seen, error) = feed(&mut decoder, &mut pool, &wire, ends);
    assert_eq!(error, None);
    assert_eq!(if streaming { join(seen) } else { seen }, expected);
    decoder.recycle(&mut pool);
    assert_eq!(decoder.assembly.capacity(), 0);
}

#[test]
fn events_are_the_same_for_any_cut_into_two_or_three_pieces() {
    for role in [Role::Server, Role::Client] {
        let len = stream(role).0.len();
        for streaming in [false, true] {
            for first in 0..=len {
                check(role, streaming, [first]);
                check(role, streaming, [first, (first + 1 + first % 17).min(len)]);
            }
        }
    }
}

#[test]
fn events_are_the_same_for_pieces_of_any_size() {
    for role in [Role::Server, Role::Client] {
        let len = stream(role).0.len();
        for streaming in [false, true] {
            for size in 1..70 {
                check(role, streaming, (0..len).step_by(size).skip(1));
            }
        }
    }
}

#[test]
fn the_first_chunk_has_bytes_and_the_last_comes_with_the_final_frame() {
    let wire = [
        frame(Role::Server, 0x01, b""),
        frame(Role::Server, 0x00, "\u{20ac}".as_bytes()),
        frame(Role::Server, 0x80, b""),
    ]
    .concat();
    let mut decoder = Decoder::new(Role::Server, LIMIT);
    decoder.set_streaming(true);
    let chunk = |data: &[u8], first, last| Seen::Chunk { kind: Kind::Text, data: data.into(), first, last };
    let expected = [chunk(b"\xe2", true, false), chunk(b"\x82\xac", false, false), chunk(b"", false, true)];
    assert_eq!(feed(&mut decoder, &mut Pool::new(0), &wire, [13]), (expected.to_vec(), None));
}

#[test]
fn set_streaming_applies_from_the_next_message_on() {
    let mut pool = Pool::new(0);
    let mut decoder = Decoder::new(Role::Client, LIMIT);
    let (begin, end) = (frame(Role::Client, 0x02, b"ab"), frame(Role::Client, 0x80, b"cd"));
    assert_eq!(feed(&mut decoder, &mut pool, &begin, []), (vec![], None));
    decoder.set_streaming(true);
    assert_eq!(feed(&mut decoder, &mut pool, &end, []).0, [Seen::Message(Kind::Binary, b"abcd".into())]);
    let chunk = |data: &[u8], first, last| Seen::Chunk { kind: Kind::Binary, data: data.into(), first, last };
    assert_eq!(feed(&mut decoder, &mut pool, &begin, []).0, [chunk(b"ab", true, false)]);
    decoder.set_streaming(false);
    assert_eq!(feed(&mut decoder, &mut pool, &end, []).0, [chunk(b"cd", false, true)]);
    let whole = frame(Role::Client, 0x82, b"ef");
    assert_eq!(feed(&mut decoder, &mut pool, &whole, []).0, [Seen::Message(Kind::Binary, b"ef".into())]);
}
