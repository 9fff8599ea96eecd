//! Arbitrary bytes as the state of a decoder are rejected, or make a decoder that survives any input and has a
//! state again.
//!
//! Input: two bytes of options (role and compression; length of the wire), the state, then the wire.

use tautline_buf::Pool;
use tautline_ws::deflate::{DeflateParams, Inflater};
use tautline_ws::{Decoder, DecoderState, EncoderState, Event, Kind, Role};

pub(crate) fn run(data: &[u8]) {
    let Some((&[options, len], rest)) = data.split_first_chunk() else { return };
    if let Ok(state) = EncoderState::decode(options) {
        assert_eq!(state.encode(), options);
    }
    let (bytes, wire) = rest.split_at(rest.len().saturating_sub(len.into()));
    let Ok(state) = DecoderState::decode(bytes) else { return };
    let mut again = Vec::new();
    state.encode(&mut again);
    assert_eq!(again, bytes, "each state has one encoding");
    let Ok(mut decoder) = make(options).import(&state) else { return };
    let (mut wire, mut at, mut pool) = (wire.to_vec(), 0, Pool::new(1 << 16));
    while at < wire.len() {
        let Ok(decoded) = decoder.decode(&mut wire[at..], &mut pool) else { return };
        assert!(decoded.used > 0 || decoded.event.is_some(), "no progress");
        at += decoded.used;
        match decoded.event {
            Some(Event::Message(message)) if message.kind() == Kind::Text => {
                assert!(str::from_utf8(message.data()).is_ok(), "text that is not UTF-8");
            }
            _ => {}
        }
    }
    if let Ok(state) = decoder.state(&mut pool) {
        assert!(make(options).import(&state).is_ok(), "a state can be imported");
    }
}

fn make(options: u8) -> Decoder {
    let role = if options & 1 == 0 { Role::Server } else { Role::Client };
    let decoder = Decoder::new(role, 4096);
    if options & 2 == 0 {
        return decoder;
    }
    let forget = options & 4 != 0;
    let params = DeflateParams {
        server_no_context_takeover: forget,
        client_no_context_takeover: forget,
        server_max_window_bits: 15,
        client_max_window_bits: 15,
    };
    decoder.with_inflater(Inflater::new(&params, role, u32::MAX))
}
