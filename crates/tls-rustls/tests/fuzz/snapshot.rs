//! Any bytes as a snapshot of a session: refused, or a session that stands whatever it is given next.
//!
//! The first byte is how many bytes of the rest the new session gets to open; the snapshot lies before them.

use tautline_tls::Session as _;
use tautline_tls_rustls::fused::{Session, Snapshot};
use tautline_window::Buf;

pub(crate) fn run(data: &[u8]) {
    let Some((&len, rest)) = data.split_first() else { return };
    let (snapshot, wire) = rest.split_at(rest.len().saturating_sub(usize::from(len)));
    let Ok(snapshot) = Snapshot::decode(snapshot) else { return };
    let mut bytes = Vec::new();
    snapshot.encode(&mut bytes);
    assert!(Snapshot::decode(&bytes).is_ok_and(|again| again == snapshot), "it does not come back");
    let Ok(mut session) = Session::import(&snapshot) else { return };
    let (mut wire, mut scratch, mut out) = (wire.to_vec(), Buf::new(), Buf::new());
    // Whoever made these bytes does not have to know the keys.
    let _ = session.open(&mut wire, &mut scratch, &mut out);
    let _ = session.seal(&[b"after"], &mut out);
    session.close(&mut out);
    if let Ok(after) = session.export() {
        assert!(Session::import(&after).is_ok(), "it cannot go on from where it stands");
    }
}
