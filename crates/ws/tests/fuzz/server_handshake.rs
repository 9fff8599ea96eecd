//! A request is read the same in arbitrary pieces as in one piece, and every answer has a head that can be read.

use tautline_buf::Buf;
use tautline_ws::deflate::DeflateConfig;
use tautline_ws::handshake::{HeadLimits, HeadReader, Origins, Policy, Reply, accept, is_upgrade, write_response};

const LIMITS: HeadLimits = HeadLimits::new(2048, 20);

/// Input: one byte for the size of the pieces, then the client's bytes.
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
    let mut policy = Policy::default();
    policy.origins = Origins::SameHost;
    policy.subprotocols = vec!["v2".into(), "v1".into()];
    policy.deflate = Some(DeflateConfig::with_context_takeover());
    let mut out = Buf::new();
    let body = match accept(request, &policy) {
        Ok(accepted) => {
            assert!(is_upgrade(request));
            accepted.write(&mut out);
            0
        }
        Err(refused) => {
            let reply = Reply::to(request);
            let open = write_response(&refused.response, reply, None, &mut out);
            assert_eq!(open, reply.keep_alive);
            if reply.head_only { 0 } else { refused.response.body().len() }
        }
    };
    let read = HeadReader::new(HeadLimits::default()).response(out.filled());
    let (_, used) = read.expect("our answer is valid").expect("our answer is whole");
    assert_eq!(used + body, out.len());
}
