mod compressed;
mod oracle;
mod rules;
mod splits;

use super::Decoder;
use crate::{Error, Event, Kind, Role};
use tautline_buf::Pool;

const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
const LIMIT: usize = 1 << 20;

/// An event that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Message(Kind, Vec<u8>),
    Chunk { kind: Kind, data: Vec<u8>, first: bool, last: bool },
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<(u16, String)>),
}

impl From<Event<'_>> for Seen {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Message(message) => {
                assert_eq!(message.text().is_some(), message.kind() == Kind::Text);
                if message.kind() == Kind::Text {
                    assert_eq!(message.text(), Some(str::from_utf8(message.data()).expect("valid text")));
                }
                Self::Message(message.kind(), message.data().to_vec())
            }
            Event::Chunk { kind, data, first, last } => {
                assert!(last || !data.is_empty());
                Self::Chunk { kind, data: data.to_vec(), first, last }
            }
            Event::Ping(data) => Self::Ping(data.to_vec()),
            Event::Pong(data) => Self::Pong(data.to_vec()),
            Event::Close(close) => Self::Close(close.map(|close| (close.code.get(), close.reason.to_owned()))),
        }
    }
}

/// Makes a frame that `role` receives, without the code under test.
fn frame(role: Role, first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = if role == Role::Server { 0x80 } else { 0 };
    let mut frame = vec![first];
    let len = (payload.len() as u64).to_be_bytes();
    match payload.len() {
        0..126 => frame.push(mask | len[7]),
        126..0x1_0000 => frame.extend([mask | 126, len[6], len[7]]),
        _ => {
            frame.push(mask | 127);
            frame.extend(len);
        }
    }
    if role == Role::Server {
        frame.extend(KEY);
        frame.extend(payload.iter().zip(KEY.iter().cycle()).map(|(byte, key)| byte ^ key));
    } else {
        frame.extend(payload);
    }
    frame
}

/// Makes a client's frame.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    frame(Role::Server, first, payload)
}

/// The bytes of an event.
const fn data_of<'a>(event: &Event<'a>) -> &'a [u8] {
    match event {
        Event::Message(message) => message.data(),
        Event::Chunk { data, .. } | Event::Ping(data) | Event::Pong(data) => data,
        Event::Close(_) => &[],
    }
}

/// Decodes `wire` in pieces that end at `ends`, and checks the decoder's contract on the way.
fn feed(
    decoder: &mut Decoder,
    pool: &mut Pool,
    wire: &[u8],
    ends: impl IntoIterator<Item = usize>,
) -> (Vec<Seen>, Option<Error>) {
    let mut seen = Vec::new();
    let mut start = 0;
    for end in ends.into_iter().chain([wire.len()]) {
        let mut piece = wire[start..end].to_vec();
        start = end;
        let mut at = 0;
        let input = piece.as_ptr_range();
        loop {
            match decoder.decode(&mut piece[at..], pool) {
                Ok(decoded) => {
                    at += decoded.used;
                    let Some(event) = decoded.event else {
                        assert_eq!(at, piece.len(), "no event, so all must be used");
                        break;
                    };
                    assert!(decoded.used > 0);
                    let data = data_of(&event);
                    let is_in_input = input.contains(&data.as_ptr());
                    let (is_empty, copy) = (data.is_empty(), data.to_vec());
                    seen.push(event.into());
                    if !is_empty {
                        assert_eq!(decoder.held(), (!is_in_input).then_some(&*copy), "the place of the bytes");
                    }
                }
                Err(error) => {
                    let again = decoder.decode(&mut piece[at..], pool).map(|decoded| decoded.used);
                    assert_eq!(again, Err(error), "errors are final");
                    return (seen, Some(error));
                }
            }
            // Every other event is recycled explicitly; the next `decode` recycles the others.
            if at % 2 == 0 {
                decoder.recycle(pool);
            }
        }
    }
    (seen, None)
}

/// Decodes `wire` as a server, in one piece.
fn decode(wire: &[u8]) -> (Vec<Seen>, Option<Error>) {
    feed(&mut Decoder::new(Role::Server, LIMIT), &mut Pool::new(1 << 22), wire, [])
}

/// Decodes `wire` as a server, byte by byte; returns the number of bytes up to the first error, and the error.
fn fails_at(wire: &[u8]) -> Option<(usize, Error)> {
    let mut pool = Pool::new(1 << 22);
    let mut decoder = Decoder::new(Role::Server, LIMIT);
    wire.iter().enumerate().find_map(|(i, byte)| {
        let error = decoder.decode(&mut [*byte], &mut pool).err()?;
        Some((i + 1, error))
    })
}

/// Joins the chunks of each message, and checks their marks.
fn join(seen: Vec<Seen>) -> Vec<Seen> {
    let mut joined = Vec::new();
    let mut open: Option<(Kind, Vec<u8>)> = None;
    for seen in seen {
        match seen {
            Seen::Chunk { kind, data, first, last } => {
                assert_eq!(first, open.is_none());
                let (begun, so_far) = open.get_or_insert((kind, Vec::new()));
                assert_eq!(*begun, kind);
                so_far.extend(data);
                if last {
                    joined.extend(open.take().map(|(kind, data)| Seen::Message(kind, data)));
                }
            }
            Seen::Message(..) => panic!("a message where chunks were asked for"),
            other => joined.push(other),
        }
    }
    assert!(open.is_none());
    joined
}
