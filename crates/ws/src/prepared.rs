use crate::deflate::Press;
use crate::{Error, Header, Kind, encode};
use core::fmt;
use std::sync::{Arc, OnceLock};
use tautline_window::{Buf, Pool};

/// A server's message, framed once to be sent to many clients, and compressed once for each size of window that they
/// allow. Clones share the bytes, also across threads.
///
/// The compressed form refers to nothing before it, so it may go to any connection with permessage-deflate whose window
/// is at least as large ([`Encoder::prepared`](crate::Encoder::prepared)).
#[derive(Clone)]
pub struct Prepared(Arc<Frames>);

struct Frames {
    plain: Box<[u8]>,
    /// By window; `None` where compressing does not make it smaller. Two threads may both come to compress it, which is
    /// cheaper than one that waits for the other.
    compressed: [OnceLock<Option<Box<[u8]>>>; Press::WINDOWS],
}

impl Prepared {
    /// Frames a message. That text is UTF-8 is for the caller to see to.
    #[must_use]
    pub fn new(kind: Kind, payload: &[u8]) -> Self {
        let mut frame = Buf::new();
        encode::put(&header(kind, payload, false), payload, &mut frame);
        Self(Arc::new(Frames { plain: frame.filled().into(), compressed: Default::default() }))
    }

    /// The frame as it goes on the wire, not compressed.
    #[must_use]
    pub fn frame(&self) -> &[u8] {
        &self.0.plain
    }

    /// The frame, compressed for a window of `window_bits`; not compressed where that would not make it smaller.
    ///
    /// # Errors
    /// [`Error::Compressor`].
    pub fn compressed(&self, window_bits: u8, press: &mut Press, pool: &mut Pool) -> Result<&[u8], Error> {
        let Some(place) = Press::place(window_bits) else { return Ok(self.frame()) };
        let cell = &self.0.compressed[place];
        if cell.get().is_none() {
            let mut deflated = pool.take();
            let result = press.press(window_bits, self.payload(), &mut deflated);
            if result.is_ok() {
                let frame = (deflated.len() < self.payload().len()).then(|| {
                    let mut frame = Buf::new();
                    encode::put(&header(self.kind(), deflated.filled(), true), deflated.filled(), &mut frame);
                    frame.filled().into()
                });
                // Where another thread was faster, its result is as good.
                let _ = cell.set(frame);
            }
            pool.give(deflated);
            result?;
        }
        Ok(cell.get().and_then(Option::as_deref).unwrap_or_else(|| self.frame()))
    }

    /// Text or binary.
    #[must_use]
    pub fn kind(&self) -> Kind {
        if self.0.plain[0] & 0x0f == 1 { Kind::Text } else { Kind::Binary }
    }

    /// The payload, not compressed.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.0.plain[Header::len_of(self.0.plain[1])..]
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("kind", &self.kind()).field("len", &self.payload().len()).finish()
    }
}

fn header(kind: Kind, payload: &[u8], rsv1: bool) -> Header {
    Header { fin: true, rsv1, opcode: kind.into(), key: None, len: payload.len() as u64 }
}

#[cfg(test)]
mod tests {
    use super::Prepared;
    use crate::{Header, Kind};

    #[test]
    fn frames_and_remembers_every_length_form() {
        for len in [0, 125, 126, 65_535, 65_536] {
            let payload = vec![b'x'; len];
            for kind in [Kind::Text, Kind::Binary] {
                let prepared = Prepared::new(kind, &payload);
                assert_eq!((prepared.kind(), prepared.payload()), (kind, &payload[..]));
                assert_eq!(prepared.frame().len(), Header::len_of(prepared.frame()[1]) + len);
            }
        }
    }
}
