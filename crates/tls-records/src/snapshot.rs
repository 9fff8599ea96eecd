use crate::schedule::Suite;
use core::fmt;
use tautline_tls::{Error, Facts};
use zeroize::Zeroize;

/// Which end of a connection a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It accepted the connection.
    Server,
    /// It opened the connection.
    Client,
}

/// An established TLS 1.3 connection as plain data: all that a [`Session`](crate::Session) has.
///
/// It holds the keys to everything that the connection still sends, so keep it as close as a private key; it is wiped when
/// it is dropped. Use it once: two sessions that seal with the same keys give both away.
///
/// [`encode`](Self::encode) and [`decode`](Self::decode) turn it to bytes and back.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Which end this is.
    pub role: Role,
    /// Cipher suite.
    pub suite: Suite,
    /// What the peer sends.
    pub rx: Traffic,
    /// What is sent to the peer.
    pub tx: Traffic,
    /// The beginning of a handshake message that is split over records; mostly empty.
    pub partial: Vec<u8>,
    /// Records in a row, up to now, that held no application data.
    pub quiet: u8,
    /// Warnings of the peer's that it cancels, so far.
    pub canceled: u8,
    /// The peer asked for new keys, which are due before the next record (RFC 8446, section 4.6.3).
    pub owes_update: bool,
    /// The peer is to be asked for new keys of its own with the next record.
    pub asks_update: bool,
    /// close_notify was sent.
    pub sent_close: bool,
    /// close_notify was received.
    pub received_close: bool,
    /// Key exchange group, by its number at IANA.
    pub group: u16,
    /// What else the handshake agreed on. `version`, `suite` and `group` in here count for nothing.
    pub facts: Facts,
}

/// One direction of a [`Snapshot`].
#[derive(Clone, PartialEq, Eq)]
pub struct Traffic {
    /// Traffic secret (RFC 8446, section 7.1), as long as the suite's hash: 32 or 48 bytes. Key and IV come from it.
    pub secret: Vec<u8>,
    /// Records that its key protected so far.
    pub sequence: u64,
}

/// The format's version, in the first byte.
const VERSION: u8 = 1;

/// No chain of certificates is longer, nor is anything else.
const MAX_CERTIFICATES: usize = 100;

impl Snapshot {
    /// Appends it as bytes. The format is this library's own and has a version: one that is not known is refused.
    ///
    /// Integers are big-endian. Version (1), role (1: 0 server, 1 client), suite (2), group (2), records without data (1),
    /// cancellations (1), flags (1: owes an update 1, sent close 2, received close 4, resumed 8, has ALPN 16, has a name
    /// 32, asks for an update 64), then for what is received and for what is sent the sequence number (8) and the secret, then the partial
    /// message, ALPN, server name, the number of certificates (4) and these. What has a length of its own has it (4) in
    /// front.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Facts { alpn, server_name, resumed, peer_certificates, .. } = &self.facts;
        let (alpn_set, name_set) = (alpn.is_some(), server_name.is_some());
        let (sent, received) = (self.sent_close, self.received_close);
        let flags = [self.owes_update, sent, received, *resumed, alpn_set, name_set, self.asks_update];
        let flags = flags.iter().enumerate().fold(0, |all, (bit, &set)| all | u8::from(set) << bit);
        out.extend([VERSION, u8::from(self.role == Role::Client)]);
        out.extend((self.suite as u16).to_be_bytes());
        out.extend(self.group.to_be_bytes());
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
    }

    /// Reads what [`encode`](Self::encode) wrote, all of it.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] where `bytes` are something else.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut rest = bytes;
        match Self::read(&mut rest) {
            Some(snapshot) if rest.is_empty() => Ok(snapshot),
            _ => Err(Error::ApiMisuse("this is no snapshot of a session, or one of another version")),
        }
    }

    fn read(rest: &mut &[u8]) -> Option<Self> {
        let [VERSION, role, suite @ ..] = *take_array::<4>(rest)? else { return None };
        let role = match role {
            0 => Role::Server,
            1 => Role::Client,
            _ => return None,
        };
        let suite = Suite::from_code(u16::from_be_bytes(suite))?;
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
        let facts = Facts {
            alpn: flag(4).then_some(alpn),
            server_name: flag(5).then_some(server_name),
            resumed: flag(3),
            peer_certificates: (count <= MAX_CERTIFICATES)
                .then(|| (0..count).map(|_| Some(take(rest)?.to_vec())).collect::<Option<_>>())??,
            ..Facts::default()
        };
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
            group,
            facts,
        })
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

/// Says nothing of secrets.
impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("role", &self.role).field("suite", &self.suite).finish_non_exhaustive()
    }
}

/// Says nothing of secrets.
impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traffic").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

fn put(bytes: &[u8], out: &mut Vec<u8>) {
    put_len(bytes.len(), out);
    out.extend(bytes);
}

/// Nothing in here is anywhere near 4 GiB: all of it came out of a handshake.
fn put_len(len: usize, out: &mut Vec<u8>) {
    out.extend(u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
}

fn take_array<'b, const N: usize>(rest: &mut &'b [u8]) -> Option<&'b [u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(taken)
}

fn take_len(rest: &mut &[u8]) -> Option<usize> {
    usize::try_from(u32::from_be_bytes(*take_array(rest)?)).ok()
}

fn take<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let len = take_len(rest)?;
    let (taken, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(taken)
}

#[cfg(test)]
mod tests;
