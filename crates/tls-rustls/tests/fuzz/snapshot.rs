//! Decodes any bytes as a snapshot of a session. They are rejected, or give a session that survives any input.
//!
//! The first byte is the number of bytes at the end that the new session opens; the snapshot lies before them.

use tautline_buf::Buf;
use tautline_tls::Session as _;
use tautline_tls_rustls::fused::{Session, Snapshot};

pub(crate) fn run(data: &[u8]) {
    let Some((&len, rest)) = data.split_first() else { return };
    let (snapshot, wire) = rest.split_at(rest.len().saturating_sub(usize::from(len)));
    let Ok(snapshot) = Snapshot::decode(snapshot) else { return };
    let mut bytes = Vec::new();
    snapshot.encode(&mut bytes);
    assert!(Snapshot::decode(&bytes).is_ok_and(|again| again == snapshot), "the snapshot changed by encoding");
    let Ok(mut session) = Session::import(&snapshot) else { return };
    let (mut wire, mut scratch, mut out) = (wire.to_vec(), Buf::new(), Buf::new());
    // The results do not matter: these bytes need not be sealed with the right keys.
    let _ = session.open(&mut wire, &mut scratch, &mut out);
    let _ = session.seal(&[b"after"], &mut out);
    session.close(&mut out);
    if let Ok(after) = session.export() {
        assert!(Session::import(&after).is_ok(), "an exported session cannot be imported");
    }
}
