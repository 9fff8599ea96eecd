use crate::record::HEADER;
use rustls::ServerConfig;
use std::sync::Arc;

/// A server's two configurations, alike but for who decides the cipher suite.
///
/// The server's order decides (AES-128-GCM first, the fastest here), for clients mostly list AES-256 first and none would
/// lose by AES-128. But a client that lists ChaCha20 first says that it has no AES instructions, and would pay for ours:
/// its order decides. rustls knows only one rule per configuration, so there are two, and the ClientHello chooses.
#[derive(Debug)]
pub(crate) struct Acceptor {
    our_order: Arc<ServerConfig>,
    their_order: Arc<ServerConfig>,
}

impl Acceptor {
    pub(crate) fn new(mut config: ServerConfig) -> Self {
        config.ignore_client_order = false;
        let their_order = Arc::new(config.clone());
        config.ignore_client_order = true;
        Self { our_order: Arc::new(config), their_order }
    }

    /// The configuration for the client whose first record this is.
    pub(crate) fn config(&self, record: &[u8]) -> &Arc<ServerConfig> {
        if prefers_chacha(record) { &self.their_order } else { &self.our_order }
    }
}

/// Whether this record begins a ClientHello (RFC 8446, section 4.1.2) that lists a ChaCha20 suite first.
///
/// A hint only: rustls parses the message anew, and whatever cannot be read here is answered with our order.
fn prefers_chacha(record: &[u8]) -> bool {
    // Handshake type and length (4), version (2), random (32), then the session id, the suites' length and the suites.
    const SESSION_ID: usize = HEADER + 4 + 2 + 32;
    let suites = || {
        let session_id = usize::from(*record.get(SESSION_ID)?);
        let rest = record.get(SESSION_ID + 1 + session_id..)?;
        let (len, rest) = rest.split_first_chunk()?;
        rest.get(..usize::from(u16::from_be_bytes(*len)))
    };
    let &[22, _, _, _, _, 1, ..] = record else { return false };
    suites()
        .unwrap_or_default()
        .as_chunks()
        .0
        .iter()
        .copied()
        .find(|&suite| !is_grease(suite))
        .is_some_and(|suite| matches!(u16::from_be_bytes(suite), 0x1303 | 0xcca8 | 0xcca9))
}

/// Reserved values that clients mix in to keep servers tolerant (RFC 8701): `0x0a0a`, `0x1a1a` ... `0xfafa`.
const fn is_grease([high, low]: [u8; 2]) -> bool {
    high == low && high & 0x0f == 0x0a
}

#[cfg(test)]
mod tests {
    use super::prefers_chacha;

    fn hello(session_id: usize, suites: &[u16]) -> Vec<u8> {
        let mut hello = vec![22, 3, 1, 0, 0, 1, 0, 0, 0, 3, 3];
        hello.extend([7; 32]);
        hello.push(session_id.try_into().unwrap());
        hello.extend(vec![9; session_id]);
        hello.extend(u16::try_from(2 * suites.len()).unwrap().to_be_bytes());
        hello.extend(suites.iter().flat_map(|suite| suite.to_be_bytes()));
        hello.extend([1, 0]);
        hello
    }

    #[test]
    fn reads_the_first_suite_that_is_not_grease() {
        assert!(prefers_chacha(&hello(32, &[0x1303, 0x1301])));
        assert!(prefers_chacha(&hello(0, &[0x5a5a, 0xcca9, 0x1301])));
        assert!(!prefers_chacha(&hello(32, &[0x1301, 0x1303])));
        assert!(!prefers_chacha(&hello(32, &[])));
        assert!(!prefers_chacha(&hello(32, &[0x0a0a])));
    }

    #[test]
    fn survives_every_truncation() {
        let whole = hello(32, &[0x1303]);
        for len in 0..whole.len() {
            let complete = len >= whole.len() - 2;
            assert_eq!(prefers_chacha(&whole[..len]), complete, "{len}");
        }
    }
}
