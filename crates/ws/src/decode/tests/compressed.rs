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
