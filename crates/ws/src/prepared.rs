use crate::deflate::Deflater;
use crate::{Error, Header, Kind, encode};
use core::fmt;
use std::sync::Arc;
use tautline_window::{Buf, Pool};

/// A server's message, framed once to be sent to many clients. Clones share the bytes.
///
/// It can hold the message compressed as well. That form may go to connections which negotiated permessage-deflate with
/// `server_no_context_takeover`, for it is compressed without the context of any of them.
#[derive(Clone)]
pub struct Prepared {
    plain: Arc<[u8]>,
    compressed: Option<Arc<[u8]>>,
}

impl Prepared {
    /// Frames a message. That text is UTF-8 is for the caller to see to.
    #[must_use]
    pub fn new(kind: Kind, payload: &[u8]) -> Self {
        let mut frame = Buf::new();
        encode::put(&header(kind, payload, false), payload, &mut frame);
        Self { plain: frame.filled().into(), compressed: None }
    }

    /// Adds the compressed form, where it is smaller. `deflater` must be one that forgets its window after each message
    /// (no context takeover for the server), with no more window bits than any receiver allows.
    ///
    /// # Errors
    /// [`Error::Compressor`].
    pub fn with_compressed(mut self, deflater: &mut Deflater, pool: &mut Pool) -> Result<Self, Error> {
        let mut deflated = pool.take();
        let result = deflater.deflate(self.payload(), true, &mut deflated);
        if result.is_ok() && deflated.len() < self.payload().len() {
            let mut frame = pool.take();
            encode::put(&header(self.kind(), deflated.filled(), true), deflated.filled(), &mut frame);
            self.compressed = Some(frame.filled().into());
            pool.give(frame);
        }
        pool.give(deflated);
        result.map(|()| self)
    }

    /// The frame as it goes on the wire; the compressed one where it is wanted and there.
    #[must_use]
    pub fn frame(&self, compressed: bool) -> &[u8] {
        match &self.compressed {
            Some(frame) if compressed => frame,
            _ => &self.plain,
        }
    }

    /// Text or binary.
    #[must_use]
    pub fn kind(&self) -> Kind {
        if self.plain[0] & 0x0f == 1 { Kind::Text } else { Kind::Binary }
    }

    /// The payload, uncompressed.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.plain[Header::len_of(self.plain[1])..]
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("kind", &self.kind())
            .field("len", &self.payload().len())
            .field("compressed", &self.compressed.is_some())
            .finish()
    }
}

fn header(kind: Kind, payload: &[u8], rsv1: bool) -> Header {
    Header { fin: true, rsv1, opcode: kind.into(), key: None, len: payload.len() as u64 }
}

#[cfg(test)]
mod tests {
    use super::Prepared;
    use crate::Kind;

    #[test]
    fn frames_and_remembers_every_length_form() {
        for len in [0, 125, 126, 65_535, 65_536] {
            let payload = vec![b'x'; len];
            for kind in [Kind::Text, Kind::Binary] {
                let prepared = Prepared::new(kind, &payload);
                assert_eq!((prepared.kind(), prepared.payload()), (kind, &payload[..]));
                assert_eq!(prepared.frame(true), prepared.frame(false));
            }
        }
    }
}
