use std::fmt;
use tautline::http::header::{CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING};
use tautline::http::{Method, Request, Response, StatusCode, Version};

/// The length of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    Empty,
    /// This number of bytes.
    Length(u64),
    /// Chunks.
    Chunked,
    /// All bytes until the connection ends. Only responses have it.
    UntilEnd,
}

/// The reason why a message is not passed on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// `Content-Length` and `Transfer-Encoding` together.
    TwoLengths,
    /// `Content-Length` is no number, or occurs several times.
    Length,
    /// A coding other than `chunked` alone.
    Coding,
    /// `Transfer-Encoding` in HTTP/1.0.
    OldCoding,
    /// The line with a chunk's size.
    ChunkSize,
    /// The end of a chunk.
    ChunkEnd,
    /// The trailers.
    Trailers,
    /// The body ended early.
    Cut,
}

impl Flaw {
    /// The flaw in words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::TwoLengths => "Content-Length and Transfer-Encoding together",
            Self::Length => "Content-Length is no number, or occurs several times",
            Self::Coding => "a Transfer-Encoding other than chunked",
            Self::OldCoding => "Transfer-Encoding in HTTP/1.0",
            Self::ChunkSize => "the line with the size of a chunk is malformed",
            Self::ChunkEnd => "no line end behind a chunk",
            Self::Trailers => "the trailers are malformed or too long",
            Self::Cut => "the body ended early",
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Debug for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Flaw {}

impl Framing {
    /// The framing of a request's body (RFC 9112, section 6.3).
    ///
    /// # Errors
    /// The length is malformed or ambiguous.
    pub fn of_request(request: &Request<()>) -> Result<Self, Flaw> {
        Ok(Self::stated(request.headers(), request.version())?.unwrap_or(Self::Empty))
    }

    /// The framing of the body of a response to a request with this method (RFC 9112, section 6.3).
    ///
    /// # Errors
    /// The length is malformed or ambiguous.
    pub fn of_response(response: &Response<()>, method: &Method) -> Result<Self, Flaw> {
        let stated = Self::stated(response.headers(), response.version())?;
        let status = response.status();
        let is_bodiless = status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            || *method == Method::HEAD;
        Ok(if is_bodiless { Self::Empty } else { stated.unwrap_or(Self::UntilEnd) })
    }

    /// The framing that headers state.
    ///
    /// # Errors
    /// The length is malformed or ambiguous.
    pub fn stated(headers: &HeaderMap, version: Version) -> Result<Option<Self>, Flaw> {
        let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
        let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
        match (lengths.next(), codings.next()) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(Flaw::TwoLengths),
            (Some(length), None) => {
                let is_digits = |bytes: &[u8]| !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
                let text = length.to_str().ok().filter(|text| is_digits(text.as_bytes()) && lengths.next().is_none());
                match text.and_then(|text| text.parse().ok()).ok_or(Flaw::Length)? {
                    0 => Ok(Some(Self::Empty)),
                    length => Ok(Some(Self::Length(length))),
                }
            }
            (None, Some(_)) if version != Version::HTTP_11 => Err(Flaw::OldCoding),
            (None, Some(coding)) => {
                let is_chunked = coding.as_bytes().eq_ignore_ascii_case(b"chunked") && codings.next().is_none();
                if is_chunked { Ok(Some(Self::Chunked)) } else { Err(Flaw::Coding) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Flaw, Framing};
    use tautline::http::{Method, Request, Response, StatusCode, Version};

    fn of(fields: &[(&str, &str)], version: Version) -> Result<Framing, Flaw> {
        let mut request = Request::post("/").version(version);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        Framing::of_request(&request.body(()).unwrap())
    }

    #[test]
    fn ambiguous_lengths_are_refused() {
        let new = Version::HTTP_11;
        assert_eq!(of(&[], new), Ok(Framing::Empty));
        assert_eq!(of(&[("content-length", "0")], new), Ok(Framing::Empty));
        assert_eq!(of(&[("content-length", "12")], new), Ok(Framing::Length(12)));
        assert_eq!(of(&[("transfer-encoding", "Chunked")], new), Ok(Framing::Chunked));
        for bad in ["", "+1", "-1", "1 2", "5, 5", "0x5", "18446744073709551616", "\u{b2}"] {
            assert_eq!(of(&[("content-length", bad)], new), Err(Flaw::Length), "{bad:?}");
        }
        assert_eq!(of(&[("content-length", "5"), ("content-length", "5")], new), Err(Flaw::Length));
        assert_eq!(of(&[("content-length", "5"), ("transfer-encoding", "chunked")], new), Err(Flaw::TwoLengths));
        for bad in ["gzip", "chunked, chunked", "gzip, chunked", "identity", "xchunked", ""] {
            assert_eq!(of(&[("transfer-encoding", bad)], new), Err(Flaw::Coding), "{bad:?}");
        }
        assert_eq!(of(&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")], new), Err(Flaw::Coding));
        assert_eq!(of(&[("transfer-encoding", "chunked")], Version::HTTP_10), Err(Flaw::OldCoding));
    }

    #[test]
    fn responses_without_a_length_last_until_the_end() {
        let of = |status: u16, method: &Method, length: Option<&str>| {
            let mut response = Response::builder().status(StatusCode::from_u16(status).unwrap());
            if let Some(length) = length {
                response = response.header("content-length", length);
            }
            Framing::of_response(&response.body(()).unwrap(), method)
        };
        assert_eq!(of(200, &Method::GET, None), Ok(Framing::UntilEnd));
        assert_eq!(of(200, &Method::GET, Some("7")), Ok(Framing::Length(7)));
        assert_eq!(of(200, &Method::HEAD, Some("7")), Ok(Framing::Empty));
        assert_eq!(of(204, &Method::GET, None), Ok(Framing::Empty));
        assert_eq!(of(304, &Method::GET, Some("7")), Ok(Framing::Empty));
        assert_eq!(of(200, &Method::HEAD, Some("x")), Err(Flaw::Length));
    }
}
