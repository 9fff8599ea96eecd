//! Reads a ClientHello (RFC 8446, section 4.1.2) before the TLS library does.

use crate::record::{Front, HEADER, front};
use std::borrow::Cow;

/// Longest ClientHello that [`joined`] waits for. TLS libraries reject longer ones.
const LONGEST: usize = 0xffff;

/// Most records that [`joined`] looks through, since it begins anew with each.
const MOST_RECORDS: usize = 64;

/// Whether `record` begins a ClientHello.
#[must_use]
pub const fn begins(record: &[u8]) -> bool {
    matches!(record, [22, _, _, _, _, 1, ..])
}

/// The first record of a client; `None` unless all of it is there, and it begins a ClientHello.
#[must_use]
pub fn first_record(wire: &[u8]) -> Option<&[u8]> {
    let Front::Whole(len) = front(wire) else { return None };
    Some(&wire[..len]).filter(|record| begins(record))
}

/// Joins a ClientHello that spans whole records, which then looks like one record. `None` if its end has not come yet.
///
/// Records that hold no ClientHello, or one that is too long or in too many pieces, stay as they are.
#[must_use]
pub fn joined(records: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !begins(records) {
        return Some(Cow::Borrowed(records));
    }
    let (mut message, mut rest) = (records[..HEADER].to_vec(), records);
    for count in 1.. {
        let Front::Whole(len) = front(rest) else { break };
        let (record, behind) = rest.split_at(len);
        if record[0] != 22 || count > MOST_RECORDS {
            return Some(Cow::Borrowed(records));
        }
        message.extend_from_slice(&record[HEADER..]);
        rest = behind;
        let Some(&[high, middle, low]) = message.get(HEADER + 1..HEADER + 4) else { continue };
        let whole = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        if whole > LONGEST {
            return Some(Cow::Borrowed(records));
        }
        if message.len() >= HEADER + 4 + whole {
            return Some(Cow::Owned(message));
        }
    }
    None
}

/// A client's ClientHello, as hints for the server.
///
/// The TLS library parses the message again. A field that cannot be read here counts as absent.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    suites: &'a [u8],
    extensions: &'a [u8],
}

impl<'a> Hello<'a> {
    /// Reads a ClientHello from its record; `None` if the record does not hold all of the message.
    #[must_use]
    pub fn read(record: &'a [u8]) -> Option<Self> {
        // Handshake type and length.
        let message = record.get(HEADER + 4..)?;
        let &[_, _, _, _, _, _, high, middle, low, ..] = record else { return None };
        let message = message.get(..usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low))?;
        // Version and random.
        let message = begins(record).then(|| message.get(2 + 32..))??;
        let (_session_id, message) = short_vector(message)?;
        let (suites, message) = vector(message)?;
        let (_compression, message) = short_vector(message)?;
        let (extensions, _) = vector(message).unwrap_or_default();
        Some(Self { suites, extensions })
    }

    /// Whether the client lists a ChaCha20 suite first.
    #[must_use]
    pub fn prefers_chacha(&self) -> bool {
        let first = self.suites.as_chunks().0.iter().copied().find(|&suite| !is_grease(suite));
        first.is_some_and(|suite| matches!(u16::from_be_bytes(suite), 0x1303 | 0xcca8 | 0xcca9))
    }

    fn extension(&self, wanted: u16) -> Option<&'a [u8]> {
        let mut rest = self.extensions;
        while let Some((kind, behind)) = rest.split_first_chunk() {
            let (body, behind) = vector(behind)?;
            if u16::from_be_bytes(*kind) == wanted {
                return Some(body);
            }
            rest = behind;
        }
        None
    }

    /// The first host name of the extension server_name (RFC 6066, section 3).
    #[must_use]
    pub fn server_name(&self) -> Option<&'a str> {
        let (list, _) = vector(self.extension(0)?)?;
        let (name, _) = vector(list.strip_prefix(&[0])?)?;
        core::str::from_utf8(name).ok()
    }

    /// Whether the client offers this application protocol (RFC 7301, section 3.1) and no other.
    #[must_use]
    pub fn offers_only(&self, protocol: &[u8]) -> bool {
        let list = self.extension(16).and_then(vector).unwrap_or_default().0;
        short_vector(list).is_some_and(|(first, others)| first == protocol && others.is_empty())
    }

    /// The signature schemes that the client offers (RFC 8446, section 4.2.3) and that one of its suites can use.
    #[must_use]
    pub fn schemes(&self) -> Vec<u16> {
        let list = self.extension(13).and_then(vector).unwrap_or_default().0;
        let schemes = list.as_chunks().0.iter().map(|scheme| u16::from_be_bytes(*scheme));
        schemes.filter(|&scheme| self.has_suites_for(is_rsa(scheme))).collect()
    }

    /// Whether the client lists a suite for servers that sign with RSA (`rsa`), or with another algorithm.
    ///
    /// A suite of TLS 1.2 names the algorithm (RFC 8422, section 5). A suite of TLS 1.3 allows any.
    #[must_use]
    pub fn has_suites_for(&self, rsa: bool) -> bool {
        self.suites.as_chunks().0.iter().any(|suite| match u16::from_be_bytes(*suite) {
            0x1301..=0x1303 => true,
            0xc02f | 0xc030 | 0xcca8 => rsa,
            0xc02b | 0xc02c | 0xcca9 => !rsa,
            _ => false,
        })
    }

    /// Whether the client offers TLS 1.3 in supported_versions (RFC 8446, section 4.2.1).
    #[must_use]
    pub fn offers_tls13(&self) -> bool {
        let list = self.extension(43).and_then(short_vector).unwrap_or_default().0;
        list.as_chunks().0.contains(&[3, 4])
    }

    /// Whether the client offers a ticket.
    ///
    /// The ticket is in pre_shared_key (RFC 8446, section 4.2.11), or in a session_ticket that is not empty (RFC 5077,
    /// section 3.2).
    #[must_use]
    pub fn offers_ticket(&self) -> bool {
        self.extension(41).is_some() || self.extension(35).is_some_and(|ticket| !ticket.is_empty())
    }
}

/// Splits a vector with a length of two bytes from the bytes behind it.
pub(crate) fn vector(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

/// Splits a vector with a length of one byte from the bytes behind it.
pub(crate) fn short_vector(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

/// Whether a signature of this scheme is made with an RSA key.
const fn is_rsa(scheme: u16) -> bool {
    matches!(scheme, 0x0201 | 0x0301 | 0x0401 | 0x0501 | 0x0601 | 0x0804..=0x0806 | 0x0809..=0x080b)
}

/// Whether a suite is one of the values that clients add to keep servers tolerant (RFC 8701): `0x0a0a` to `0xfafa`.
const fn is_grease([high, low]: [u8; 2]) -> bool {
    high == low && high & 0x0f == 0x0a
}

#[cfg(test)]
mod tests {
    use super::{Hello, joined};

    fn vector(body: &[u8]) -> Vec<u8> {
        [&u16::try_from(body.len()).unwrap().to_be_bytes()[..], body].concat()
    }

    fn hello(session_id: usize, suites: &[u16], extensions: &[(u16, &[u8])]) -> Vec<u8> {
        let mut message = vec![3, 3];
        message.extend([7; 32]);
        message.push(session_id.try_into().unwrap());
        message.extend(vec![9; session_id]);
        message.extend(vector(&suites.iter().flat_map(|suite| suite.to_be_bytes()).collect::<Vec<_>>()));
        message.extend([1, 0]);
        let extension = |(kind, body): &(u16, &[u8])| [&kind.to_be_bytes()[..], &vector(body)].concat();
        message.extend(vector(&extensions.iter().flat_map(extension).collect::<Vec<_>>()));
        let message = [&[1, 0][..], &vector(&message)].concat();
        [&[22, 3, 1][..], &vector(&message)].concat()
    }

    fn prefers_chacha(session_id: usize, suites: &[u16]) -> bool {
        Hello::read(&hello(session_id, suites, &[])).unwrap().prefers_chacha()
    }

    #[test]
    fn reads_the_first_suite_that_is_not_grease() {
        assert!(prefers_chacha(32, &[0x1303, 0x1301]));
        assert!(prefers_chacha(0, &[0x5a5a, 0xcca9, 0x1301]));
        assert!(!prefers_chacha(32, &[0x1301, 0x1303]));
        assert!(!prefers_chacha(32, &[]));
        assert!(!prefers_chacha(32, &[0x0a0a]));
    }

    #[test]
    fn joins_records_once_the_last_has_come() {
        let name = vector(&[&[0][..], &vector(b"example.com")].concat());
        let whole = hello(32, &[0x1301], &[(0, &name)]);
        for size in [3, 7, 40, whole.len()] {
            let pieces: Vec<_> = whole[5..].chunks(size).collect();
            let records: Vec<Vec<u8>> = pieces.iter().map(|piece| [&[22, 3, 1][..], &vector(piece)].concat()).collect();
            for count in 1..pieces.len() {
                assert!(joined(&records[..count].concat()).is_none(), "{size} {count}");
            }
            let all = records.concat();
            let read = joined(&all).unwrap();
            assert_eq!(Hello::read(&read).unwrap().server_name(), Some("example.com"), "{size}");
        }
        let other = [&[22, 3, 1, 0, 1, 1][..], &[21, 3, 3, 0, 2, 1, 0]].concat();
        let tiny = [22, 3, 1, 0, 1, 1].repeat(65);
        for endless in [&other[..], &tiny, &[22, 3, 1, 0, 4, 1, 1, 0, 0], &[22, 3, 1, 0, 1, 2]] {
            assert_eq!(joined(endless).unwrap(), endless);
        }
    }

    #[test]
    fn reads_server_name_signature_schemes_and_tickets() {
        let name = vector(&[&[0][..], &vector(b"example.com")].concat());
        let schemes = vector(&[4, 3, 8, 4]);
        let extensions: [(u16, &[u8]); 3] = [(0x0a0a, b""), (0, &name), (13, &schemes)];
        let full = hello(32, &[0x1301], &extensions);
        let full = Hello::read(&full).unwrap();
        assert_eq!(full.server_name(), Some("example.com"));
        assert_eq!(full.schemes(), [0x0403, 0x0804]);
        assert!(!full.offers_ticket());
        for (kind, body, offers) in [(41, &b""[..], true), (35, b"ticket", true), (35, b"", false)] {
            let hello = hello(0, &[0x1301], &[(kind, body)]);
            assert_eq!(Hello::read(&hello).unwrap().offers_ticket(), offers);
        }
    }

    #[test]
    fn suites_of_tls12_restrict_the_signature_schemes() {
        let schemes = vector(&[4, 3, 8, 7, 8, 4, 4, 1]);
        let signs = |suites: &[u16]| {
            let hello = hello(0, suites, &[(13, &schemes)]);
            Hello::read(&hello).unwrap().schemes()
        };
        assert_eq!(signs(&[0x1301]), [0x0403, 0x0807, 0x0804, 0x0401]);
        assert_eq!(signs(&[0xc030, 0xcca9]), [0x0403, 0x0807, 0x0804, 0x0401]);
        assert_eq!(signs(&[0xc02f]), [0x0804, 0x0401]);
        assert_eq!(signs(&[0xc02b]), [0x0403, 0x0807]);
        assert_eq!(signs(&[0x002f]), []);
    }

    #[test]
    fn reads_whether_tls13_is_offered() {
        let offers = |versions: &[u8]| {
            let hello = hello(0, &[0x1301], &[(43, versions)]);
            Hello::read(&hello).unwrap().offers_tls13()
        };
        assert!(offers(&[4, 3, 3, 3, 4]) && offers(&[2, 3, 4]));
        assert!(!offers(&[2, 3, 3]) && !offers(&[]) && !offers(&[4, 3, 4]) && !offers(&[4, 2, 3, 4, 1]));
    }

    #[test]
    fn reads_whether_one_protocol_alone_is_offered() {
        let offers = |list: &[u8]| {
            let hello = hello(0, &[0x1301], &[(16, &vector(list))]);
            Hello::read(&hello).unwrap().offers_only(b"acme-tls/1")
        };
        assert!(offers(b"\x0aacme-tls/1"));
        assert!(!offers(b"\x0aacme-tls/1\x02h2") && !offers(b"\x02h2\x0aacme-tls/1") && !offers(b"\x0aacme-tls/2"));
        assert!(!offers(b"") && !offers(b"\x0bacme-tls/1"));
        assert!(!Hello::read(&hello(0, &[0x1301], &[])).unwrap().offers_only(b"acme-tls/1"));
    }

    #[test]
    fn rejects_every_truncation_and_survives_changed_bytes() {
        let schemes = vector(&[4, 3]);
        let whole = hello(32, &[0x1303], &[(13, &schemes), (41, b"")]);
        for len in 0..whole.len() {
            assert!(Hello::read(&whole[..len]).is_none(), "{len}");
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                if let Some(hello) = Hello::read(&changed) {
                    let _ = (hello.prefers_chacha(), hello.server_name(), hello.schemes(), hello.offers_ticket());
                    let _ = (hello.has_suites_for(true), hello.offers_tls13(), hello.offers_only(b"acme-tls/1"));
                }
            }
        }
    }
}
