//! Bodies of requests (RFC 9112, sections 6 and 7).

use super::HandshakeError;
use super::chunked::{ChunkFlaw, ChunkPart, Chunked, MAX_TRAILERS};
use crate::fields::{at_most_one, has_token};
use http::header::{CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use http::{Request, Version};
use tautline_buf::Buf;

/// Reads the body of a request, up to a limit.
///
/// ```
/// use http::Request;
/// use tautline_ws::handshake::BodyReader;
///
/// let request = Request::post("/").header("transfer-encoding", "chunked").body(())?;
/// let mut reader = BodyReader::new(&request, 1024)?.expect("a body");
/// let wire = b"5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1";
/// let (used, is_whole) = reader.read(wire)?;
/// assert_eq!((reader.content(), &wire[used..], is_whole), (&b"hello"[..], &b"GET / HTTP/1.1"[..], true));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BodyReader {
    content: Buf,
    limit: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Bytes that are left of a body whose length was announced.
    Known(usize),
    Chunked(Chunked),
}

impl BodyReader {
    /// A reader of the body of `request`, of at most `limit` bytes; `None` if it has none.
    ///
    /// # Errors
    /// The body is too long, has a coding other than `chunked`, or its length is ambiguous: that is how requests are
    /// smuggled past proxies (RFC 9112, section 11.2).
    pub fn new(request: &Request<()>, limit: usize) -> Result<Option<Self>, HandshakeError> {
        let headers = request.headers();
        let length = at_most_one(headers, CONTENT_LENGTH);
        let length = length.map_err(|_| HandshakeError::Malformed("Content-Length occurs twice"))?;
        let coding = at_most_one(headers, TRANSFER_ENCODING);
        let coding = coding.map_err(|_| HandshakeError::Malformed("Transfer-Encoding occurs twice"))?;
        let state = match (length, coding) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                return Err(HandshakeError::Malformed("Content-Length and Transfer-Encoding together"));
            }
            (Some(length), None) => match known_length(length.as_bytes(), limit)? {
                0 => return Ok(None),
                length => State::Known(length),
            },
            (None, Some(_)) if request.version() != Version::HTTP_11 => {
                return Err(HandshakeError::Malformed("Transfer-Encoding in HTTP/1.0"));
            }
            (None, Some(coding)) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
                State::Chunked(Chunked::default())
            }
            (None, Some(_)) => return Err(HandshakeError::Coding),
        };
        Ok(Some(Self { content: Buf::new(), limit, state }))
    }

    /// Whether the client waits for `100 Continue` before it sends its body (RFC 9110, section 10.1.1).
    #[must_use]
    pub fn is_awaited(request: &Request<()>) -> bool {
        request.version() == Version::HTTP_11 && has_token(request.headers(), EXPECT, "100-continue")
    }

    /// Reads from the front of `bytes`. Returns how many were used, and whether the body is whole.
    ///
    /// # Errors
    /// The body is malformed or longer than the limit.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(usize, bool), HandshakeError> {
        let Self { content, limit, state } = self;
        let limit = *limit;
        let chunked = match state {
            State::Known(left) => {
                let len = bytes.len().min(*left);
                content.put(&bytes[..len]);
                *left -= len;
                return Ok((len, *left == 0));
            }
            State::Chunked(chunked) => chunked,
        };
        let used = chunked.read(bytes, |part| {
            match part {
                ChunkPart::Begin(len) if len > (limit - content.len()) as u64 => return Err(ChunkFlaw::TooLarge),
                ChunkPart::Data(data) => content.put(data),
                _ => {}
            }
            Ok(())
        });
        let used = used.map_err(|flaw| match flaw {
            ChunkFlaw::TooLarge => HandshakeError::BodyTooLarge(limit),
            ChunkFlaw::LongTrailers => HandshakeError::HeadTooLarge(MAX_TRAILERS),
            ChunkFlaw::LongLine => HandshakeError::Malformed("long chunk line"),
            ChunkFlaw::Size | ChunkFlaw::End | ChunkFlaw::Trailers => HandshakeError::Malformed("chunk"),
        });
        Ok((used?, chunked.is_whole()))
    }

    /// The body so far, without its framing.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        self.content.filled()
    }

    /// Its memory, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.content.capacity()
    }
}

/// The value of `Content-Length`: digits alone, so no list, sign or space.
fn known_length(digits: &[u8], limit: usize) -> Result<usize, HandshakeError> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(HandshakeError::Malformed("Content-Length is no number"));
    }
    let length = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(usize::MAX);
    if length > limit { Err(HandshakeError::BodyTooLarge(limit)) } else { Ok(length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(headers: &[(&str, &str)]) -> Request<()> {
        let start = Request::post("/");
        headers.iter().fold(start, |request, (name, value)| request.header(*name, *value)).body(()).unwrap()
    }

    const CHUNKED: &[(&str, &str)] = &[("transfer-encoding", "Chunked")];

    /// The result of a chunked body: its content and the rest, or the error.
    fn chunked(wire: &[u8], limit: usize) -> Result<(Vec<u8>, usize, bool), String> {
        let mut reader = BodyReader::new(&post(CHUNKED), limit).unwrap().unwrap();
        let (used, whole) = reader.read(wire).map_err(|error| error.to_string())?;
        Ok((reader.content().to_vec(), used, whole))
    }

    #[test]
    fn a_body_cut_at_every_byte_is_read_as_one() {
        let wire = b"1;name=\"v\"\r\na\r\n00B\r\nhello world\r\n0\r\nDigest: x\r\n\r\nnext";
        let whole = wire.len() - 4;
        for cut in 0..=wire.len() {
            let mut reader = BodyReader::new(&post(CHUNKED), 12).unwrap().unwrap();
            let (first, done) = reader.read(&wire[..cut]).unwrap();
            assert_eq!((first, done), (cut.min(whole), cut >= whole), "{cut}");
            let (rest, done) = reader.read(&wire[first..]).unwrap();
            assert_eq!((first + rest, done, reader.content()), (whole, true, &b"ahello world"[..]), "{cut}");
        }
        let mut reader = BodyReader::new(&post(&[("content-length", "5")]), 5).unwrap().unwrap();
        assert_eq!(reader.read(b"he").unwrap(), (2, false));
        assert_eq!(reader.read(b"lloGET").unwrap(), (3, true));
        assert_eq!(reader.content(), b"hello");
    }

    #[test]
    fn ambiguous_lengths_are_rejected() {
        for wrong in [
            &[("content-length", "5"), ("transfer-encoding", "chunked")][..],
            &[("content-length", "5"), ("content-length", "5")],
            &[("content-length", "5, 5")],
            &[("content-length", "+5")],
            &[("content-length", "0x5")],
            &[("content-length", "")],
            &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
        ] {
            let error = BodyReader::new(&post(wrong), 100).unwrap_err();
            assert!(matches!(error, HandshakeError::Malformed(_)), "{wrong:?}: {error}");
        }
        for coding in ["gzip, chunked", "identity", "chunked, chunked", "xchunked", "chunked\u{b}"] {
            let Ok(coding) = http::HeaderValue::from_bytes(coding.as_bytes()) else { continue };
            let mut request = post(&[]);
            request.headers_mut().insert(TRANSFER_ENCODING, coding);
            assert!(matches!(BodyReader::new(&request, 100), Err(HandshakeError::Coding)));
        }
        let mut old = post(CHUNKED);
        *old.version_mut() = Version::HTTP_10;
        assert!(matches!(BodyReader::new(&old, 100), Err(HandshakeError::Malformed(_))));
    }

    #[test]
    fn malformed_chunks_are_rejected() {
        for wrong in [
            "\r\n",
            "g\r\n",
            " 5\r\nhello\r\n",
            "5 \r\nhello\r\n",
            "-1\r\n",
            "0x5\r\nhello\r\n",
            "5\nhello\r\n",
            "5\r\nhello0\r\n\r\n",
            "5\r\nhello\n",
            "5\r\r\n",
            "5;\0\r\n",
            "0\r\nX: \0\r\n",
            "0\r\n\n",
            "0\r\nX\r\r\n",
            ";\r\n",
            "5;a\nb\r\n",
        ] {
            assert!(chunked(wrong.as_bytes(), 100).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn bodies_and_their_framing_are_bounded() {
        let too_long = |wire: &[u8]| chunked(wire, 10).unwrap_err();
        assert!(too_long(b"b\r\n").contains("10"), "an announced chunk is too long before it arrives");
        assert!(too_long(b"6\r\nsixsix\r\n5\r\n").contains("10"));
        assert!(too_long(b"ffffffffffffffff\r\n").contains("10"));
        assert!(too_long(b"00000000000000000001\r\n").contains("10"));
        assert!(chunked(&[b"1;".as_slice(), &[b'x'; 300]].concat(), 10).is_err());
        let mut trailers = b"0\r\n".to_vec();
        (0..1000).for_each(|_| trailers.extend(b"Trailer: 1\r\n"));
        assert!(chunked(&trailers, 10).is_err());
        for length in ["11", "99999999999999999999999999"] {
            let error = BodyReader::new(&post(&[("content-length", length)]), 10).unwrap_err();
            assert!(matches!(error, HandshakeError::BodyTooLarge(10)));
        }
        assert!(BodyReader::new(&post(&[("content-length", "0")]), 0).unwrap().is_none());
    }
}
