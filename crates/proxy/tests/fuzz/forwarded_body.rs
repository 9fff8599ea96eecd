//! A chunked body comes out the same however it is cut, and in one framing: it is read again as the same bytes.

use tautline_proxy::forward::{Body, Flaw, Form, Framing};

/// Input: one byte for the cuts, then the body as it arrives.
pub(crate) fn run(data: &[u8]) {
    let Some((&step, wire)) = data.split_first() else { return };
    let whole = pass(wire, usize::MAX, Form::AsIs);
    assert_eq!(whole, pass(wire, usize::from(step).max(1), Form::AsIs));
    let Ok((out, _, true)) = whole else { return };
    assert_eq!(pass(&out, 1, Form::AsIs), Ok((out.clone(), out.len(), true)));
    assert_eq!(
        pass(&out, 3, Form::Bytes).map(|(bytes, ..)| bytes),
        pass(wire, 7, Form::Bytes).map(|(bytes, ..)| bytes)
    );
}

fn pass(wire: &[u8], step: usize, form: Form) -> Result<(Vec<u8>, usize, bool), Flaw> {
    let (mut body, mut out, mut used) = (Body::new(Framing::Chunked, form), Vec::new(), 0);
    for piece in wire.chunks(step) {
        let took = body.pass(piece, |bytes| out.extend_from_slice(bytes))?;
        assert!(took == piece.len() || body.is_whole());
        used += took;
        if took < piece.len() {
            break;
        }
    }
    Ok((out, used, body.is_whole()))
}
