use crate::hello::{short_vector, vector};
use crate::record::{Front, HEADER, front};

/// A server's answer to a ClientHello, read from its first flight.
///
/// Reading the flight works for every TLS library and as early as the answer is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The server requested another ClientHello (RFC 8446, section 4.1.4). It has signed nothing yet.
    Retry,
    /// The server runs a full handshake and has signed it.
    Full,
    /// The server resumes an earlier session, without a signature.
    Resumed,
}

/// The random of a HelloRetryRequest, which is otherwise a ServerHello (RFC 8446, section 4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

impl Answer {
    /// Reads the answer from the bytes that one call appended; `None` if `flight` does not begin with a ServerHello.
    #[must_use]
    pub fn read(flight: &[u8]) -> Option<Self> {
        let Flight { message, switches } = Flight::read(flight);
        // Type, length and version.
        let (2, hello) = (*message.first()?, message.get(4 + 2..)?) else { return None };
        let (random, hello) = hello.split_first_chunk()?;
        if *random == RETRY {
            return Some(Self::Retry);
        }
        let (_session_id, hello) = short_vector(hello)?;
        // Suite and compression.
        let (mut extensions, _) = hello.get(2 + 1..).and_then(vector).unwrap_or_default();
        let (mut is_tls13, mut has_psk) = (false, false);
        while let Some((kind, behind)) = extensions.split_first_chunk() {
            is_tls13 |= *kind == [0, 43];
            has_psk |= *kind == [0, 41];
            extensions = vector(behind)?.1;
        }
        // In TLS 1.2 a server that resumes switches to the new keys in its first flight (RFC 5246, section 7.3). In TLS
        // 1.3 a change_cipher_spec means nothing.
        let resumed = if is_tls13 { has_psk } else { switches };
        Some(if resumed { Self::Resumed } else { Self::Full })
    }
}

/// The unencrypted part of a flight.
#[derive(Default)]
struct Flight {
    /// The first handshake message, joined from its records, and possibly bytes of the next ones.
    message: Vec<u8>,
    /// The flight has a change_cipher_spec.
    switches: bool,
}

impl Flight {
    fn read(mut wire: &[u8]) -> Self {
        let mut flight = Self::default();
        while let Front::Whole(len) = front(wire) {
            let (record, behind) = wire.split_at(len);
            match record[0] {
                20 => flight.switches = true,
                22 if !flight.is_whole() && !flight.switches => flight.message.extend_from_slice(&record[HEADER..]),
                _ => {}
            }
            wire = behind;
        }
        flight
    }

    fn is_whole(&self) -> bool {
        let &[_, high, middle, low, ref body @ ..] = &self.message[..] else { return false };
        body.len() >= usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low)
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, RETRY};

    fn message(random: [u8; 32], extensions: &[u8]) -> Vec<u8> {
        let body =
            [&[3, 3][..], &random, &[0, 0x13, 1, 0, 0, extensions.len().try_into().unwrap()], extensions].concat();
        [&[2, 0, 0, body.len().try_into().unwrap()][..], &body].concat()
    }

    fn records(message: &[u8], most: usize) -> Vec<u8> {
        let record = |part: &[u8]| [&[22, 3, 3, 0, part.len().try_into().unwrap()], part].concat();
        message.chunks(most).flat_map(record).collect()
    }

    const VERSION: [u8; 6] = [0, 43, 0, 2, 3, 4];
    const PSK: [u8; 6] = [0, 41, 0, 2, 0, 0];
    const SWITCH: [u8; 6] = [20, 3, 3, 0, 1, 1];

    #[test]
    fn reads_an_answer_split_over_any_number_of_records() {
        let both = [VERSION, PSK].concat();
        for (random, extensions, expected) in [
            ([7; 32], &VERSION[..], Answer::Full),
            ([7; 32], &both, Answer::Resumed),
            (RETRY, &VERSION, Answer::Retry),
            // TLS 1.2: without supported_versions.
            ([7; 32], &[0, 35, 0, 0], Answer::Full),
            ([7; 32], &[], Answer::Full),
        ] {
            let message = message(random, extensions);
            for most in [1, 5, 40, 255] {
                let wire = records(&message, most);
                assert_eq!(Answer::read(&wire), Some(expected));
                let tls13 = !extensions.is_empty() && extensions[1] == 43;
                let switched = if tls13 { expected } else { Answer::Resumed };
                let encrypted = records(&[9; 40], 40);
                assert_eq!(Answer::read(&[&wire[..], &SWITCH, &encrypted].concat()), Some(switched));
            }
        }
    }

    #[test]
    fn returns_none_without_a_whole_server_hello() {
        assert_eq!(Answer::read(&[]), None);
        assert_eq!(Answer::read(&[21, 3, 3, 0, 2, 2, 40]), None);
        assert_eq!(Answer::read(&records(&[4, 0, 0, 50].repeat(20), 80)), None);
        let whole = message([7; 32], &VERSION);
        for len in 0..whole.len() {
            let _ = Answer::read(&records(&whole[..len], 255));
        }
    }
}
