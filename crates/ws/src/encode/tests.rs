use super::{Encoder, EncoderState, Fragment};
use crate::deflate::{DeflateParams, Deflater, Inflater, SharedDeflater};
use crate::{Close, CloseCode, Decoder, Error, Event, Header, Kind, Prepared, Role};
use proptest::prelude::*;
use tautline_buf::{Buf, Pool};

const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
const NO_CONTEXT: DeflateParams = DeflateParams {
    server_no_context_takeover: true,
    client_no_context_takeover: true,
    server_max_window_bits: 15,
    client_max_window_bits: 15,
};
const CONTEXT: DeflateParams =
    DeflateParams { server_no_context_takeover: false, client_no_context_takeover: false, ..NO_CONTEXT };

fn no_key() -> [u8; 4] {
    panic!("a server masks nothing, so no key may be drawn")
}

/// An encoder with the arguments of its methods, and the decoder at the other end.
struct Pair {
    encoder: Encoder,
    decoder: Decoder,
    pool: Pool,
    out: Buf,
    role: Role,
    keys: u8,
}

impl Pair {
    fn new(role: Role) -> Self {
        let peer = if role == Role::Server { Role::Client } else { Role::Server };
        let (encoder, decoder) = (Encoder::new(role), Decoder::new(peer, 1 << 20));
        Self { encoder, decoder, pool: Pool::new(1 << 20), out: Buf::new(), role, keys: 0 }
    }

    fn compressing(role: Role, params: &DeflateParams) -> Self {
        Self::compressing_at(role, params, 6)
    }

    fn compressing_at(role: Role, params: &DeflateParams, level: u32) -> Self {
        let pair = Self::new(role);
        let peer = if role == Role::Server { Role::Client } else { Role::Server };
        let encoder = pair.encoder.with_deflater(Deflater::new(params, role, level));
        Self { encoder, decoder: pair.decoder.with_inflater(Inflater::new(params, peer, 1000)), ..pair }
    }

    fn message(&mut self, kind: Kind, payload: &[u8], compress: bool) -> Result<(), Error> {
        let Self { encoder, pool, out, role, keys, .. } = self;
        let key = || {
            assert_eq!(*role, Role::Client);
            *keys += 1;
            [*keys, 0xfa, 0x21, 0x3d]
        };
        encoder.message(kind, payload, compress, key, out, pool)
    }

    fn fragment(&mut self, kind: Kind, payload: &[u8], last: bool, compress: bool) -> Result<(), Error> {
        self.encoder.fragment(Fragment { kind, payload, last, compress }, || KEY, &mut self.out, &mut self.pool)
    }

    fn fragment_of(&mut self, payload: &[u8], last: bool, compress: bool) {
        let Self { encoder, pool, out, role, .. } = self;
        let key = || if *role == Role::Client { KEY } else { no_key() };
        encoder.fragment(Fragment { kind: Kind::Text, payload, last, compress }, key, out, pool).unwrap();
    }

    fn prepared(&mut self, message: &Prepared, shared_deflater: Option<&mut SharedDeflater>) -> Result<(), Error> {
        self.out.put(self.encoder.prepared(message, shared_deflater, &mut self.pool)?);
        Ok(())
    }

    /// Decodes `out` into messages; panics at any other event.
    fn arrive(&mut self) -> Vec<(Kind, Vec<u8>)> {
        let mut messages = Vec::new();
        while !self.out.is_empty() {
            let decoded = self.decoder.decode(self.out.filled_mut(), &mut self.pool).unwrap();
            let used = decoded.used;
            match decoded.event {
                Some(Event::Message(message)) => messages.push((message.kind(), message.data().to_vec())),
                None => {}
                other => panic!("{other:?}"),
            }
            self.out.take(used);
        }
        assert!(self.decoder.is_idle());
        messages
    }
}

#[test]
fn writes_the_examples_of_rfc_6455_section_5_7() {
    let (mut out, mut pool) = (Buf::new(), Pool::new(0));
    let mut server = Encoder::new(Role::Server);
    server.message(Kind::Text, b"Hello", false, no_key, &mut out, &mut pool).unwrap();
    for (payload, last) in [(b"Hel".as_slice(), false), (b"lo", true)] {
        let fragment = Fragment { kind: Kind::Text, payload, last, compress: false };
        server.fragment(fragment, no_key, &mut out, &mut pool).unwrap();
    }
    server.ping(b"Hello", no_key, &mut out).unwrap();
    assert_eq!(out.filled(), b"\x81\x05Hello\x01\x03Hel\x80\x02lo\x89\x05Hello");
    out.clear();
    let mut client = Encoder::new(Role::Client);
    client.message(Kind::Text, b"Hello", false, || KEY, &mut out, &mut pool).unwrap();
    client.pong(b"Hello", || KEY, &mut out).unwrap();
    let masked = b"\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    assert_eq!(out.filled(), [b"\x81\x85", &masked[..], b"\x8a\x85", masked].concat());
    out.clear();
    server.message(Kind::Binary, &[7; 256], false, no_key, &mut out, &mut pool).unwrap();
    server.message(Kind::Binary, &[7; 65536], false, no_key, &mut out, &mut pool).unwrap();
    assert_eq!(out.filled()[..4], *b"\x82\x7e\x01\x00");
    assert_eq!(out.filled()[260..270], *b"\x82\x7f\0\0\0\0\0\x01\0\0");
    assert_eq!(out.len(), 260 + 10 + 65536);
}

#[test]
fn writes_the_example_of_rfc_7692_section_7_2_3() {
    let mut pair = Pair::compressing(Role::Server, &NO_CONTEXT);
    pair.fragment_of(b"Hello", true, true);
    assert_eq!(pair.out.filled(), b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00");
    assert_eq!(pair.arrive(), [(Kind::Text, b"Hello".to_vec())]);
}

#[test]
fn a_message_that_compression_does_not_make_smaller_is_sent_as_it_is() {
    let mut seed = 1_u64;
    let mut noise = |len: usize| -> Vec<u8> {
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed.to_be_bytes()[0]
        };
        (0..len).map(|_| next()).collect()
    };
    for (level, params) in [(2, CONTEXT), (6, CONTEXT), (2, NO_CONTEXT), (6, NO_CONTEXT)] {
        let mut pair = Pair::compressing_at(Role::Server, &params, level);
        let text = noise(90).repeat(2);
        // Longer than the window, and than one block, too.
        for len in [0, 1, 60, 400, 3, 20_000, 70_000, 5] {
            // The peer's window has the text, which may be referred to, and lacks the noise.
            let sizes = [&text, &noise(len), &text].map(|payload| {
                pair.message(Kind::Binary, payload, true).unwrap();
                let size = pair.out.len() - Header::len_of(pair.out.filled()[1]);
                assert!(size <= payload.len(), "level {level}: {size} for {}", payload.len());
                assert_eq!(pair.arrive(), [(Kind::Binary, payload.clone())], "level {level}, {len}");
                size
            });
            assert_eq!(sizes[1], len, "noise");
            if level == 2 && !params.server_no_context_takeover && len <= 20_000 {
                assert!(sizes[2] < 20, "the window before it is kept: {sizes:?}, {len}");
            }
        }
    }
}

#[test]
fn every_frame_of_a_client_has_a_fresh_key() {
    let mut pair = Pair::new(Role::Client);
    for _ in 0..3 {
        pair.message(Kind::Binary, b"", false).unwrap();
    }
    assert_eq!(pair.out.filled(), b"\x82\x80\x01\xfa\x21\x3d\x82\x80\x02\xfa\x21\x3d\x82\x80\x03\xfa\x21\x3d");
}

#[test]
fn compression_is_chosen_message_by_message() {
    for role in [Role::Server, Role::Client] {
        for params in [NO_CONTEXT, CONTEXT] {
            let mut pair = Pair::compressing(role, &params);
            let payload = b"again and again and again".repeat(10);
            for compress in [true, false, true, true, false] {
                pair.message(Kind::Binary, &payload, compress).unwrap();
                assert_eq!(pair.out.filled()[0], if compress { 0xc2 } else { 0x82 });
                assert_eq!(pair.out.len() < payload.len(), compress);
                assert_eq!(pair.arrive(), [(Kind::Binary, payload.clone())]);
            }
        }
    }
    let mut pair = Pair::new(Role::Server);
    pair.message(Kind::Binary, b"not negotiated", true).unwrap();
    assert_eq!(pair.out.filled()[0], 0x82);
}

#[test]
fn fragments_make_one_message_with_control_frames_between() {
    for compress in [false, true] {
        let mut pair = Pair::compressing(Role::Server, &CONTEXT);
        // Every piece of random bytes yields compressed ones. The first pieces of the repetitive message yield none.
        let next = |x: &u64| Some(x.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1);
        let random = std::iter::successors(Some(1_u64), next).map(|x| x.to_be_bytes()[0]).take(100_000).collect();
        for (piece, frames) in [(random, 3), (b"a piece ".repeat(100), if compress { 1 } else { 3 })] {
            let mut begun = 0;
            for last in [false, false, true] {
                let before = pair.out.len();
                pair.fragment(Kind::Binary, &piece, last, compress).unwrap();
                begun += usize::from(pair.out.len() > before);
            }
            assert_eq!(begun, frames);
            assert_eq!(pair.arrive(), [(Kind::Binary, piece.repeat(3))]);
        }

        pair.fragment(Kind::Binary, b"", false, compress).unwrap();
        pair.encoder.ping(b"", no_key, &mut pair.out).unwrap();
        let sent = pair.out.filled().to_vec();
        assert!(sent.ends_with(b"\x89\0"));
        let misuse = "finish the fragmented message before the next one";
        assert_eq!(pair.message(Kind::Binary, b"", false), Err(Error::ApiMisuse(misuse)));
        assert_eq!(pair.prepared(&Prepared::new(Kind::Text, b""), None), Err(Error::ApiMisuse(misuse)));
        let kinds = Err(Error::ApiMisuse("all fragments of a message have one kind"));
        assert_eq!(pair.fragment(Kind::Text, b"", true, compress), kinds);
        assert_eq!(pair.out.filled(), sent);
        pair.out.truncate(sent.len() - 2);
        pair.fragment(Kind::Binary, b"end", true, !compress).unwrap();
        assert_eq!(pair.arrive(), [(Kind::Binary, b"end".to_vec())]);
        pair.message(Kind::Binary, b"next", compress).unwrap();
        assert_eq!(pair.arrive(), [(Kind::Binary, b"next".to_vec())]);
    }
}

#[test]
fn control_frames_hold_at_most_125_bytes() {
    let mut out = Buf::new();
    let mut encoder = Encoder::new(Role::Server);
    let misuse = Err(Error::ApiMisuse("a ping or pong holds at most 125 bytes"));
    assert_eq!(encoder.ping(&[0; 126], no_key, &mut out), misuse);
    assert_eq!(encoder.pong(&[0; 126], no_key, &mut out), misuse);
    assert!(out.is_empty());
    encoder.ping(&[0; 125], no_key, &mut out).unwrap();
    encoder.pong(&[0; 125], no_key, &mut out).unwrap();
    assert_eq!(out.len(), 2 * 127);
}

#[test]
fn nothing_follows_a_close_frame() {
    let mut out = Buf::new();
    let mut encoder = Encoder::new(Role::Server);
    for code in [0, 999, 1004, 1005, 1006, 1015, 2999, 5000] {
        assert!(encoder.close(Some((CloseCode::new(code), "")), no_key, &mut out).is_err());
    }
    assert!(out.is_empty() && !encoder.is_closed());
    let reason = "ü".repeat(100);
    encoder.close(Some((CloseCode::GOING_AWAY, &reason)), no_key, &mut out).unwrap();
    assert!(encoder.is_closed());
    let close = Close::parse(&out.filled()[2..]).unwrap().unwrap();
    assert_eq!((close.code, close.reason), (CloseCode::GOING_AWAY, &reason[..122]));
    let sent = out.filled().to_vec();
    assert_eq!(encoder.close(None, no_key, &mut out), Ok(()));
    let pool = &mut Pool::new(0);
    let after = Err(Error::ApiMisuse("nothing may be sent after the close frame"));
    assert_eq!(encoder.message(Kind::Text, b"", false, no_key, &mut out, pool), after);
    assert_eq!(encoder.ping(b"", no_key, &mut out), after);
    let fragment = Fragment { kind: Kind::Text, payload: b"", last: true, compress: false };
    assert_eq!(encoder.fragment(fragment, no_key, &mut out, pool), after);
    assert_eq!(out.filled(), sent);

    out.clear();
    Encoder::new(Role::Client).close(None, || KEY, &mut out).unwrap();
    assert_eq!(out.filled(), b"\x88\x80\x37\xfa\x21\x3d");
}

#[test]
fn prepared_messages_arrive_compressed_or_not() {
    let payload = "tick tock ".repeat(100);
    let message = Prepared::new(Kind::Text, payload.as_bytes());
    for params in [CONTEXT, NO_CONTEXT] {
        let mut pair = Pair::compressing(Role::Server, &params);
        let mut shared_deflater = SharedDeflater::new(6);
        for shared_deflater in [None, Some(&mut shared_deflater)] {
            let compressed = shared_deflater.is_some();
            pair.prepared(&message, shared_deflater).unwrap();
            assert_eq!(pair.out.len() < 100, compressed);
            assert_eq!(pair.arrive(), [(Kind::Text, payload.clone().into())]);
        }
        // Compression does not make one byte smaller.
        pair.prepared(&Prepared::new(Kind::Binary, b"x"), Some(&mut shared_deflater)).unwrap();
        assert_eq!(pair.out.filled(), b"\x82\x01x");
    }
    let mut client = Encoder::new(Role::Client);
    assert!(matches!(client.prepared(&message, None, &mut Pool::new(0)), Err(Error::ApiMisuse(_))));
}

#[test]
fn a_prepared_message_is_compressed_once_per_window_size() {
    let message = Prepared::new(Kind::Text, "a window's worth ".repeat(200).as_bytes());
    let (mut one, mut other, mut pool) = (SharedDeflater::new(6), SharedDeflater::new(6), Pool::new(1 << 20));
    let first = message.compressed(15, &mut one, &mut pool).unwrap().as_ptr();
    let again = message.clone();
    assert_eq!(again.compressed(15, &mut other, &mut pool).unwrap().as_ptr(), first);
    assert_ne!(again.compressed(9, &mut other, &mut pool).unwrap().as_ptr(), first);
    assert_eq!(again.compressed(8, &mut other, &mut pool).unwrap(), message.frame());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..Default::default() })]

    #[test]
    fn any_messages_in_any_form_arrive(
        role in prop::sample::select(&[Role::Server, Role::Client][..]),
        params in prop::sample::select(&[CONTEXT, NO_CONTEXT][..]),
        level in prop::sample::select(&[1, 2, 6][..]),
        messages in prop::collection::vec(
            (prop_oneof![".{0,80}", "x{100,140}", (65_500..65_600_usize).prop_map(|n| "ab€".repeat(n / 5))], any::<bool>(), any::<bool>(), 0..4_usize),
            0..6,
        ),
    ) {
        let mut pair = Pair::compressing_at(role, &params, level);
        let mut shared_deflater = SharedDeflater::new(6);
        let mut expected = Vec::new();
        for (text, is_text, compress, pieces) in messages {
            let kind = if is_text { Kind::Text } else { Kind::Binary };
            if pieces == 0 && role == Role::Server {
                pair.prepared(&Prepared::new(kind, text.as_bytes()), compress.then_some(&mut shared_deflater)).unwrap();
            } else if pieces <= 1 {
                pair.message(kind, text.as_bytes(), compress).unwrap();
            } else {
                let mut rest = text.as_bytes();
                for left in (1..=pieces).rev() {
                    let (piece, behind) = rest.split_at(rest.len() / left);
                    pair.fragment(kind, piece, left == 1, compress).unwrap();
                    rest = behind;
                }
            }
            expected.push((kind, text.into_bytes()));
        }
        prop_assert_eq!(pair.arrive(), expected);
    }
}

/// Moves the encoder's state to a new encoder, by way of bytes; the compressor's pending output goes to `out`.
fn moved(mut pair: Pair, params: &DeflateParams) -> Pair {
    let state = pair.encoder.state(|| KEY, &mut pair.out, &mut pair.pool).unwrap();
    let new = Pair::compressing(pair.role, params);
    let encoder = new.encoder.import(EncoderState::decode(state.encode()).unwrap()).unwrap();
    Pair { encoder, ..pair }
}

#[test]
fn encoders_can_be_moved_between_and_within_messages() {
    let text = [b'a'; 300];
    for params in [NO_CONTEXT, CONTEXT] {
        for role in [Role::Client, Role::Server] {
            for compress in [false, true] {
                let mut pair = Pair::compressing(role, &params);
                let mut expected = Vec::new();
                for round in 0..4 {
                    pair = moved(pair, &params);
                    pair.fragment_of(&text, false, compress);
                    if round > 1 {
                        pair = moved(pair, &params);
                    }
                    pair.fragment_of(b"behind it", false, compress);
                    pair = moved(pair, &params);
                    pair.fragment_of(if round % 2 == 0 { b"" } else { b"the end" }, true, compress);
                    let end: &[u8] = if round % 2 == 0 { b"" } else { b"the end" };
                    expected.push((Kind::Text, [&text[..], b"behind it", end].concat()));
                }
                assert_eq!(pair.arrive(), expected, "{role:?} {compress}");
                pair.encoder.close(None, || KEY, &mut pair.out).unwrap();
                assert!(moved(pair, &params).encoder.is_closed());
            }
        }
    }
}

#[test]
fn encoder_states_convert_to_bytes_and_back() {
    let known: Vec<u8> = (0..=u8::MAX).filter(|&byte| EncoderState::decode(byte).is_ok()).collect();
    assert_eq!(known, [0, 1, 2, 6, 10, 14, 18, 22, 26, 30]);
    assert!(known.iter().all(|&byte| EncoderState::decode(byte).unwrap().encode() == byte));
    let compressed = EncoderState::Fragments { kind: Kind::Text, compressed: true, started: false };
    assert!(matches!(Encoder::new(Role::Server).import(compressed), Err(Error::ApiMisuse(_))));
}
