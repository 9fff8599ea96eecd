//! From a loop's answer in HTTP/1.1 to a head and a body.

use crate::block;
use core::mem::MaybeUninit;
use http::StatusCode;
use tautline_buf::Buf;

/// Fields of a response at most. A loop has as many as its application made.
const MOST_FIELDS: usize = 256;

/// The state of an answer.
#[derive(Debug)]
pub(super) enum Answer {
    /// The head, of which these bytes have come.
    Head(Vec<u8>),
    /// As many bytes of the body are still to come.
    Counted(u64),
    Chunks(Chunk),
    /// All bytes up to the end: a WebSocket, or a body without a length.
    Open,
    /// It is whole.
    Whole,
}

/// The place in a body of chunks (RFC 9112, section 7.1).
#[derive(Clone, Copy, Debug)]
pub(super) enum Chunk {
    /// In the line with the size, of which these digits were read.
    Size(u64),
    /// Behind the digits.
    SizeEnd(u64),
    Data(u64),
    /// The two bytes behind the data.
    DataEnd(u8),
    /// The lines behind the last chunk. The number counts the line's bytes.
    Trailer(u32),
}

/// A head that is whole.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    /// The fields, encoded as those of a field section.
    pub(super) fields: Buf,
    length: Option<u64>,
    is_chunked: bool,
}

/// A step of an answer.
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// A head. An informational one is followed by another.
    Head(Head),
    /// A part of the body.
    Part(&'a [u8]),
    /// More bytes are needed.
    More,
    /// The loop's answer is not HTTP/1.1.
    Wrong,
}

impl Answer {
    /// Reads the next step from the front of `bytes`, which moves on. `has_body` is false for the method HEAD.
    pub(super) fn read<'a>(&mut self, bytes: &mut &'a [u8], has_body: bool) -> Step<'a> {
        loop {
            match self {
                Self::Head(begun) => {
                    let before = begun.len();
                    if before > 0 {
                        begun.extend_from_slice(bytes);
                    }
                    let (head, len) = match parse(if before > 0 { begun } else { bytes }) {
                        Parsed::Whole(head, len) => (head, len),
                        Parsed::Partial => {
                            if before == 0 {
                                begun.extend_from_slice(bytes);
                            }
                            *bytes = &[];
                            return Step::More;
                        }
                        Parsed::Wrong => return Step::Wrong,
                    };
                    *bytes = &bytes[len - before..];
                    *self = after(&head, has_body);
                    return Step::Head(head);
                }
                Self::Whole => {
                    *bytes = &[];
                    return Step::More;
                }
                Self::Open if bytes.is_empty() => return Step::More,
                Self::Open => return Step::Part(core::mem::take(bytes)),
                Self::Counted(left) => {
                    let part = cut(bytes, *left);
                    *left -= part.len() as u64;
                    if *left == 0 {
                        *self = Self::Whole;
                    }
                    return if part.is_empty() { Step::More } else { Step::Part(part) };
                }
                Self::Chunks(chunk) => match chunk.read(bytes) {
                    Some(Step::Head(_)) | None => *self = Self::Whole,
                    Some(step) => return step,
                },
            }
        }
    }

    /// Whether nothing is missing if the loop ends its direction now.
    pub(super) const fn may_end(&self) -> bool {
        matches!(self, Self::Open | Self::Whole)
    }
}

impl Chunk {
    /// The next step. `None` behind the last chunk.
    fn read<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<Step<'a>> {
        loop {
            if let Self::Data(left) = self
                && *left > 0
            {
                let part = cut(bytes, *left);
                *left -= part.len() as u64;
                return Some(if part.is_empty() { Step::More } else { Step::Part(part) });
            }
            let Some((&byte, rest)) = bytes.split_first() else { return Some(Step::More) };
            *bytes = rest;
            *self = match (*self, byte) {
                (Self::Size(size), _) if byte.is_ascii_hexdigit() && size < 1 << 56 => {
                    let digit = (byte as char).to_digit(16).unwrap_or(0);
                    Self::Size(size * 16 + u64::from(digit))
                }
                (Self::Size(0) | Self::SizeEnd(0), b'\n') => Self::Trailer(0),
                (Self::Size(size) | Self::SizeEnd(size), b'\n') => Self::Data(size),
                (Self::Size(size) | Self::SizeEnd(size), _) => Self::SizeEnd(size),
                (Self::Data(_), _) => Self::DataEnd(1),
                (Self::DataEnd(1), b'\n') => Self::Size(0),
                (Self::DataEnd(_), _) => return Some(Step::Wrong),
                (Self::Trailer(0), b'\n') => return None,
                (Self::Trailer(_), b'\n') => Self::Trailer(0),
                (Self::Trailer(len), b'\r') => Self::Trailer(len),
                (Self::Trailer(len), _) => Self::Trailer(len + 1),
            };
        }
    }
}

fn cut<'a>(bytes: &mut &'a [u8], most: u64) -> &'a [u8] {
    let len = bytes.len().min(usize::try_from(most).unwrap_or(usize::MAX));
    let (part, rest) = bytes.split_at(len);
    *bytes = rest;
    part
}

/// The state behind a head (RFC 9112, section 6.3).
fn after(head: &Head, has_body: bool) -> Answer {
    match head.status {
        StatusCode::SWITCHING_PROTOCOLS => Answer::Open,
        status if status.is_informational() => Answer::Head(Vec::new()),
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => Answer::Whole,
        _ if !has_body || head.length == Some(0) => Answer::Whole,
        _ if head.is_chunked => Answer::Chunks(Chunk::Size(0)),
        _ => head.length.map_or(Answer::Open, Answer::Counted),
    }
}

/// The head at the front of some bytes.
enum Parsed {
    /// With its length.
    Whole(Head, usize),
    Partial,
    Wrong,
}

fn parse(bytes: &[u8]) -> Parsed {
    let mut room = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, bytes, &mut room);
    let len = match parsed {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Parsed::Partial,
        Err(_) => return Parsed::Wrong,
    };
    let Some(status) = response.code.and_then(|code| StatusCode::from_u16(code).ok()) else { return Parsed::Wrong };
    let mut head = Head { status, fields: Buf::with_capacity(len), length: None, is_chunked: false };
    for field in response.headers.iter() {
        if field.name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            head.put(&field.name.to_ascii_lowercase(), field.value);
        } else {
            head.put(field.name, field.value);
        }
    }
    Parsed::Whole(head, len)
}

impl Head {
    /// Adds a field, unless it is one of a connection of HTTP/1.1.
    fn put(&mut self, name: &str, value: &[u8]) {
        match name {
            "connection" | "proxy-connection" | "keep-alive" | "upgrade" | "host" | "sec-websocket-accept" => return,
            "transfer-encoding" => {
                self.is_chunked = true;
                return;
            }
            "content-length" => self.length = core::str::from_utf8(value).ok().and_then(|text| text.parse().ok()),
            _ => {}
        }
        block::put(name.as_bytes(), value, &mut self.fields);
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Step};

    /// The statuses and the body of an answer that comes in pieces of `most` bytes, and whether it is whole.
    fn read(text: &str, most: usize, has_body: bool) -> (Vec<u16>, String, bool) {
        let (mut answer, mut statuses, mut body) = (Answer::Head(Vec::new()), Vec::new(), Vec::new());
        for piece in text.as_bytes().chunks(most) {
            let mut rest = piece;
            loop {
                match answer.read(&mut rest, has_body) {
                    Step::Head(head) => statuses.push(head.status.as_u16()),
                    Step::Part(part) => body.extend_from_slice(part),
                    Step::More => break,
                    Step::Wrong => panic!("{text}"),
                }
            }
        }
        (statuses, String::from_utf8(body).unwrap(), matches!(answer, Answer::Whole))
    }

    #[test]
    fn answers_are_read_in_pieces_of_any_size() {
        let cases = [
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", true, vec![200], "hello", true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell", true, vec![200], "hell", false),
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", false, vec![200], "", true),
            ("HTTP/1.1 204 No Content\r\n\r\n", true, vec![204], "", true),
            ("HTTP/1.1 200 OK\r\n\r\nuntil the end", true, vec![200], "until the end", false),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
                true,
                vec![100, 200],
                "",
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0b;x=y\r\ndefghijklmn\r\n0\r\na: b\r\n\r\n",
                true,
                vec![200],
                "abcdefghijklmn",
                true,
            ),
        ];
        for (text, has_body, statuses, body, is_whole) in cases {
            for most in [1, 2, 3, 7, 1000] {
                assert_eq!(
                    read(text, most, has_body),
                    (statuses.clone(), body.to_owned(), is_whole),
                    "{text} by {most}"
                );
            }
        }
    }
}
