//! Random frames, valid and invalid, against a naive decoder that keeps the whole stream.

use super::{Seen, feed};
use crate::{Close, Decoder, Error, Header, Kind, Role};
use proptest::prelude::*;
use tautline_buf::Pool;

const LIMIT: usize = 200;

/// RFC 6455, sections 5 and 8, frame by frame over the whole stream.
fn oracle(role: Role, mut wire: &[u8]) -> (Vec<Seen>, Option<Error>) {
    let mut seen = Vec::new();
    let mut message: Option<(Kind, Vec<u8>)> = None;
    loop {
        let (header, used) = match Header::parse(wire) {
            Ok(Some(parsed)) => parsed,
            Ok(None) => return (seen, None),
            Err(error) => return (seen, Some(error)),
        };
        wire = &wire[used..];
        if header.key.is_some() != (role == Role::Server) {
            return (seen, Some(if role == Role::Server { Error::NotMasked } else { Error::Masked }));
        }
        let opcode = header.opcode as u8;
        match (opcode, &message) {
            (1 | 2, Some(_)) => return (seen, Some(Error::MessageInterleaved)),
            _ if header.rsv1 => return (seen, Some(Error::ReservedBits)),
            (0, None) => return (seen, Some(Error::UnexpectedContinuation)),
            (1, None) => message = Some((Kind::Text, Vec::new())),
            (2, None) => message = Some((Kind::Binary, Vec::new())),
            _ => {}
        }
        let so_far = message.as_ref().map_or(0, |(_, data)| data.len());
        if opcode < 8 && so_far as u64 + header.len > LIMIT as u64 {
            return (seen, Some(Error::MessageTooBig { limit: LIMIT }));
        }
        let len = usize::try_from(header.len).unwrap();
        let there = len.min(wire.len());
        let key = header.key.unwrap_or_default();
        let payload: Vec<u8> = wire[..there].iter().enumerate().map(|(i, byte)| byte ^ key[i % 4]).collect();
        wire = &wire[there..];
        if let (0..8, Some((kind, data))) = (opcode, &mut message) {
            data.extend(&payload);
            let text = if *kind == Kind::Text { str::from_utf8(data).map(drop) } else { Ok(()) };
            let ended = there == len && header.fin;
            if text.is_err_and(|error| ended || error.error_len().is_some()) {
                return (seen, Some(Error::InvalidUtf8));
            }
        }
        if there < len {
            return (seen, None);
        }
        match opcode {
            9 => seen.push(Seen::Ping(payload)),
            10 => seen.push(Seen::Pong(payload)),
            8 => {
                return match Close::parse(&payload) {
                    Ok(close) => {
                        seen.push(Seen::Close(close.map(|close| (close.code.get(), close.reason.into()))));
                        (seen, None)
                    }
                    Err(error) => (seen, Some(error)),
                };
            }
            _ if header.fin => seen.extend(message.take().map(|(kind, data)| Seen::Message(kind, data))),
            _ => {}
        }
    }
}

/// Frames that are mostly valid, so that streams do not end at once.
fn frame(role: Role) -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        6 => prop::sample::select(&[0x81, 0x82, 0x01, 0x02, 0x00, 0x80, 0x00, 0x80, 0x89, 0x8a][..]),
        1 => prop::sample::select(&[0x88, 0xc1, 0xc2, 0x83, 0x8b, 0x09, 0x40][..]),
    ];
    let payload = prop_oneof![
        3 => ".{0,12}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..12),
        1 => prop::collection::vec(Just(b'x'), 100..210),
        1 => (990..1020_u16, ".{0,4}").prop_map(|(code, reason)| [&code.to_be_bytes()[..], reason.as_bytes()].concat()),
        1 => Just("\u{20ac}".as_bytes()[..2].to_vec()),
        1 => Just("\u{20ac}".as_bytes()[2..].to_vec()),
    ];
    (first, payload, prop::bool::weighted(0.02)).prop_map(move |(first, payload, wrong_mask)| {
        let other = if role == Role::Server { Role::Client } else { Role::Server };
        super::frame(if wrong_mask { other } else { role }, first, &payload)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1000, ..Default::default() })]

    #[test]
    fn decodes_any_frames_in_any_pieces_like_the_oracle(
        (role, frames) in prop::sample::select(&[Role::Server, Role::Client][..])
            .prop_flat_map(|role| (Just(role), prop::collection::vec(frame(role), 0..12))),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        lost in 0..6_usize,
    ) {
        let mut wire = frames.concat();
        wire.truncate(wire.len().saturating_sub(lost));
        let mut ends: Vec<_> = cuts.iter().map(|cut| cut.index(wire.len() + 1)).collect();
        ends.sort_unstable();
        let seen = feed(&mut Decoder::new(role, LIMIT), &mut Pool::new(1 << 16), &wire, ends);
        prop_assert_eq!(seen, oracle(role, &wire));
    }

    #[test]
    fn decodes_garbage_in_any_pieces_like_the_oracle(
        wire in prop::collection::vec(any::<u8>(), 0..60),
        cut: prop::sample::Index,
    ) {
        let seen = feed(&mut Decoder::new(Role::Client, LIMIT), &mut Pool::new(0), &wire, [cut.index(wire.len() + 1)]);
        prop_assert_eq!(seen, oracle(Role::Client, &wire));
    }
}
