//! Compressed messages inflate to the same bytes in arbitrary pieces as in one piece, and inflating reverses deflating.

use tautline_buf::Buf;
use tautline_ws::deflate::{DeflateParams, Deflater, Inflater};
use tautline_ws::{Error, Role};

const MAX_MESSAGE: usize = 64 * 1024;

/// Input: two bytes of options (takeover, window, level; size of the pieces), then bytes to inflate and to deflate.
pub(crate) fn run(data: &[u8]) {
    let Some((&[options, size], bytes)) = data.split_first_chunk() else { return };
    let forget = options & 1 != 0;
    let params = DeflateParams {
        server_no_context_takeover: forget,
        client_no_context_takeover: forget,
        server_max_window_bits: 8 + (options >> 1) % 8,
        client_max_window_bits: 15,
    };
    let size = usize::from(size) + 1;
    let whole = inflate(&params, bytes, bytes.len().max(1));
    let cut = inflate(&params, bytes, size);
    assert_eq!(whole, cut);

    let mut deflater = Deflater::new(&params, Role::Server, u32::from(options >> 4));
    let mut inflater = Inflater::new(&params, Role::Client, u32::MAX);
    for _ in 0..2 {
        let (mut compressed, mut out) = (Buf::new(), Buf::new());
        for piece in bytes.chunks(size) {
            deflater.deflate(piece, false, &mut compressed).expect("deflating never fails");
        }
        deflater.deflate(&[], true, &mut compressed).expect("deflating never fails");
        inflater.inflate(compressed.filled(), true, bytes.len(), &mut out).expect("our own output can be inflated");
        assert_eq!(out.filled(), bytes);
    }
}

fn inflate(params: &DeflateParams, bytes: &[u8], size: usize) -> Result<Vec<u8>, Error> {
    let mut inflater = Inflater::new(params, Role::Client, u32::MAX);
    let mut out = Buf::new();
    for piece in bytes.chunks(size) {
        let result = inflater.inflate(piece, false, MAX_MESSAGE, &mut out);
        assert!(out.len() <= MAX_MESSAGE + 1 && out.capacity() <= 4 * MAX_MESSAGE);
        result?;
    }
    inflater.inflate(&[], true, MAX_MESSAGE, &mut out)?;
    assert!(!params.server_no_context_takeover || inflater.memory() == 0);
    Ok(out.filled().to_vec())
}
