//! ClientHellos that no library sends.

/// The number of the extension that holds key shares (RFC 8446, section 4.2).
const KEY_SHARE: [u8; 2] = [0, 51];

/// The ClientHello in `record` with an empty list of key shares, so that a TLS 1.3 server requests another one.
///
/// # Panics
/// If `record` is not one record with a ClientHello that has key shares.
#[must_use]
pub fn without_key_shares(record: &[u8]) -> Vec<u8> {
    let two = |at: usize| usize::from(record[at]) << 8 | usize::from(record[at + 1]);
    // The headers, the version and the random come first; then session id, suites and compression.
    let mut at = 5 + 4 + 2 + 32;
    at += 1 + usize::from(record[at]);
    at += 2 + two(at);
    at += 1 + usize::from(record[at]);
    let extensions = at;
    at += 2;
    while record[at..at + 2] != KEY_SHARE {
        at += 4 + two(at + 2);
    }
    let len = two(at + 2);
    let mut hello = [&record[..at], &KEY_SHARE, &[0, 2, 0, 0], &record[at + 4 + len..]].concat();
    // The lengths of the record, of the message (without its first byte, which is 0), and of the extensions.
    for place in [3, 7, extensions] {
        let shorter = (two(place) - (len - 2)).to_be_bytes();
        hello[place..place + 2].copy_from_slice(&shorter[shorter.len() - 2..]);
    }
    hello
}
