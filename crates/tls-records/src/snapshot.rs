use crate::schedule::Suite;
use core::fmt;
use tautline_buf::fields::{put, put_len, take, take_array, take_len};
use tautline_tls::{CipherSuite, Error, NamedGroup, TlsInfo};
use zeroize::Zeroize;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that accepted the connection.
    Server,
    /// The end that opened the connection.
    Client,
}

/// An established TLS 1.3 connection as plain data: the whole state of a [`Session`](crate::Session).
///
/// It holds the keys to all future traffic of the connection, so keep it as safe as a private key. It is wiped on drop.
/// Use it once: two sessions with the same keys reuse nonces, which exposes the traffic.
///
/// [`encode`](Self::encode) and [`decode`](Self::decode) convert it to bytes and back.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// This end of the connection.
    pub role: Role,
    /// Cipher suite.
    pub suite: Suite,
    /// The direction from the peer.
    pub rx: Traffic,
    /// The direction to the peer.
    pub tx: Traffic,
    /// The beginning of a handshake message that is split over records; usually empty.
    pub partial: Vec<u8>,
    /// The number of records without application data since the last one with data.
    pub quiet: u8,
    /// The number of user_canceled alerts that the peer sent.
    pub canceled: u8,
    /// A KeyUpdate is due before the next record, since the peer requested it (RFC 8446, section 4.6.3).
    pub owes_update: bool,
    /// The KeyUpdate that is due requests new keys from the peer.
    pub asks_update: bool,
    /// close_notify was sent.
    pub sent_close: bool,
    /// close_notify was received.
    pub received_close: bool,
    /// The results of the handshake; `version` and `suite` are ignored.
    pub facts: TlsInfo,
}

/// One direction of a [`Snapshot`].
#[derive(Clone, PartialEq, Eq)]
pub struct Traffic {
    /// Traffic secret (RFC 8446, section 7.1), as long as the suite's hash: 32 or 48 bytes. Key and IV derive from it.
    pub secret: Vec<u8>,
    /// How many records the key has protected.
    pub sequence: u64,
}

/// Version of the encoding, its first byte.
const VERSION: u8 = 1;

/// Most certificates that [`Snapshot::decode`] accepts.
const MAX_CERTIFICATES: usize = 100;

impl Snapshot {
    /// Appends the snapshot as bytes.
    ///
    /// The format is this library's own. It begins with a version, and [`decode`](Self::decode) rejects an unknown one.
    ///
    /// Integers are big-endian; the number of bytes is in parentheses. First come version (1), role (1: 0 server, 1
    /// client), suite (2), group (2), `quiet` (1), `canceled` (1) and flags (1). Then come sequence number (8) and
    /// secret, for `rx` and then for `tx`. The partial message, ALPN, server name, the number of certificates (4) and
    /// the certificates follow, and the name of the rule about clients if there is one. Each field of variable length has its
    /// length (4) in front.
    ///
    /// Flags: owes an update 1, sent close 2, received close 4, resumed 8, has ALPN 16, has a server name 32, asks for
    /// an update 64, has a rule about clients 128.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let TlsInfo { group, alpn, server_name, resumed, peer_certificates, client_rule, .. } = &self.facts;
        let (alpn_set, name_set) = (alpn.is_some(), server_name.is_some());
        let (sent, received) = (self.sent_close, self.received_close);
        let rule_set = client_rule.is_some();
        let flags = [self.owes_update, sent, received, *resumed, alpn_set, name_set, self.asks_update, rule_set];
        let flags = flags.iter().enumerate().fold(0, |all, (bit, &set)| all | u8::from(set) << bit);
        out.extend([VERSION, u8::from(self.role == Role::Client)]);
        out.extend(self.suite.cipher_suite().number().to_be_bytes());
        out.extend(group.map_or(0, NamedGroup::number).to_be_bytes());
        out.extend([self.quiet, self.canceled, flags]);
        for Traffic { secret, sequence } in [&self.rx, &self.tx] {
            out.extend(sequence.to_be_bytes());
            put(secret, out);
        }
        put(&self.partial, out);
        put(alpn.as_deref().unwrap_or_default(), out);
        put(server_name.as_deref().unwrap_or_default().as_bytes(), out);
        put_len(peer_certificates.len(), out);
        for certificate in peer_certificates {
            put(certificate, out);
        }
        client_rule.iter().for_each(|rule| put(rule.as_bytes(), out));
    }

    /// Reads a snapshot that [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] if `bytes` are not exactly one snapshot of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut rest = bytes;
        match Self::read(&mut rest) {
            Some(snapshot) if rest.is_empty() => Ok(snapshot),
            _ => Err(Error::ApiMisuse("the bytes are not a session snapshot, or one of another version")),
        }
    }

    fn read(rest: &mut &[u8]) -> Option<Self> {
        let [VERSION, role, suite @ ..] = *take_array::<4>(rest)? else { return None };
        let role = match role {
            0 => Role::Server,
            1 => Role::Client,
            _ => return None,
        };
        let suite = Suite::negotiated(CipherSuite::from(u16::from_be_bytes(suite)))?;
        let group = u16::from_be_bytes(*take_array(rest)?);
        let [quiet, canceled, flags] = *take_array(rest)?;
        let flag = |bit: u8| flags >> bit & 1 == 1;
        let mut traffic = || {
            let sequence = u64::from_be_bytes(*take_array(rest)?);
            Some(Traffic { sequence, secret: take(rest)?.to_vec() })
        };
        let (rx, tx) = (traffic()?, traffic()?);
        let partial = take(rest)?.to_vec();
        let alpn = take(rest)?.to_vec();
        let server_name = str::from_utf8(take(rest)?).ok()?.to_owned();
        let count = take_len(rest)?;
        let mut facts = TlsInfo::default();
        facts.group = (group != 0).then(|| NamedGroup::from(group));
        facts.alpn = flag(4).then_some(alpn);
        facts.server_name = flag(5).then_some(server_name);
        facts.resumed = flag(3);
        facts.peer_certificates = (count <= MAX_CERTIFICATES)
            .then(|| (0..count).map(|_| Some(take(rest)?.to_vec())).collect::<Option<_>>())??;
        if flag(7) {
            facts.client_rule = Some(str::from_utf8(take(rest)?).ok()?.to_owned());
        }
        Some(Self {
            role,
            suite,
            rx,
            tx,
            partial,
            quiet,
            canceled,
            owes_update: flag(0),
            asks_update: flag(6),
            sent_close: flag(1),
            received_close: flag(2),
            facts,
        })
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

/// Omits the secrets.
impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("role", &self.role).field("suite", &self.suite).finish_non_exhaustive()
    }
}

/// Omits the secret.
impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traffic").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
