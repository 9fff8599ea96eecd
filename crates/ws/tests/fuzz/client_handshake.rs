//! Whatever the URI, the request can be read; answers in arbitrary pieces are judged as in one piece.

use tautline_window::Buf;
use tautline_ws::deflate::DeflateConfig;
use tautline_ws::handshake::{HeadLimits, HeadReader, Opening, Options, parse_uri};

/// The nonce of RFC 6455, section 1.3, so that a corpus can hold its answer.
const NONCE: [u8; 16] = *b"the sample nonce";

/// One byte for the sizes of the pieces, a URI up to a line feed, then what the server answers.
pub(crate) fn run(data: &[u8]) {
    let Some((&size, rest)) = data.split_first() else { return };
    let Some(end) = rest.iter().position(|&byte| byte == b'\n') else { return };
    let (uri, answer) = (&rest[..end], &rest[end + 1..]);
    let Some(mut whole) = str::from_utf8(uri).ok().and_then(open) else { return };
    let Some(mut cut) = str::from_utf8(uri).ok().and_then(open) else { return };

    let mut out = Buf::new();
    whole.write(&mut out);
    let limits = HeadLimits { max_bytes: usize::MAX, ..HeadLimits::default() };
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
    let options = Options {
        subprotocols: vec!["v2".into(), "v1".into()],
        deflate: Some(DeflateConfig::with_context_takeover()),
        limits: HeadLimits { max_bytes: 2048, max_headers: 20 },
        ..Options::default()
    };
    Opening::new(&parse_uri(uri).ok()?, NONCE, &options).ok()
}
