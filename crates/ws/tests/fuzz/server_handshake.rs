//! Requests in arbitrary pieces are read as in one piece, and every answer to one is a head that can be read.

use tautline_window::Buf;
use tautline_ws::deflate::DeflateConfig;
use tautline_ws::handshake::{HeadLimits, HeadReader, Origins, Policy, Reply, accept, is_upgrade, write_response};

const LIMITS: HeadLimits = HeadLimits { max_bytes: 2048, max_headers: 20 };

/// One byte for the sizes of the pieces, then what a client sends.
pub(crate) fn run(data: &[u8]) {
    let Some((&size, bytes)) = data.split_first() else { return };
    let whole = HeadReader::new(LIMITS).request(bytes);
    let mut reader = HeadReader::new(LIMITS);
    let size = usize::from(size) + 1;
    let ends = (size..bytes.len()).step_by(size).chain([bytes.len()]);
    let cut = ends.map(|end| reader.request(&bytes[..end])).find(|read| !matches!(read, Ok(None)));
    assert_eq!(format!("{:?}", cut.unwrap_or(Ok(None))), format!("{whole:?}"));

    match whole {
        Ok(Some((request, used))) => {
            assert!(used <= bytes.len() && used <= LIMITS.max_bytes);
            answer(&request);
        }
        Ok(None) => assert!(bytes.len() < LIMITS.max_bytes),
        Err(error) => assert!(error.status().is_some_and(|status| status.as_u16() >= 400), "{error}"),
    }
}

fn answer(request: &http::Request<()>) {
    let policy = Policy {
        origins: Origins::SameHost,
        subprotocols: vec!["v2".into(), "v1".into()],
        require_subprotocol: false,
        deflate: Some(DeflateConfig::with_context_takeover()),
    };
    let mut out = Buf::new();
    let body = match accept(request, &policy) {
        Ok(accepted) => {
            assert!(is_upgrade(request));
            accepted.write(&mut out);
            0
        }
        Err(refused) => {
            let reply = Reply::to(request);
            let open = write_response(&refused.response, reply, &mut out);
            assert_eq!(open, reply.keep_alive);
            if reply.head_only { 0 } else { refused.response.body().len() }
        }
    };
    let read = HeadReader::new(HeadLimits::default()).response(out.filled());
    let (_, used) = read.expect("our answer is good").expect("our answer is whole");
    assert_eq!(used + body, out.len());
}
