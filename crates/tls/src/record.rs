//! The record header (RFC 8446, section 5.1): one byte of type, two of version, two of length.

/// Length of a record header in bytes.
pub const HEADER: usize = 5;

/// Longest plaintext of one record, in bytes.
pub const MAX_PLAIN: usize = 16_384;

/// Upper limit of a record's body in bytes, for every version of TLS (RFC 5246, section 6.2.3).
const MAX_BODY: usize = MAX_PLAIN + 2048;

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
    let plausible = matches!(kind, 20..=24) && major == 3 && len < MAX_BODY && (len > 0 || kind == 23);
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
    use super::{Front, front};

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
            ([23, 3, 3, 0x48, 0], Front::Invalid),
            ([23, 3, 3, 0x47, 0xff], Front::Partial),
        ] {
            assert_eq!(front(&header), expected, "{header:?}");
        }
    }
}
