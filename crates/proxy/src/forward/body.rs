use super::{Flaw, Framing};
use std::io::Write as _;
use tautline::layers::ws::handshake::{ChunkFlaw, ChunkPart, Chunked};

/// The form of a body behind the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Chunks stay chunks, and bytes stay bytes.
    AsIs,
    /// The bytes alone: for a client that knows no chunks.
    Bytes,
}

/// A body on its way.
///
/// ```
/// use tautline_proxy::forward::{Body, Form, Framing};
///
/// let (mut body, mut out) = (Body::new(Framing::Chunked, Form::AsIs), Vec::new());
/// let used = body.pass(b"5;x=y\r\nhello\r\n0\r\nTrailer: t\r\n\r\nnext", |bytes| out.extend_from_slice(bytes))?;
/// assert_eq!((used, body.is_whole(), out), (31, true, b"5\r\nhello\r\n0\r\n\r\n".to_vec()));
/// # Ok::<(), tautline_proxy::forward::Flaw>(())
/// ```
#[derive(Clone, Debug)]
pub struct Body {
    state: State,
    is_chunked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Bytes that are left of a body of a known length.
    Known(u64),
    /// Bytes until the connection ends.
    UntilEnd,
    Chunked(Chunked),
}

impl Body {
    /// A body that begins.
    #[must_use]
    pub fn new(framing: Framing, form: Form) -> Self {
        let state = match framing {
            Framing::Empty => State::Known(0),
            Framing::Length(len) => State::Known(len),
            Framing::Chunked => State::Chunked(Chunked::default()),
            Framing::UntilEnd => State::UntilEnd,
        };
        Self { state, is_chunked: form == Form::AsIs }
    }

    /// Whether all of it has passed.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        match &self.state {
            State::Known(left) => *left == 0,
            State::UntilEnd => false,
            State::Chunked(chunked) => chunked.is_whole(),
        }
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// The body is not whole.
    pub fn end(&mut self) -> Result<(), Flaw> {
        if self.state == State::UntilEnd {
            self.state = State::Known(0);
        }
        if self.is_whole() { Ok(()) } else { Err(Flaw::Cut) }
    }

    /// Passes bytes on to `to`. Returns how many belonged to the body.
    ///
    /// # Errors
    /// The body is malformed. Nothing more of it may be passed.
    pub fn pass(&mut self, bytes: &[u8], mut to: impl FnMut(&[u8])) -> Result<usize, Flaw> {
        let chunked = match &mut self.state {
            State::Known(left) => {
                let len = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= len as u64;
                if len > 0 {
                    to(&bytes[..len]);
                }
                return Ok(len);
            }
            State::UntilEnd => {
                to(bytes);
                return Ok(bytes.len());
            }
            State::Chunked(chunked) => chunked,
        };
        let is_framed = self.is_chunked;
        let passed = chunked.read(bytes, |part| {
            match part {
                ChunkPart::Data(data) => to(data),
                ChunkPart::Begin(len) if is_framed => {
                    let mut line = [0; 18];
                    let mut room = &mut line[..];
                    // A number of 15 digits fits.
                    let _ = write!(room, "{len:x}\r\n");
                    let left = room.len();
                    to(&line[..line.len() - left]);
                }
                ChunkPart::End if is_framed => to(b"\r\n"),
                ChunkPart::Last if is_framed => to(b"0\r\n\r\n"),
                ChunkPart::Begin(_) | ChunkPart::End | ChunkPart::Last => {}
            }
            Ok(())
        });
        passed.map_err(|flaw| match flaw {
            ChunkFlaw::Size | ChunkFlaw::LongLine | ChunkFlaw::TooLarge => Flaw::ChunkSize,
            ChunkFlaw::End => Flaw::ChunkEnd,
            ChunkFlaw::Trailers | ChunkFlaw::LongTrailers => Flaw::Trailers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Body, Form};
    use crate::forward::{Flaw, Framing};
    use proptest::prelude::*;

    /// Passes `wire` in pieces of `step` bytes. Returns what came out, and the bytes behind the body.
    fn pass(framing: Framing, form: Form, wire: &[u8], step: usize) -> Result<(Vec<u8>, usize, bool), Flaw> {
        let (mut body, mut out, mut used) = (Body::new(framing, form), Vec::new(), 0);
        for piece in wire.chunks(step) {
            let took = body.pass(piece, |bytes| out.extend_from_slice(bytes))?;
            used += took;
            if took < piece.len() {
                break;
            }
        }
        Ok((out, wire.len() - used, body.is_whole()))
    }

    fn chunked(chunks: &[Vec<u8>], with: &str, trailers: &str) -> Vec<u8> {
        let mut wire = Vec::new();
        for chunk in chunks {
            wire.extend(format!("{:X}{with}\r\n", chunk.len()).bytes());
            wire.extend(chunk);
            wire.extend(b"\r\n");
        }
        wire.extend(format!("0{with}\r\n{trailers}\r\n").bytes());
        wire
    }

    proptest! {
        #[test]
        fn chunks_pass_however_they_are_cut(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
            step in 1usize..50,
            behind in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            let clean: Vec<u8> = chunks.concat();
            let mut wire = chunked(&chunks, ";a=\"b\"", "x: y\r\nz:\r\n");
            wire.extend(&behind);
            let plain = pass(Framing::Chunked, Form::Bytes, &wire, step).unwrap();
            prop_assert_eq!(&plain, &(clean.clone(), behind.len(), true));
            let (again, left, whole) = pass(Framing::Chunked, Form::AsIs, &wire, step).unwrap();
            prop_assert_eq!((left, whole), (behind.len(), true));
            // The result has neither extensions nor trailers, and is the same body.
            prop_assert_eq!(pass(Framing::Chunked, Form::Bytes, &again, 7).unwrap(), (clean, 0, true));
            prop_assert!(!again.windows(2).any(|pair| pair == b"z:") || chunks.concat().windows(2).any(|pair| pair == b"z:"));
        }

        #[test]
        fn a_known_length_ends_there(len in 1u64..100, wire in prop::collection::vec(any::<u8>(), 0..200), step in 1usize..50) {
            let (out, left, whole) = pass(Framing::Length(len), Form::AsIs, &wire, step).unwrap();
            let expected = wire.len().min(usize::try_from(len).unwrap());
            prop_assert_eq!((&out[..], left, whole), (&wire[..expected], wire.len() - expected, expected as u64 == len));
        }

        #[test]
        fn any_bytes_are_refused_or_reframed(wire in prop::collection::vec(any::<u8>(), 0..300), step in 1usize..50) {
            let one = pass(Framing::Chunked, Form::AsIs, &wire, step);
            prop_assert_eq!(&one, &pass(Framing::Chunked, Form::AsIs, &wire, usize::MAX));
            if let Ok((out, _, true)) = one {
                prop_assert!(pass(Framing::Chunked, Form::AsIs, &out, 3) == Ok((out.clone(), 0, true)));
            }
        }
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for (wire, flaw) in [
            (&b"\r\n"[..], Flaw::ChunkSize),
            (b"5\nhello", Flaw::ChunkSize),
            (b" 5\r\nhello", Flaw::ChunkSize),
            (b"0x5\r\n", Flaw::ChunkSize),
            (b"-1\r\n", Flaw::ChunkSize),
            (b"5 \r\n", Flaw::ChunkSize),
            (b"5;a\nb\r\n", Flaw::ChunkSize),
            (b"5\r5\r\n", Flaw::ChunkSize),
            (b"1000000000000000\r\n", Flaw::ChunkSize),
            (b"2\r\nabc\r\n", Flaw::ChunkEnd),
            (b"2\r\nab\n", Flaw::ChunkEnd),
            (b"0\r\nx: y\n\r\n", Flaw::Trailers),
            (b"0\r\n\rX", Flaw::Trailers),
            (b"0\r\nx\0: y\r\n", Flaw::Trailers),
        ] {
            for step in [1, 2, 3, 100] {
                let text = String::from_utf8_lossy(wire);
                assert_eq!(pass(Framing::Chunked, Form::AsIs, wire, step), Err(flaw), "{text:?} {step}");
            }
        }
        let long = format!("1;{}\r\n", "x".repeat(300));
        assert_eq!(pass(Framing::Chunked, Form::AsIs, long.as_bytes(), 9), Err(Flaw::ChunkSize));
        let long = format!("0\r\n{}\r\n", "x: y\r\n".repeat(3000));
        assert_eq!(pass(Framing::Chunked, Form::AsIs, long.as_bytes(), 9), Err(Flaw::Trailers));
    }

    #[test]
    fn only_a_body_without_a_length_ends_with_its_connection() {
        let end = |framing| Body::new(framing, Form::AsIs).end();
        assert_eq!((end(Framing::UntilEnd), end(Framing::Empty)), (Ok(()), Ok(())));
        assert_eq!((end(Framing::Length(1)), end(Framing::Chunked)), (Err(Flaw::Cut), Err(Flaw::Cut)));
    }
}
