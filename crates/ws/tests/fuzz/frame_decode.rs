//! Frames in arbitrary pieces yield the same events as in one piece.

use tautline_buf::Pool;
use tautline_ws::deflate::{DeflateParams, Inflater};
use tautline_ws::{Decoder, Error, Event, Kind, Role};

const MAX_MESSAGE: usize = 4096;

#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    messages: Vec<(Kind, Vec<u8>)>,
    /// Pings, pongs and close frames as they print, with the number of messages before them.
    control: Vec<(usize, String)>,
    /// The chunks of a streamed message that has not ended.
    open: Vec<u8>,
    error: Option<Error>,
}

/// Input: two bytes of options (role, streaming, compression; sizes of the pieces), then the wire.
pub(crate) fn run(data: &[u8]) {
    let Some((&[options, sizes], wire)) = data.split_first_chunk() else { return };
    let whole = feed(options, wire, [usize::MAX; 2]);
    let cut = feed(options, wire, [usize::from(sizes & 15) + 1, usize::from(sizes >> 4) + 1]);
    assert_eq!(whole, cut);
}

fn feed(options: u8, wire: &[u8], sizes: [usize; 2]) -> Seen {
    let role = if options & 1 == 0 { Role::Server } else { Role::Client };
    let mut decoder = Decoder::new(role, MAX_MESSAGE);
    decoder.set_streaming(options & 2 != 0);
    if options & 4 != 0 {
        let forget = options & 8 != 0;
        let params = DeflateParams {
            server_no_context_takeover: forget,
            client_no_context_takeover: forget,
            server_max_window_bits: 15,
            client_max_window_bits: 15,
        };
        decoder = decoder.with_inflater(Inflater::new(&params, role, u32::MAX));
    }
    let mut seen = Seen::default();
    let mut pool = Pool::new(1 << 16);
    let (mut rest, mut sizes) = (wire, sizes.iter().cycle());
    while !rest.is_empty() && seen.error.is_none() {
        let (piece, behind) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
        rest = behind;
        let mut piece = piece.to_vec();
        let mut at = 0;
        while at < piece.len() && seen.error.is_none() {
            let event = match decoder.decode(&mut piece[at..], &mut pool) {
                Ok(decoded) => {
                    assert!(decoded.used > 0 || decoded.event.is_some(), "no progress");
                    at += decoded.used;
                    decoded.event
                }
                Err(error) => {
                    seen.error = Some(first_of_several(error));
                    seen.open.clear();
                    None
                }
            };
            note(event, &mut seen);
        }
    }
    seen
}

/// Maps errors that occur in one piece to one of them: which one is found first depends on the cut.
const fn first_of_several(error: Error) -> Error {
    match error {
        Error::InvalidUtf8 | Error::MessageTooBig { .. } => Error::InvalidDeflate,
        error => error,
    }
}

fn note(event: Option<Event<'_>>, seen: &mut Seen) {
    match event {
        None => {}
        Some(Event::Message(message)) => {
            if let Some(text) = message.text() {
                assert!(str::from_utf8(text.as_bytes()).is_ok());
            }
            seen.messages.push((message.kind(), message.data().to_vec()));
        }
        Some(Event::Chunk { kind, data, last, .. }) => {
            seen.open.extend_from_slice(data);
            assert!(seen.open.len() <= MAX_MESSAGE);
            if last {
                let message = core::mem::take(&mut seen.open);
                assert!(kind == Kind::Binary || str::from_utf8(&message).is_ok());
                seen.messages.push((kind, message));
            }
        }
        Some(control) => seen.control.push((seen.messages.len(), format!("{control:?}"))),
    }
}
