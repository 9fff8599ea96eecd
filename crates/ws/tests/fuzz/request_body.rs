//! A body is read the same in arbitrary pieces as in one piece, and as a parser reads it that looks at whole lines.

use http::Request;
use tautline_ws::handshake::{BodyReader, HandshakeError, HeadLimits, HeadReader};

const LIMIT: usize = 512;

/// The content of a body, the bytes that were used, and whether it is whole.
type Read = (Vec<u8>, usize, bool);

/// Input: one byte for the size of the pieces, one for the framing, then the client's bytes.
pub(crate) fn run(data: &[u8]) {
    let [size, framing, bytes @ ..] = data else { return };
    let size = usize::from(*size) + 1;
    let (request, wire) = match framing % 3 {
        0 => (post("transfer-encoding", "chunked"), bytes),
        1 => (post("content-length", &(usize::from(*framing) * 4).to_string()), bytes),
        _ => match HeadReader::new(HeadLimits::default()).request(bytes) {
            Ok(Some((request, used))) => (request, &bytes[used..]),
            _ => return,
        },
    };
    let whole = read(&request, wire, wire.len().max(1));
    assert_eq!(format!("{:?}", read(&request, wire, size)), format!("{whole:?}"));
    match &whole {
        Ok(None) => {}
        Ok(Some((content, used, is_whole))) => {
            assert!(content.len() <= LIMIT && content.len() <= *used && *used <= wire.len());
            assert!(*is_whole || *used == wire.len());
        }
        Err(error) => assert!(error.status().is_some_and(|status| status.is_client_error() || status == 501)),
    }
    if framing % 3 == 0 {
        let read = whole.ok().flatten().filter(|(_, _, is_whole)| *is_whole);
        assert_eq!(read.map(|(content, used, _)| (content, used)), naive(wire));
    }
}

fn post(name: &str, value: &str) -> Request<()> {
    Request::post("/").header(name, value).body(()).expect("a valid request")
}

/// Reads pieces of this size, as a connection that gets them one by one.
fn read(request: &Request<()>, wire: &[u8], size: usize) -> Result<Option<Read>, HandshakeError> {
    let Some(mut reader) = BodyReader::new(request, LIMIT)? else { return Ok(None) };
    let (mut used, mut is_whole) = (0, false);
    for piece in wire.chunks(size) {
        let (more, end) = reader.read(piece)?;
        assert!(end || more == piece.len(), "a body that is not whole uses every byte");
        assert!(reader.memory() <= 8 * (used + more) + 256, "memory follows the bytes that arrived");
        (used, is_whole) = (used + more, end);
        if is_whole {
            break;
        }
    }
    Ok(Some((reader.content().to_vec(), used, is_whole)))
}

/// The content and length of a whole body in chunks at the front of `wire` (RFC 9112, section 7.1).
fn naive(wire: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut content, mut rest) = (Vec::new(), wire);
    loop {
        let (line, behind) = line(rest)?;
        let digits = line.split(|&byte| byte == b';').next()?;
        let is_number = (1..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
        if !is_number || line.len() > 255 {
            return None;
        }
        let size = usize::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
        rest = behind;
        if size == 0 {
            break;
        }
        if content.len() + size > LIMIT {
            return None;
        }
        content.extend_from_slice(rest.get(..size)?);
        rest = rest[size..].strip_prefix(b"\r\n")?;
    }
    let trailers = rest;
    loop {
        let (line, behind) = line(rest)?;
        rest = behind;
        if line.is_empty() {
            break;
        }
    }
    (trailers.len() - rest.len() <= 8 << 10).then_some((content, wire.len() - rest.len()))
}

/// A line up to CRLF, if no other control character is in it, and the bytes behind.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let is_text = |&byte: &u8| byte == b'\t' || (byte >= b' ' && byte != 0x7f);
    bytes[..end].iter().all(is_text).then_some((&bytes[..end], &bytes[end + 2..]))
}
