use super::HandshakeError;
use crate::fields::{at_most_one, has_token};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{Response, StatusCode};

/// Most bytes of the body of a rejection, and most bytes that are read for it.
pub(super) const MAX_BODY: usize = 16 << 10;

/// A server's answer that is no upgrade, while its body arrives.
#[derive(Debug)]
pub(super) struct Rejection {
    response: Response<Vec<u8>>,
    rest: Rest,
    /// The bytes of head and body so far, in the caller's run of bytes.
    read: usize,
    /// The number of bytes of the run at which reading ends in any case.
    end: usize,
}

/// The part of a body that is missing (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Bytes(u64),
    UntilEnd,
    Chunks(Chunk),
    Nothing,
}

/// The position in a chunked body (RFC 9112, section 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    /// In the digits of a size.
    Size(u64),
    /// Behind the digits, in the same line.
    Extension(u64),
    Data(u64),
    /// Before the line end behind the data.
    DataEnd,
}

impl Rejection {
    /// A rejection by `response`, whose head ends at `read`.
    pub(super) fn new(response: Response<()>, read: usize) -> Self {
        let rest = rest_of(&response);
        Self { response: response.map(|()| Vec::new()), rest, read, end: read.saturating_add(MAX_BODY) }
    }

    /// Reads more of the body from the whole run of bytes. True if nothing more is to come.
    pub(super) fn read(&mut self, bytes: &[u8]) -> bool {
        let new = bytes.get(self.read..bytes.len().min(self.end)).unwrap_or_default();
        self.read += new.len();
        let body = self.response.body_mut();
        match &mut self.rest {
            Rest::Bytes(missing) => {
                let take = usize::try_from(*missing).unwrap_or(usize::MAX).min(new.len());
                body.extend_from_slice(&new[..take]);
                *missing -= take as u64;
            }
            Rest::UntilEnd => body.extend_from_slice(new),
            Rest::Chunks(_) => self.chunks(new),
            Rest::Nothing => {}
        }
        matches!(self.rest, Rest::Nothing | Rest::Bytes(0)) || self.read >= self.end
    }

    /// A malformed chunk ends the body, since the status is what counts.
    fn chunks(&mut self, mut new: &[u8]) {
        while let (Rest::Chunks(chunk), Some((&first, after))) = (self.rest, new.split_first()) {
            let next = match chunk {
                Chunk::Data(missing) => {
                    let take = usize::try_from(missing).unwrap_or(usize::MAX).min(new.len());
                    self.response.body_mut().extend_from_slice(&new[..take]);
                    new = &new[take..];
                    let left = missing - take as u64;
                    self.rest = Rest::Chunks(if left == 0 { Chunk::DataEnd } else { Chunk::Data(left) });
                    continue;
                }
                Chunk::DataEnd if first == b'\n' => Some(Chunk::Size(0)),
                Chunk::DataEnd => (first == b'\r').then_some(chunk),
                Chunk::Size(size) if first.is_ascii_hexdigit() => {
                    let digit = u64::from(char::from(first).to_digit(16).unwrap_or_default());
                    size.checked_mul(16).map(|size| Chunk::Size(size + digit))
                }
                Chunk::Size(size) | Chunk::Extension(size) if first == b'\n' => (size > 0).then_some(Chunk::Data(size)),
                Chunk::Size(size) | Chunk::Extension(size) => Some(Chunk::Extension(size)),
            };
            self.rest = next.map_or(Rest::Nothing, Rest::Chunks);
            new = after;
        }
    }

    pub(super) fn into_error(self) -> HandshakeError {
        HandshakeError::Rejected { response: Box::new(self.response) }
    }
}

fn rest_of(response: &Response<()>) -> Rest {
    let headers = response.headers();
    if matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        Rest::Nothing
    } else if has_token(headers, TRANSFER_ENCODING, "chunked") {
        Rest::Chunks(Chunk::Size(0))
    } else {
        let length = at_most_one(headers, CONTENT_LENGTH).ok().flatten();
        let length = length.and_then(|length| length.to_str().ok()?.trim().parse().ok());
        length.map_or(Rest::UntilEnd, Rest::Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BODY, Rejection};
    use crate::handshake::HandshakeError;
    use http::Response;

    /// Reads a body in steps of `step` bytes. Returns it, and whether it is known to be whole.
    fn read(head: &[(&str, &str)], body: &[u8], step: usize) -> (Vec<u8>, bool) {
        let mut response = Response::builder().status(403);
        for (name, value) in head {
            response = response.header(*name, *value);
        }
        let run = [&b"head"[..], body].concat();
        let mut rejection = Rejection::new(response.body(()).unwrap(), 4);
        let mut at = 4;
        let whole = loop {
            if rejection.read(&run[..at]) {
                break true;
            }
            if at == run.len() {
                break false;
            }
            at = run.len().min(at + step);
        };
        let HandshakeError::Rejected { response } = rejection.into_error() else { unreachable!() };
        (response.into_body(), whole)
    }

    #[test]
    fn reads_bodies_of_every_framing_in_any_pieces() {
        let chunked = b"5;x=1\r\nhello\r\n1\r\n \r\n00a\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
        for step in [1, 2, 3, 7, 1000] {
            assert_eq!(read(&[("content-length", "5")], b"hello", step), (b"hello".to_vec(), true));
            assert_eq!(read(&[("content-length", "5")], b"hellomore", step), (b"hello".to_vec(), true));
            assert_eq!(read(&[("content-length", "5")], b"hel", step), (b"hel".to_vec(), false));
            assert_eq!(read(&[], b"until the end", step), (b"until the end".to_vec(), false));
            let chunks = read(&[("transfer-encoding", "chunked")], chunked, step);
            assert_eq!(chunks, (b"hello 0123456789".to_vec(), true));
        }
    }

    #[test]
    fn malformed_chunks_end_the_body() {
        for bad in ["5\r\nhelloX\r\n", "ffffffffffffffffff\r\nx", "5\r\nhello\r\n\n"] {
            let (body, whole) = read(&[("transfer-encoding", "chunked")], bad.as_bytes(), 1);
            assert!(body.len() <= 5 && whole, "{bad}: {body:?}");
        }
    }

    #[test]
    fn no_body_is_longer_than_the_limit() {
        let long = vec![b'x'; MAX_BODY * 3];
        for head in [&[][..], &[("content-length", "18446744073709551615")]] {
            let (body, whole) = read(head, &long, 1000);
            assert_eq!((body.len(), whole), (MAX_BODY, true));
        }
        let chunked = [b"fffffff\r\n", &long[..]].concat();
        let (body, whole) = read(&[("transfer-encoding", "chunked")], &chunked, 999);
        assert!(body.len() < MAX_BODY && whole);
    }
}
