//! The rules of RFC 6455 one by one.

use super::{KEY, LIMIT, Seen, decode, fails_at, feed, frame, masked};
use crate::{CloseCode, Decoder, Error, Event, Kind, Role};
use tautline_buf::Pool;

fn text(data: &str) -> Seen {
    Seen::Message(Kind::Text, data.into())
}

fn error_of(wire: &[u8]) -> Option<Error> {
    decode(wire).1
}

#[test]
fn decodes_messages_of_every_length_form() {
    for len in [0, 1, 125, 126, 127, 128, 255, 65_535, 65_536, 70_000] {
        for (first, kind) in [(0x81, Kind::Text), (0x82, Kind::Binary)] {
            let payload = vec![b'*'; len];
            for role in [Role::Server, Role::Client] {
                let mut decoder = Decoder::new(role, LIMIT);
                let seen = feed(&mut decoder, &mut Pool::new(0), &frame(role, first, &payload), []);
                assert_eq!(seen, (vec![Seen::Message(kind, payload.clone())], None));
            }
        }
    }
}

#[test]
fn a_whole_message_is_unmasked_in_place() {
    let mut pool = Pool::new(0);
    for (len, role) in [(300, Role::Server), (70_000, Role::Server), (300, Role::Client), (70_000, Role::Client)] {
        let mut decoder = Decoder::new(role, LIMIT);
        let mut wire = frame(role, 0x82, &vec![7; len]);
        let within = wire.as_ptr_range();
        let decoded = decoder.decode(&mut wire, &mut pool).unwrap();
        let Some(Event::Message(message)) = decoded.event else { panic!("no message") };
        assert_eq!(message.data().as_ptr_range().end, within.end);
        assert_eq!(decoder.assembly.capacity(), 0);
    }
}

#[test]
fn rejects_lengths_that_are_not_minimal() {
    for role in [Role::Server, Role::Client] {
        for len in [0, 5, 125, 300, 65_535] {
            let short = frame(role, 0x82, &vec![7; len]);
            let header_len = short.len() - len;
            let mask = short[1] & 0x80;
            let rest = if role == Role::Server { &short[header_len - 4..] } else { &short[header_len..] };
            let len = (len as u64).to_be_bytes();
            let longer =
                [[[0x82, mask | 127].as_slice(), &len, rest].concat(), [&[0x82, mask | 126], &len[6..], rest].concat()];
            // Two bytes are right for the larger lengths.
            for wire in &longer[..if len[6] == 0 && len[7] < 126 { 2 } else { 1 }] {
                let seen = feed(&mut Decoder::new(role, LIMIT), &mut Pool::new(0), wire, []);
                assert_eq!(seen, (vec![], Some(Error::LengthNotMinimal)));
            }
        }
    }
}

#[test]
fn hands_out_pings_and_pongs_of_at_most_125_bytes() {
    for len in [0, 1, 124, 125] {
        let payload = vec![0xfe; len];
        assert_eq!(decode(&masked(0x89, &payload)).0, [Seen::Ping(payload.clone())]);
        assert_eq!(decode(&masked(0x8a, &payload)).0, [Seen::Pong(payload)]);
    }
    for opcode in [0x88, 0x89, 0x8a] {
        assert_eq!(error_of(&masked(opcode, &[0; 126])), Some(Error::ControlTooLong));
        assert_eq!(error_of(&masked(opcode & 0x7f, &[])), Some(Error::ControlFragmented));
    }
}

#[test]
fn rejects_reserved_bits() {
    for bits in 1..8 {
        for opcode in [0x1, 0x2, 0x8, 0x9, 0xa] {
            assert_eq!(error_of(&masked(0x80 | bits << 4 | opcode, b"")), Some(Error::ReservedBits));
        }
    }
    assert_eq!(fails_at(&masked(0xc1, b"payload")), Some((6, Error::ReservedBits)));
    let behind_a_message = [masked(0x81, b"ok"), masked(0xc1, b"no")].concat();
    assert_eq!(decode(&behind_a_message), (vec![text("ok")], Some(Error::ReservedBits)));
}

#[test]
fn rejects_reserved_opcodes() {
    for opcode in (3..8).chain(11..16) {
        assert_eq!(error_of(&masked(0x80 | opcode, b"")), Some(Error::ReservedOpcode(opcode)));
    }
}

#[test]
fn clients_must_mask_and_servers_must_not() {
    for first in [0x81, 0x82, 0x88, 0x89] {
        let unmasked = frame(Role::Client, first, b"");
        assert_eq!(decode(&unmasked).1, Some(Error::NotMasked));
        let mut client = Decoder::new(Role::Client, LIMIT);
        assert_eq!(feed(&mut client, &mut Pool::new(0), &masked(first, b""), []).1, Some(Error::Masked));
    }
}

#[test]
fn fragments_make_one_message_and_control_frames_may_lie_between() {
    let wire = [
        masked(0x01, b"frag"),
        masked(0x89, b"1"),
        masked(0x00, b""),
        masked(0x8a, b""),
        masked(0x00, b"men"),
        masked(0x80, b"t"),
        masked(0x82, b"next"),
    ]
    .concat();
    let expected =
        [Seen::Ping(b"1".to_vec()), Seen::Pong(vec![]), text("fragment"), Seen::Message(Kind::Binary, b"next".into())];
    assert_eq!(decode(&wire), (expected.to_vec(), None));
}

#[test]
fn rejects_fragments_out_of_order() {
    assert_eq!(error_of(&masked(0x80, b"x")), Some(Error::UnexpectedContinuation));
    assert_eq!(error_of(&masked(0x00, b"x")), Some(Error::UnexpectedContinuation));
    for first in [0x01, 0x02, 0x81, 0x82] {
        let wire = [masked(0x01, b"a"), masked(first, b"b")].concat();
        assert_eq!(error_of(&wire), Some(Error::MessageInterleaved));
    }
    let after = [masked(0x01, b"a"), masked(0x80, b"b"), masked(0x80, b"c")].concat();
    assert_eq!(decode(&after), (vec![text("ab")], Some(Error::UnexpectedContinuation)));
}

#[test]
fn rejects_invalid_text_at_its_first_invalid_byte() {
    let good = "κόσμε".as_bytes();
    // Autobahn 6.4.1: U+110000, which is invalid from its second byte on.
    let bad = [good, b"\xf4\x90\x80\x80edited"].concat();
    let wire = masked(0x81, &bad);
    assert_eq!(fails_at(&wire), Some((6 + good.len() + 2, Error::InvalidUtf8)));
    // Autobahn 6.4.2: this text in three frames; the invalid byte is in the second one.
    let wire = [masked(0x01, good), masked(0x00, b"\xf4\x90\x80\x80"), masked(0x80, b"edited")].concat();
    assert_eq!(fails_at(&wire), Some((6 + good.len() + 6 + 2, Error::InvalidUtf8)));
    assert_eq!(decode(&wire[..6 + good.len() + 6 + 2]).1, Some(Error::InvalidUtf8));
    // An incomplete character is invalid only at the end of the message.
    let wire = [masked(0x01, b"\xe2\x82"), masked(0x00, b""), masked(0x80, b"")].concat();
    assert_eq!(fails_at(&wire), Some((wire.len(), Error::InvalidUtf8)));
    assert_eq!(decode(&[masked(0x01, b"\xe2\x82"), masked(0x80, b"\xac")].concat()), (vec![text("\u{20ac}")], None));
    // Binary messages may hold any bytes.
    assert_eq!(error_of(&[masked(0x02, &bad), masked(0x80, b"\xff")].concat()), None);
}

#[test]
fn validation_starts_over_with_each_text() {
    let wire = [masked(0x01, b"\xe2"), masked(0x80, b"\x82\xac"), masked(0x01, b"a"), masked(0x80, b"b")].concat();
    assert_eq!(decode(&wire), (vec![text("\u{20ac}"), text("ab")], None));
}

#[test]
fn close_frames_are_validated_and_end_the_stream() {
    let close = |payload: &[u8]| decode(&masked(0x88, payload));
    assert_eq!(close(b""), (vec![Seen::Close(None)], None));
    assert_eq!(close(b"\x03\xe8bye"), (vec![Seen::Close(Some((1000, "bye".into())))], None));
    assert_eq!(close(b"\x03").1, Some(Error::CloseTruncated));
    assert_eq!(close(b"\x03\xe8\xff").1, Some(Error::InvalidUtf8));
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535_u16] {
        assert_eq!(close(&code.to_be_bytes()).1, Some(Error::InvalidCloseCode(code)));
    }
    for code in [1000, 1003, 1007, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999_u16] {
        assert_eq!(close(&code.to_be_bytes()), (vec![Seen::Close(Some((code, String::new())))], None));
    }
    let wire = [masked(0x01, b"half"), masked(0x88, b""), masked(0x80, b"more"), vec![0xff; 100]].concat();
    assert_eq!(decode(&wire), (vec![Seen::Close(None)], None));
}

#[test]
fn a_close_frame_or_an_error_inside_a_message_frees_its_memory() {
    for end in [masked(0x88, b""), masked(0x88, b"\x03\xe8bye"), masked(0x83, b"")] {
        for cut in 1..end.len() {
            let mut pool = Pool::new(1 << 20);
            let mut decoder = Decoder::new(Role::Server, LIMIT);
            feed(&mut decoder, &mut pool, &[masked(0x02, &[0; 9000]), end.clone()].concat(), [9000, 9008 + cut]);
            decoder.recycle(&mut pool);
            assert_eq!(decoder.assembly.capacity(), 0);
            assert!(pool.held() >= 9000);
            assert!(!decoder.is_idle());
        }
    }
}

#[test]
fn errors_have_close_codes() {
    let code = |wire: &[u8]| error_of(wire).unwrap().close_code();
    assert_eq!(code(&masked(0x83, b"")), CloseCode::PROTOCOL_ERROR);
    assert_eq!(code(&masked(0x81, b"\xff")), CloseCode::INVALID_PAYLOAD);
    assert_eq!(code(&masked(0x82, &vec![0; LIMIT + 1])), CloseCode::MESSAGE_TOO_BIG);
}

#[test]
fn rejects_a_message_over_the_limit_by_its_header() {
    let limit = Some(Error::MessageTooBig { limit: 10 });
    let check =
        |frames: &[Vec<u8>]| feed(&mut Decoder::new(Role::Server, 10), &mut Pool::new(0), &frames.concat(), []).1;
    assert_eq!(check(&[masked(0x82, &[0; 10])]), None);
    assert_eq!(check(&[masked(0x82, &[0; 11])]), limit);
    assert_eq!(check(&[masked(0x82, &[0; 11])[..6].to_vec()]), limit);
    assert_eq!(check(&[b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0".to_vec()]), limit);
    assert_eq!(check(&[b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff".to_vec()]), Some(Error::LengthTooLarge));
    assert_eq!(check(&[masked(0x02, &[0; 6]), masked(0x80, &[0; 4])]), None);
    assert_eq!(check(&[masked(0x02, &[0; 6]), masked(0x00, &[0; 5])[..6].to_vec()]), limit);
    assert_eq!(check(&[masked(0x02, &[0; 10]), masked(0x89, &[0; 99]), masked(0x80, &[])]), None);
}

#[test]
fn memory_grows_with_arrived_bytes_not_with_announced_ones() {
    let mut pool = Pool::new(0);
    let mut decoder = Decoder::new(Role::Server, 1 << 40);
    let mut header = b"\x82\xff\0\0\0\x01\0\0\0\0".to_vec();
    header.extend(KEY);
    assert!(decoder.decode(&mut header, &mut pool).unwrap().event.is_none());
    assert_eq!(decoder.assembly.capacity(), 0);
    let mut arrived = 0;
    for len in [1, 1000, 100_000, 1_000_000] {
        assert!(decoder.decode(&mut vec![0; len], &mut pool).unwrap().event.is_none());
        arrived += len;
        assert!(decoder.assembly.capacity() <= 256.max(6 * arrived), "{}", decoder.assembly.capacity());
    }
}

#[test]
fn accepts_any_number_of_fragments_and_no_memory_for_empty_ones() {
    let mut pool = Pool::new(1 << 20);
    let mut decoder = Decoder::new(Role::Server, LIMIT);
    let mut flood = masked(0x01, b"");
    (0..10_000).for_each(|_| flood.extend(masked(0x00, b"")));
    assert_eq!(feed(&mut decoder, &mut pool, &flood, [3, 1000]), (vec![], None));
    assert_eq!(decoder.assembly.capacity(), 0);

    let mut fragments = Vec::new();
    (0..65_536).for_each(|_| fragments.extend(masked(0x00, b"abcd")));
    fragments.extend(masked(0x80, b""));
    let (seen, error) = feed(&mut decoder, &mut pool, &fragments, [100_000]);
    assert_eq!((seen, error), (vec![text(&"abcd".repeat(65_536))], None));
    decoder.recycle(&mut pool);
    assert_eq!(decoder.assembly.capacity(), 0);
    assert!(decoder.is_idle());
}

#[test]
fn an_idle_decoder_is_small_and_holds_nothing() {
    assert!(size_of::<Decoder>() <= 160, "{} bytes", size_of::<Decoder>());
    let mut pool = Pool::new(1 << 20);
    let mut decoder = Decoder::new(Role::Server, LIMIT);
    assert!(decoder.is_idle());
    let wire = masked(0x82, &[1; 5000]);
    for cut in 1..40 {
        let (mut head, mut tail) = (wire[..cut].to_vec(), wire[cut..].to_vec());
        assert!(decoder.decode(&mut head, &mut pool).unwrap().event.is_none());
        assert!(!decoder.is_idle());
        assert!(decoder.decode(&mut tail, &mut pool).unwrap().event.is_some());
        decoder.recycle(&mut pool);
        assert!(decoder.is_idle());
        assert_eq!(decoder.assembly.capacity(), 0);
        assert!(matches!(decoder.phase, crate::decode::Phase::Idle));
    }
}
