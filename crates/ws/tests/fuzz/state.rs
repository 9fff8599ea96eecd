//! Any bytes as the state of a decoder: refused, or a decoder that stands whatever it is given next, and can be moved again.
//!
//! Two bytes of options (role and compression; how many bytes of the rest are wire), the state, then the wire.

use tautline_window::Pool;
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
    assert_eq!(again, bytes, "there is one way to write a state");
    let Ok(mut decoder) = make(options).import(&state) else { return };
    let (mut wire, mut at, mut pool) = (wire.to_vec(), 0, Pool::new(1 << 16));
    while at < wire.len() {
        let Ok(decoded) = decoder.decode(&mut wire[at..], &mut pool) else { return };
        assert!(decoded.used > 0 || decoded.event.is_some(), "no progress");
        at += decoded.used;
        match decoded.event {
            Some(Event::Message(message)) if message.kind() == Kind::Text => {
                assert!(str::from_utf8(message.data()).is_ok(), "text that is none");
            }
            _ => {}
        }
    }
    if let Ok(state) = decoder.export(&mut pool) {
        assert!(make(options).import(&state).is_ok(), "it cannot go on from where it stands");
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
