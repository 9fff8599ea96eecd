//! The record header (RFC 8446, section 5.1): one byte of type, two of version, two of length.

use crate::alert::Alert;

/// Length of a record header in bytes.
pub const HEADER: usize = 5;

/// Longest plaintext of one record, in bytes.
pub const MAX_PLAIN: usize = 16_384;

/// Upper limit of a record's body in bytes, for every version of TLS (RFC 5246, section 6.2.3).
const MAX_BODY: usize = MAX_PLAIN + 2048;

/// Longest body of a protected record of TLS 1.3, in bytes (RFC 8446, section 5.2).
const MAX_BODY_TLS13: usize = MAX_PLAIN + 256;

/// The part of a connection in which a record arrives, which decides what its header may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A client's first flight: its ClientHello.
    Hello,
    /// The rest of the handshake.
    Handshake,
    /// After a handshake of TLS 1.2.
    Open12,
    /// After a handshake of TLS 1.3: every record is protected.
    Open13,
}

/// A record header that no peer may send: the alert for the peer, and the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHeader {
    /// The alert for the peer.
    pub alert: Alert,
    /// The peer's fault, as the end of a sentence that begins with the peer.
    pub what: &'static str,
}

/// Checks type and length of the record at the front of `wire`, before its body arrives.
///
/// The version only tells TLS from other protocols. Peers put 0x0301 and others there, also into a second ClientHello. A
/// plaintext has at most 2^14 bytes, and a protected record of TLS 1.3 at most 256 more. A header that is not whole is not
/// checked.
///
/// # Errors
/// The header is one that no peer may send in this stage.
pub fn check(wire: &[u8], stage: Stage) -> Result<(), BadHeader> {
    //= https://www.rfc-editor.org/rfc/rfc8446#section-5.1
    //# This field is deprecated and MUST be ignored for all purposes.
    let &[kind, major, _, high, low, ..] = wire else { return Ok(()) };
    let bad = |alert, what| Err(BadHeader { alert, what });
    let len = usize::from(u16::from_be_bytes([high, low]));
    let (is_known, most) = match stage {
        Stage::Open13 => (kind == 23, MAX_BODY_TLS13),
        Stage::Open12 => (matches!(kind, 20..=23), MAX_BODY),
        Stage::Hello => (matches!(kind, 21 | 22), MAX_PLAIN),
        Stage::Handshake => (matches!(kind, 20..=23), if kind == 23 { MAX_BODY_TLS13 } else { MAX_PLAIN }),
    };
    if major != 3 || !matches!(kind, 20..=24) {
        return bad(Alert::UNEXPECTED_MESSAGE, not_tls(wire));
    }
    if !is_known {
        return bad(Alert::UNEXPECTED_MESSAGE, "it sent a record of a type that has no place here");
    }
    if len > most {
        return bad(Alert::RECORD_OVERFLOW, "it sent a record of an impossible length");
    }
    if len == 0 && kind != 23 {
        return bad(Alert::UNEXPECTED_MESSAGE, "it sent a record of an impossible length");
    }
    Ok(())
}

/// The kind of bytes at the front of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// A whole record, of this many bytes with its header.
    Whole(usize),
    /// The beginning of a record.
    Partial,
    /// Not the header of a record.
    Invalid,
}

/// Classifies the bytes at the front of `wire` by their header alone, so that an incomplete record costs little.
#[must_use]
pub fn front(wire: &[u8]) -> Front {
    let &[kind, major, _, high, low, ref rest @ ..] = wire else { return Front::Partial };
    let len = usize::from(u16::from_be_bytes([high, low]));
    // 20 ..= 24: change_cipher_spec, alert, handshake, application_data, heartbeat. Only application data may be empty.
    let plausible = matches!(kind, 20..=24) && major == 3 && len <= MAX_BODY && (len > 0 || kind == 23);
    match plausible {
        false => Front::Invalid,
        true if rest.len() < len => Front::Partial,
        true => Front::Whole(HEADER + len),
    }
}

/// Describes a peer whose bytes are [not a record](Front::Invalid), for an error text.
#[must_use]
pub fn not_tls(wire: &[u8]) -> &'static str {
    const REQUESTS: [&[u8; HEADER]; 10] =
        [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO", b"CONNE", b"DELET", b"PATCH", b"TRACE", b"PRI *"];
    match wire.first_chunk() {
        Some(start) if REQUESTS.contains(&start) => "it speaks plain HTTP to a TLS port: use https:// or wss://",
        Some(b"HTTP/") => "it answers in plain HTTP, not TLS: use http:// or ws://, or the port that speaks TLS",
        Some([20..=24, 3, ..]) => "it sent a record of an impossible length",
        _ => "it sent something that is not TLS",
    }
}

#[cfg(test)]
mod tests {
    use super::{Front, Stage, check, front};
    use crate::alert::Alert;

    #[test]
    fn headers_are_checked_before_bodies_arrive() {
        let alert = |header: [u8; 5], stage| check(&header, stage).err().map(|bad| bad.alert);
        let all = [Stage::Hello, Stage::Handshake, Stage::Open12, Stage::Open13];
        for stage in all {
            for len in 0..5 {
                assert_eq!(check(&[99, 3, 3, 0, 1][..len], stage), Ok(()), "not whole");
            }
            for kind in 0..=u8::MAX {
                let fits = match stage {
                    Stage::Hello => matches!(kind, 21 | 22),
                    Stage::Handshake | Stage::Open12 => matches!(kind, 20..=23),
                    Stage::Open13 => kind == 23,
                };
                assert_eq!(alert([kind, 3, 3, 0, 9], stage).is_none(), fits, "{kind} {stage:?}");
                assert!(fits || alert([kind, 3, 3, 0, 9], stage) == Some(Alert::UNEXPECTED_MESSAGE));
            }
            for version in 0..=u16::MAX {
                let [major, minor] = version.to_be_bytes();
                let kind = if stage == Stage::Open13 { 23 } else { 22 };
                let expected = (major != 3).then_some(Alert::UNEXPECTED_MESSAGE);
                assert_eq!(alert([kind, major, minor, 0, 9], stage), expected, "{version:x}");
            }
        }
        for (kind, stage, most) in [
            (22, Stage::Hello, 16_384),
            (21, Stage::Handshake, 16_384),
            (22, Stage::Handshake, 16_384),
            (23, Stage::Handshake, 16_640),
            (23, Stage::Open13, 16_640),
            (22, Stage::Open12, 18_432),
        ] {
            for len in [1, 2, most - 1, most, most + 1, u16::MAX] {
                let [high, low] = len.to_be_bytes();
                let expected = (len > most).then_some(Alert::RECORD_OVERFLOW);
                assert_eq!(alert([kind, 3, 3, high, low], stage), expected, "{kind} {stage:?} {len}");
            }
        }
        // An old server that knows no version of the client's.
        assert_eq!(alert([21, 3, 1, 0, 2], Stage::Handshake), None);
        assert_eq!(alert([22, 3, 3, 0, 0], Stage::Handshake), Some(Alert::UNEXPECTED_MESSAGE));
        assert_eq!(alert([23, 3, 3, 0, 0], Stage::Open13), None, "the AEAD rejects it");
    }

    #[test]
    fn distinguishes_whole_partial_and_invalid_records() {
        let mut record = [7; 20];
        record[..5].copy_from_slice(&[23, 3, 3, 0, 10]);
        for len in 0..record.len() {
            let expected = if len < 15 { Front::Partial } else { Front::Whole(15) };
            assert_eq!(front(&record[..len]), expected, "{len}");
        }
        for (header, expected) in [
            (*b"GET /", Front::Invalid),
            (*b"SSH-2", Front::Invalid),
            ([22, 2, 0, 0, 10], Front::Invalid),
            ([19, 3, 3, 0, 10], Front::Invalid),
            ([22, 3, 1, 0, 0], Front::Invalid),
            ([23, 3, 3, 0, 0], Front::Whole(5)),
            ([23, 3, 3, 0x48, 1], Front::Invalid),
            ([23, 3, 3, 0x48, 0], Front::Partial),
        ] {
            assert_eq!(front(&header), expected, "{header:?}");
        }
    }
}
