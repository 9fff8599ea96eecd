//! Compressed messages (RFC 7692).

use super::{LIMIT, Seen, feed, join, masked};
use crate::deflate::{DeflateParams, Deflater, Inflater};
use crate::{Decoder, Error, Kind, Role};
use tautline_buf::{Buf, Pool};

fn params(no_context: bool) -> DeflateParams {
    DeflateParams {
        server_no_context_takeover: no_context,
        client_no_context_takeover: no_context,
        server_max_window_bits: 15,
        client_max_window_bits: 15,
    }
}

/// Makes a server's decoder for messages that [`deflate`] compressed.
fn decoder(max_message: usize, no_context: bool, streaming: bool) -> Decoder {
    let inflater = Inflater::new(&params(no_context), Role::Server, 1000);
    let mut decoder = Decoder::new(Role::Server, max_message).with_inflater(inflater);
    decoder.set_streaming(streaming);
    decoder
}

fn deflate(deflater: &mut Deflater, payload: &[u8]) -> Vec<u8> {
    let mut out = Buf::new();
    deflater.deflate(payload, true, &mut out).unwrap();
    out.filled().to_vec()
}

fn deflated(payload: &[u8]) -> Vec<u8> {
    deflate(&mut Deflater::new(&params(true), Role::Client, 6), payload)
}

#[test]
fn compressed_messages_are_the_same_for_any_cut() {
    let long = "compressible, compressible €".repeat(60);
    for no_context in [false, true] {
        let mut deflater = Deflater::new(&params(no_context), Role::Client, 6);
        let mut next = |payload: &str| deflate(&mut deflater, payload.as_bytes());
        let (one, two, three, empty) = (next(&long), next("again, compressible"), next(&long), next(""));
        let wire = [
            masked(0xc1, &one),
            masked(0x81, b"plain"),
            masked(0x41, &two[..3]),
            masked(0x89, b"between"),
            masked(0x00, &two[3..5]),
            masked(0x00, b""),
            masked(0x80, &two[5..]),
            masked(0x42, b""),
            masked(0x00, &three),
            masked(0x80, b""),
            masked(0xc1, &empty),
        ]
        .concat();
        let text = |data: &str| Seen::Message(Kind::Text, data.into());
        let expected = [
            text(&long),
            text("plain"),
            Seen::Ping(b"between".into()),
            text("again, compressible"),
            Seen::Message(Kind::Binary, long.clone().into()),
            text(""),
        ];
        for streaming in [false, true] {
            let ways =
                (0..wire.len()).map(|cut| vec![cut]).chain([1, 2, 3, 7].map(|n| (0..wire.len()).step_by(n).collect()));
            for ends in ways {
                let mut pool = Pool::new(1 << 20);
                let mut decoder = decoder(LIMIT, no_context, streaming);
                let (seen, error) = feed(&mut decoder, &mut pool, &wire, ends);
                assert_eq!(error, None);
                assert_eq!(if streaming { join(seen) } else { seen }, expected);
                decoder.recycle(&mut pool);
                assert_eq!(decoder.assembly.capacity(), 0);
            }
        }
    }
}

#[test]
fn the_compression_bit_belongs_on_the_first_frame_of_a_message() {
    let error_of = |wire: &[u8]| feed(&mut decoder(LIMIT, true, false), &mut Pool::new(0), wire, []).1;
    let message = deflated(b"message");
    assert_eq!(error_of(&masked(0xc2, &message)), None);
    assert_eq!(error_of(&masked(0xc9, b"")), Some(Error::ReservedBits));
    assert_eq!(error_of(&masked(0xc8, b"")), Some(Error::ReservedBits));
    assert_eq!(error_of(&[masked(0x02, b"a"), masked(0xc0, b"b")].concat()), Some(Error::ReservedBits));
    assert_eq!(error_of(&[masked(0x42, &message[..2]), masked(0xc0, b"")].concat()), Some(Error::ReservedBits));
    for bits in [0xa2, 0x92, 0xf2, 0xe2] {
        assert_eq!(error_of(&masked(bits, &message)), Some(Error::ReservedBits));
    }
}

#[test]
fn inflated_messages_are_validated_and_limited() {
    for streaming in [false, true] {
        let error_of = |wire: &[u8]| feed(&mut decoder(1000, true, streaming), &mut Pool::new(0), wire, []).1;
        let too_big = Some(Error::MessageTooBig { limit: 1000 });
        assert_eq!(error_of(&masked(0xc1, &deflated(b"caf\xe9"))), Some(Error::InvalidUtf8));
        assert_eq!(error_of(&masked(0xc1, &deflated(b"cut \xe2\x82"))), Some(Error::InvalidUtf8));
        assert_eq!(error_of(&masked(0xc2, &deflated(b"caf\xe9"))), None);
        assert_eq!(error_of(&masked(0xc2, b"\xff\xff\xff\xff")), Some(Error::InvalidDeflate));
        assert_eq!(error_of(&masked(0xc2, &deflated(&[0; 1000]))), None);
        assert_eq!(error_of(&masked(0xc2, &deflated(&[0; 1001]))), too_big);
        let random = std::iter::successors(Some(1_u64), |x| Some(x.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1));
        let bytes: Vec<u8> = random.map(|x| (x >> 56) as u8).take(1000).collect();
        let incompressible = deflated(&bytes);
        assert!(incompressible.len() > 1000);
        assert_eq!(error_of(&masked(0xc2, &incompressible)), None);
    }
}

#[test]
fn a_deflate_bomb_costs_bounded_memory() {
    let bomb = deflated(&vec![0; 50_000_000]);
    for streaming in [false, true] {
        let mut pool = Pool::new(1 << 30);
        let inflater = Inflater::new(&params(true), Role::Server, u32::MAX);
        let mut decoder = Decoder::new(Role::Server, 10_000_000).with_inflater(inflater);
        decoder.set_streaming(streaming);
        let (seen, error) = feed(&mut decoder, &mut pool, &masked(0xc2, &bomb), []);
        assert_eq!(error, Some(Error::MessageTooBig { limit: 10_000_000 }));
        assert_eq!(seen.is_empty(), !streaming);
        let most = if streaming { 3 << 20 } else { 20_100_000 };
        assert!(pool.held() <= most, "{}", pool.held());
    }
}

/// The bytes of endless `fragments` of a compressed message that a decoder takes before it gives up.
fn taken_before_an_error(role: Role, streaming: bool, fragments: &[Vec<u8>]) -> (usize, Error) {
    let inflater = Inflater::new(&params(true), role, u32::MAX);
    let mut decoder = Decoder::new(role, LIMIT).with_inflater(inflater);
    decoder.set_streaming(streaming);
    let (mut pool, mut taken) = (Pool::new(0), 0);
    let [first, others @ ..] = fragments else { panic!("no fragment") };
    for fragment in std::iter::once(first).chain(others.iter().cycle()) {
        let mut wire = fragment.clone();
        match feed(&mut decoder, &mut pool, &wire, []) {
            (seen, None) => assert_eq!(seen, []),
            (_, Some(error)) => return (taken, error),
        }
        taken += wire.len();
        wire.clear();
        assert!(taken < 64 * LIMIT, "endless");
    }
    unreachable!("the fragments have no end")
}

#[test]
fn bytes_that_inflate_to_nothing_are_limited_too() {
    let too_big = Error::MessageTooBig { limit: LIMIT };
    let most = 2 * LIMIT + (4 << 10);
    for role in [Role::Server, Role::Client] {
        let frame = |first, payload: &[u8]| super::frame(role, first, payload);
        // Empty stored blocks, in one fragment after the other.
        let blocks = [0, 0, 0, 0xff, 0xff].repeat(1_000);
        for streaming in [false, true] {
            let fragments = [frame(0x42, &blocks), frame(0x00, &blocks)];
            let (taken, error) = taken_before_an_error(role, streaming, &fragments);
            assert_eq!(error, too_big);
            assert!(taken > LIMIT && taken < most + LIMIT / 16, "{taken}");
        }
        // Fragments with no byte at all, compressed or not.
        for first in [0x42, 0x02] {
            let fragments = [frame(first, b""), frame(0x00, b"")];
            let (taken, error) = taken_before_an_error(role, false, &fragments);
            assert_eq!(error, too_big);
            assert!(taken < 7 * most, "{taken}");
        }
        // Frames whose headers announce too much.
        let header = |first: u8, len: u64| {
            let mask = if role == Role::Server { 0x80 } else { 0 };
            let mut header = vec![first, mask | 127];
            header.extend(len.to_be_bytes());
            header.extend(if role == Role::Server { &[0; 4][..] } else { &[] });
            header
        };
        let of = |wire: &[u8]| {
            let inflater = Inflater::new(&params(true), role, u32::MAX);
            feed(&mut Decoder::new(role, LIMIT).with_inflater(inflater), &mut Pool::new(0), wire, []).1
        };
        assert_eq!(of(&header(0xc2, 1 << 62)), Some(too_big));
        assert_eq!(of(&header(0xc2, most as u64 + 1)), Some(too_big));
        assert_eq!(of(&header(0xc2, most as u64)), None);
        assert_eq!(of(&[frame(0x42, &blocks), header(0x80, most as u64 - 4_999)].concat()), Some(too_big));
        assert_eq!(too_big.close_code(), crate::CloseCode::MESSAGE_TOO_BIG);
    }
}

#[test]
fn a_message_of_the_longest_length_fits_however_badly_it_is_compressed() {
    let random = std::iter::successors(Some(1_u64), |x| Some(x.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1));
    let bytes: Vec<u8> = random.map(|x| (x >> 56) as u8).take(LIMIT).collect();
    let decoded = |wire: &[u8]| feed(&mut decoder(LIMIT, true, false), &mut Pool::new(0), wire, []);
    let expected = (vec![Seen::Message(Kind::Binary, bytes.clone())], None);
    assert_eq!(decoded(&masked(0xc2, &deflated(&bytes))), expected);
    // Stored blocks of 1 KiB each, as a sender with little memory makes them.
    let mut stored = Vec::new();
    for block in bytes.chunks(1 << 10) {
        let len = u16::try_from(block.len()).unwrap();
        stored.push(0);
        stored.extend(len.to_le_bytes());
        stored.extend((!len).to_le_bytes());
        stored.extend(block);
    }
    stored.push(0);
    assert_eq!(decoded(&masked(0xc2, &stored)), expected);
    // A sender that flushes after each 16 bytes, as one does that relays what trickles in.
    let mut flushed = Vec::new();
    for block in bytes.chunks(16) {
        let piece = deflated(block);
        flushed.extend(piece);
        flushed.extend([0, 0, 0xff, 0xff]);
    }
    flushed.truncate(flushed.len() - 4);
    assert!(flushed.len() > LIMIT + LIMIT / 8 + (4 << 10), "{}", flushed.len());
    assert_eq!(decoded(&masked(0xc2, &flushed)), expected);
}
