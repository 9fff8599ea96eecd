//! Responses whose pieces the application sends: a connection's messages as pieces of one HTTP response, in place of frames.
//!
//! Everything before the cork stays as it is for messages: the queue, its policy for slow readers, and the flush.

use std::fmt::Write as _;
use tautline_ws::{CloseCode, Kind};

/// Writes the messages to a connection as pieces of a response.
///
/// It is called on the connection's loop, when a message leaves the queue: a message that was dropped is never written.
pub trait PieceWriter: Send {
    /// Appends a message. Nothing is sent if nothing is appended.
    fn message(&mut self, kind: Kind, payload: &[u8], out: &mut Vec<u8>);

    /// Appends bytes that show an idle client, and proxies on the way, that the response goes on. They take the place of pings
    /// ([`Deadlines::ping`](crate::config::Deadlines::ping)). The default appends nothing.
    fn keepalive(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Appends the last bytes, when the application or the server closes the connection with this code. The default appends
    /// nothing.
    fn close(&mut self, code: CloseCode, reason: &str, out: &mut Vec<u8>) {
        let _ = (code, reason, out);
    }
}

/// The writer of a connection's response, and its framing.
pub struct Pieces {
    writer: Box<dyn PieceWriter>,
    is_chunked: bool,
}

impl Pieces {
    /// A response without a length: in chunks (RFC 9112, section 7.1), or up to the end of the connection.
    #[must_use]
    pub const fn new(writer: Box<dyn PieceWriter>, is_chunked: bool) -> Self {
        Self { writer, is_chunked }
    }

    /// Its memory, in bytes, as far as its type tells.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.writer)
    }

    /// Bytes of a message's piece.
    pub(crate) fn message(&mut self, kind: Kind, payload: &[u8]) -> Vec<u8> {
        self.piece(|writer, out| writer.message(kind, payload, out))
    }

    /// Bytes in place of a ping.
    pub(crate) fn keepalive(&mut self) -> Vec<u8> {
        self.piece(|writer, out| writer.keepalive(out))
    }

    /// Bytes of the end. A response that a failure ends is not made whole: its client notices.
    pub(crate) fn close(&mut self, code: CloseCode, reason: &str) -> Vec<u8> {
        let mut last = self.piece(|writer, out| writer.close(code, reason, out));
        if self.is_chunked && code != CloseCode::POLICY && code != CloseCode::INTERNAL_ERROR {
            last.extend_from_slice(b"0\r\n\r\n");
        }
        last
    }

    fn piece(&mut self, write: impl FnOnce(&mut dyn PieceWriter, &mut Vec<u8>)) -> Vec<u8> {
        let mut content = Vec::new();
        write(&mut *self.writer, &mut content);
        if !self.is_chunked || content.is_empty() {
            return content;
        }
        let mut size = String::with_capacity(20);
        // Writing to a string does not fail.
        let _ = write!(size, "{:x}\r\n", content.len());
        let mut chunk = Vec::with_capacity(size.len() + content.len() + 2);
        chunk.extend_from_slice(size.as_bytes());
        chunk.extend_from_slice(&content);
        chunk.extend_from_slice(b"\r\n");
        chunk
    }
}

/// Writes payloads as they are.
pub struct AsTheyAre;

impl PieceWriter for AsTheyAre {
    fn message(&mut self, _: Kind, payload: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::{AsTheyAre, Pieces};
    use tautline_ws::{CloseCode, Kind};

    #[test]
    fn pieces_are_chunks_and_only_a_whole_response_has_a_last_one() {
        let mut pieces = Pieces::new(Box::new(AsTheyAre), true);
        assert_eq!(pieces.message(Kind::Text, b"hello, world 123"), b"10\r\nhello, world 123\r\n");
        // An empty chunk would be the last one.
        assert_eq!(pieces.message(Kind::Text, b""), b"");
        assert_eq!(pieces.keepalive(), b"");
        assert_eq!(pieces.close(CloseCode::GOING_AWAY, ""), b"0\r\n\r\n");
        assert_eq!(pieces.close(CloseCode::POLICY, "too slow a reader"), b"");
        let mut pieces = Pieces::new(Box::new(AsTheyAre), false);
        assert_eq!(
            (pieces.message(Kind::Binary, b"a"), pieces.close(CloseCode::NORMAL, "")),
            (b"a".to_vec(), Vec::new())
        );
    }
}
