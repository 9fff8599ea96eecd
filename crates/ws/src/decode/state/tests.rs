use super::{DecoderState, FrameState, MessageState};
use crate::deflate::{DeflateParams, Deflater, Inflater};
use crate::{Decoder, Encoder, Error, Event, Fragment, Kind, Opcode, Role};
use tautline_buf::{Buf, Pool};

const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

fn params(forget: bool) -> DeflateParams {
    DeflateParams {
        server_no_context_takeover: forget,
        client_no_context_takeover: forget,
        server_max_window_bits: 15,
        client_max_window_bits: 15,
    }
}

/// The settings of a decoder and of its peer's encoder.
#[derive(Clone, Copy)]
struct Make {
    role: Role,
    compression: Option<DeflateParams>,
}

impl Make {
    fn decoder(self) -> Decoder {
        let decoder = Decoder::new(self.role, 1 << 20);
        match &self.compression {
            Some(params) => decoder.with_inflater(Inflater::new(params, self.role, u32::MAX)),
            None => decoder,
        }
    }

    fn encoder(self) -> Encoder {
        let peer = if self.role == Role::Server { Role::Client } else { Role::Server };
        let encoder = Encoder::new(peer);
        match &self.compression {
            Some(params) => encoder.with_deflater(Deflater::new(params, peer, 6)),
            None => encoder,
        }
    }

    /// A stream of whole messages, fragments that are cut inside characters, control frames between them, and a close.
    fn stream(self) -> Vec<u8> {
        let (mut encoder, mut out, mut pool) = (self.encoder(), Buf::new(), Pool::new(1 << 16));
        let key = || if self.role == Role::Server { KEY } else { [0; 4] };
        let compress = self.compression.is_some();
        let text = "gr\u{fc}\u{df} Gott, \u{1f600}! ".repeat(6);
        for round in 0..2 {
            encoder.message(Kind::Text, text.as_bytes(), compress, key, &mut out, &mut pool).unwrap();
            encoder.message(Kind::Binary, &[round; 130], false, key, &mut out, &mut pool).unwrap();
            encoder.ping(b"alive?", key, &mut out).unwrap();
            let pieces = text.as_bytes().chunks(37);
            let count = pieces.len();
            for (at, payload) in pieces.enumerate() {
                let last = at + 1 == count;
                let fragment = Fragment { kind: Kind::Text, payload, last, compress: compress && round == 1 };
                encoder.fragment(fragment, key, &mut out, &mut pool).unwrap();
                if at % 3 == 1 {
                    encoder.pong(&[round; 20], key, &mut out).unwrap();
                }
            }
        }
        encoder.close(Some((crate::CloseCode::NORMAL, "done")), key, &mut out).unwrap();
        out.filled().to_vec()
    }
}

fn name(kind: Kind) -> &'static str {
    if kind == Kind::Text { "text" } else { "binary" }
}

/// The events of a stream, with the chunks of each message joined.
#[derive(Clone, Default, Debug, PartialEq)]
struct Seen {
    events: Vec<(&'static str, Vec<u8>)>,
    chunks: Vec<u8>,
}

impl Seen {
    fn feed(&mut self, decoder: &mut Decoder, wire: &[u8], pool: &mut Pool) {
        let (mut wire, mut at) = (wire.to_vec(), 0);
        while at < wire.len() {
            let decoded = decoder.decode(&mut wire[at..], pool).unwrap();
            at += decoded.used;
            match decoded.event {
                Some(Event::Chunk { kind, data, last, .. }) => {
                    self.chunks.extend(data);
                    if last {
                        self.events.push((name(kind), core::mem::take(&mut self.chunks)));
                    }
                }
                Some(Event::Message(message)) => self.events.push((name(message.kind()), message.data().to_vec())),
                Some(Event::Ping(payload)) => self.events.push(("ping", payload.to_vec())),
                Some(Event::Pong(payload)) => self.events.push(("pong", payload.to_vec())),
                Some(Event::Close(close)) => self.events.push(("close", format!("{close:?}").into_bytes())),
                None => {}
            }
        }
    }
}

fn moved(make: Make, state: &DecoderState) -> Decoder {
    let mut bytes = Vec::new();
    state.encode(&mut bytes);
    let again = DecoderState::decode(&bytes).unwrap();
    assert_eq!(again, *state);
    make.decoder().import(&again).unwrap()
}

/// Moves a decoder at every byte of a stream. Inside a compressed message it decodes on, and is moved behind it.
#[test]
fn decoders_can_be_moved_at_every_byte() {
    for role in [Role::Server, Role::Client] {
        for compression in [None, Some(params(true)), Some(params(false))] {
            for streaming in [false, true] {
                let make = Make { role, compression };
                let wire = make.stream();
                let mut pool = Pool::new(1 << 16);
                let mut expected = Seen::default();
                let mut decoder = make.decoder();
                decoder.set_streaming(streaming);
                expected.feed(&mut decoder, &wire, &mut pool);
                let mut refused = 0;
                for cut in 0..=wire.len() {
                    let mut decoder = make.decoder();
                    decoder.set_streaming(streaming);
                    let mut seen = Seen::default();
                    seen.feed(&mut decoder, &wire[..cut], &mut pool);
                    let mut at = cut;
                    let state = loop {
                        match decoder.state(&mut pool) {
                            Ok(state) => break state,
                            Err(Error::ApiMisuse(_)) if compression.is_some() => {
                                seen.feed(&mut decoder, &wire[at..=at], &mut pool);
                                at += 1;
                                refused += 1;
                            }
                            Err(error) => panic!("{error}"),
                        }
                    };
                    assert_eq!(decoder.state(&mut pool), Ok(state.clone()), "reading it has changed it");
                    let mut old = seen.clone();
                    old.feed(&mut decoder, &wire[at..], &mut pool);
                    assert_eq!(old, expected, "{role:?} {streaming} {cut}, the old one goes on");
                    let mut decoder = moved(make, &state);
                    seen.feed(&mut decoder, &wire[at..], &mut pool);
                    assert_eq!(seen, expected, "{role:?} {streaming} {cut}");
                }
                assert_eq!(refused > 0, compression.is_some());
            }
        }
    }
}

/// Covers window lengths around every kind of distance code, and messages longer than a window.
#[test]
fn a_state_has_the_whole_window() {
    let make = Make { role: Role::Server, compression: Some(params(false)) };
    let mut random = 1_u32;
    let mut noise = |len: usize| -> Vec<u8> {
        let step = |_| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            random.to_be_bytes()[0]
        };
        (0..len).map(step).collect()
    };
    for len in [1, 2, 3, 4, 5, 6, 8, 9, 100, 257, 258, 259, 4_097, 32_767, 32_768, 32_769, 100_000] {
        let (mut encoder, mut out, mut pool) = (make.encoder(), Buf::new(), Pool::new(1 << 16));
        let payload = noise(len);
        // In a fragment, since a message that does not become smaller is sent as it is.
        let whole = |payload| Fragment { kind: Kind::Binary, payload, last: true, compress: true };
        encoder.fragment(whole(&payload), || KEY, &mut out, &mut pool).unwrap();
        let mut decoder = make.decoder();
        let mut seen = Seen::default();
        seen.feed(&mut decoder, out.filled(), &mut pool);
        let state = decoder.state(&mut pool).unwrap();
        assert!(state.window == payload[len.saturating_sub(32_768)..], "{len}");
        // Repeated bytes refer to the window. The window after them can be moved, too.
        out.clear();
        let again = &payload[len.saturating_sub(30_000)..];
        encoder.fragment(whole(again), || KEY, &mut out, &mut pool).unwrap();
        assert!(len < 100 || out.len() < len / 5 + 50, "{} of {len}", out.len());
        let mut decoder = moved(make, &state);
        seen.feed(&mut decoder, out.filled(), &mut pool);
        assert!(seen.events[1] == ("binary", again.to_vec()), "{len}");
        let both = [&payload[..], again].concat();
        let window = decoder.state(&mut pool).unwrap().window;
        assert!(window == both[both.len().saturating_sub(32_768)..], "{len}");
    }
}

fn message(kind: Kind, data: &[u8]) -> MessageState {
    let (total, data) = (data.len(), data.to_vec());
    MessageState { kind, compressed: false, streaming: false, first: true, total, data, character: Vec::new() }
}

fn frame(opcode: Opcode, remaining: u64) -> FrameState {
    FrameState { opcode, fin: true, key: [0; 4], remaining, control: Vec::new() }
}

#[test]
fn import_rejects_impossible_states() {
    let text = || message(Kind::Text, b"ab\xc3");
    let state = || DecoderState { message: Some(text()), ..DecoderState::default() };
    let data = || DecoderState { frame: Some(frame(Opcode::Text, 5)), ..state() };
    let import = |state: &DecoderState| Decoder::new(Role::Client, 1000).import(state);
    assert!(import(&state()).is_ok() && import(&data()).is_ok());
    for wrong in [
        DecoderState { closed: true, ..state() },
        DecoderState { header: vec![0x81], ..data() },
        DecoderState { header: vec![0x81, 0x05], ..DecoderState::default() },
        DecoderState { header: vec![0xf1, 0x7e], ..DecoderState::default() },
        DecoderState { window: vec![1], ..DecoderState::default() },
        DecoderState { frame: Some(frame(Opcode::Text, 5)), ..DecoderState::default() },
        DecoderState { frame: Some(frame(Opcode::Text, 998)), ..state() },
        DecoderState { frame: Some(frame(Opcode::Ping, 126)), ..state() },
        DecoderState { frame: Some(FrameState { fin: false, ..frame(Opcode::Ping, 1) }), ..state() },
        DecoderState { frame: Some(FrameState { key: KEY, ..frame(Opcode::Text, 1) }), ..state() },
        DecoderState { frame: Some(FrameState { control: vec![1], ..frame(Opcode::Text, 1) }), ..state() },
        DecoderState { message: Some(message(Kind::Text, b"\xff")), ..DecoderState::default() },
        DecoderState { message: Some(message(Kind::Binary, &[0; 1001])), ..DecoderState::default() },
        DecoderState { message: Some(MessageState { total: 1, ..text() }), ..state() },
        DecoderState { message: Some(MessageState { compressed: true, ..text() }), ..state() },
        DecoderState { message: Some(MessageState { streaming: true, ..text() }), ..state() },
        DecoderState { message: Some(MessageState { character: vec![0xa9], ..text() }), ..state() },
        DecoderState { message: Some(MessageState { first: false, ..text() }), ..state() },
    ] {
        assert!(import(&wrong).is_err(), "{wrong:?}");
    }
    let forgets = Make { role: Role::Client, compression: Some(params(true)) };
    assert!(forgets.decoder().import(&DecoderState { window: vec![1], ..DecoderState::default() }).is_err());
    let keeps = Make { role: Role::Client, compression: Some(params(false)) };
    assert!(keeps.decoder().import(&DecoderState { window: vec![1; 32_769], ..DecoderState::default() }).is_err());
}

#[test]
fn decode_rejects_truncated_and_trailing_bytes() {
    let full = DecoderState {
        frame: Some(frame(Opcode::Pong, 7)),
        message: Some(message(Kind::Text, b"text")),
        streaming: true,
        window: vec![3; 10],
        ..DecoderState::default()
    };
    let mut bytes = Vec::new();
    full.encode(&mut bytes);
    assert_eq!(DecoderState::decode(&bytes), Ok(full));
    for len in 0..bytes.len() {
        assert!(DecoderState::decode(&bytes[..len]).is_err(), "{len}");
    }
    bytes.push(0);
    assert!(DecoderState::decode(&bytes).is_err());
    bytes.pop();
    bytes[0] = 2;
    assert!(DecoderState::decode(&bytes).is_err(), "another version");
}

#[test]
fn state_repeats_the_error_of_a_failed_decoder() {
    let (mut decoder, mut pool) = (Decoder::new(Role::Client, 1000), Pool::new(0));
    let error = decoder.decode(&mut [0x83, 0], &mut pool).unwrap_err();
    assert_eq!(decoder.state(&mut pool), Err(error));
}
