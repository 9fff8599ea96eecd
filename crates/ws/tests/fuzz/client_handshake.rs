//! The request for any URI can be read, and an answer has the same result in arbitrary pieces as in one piece.

use tautline_buf::Buf;
use tautline_ws::deflate::DeflateConfig;
use tautline_ws::handshake::{HeadLimits, HeadReader, Opening, Options, parse_uri};

/// The nonce of RFC 6455, section 1.3, so that the corpus can hold a valid answer.
const NONCE: [u8; 16] = *b"the sample nonce";

/// Input: one byte for the size of the pieces, a URI up to a line feed, then the server's answer.
pub(crate) fn run(data: &[u8]) {
    let Some((&size, rest)) = data.split_first() else { return };
    let Some(end) = rest.iter().position(|&byte| byte == b'\n') else { return };
    let (uri, answer) = (&rest[..end], &rest[end + 1..]);
    let Some(mut whole) = str::from_utf8(uri).ok().and_then(open) else { return };
    let Some(mut cut) = str::from_utf8(uri).ok().and_then(open) else { return };

    let mut out = Buf::new();
    whole.write(&mut out);
    let limits = HeadLimits::new(usize::MAX, HeadLimits::default().max_headers);
    let read = HeadReader::new(limits).request(out.filled());
    let (request, used) = read.expect("our request is good").expect("our request is whole");
    assert_eq!(used, out.len());
    assert_eq!(request.headers(), whole.request().headers());

    let size = usize::from(size) + 1;
    let ends = (size..answer.len()).step_by(size).chain([answer.len()]);
    let cut = ends.map(|end| cut.read(&answer[..end])).find(|read| !matches!(read, Ok(None)));
    let whole = whole.read(answer);
    assert_eq!(format!("{:?}", cut.unwrap_or(Ok(None))), format!("{whole:?}"));
    if let Ok(Some((established, used))) = whole {
        assert!(used <= answer.len());
        assert_eq!(established.response.status(), 101);
    }
}

fn open(uri: &str) -> Option<Opening> {
    let mut options = Options::default();
    options.subprotocols = vec!["v2".into(), "v1".into()];
    options.deflate = Some(DeflateConfig::with_context_takeover());
    options.limits = HeadLimits::new(2048, 20);
    Opening::new(&parse_uri(uri).ok()?, NONCE, &options).ok()
}
