use crate::alert::Alert;
use crate::{Capabilities, CipherSuite, Error, Helpers, NamedGroup, ProtocolVersion, ServerConfig};
use core::fmt;
use core::ops::Range;
use core::time::Duration;
use tautline_buf::Buf;
use tautline_buf::kernel_tls::{Direction, TrafficKeys};

/// A TLS library with one configuration, shared by all shards; clones are the same engine.
pub trait Engine: Clone + Send + Sync + 'static {
    /// The state of one connection.
    type Session: Session;

    /// The engine's capabilities, which hold its name too.
    fn capabilities(&self) -> &'static Capabilities;

    /// The engine's name in configuration, logs and results: `rustls`, `plain`.
    fn name(&self) -> &'static str {
        self.capabilities().engine
    }

    /// Whether its sessions have no TLS, as [`Session::is_plain`] says of each.
    fn is_plain(&self) -> bool {
        false
    }

    /// Makes a session for a connection that a client opened.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] if the engine was built without a server configuration.
    fn accept(&self) -> Result<Self::Session, Error>;

    /// Makes a session for a connection to `host`: a DNS name or an IP address, without a port.
    ///
    /// The server's certificate must be valid for `host`.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] if the engine was built without a client configuration, [`Error::Config`] if `host` is
    /// neither a DNS name nor an IP address.
    fn connect(&self, host: &str) -> Result<Self::Session, Error>;

    /// A session without TLS, if this engine's sessions can be that.
    fn connect_plain(&self) -> Option<Self::Session> {
        None
    }

    /// The session of a connection that is carried by another one, as a stream of HTTP/2, with the TLS of that.
    ///
    /// Its wire bytes are plaintext. `None` if the engine has none; that of [`carrying`](crate::carrying) has.
    fn carried(&self, by: TlsInfo) -> Option<Self::Session> {
        let _ = by;
        None
    }

    /// Makes a session that takes the place of one that was [saved](Session::save), usually in another process.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] if the bytes are not the saved state of this engine's session, or of another version.
    fn restore(&self, saved: &[u8]) -> Result<Self::Session, Error> {
        let _ = saved;
        Err(CANNOT_MOVE)
    }

    /// Estimates the signature that a server's handshake needs, from the client's first record.
    ///
    /// `None` if `hello` is not a whole record with a ClientHello, or if the engine does not know.
    fn signing(&self, hello: &[u8]) -> Option<Signing> {
        let _ = hello;
        None
    }

    /// Reports how long a server's keys take to sign, one entry per kind of key; empty if the engine does not know.
    fn key_costs(&self) -> Vec<KeyCost> {
        Vec::new()
    }

    /// Replaces the server configuration in all clones, for connections accepted from now on.
    ///
    /// Established connections go on unchanged. Ticket keys are kept if [`ServerConfig::tickets`] equals its old value.
    ///
    /// A reload checks more than the start, because the old configuration is there to fall back on. Each certificate
    /// must be valid now. If a chain has more than one certificate, another one of the chain must have issued the
    /// first.
    ///
    /// # Errors
    /// [`Error::Config`] if `config` is not usable, [`Error::ApiMisuse`] if the engine was built without a server
    /// configuration. After an error the old configuration stays in use.
    fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        let _ = config;
        Err(Error::ApiMisuse("reload on an engine without server configuration"))
    }

    /// Appends the server's own ticket keys as bytes, for the process that takes its place. They are secret.
    ///
    /// Nothing if there are none, or if all hosts of a fleet [derive](crate::Tickets::Fleet) them.
    fn save_tickets(&self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Goes on with the ticket keys that another process [saved](Self::save_tickets), in all clones.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] if the bytes are no ticket keys of this engine. Its own keys stay in use then.
    fn restore_tickets(&self, saved: &[u8]) -> Result<(), Error> {
        let _ = saved;
        Err(Error::ApiMisuse("this engine takes no ticket keys of another process"))
    }
}

/// One TLS connection, sans I/O.
///
/// Contract, for every method:
/// * The caller owns `wire`, `scratch` and `out`; the session keeps no reference. The caller drops the bytes that a
///   call reports as used. It presents the others again, with more behind them.
/// * A record is used whole or not at all, so the caller must be able to present one whole: up to 18,437 bytes.
/// * A call that reads can also write: a KeyUpdate reply, an alert, a ticket. Such bytes are appended to `out` and must
///   be sent in order with those of [`seal`](Self::seal).
/// * After an error the session is dead. `out` then holds the alert for the peer, to be sent before closing.
/// * Post-handshake messages and empty records are limited; a flood is an error.
/// * A session may move to another thread between two calls. That is how expensive handshakes leave the loop.
pub trait Session: Send + 'static {
    /// Whether plaintext and wire bytes are the same.
    ///
    /// If so, the caller may skip [`open`](Self::open) and [`seal`](Self::seal).
    fn is_plain(&self) -> bool {
        false
    }

    /// Advances the handshake with the bytes in `wire`; returns how many were used.
    ///
    /// After [`Handshake::Complete`], the bytes behind the used ones belong to [`open`](Self::open). A client's first
    /// call, with an empty `wire`, produces the ClientHello.
    ///
    /// # Errors
    /// The reason why the handshake failed.
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error>;

    /// Opens the record at the front of `wire`.
    ///
    /// [`Plain`] says where the plaintext lies: in `wire` (in-place engines), or in `scratch`, which the session clears first. It
    /// is all of the record's, so that an empty `wire` gives no data.
    ///
    /// # Errors
    /// The record does not authenticate or breaks the protocol, or it is a fatal alert.
    fn open(&mut self, wire: &mut [u8], scratch: &mut Buf, out: &mut Buf) -> Result<Opened, Error>;

    /// Seals the concatenation of `plain` into as few records as possible and appends them to `out`.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] before the handshake is complete, after [`close`](Self::close), or if the key is used up.
    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error>;

    /// Seals as [`seal`](Self::seal) does, to the same bytes, but with several threads if the engine can.
    ///
    /// [`Capabilities::shares_records`](crate::Capabilities) says which engines can.
    ///
    /// # Errors
    /// As [`seal`](Self::seal).
    fn seal_with(&mut self, plain: &[&[u8]], out: &mut Buf, helpers: &dyn Helpers) -> Result<(), Error> {
        let _ = helpers;
        self.seal(plain, out)
    }

    /// Seals as [`seal`](Self::seal) does, into the front of `out`; returns the number of bytes written.
    ///
    /// `None` if the session cannot do so, or if `out` may be too short. Nothing has happened then, and the caller
    /// calls [`seal`](Self::seal).
    ///
    /// # Errors
    /// As [`seal`](Self::seal).
    #[inline]
    fn seal_into(&mut self, plain: &[&[u8]], out: &mut [u8]) -> Result<Option<usize>, Error> {
        let _ = (plain, out);
        Ok(None)
    }

    /// Appends a KeyUpdate to `out` and seals with new keys from then on (RFC 8446, section 4.6.3).
    ///
    /// `ask` requests new keys from the peer, too; some engines request them always. No call is needed for the updates
    /// that sessions make by themselves: when the peer requests one, and long before a key reaches its limit.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] if the engine changes keys only by itself, before the handshake is complete, for TLS 1.2,
    /// once the kernel has the keys, and after the close or an error.
    fn update_keys(&mut self, ask: bool, out: &mut Buf) -> Result<(), Error> {
        let _ = (ask, out);
        Err(Error::ApiMisuse("this session changes its keys only by itself"))
    }

    /// Fills `out` with keying material of this connection (RFC 8446, section 7.5; RFC 5705).
    ///
    /// Both ends get the same bytes for the same label and context. The configuration must ask for an exporter.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] if the engine or the configuration has no exporter, before the handshake is complete, for
    /// TLS 1.2, after an error, or if `out` is too long.
    fn export_keying_material(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let _ = (label, context, out);
        Err(NO_EXPORTER)
    }

    /// The fatal alert that this end sent; `None` if there was none, or if the session does not know.
    fn sent_alert(&self) -> Option<Alert> {
        None
    }

    /// Appends close_notify, once. Afterwards nothing can be sealed, but [`open`](Self::open) still works.
    fn close(&mut self, out: &mut Buf);

    /// Reports what the handshake negotiated; meaningful once it is complete.
    fn tls_info(&self) -> TlsInfo;

    /// Appends the state of an established session, for [`Engine::restore`] in another process. It holds secrets.
    ///
    /// The session goes on as before. The caller must ensure that either this session is used from now on, or the one that
    /// is restored: never both, which would reuse nonces.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] if the session cannot move; the text says why. Nothing is appended then.
    fn save(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let _ = out;
        Err(CANNOT_MOVE)
    }

    /// Returns the keys of one direction for the kernel; `None` if they are not available, as with TLS 1.2.
    ///
    /// The session works as before until [`kernel_took`](Self::kernel_took) reports that the kernel accepted them.
    ///
    /// The caller asks between two records. For sending, the kernel must have all sealed bytes; for receiving, the
    /// session must have opened all of the peer's.
    fn kernel_keys(&self, direction: Direction) -> Option<TrafficKeys> {
        let _ = direction;
        None
    }

    /// Notifies the session that the kernel has the keys of this direction.
    ///
    /// `rekeys` says whether the kernel accepts new keys later.
    ///
    /// From now on [`seal`](Self::seal) and [`close`](Self::close) write [frames](tautline_buf::kernel_tls) if the
    /// direction is sending, and [`open`](Self::open) reads them if it is receiving.
    fn kernel_took(&mut self, direction: Direction, rekeys: bool) {
        let _ = (direction, rekeys);
    }

    /// Returns the next keys that the kernel needs; the caller asks after every other call until there are none.
    ///
    /// The kernel must get keys for receiving before it opens another record, and keys for sending before it reaches
    /// the [`NEW_KEYS`](tautline_buf::kernel_tls::NEW_KEYS) frame.
    fn next_kernel_keys(&mut self) -> Option<TrafficKeys> {
        None
    }

    /// Whether the kernel's sending key is near its limit and cannot be replaced, so that the connection should end.
    fn is_kernel_worn_out(&self) -> bool {
        false
    }
}

/// The error of an engine whose sessions keep their state to themselves.
const CANNOT_MOVE: Error = Error::ApiMisuse(
    "the sessions of this TLS engine cannot move to another process: only established TLS 1.3 on `fused`, and plain, can",
);

/// The error of a session that has no secret for exporters.
pub const NO_EXPORTER: Error = Error::ApiMisuse(
    "no keying material can be exported: it needs an established session of TLS 1.3, and a configuration with `exporter`",
);

/// The cost of a server's signature in one handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Signing {
    /// How long the matching key takes to sign, as measured on this machine when the configuration was loaded.
    pub time: Duration,
    /// Whether the client offers a ticket. If the server accepts it, nothing is signed.
    pub may_resume: bool,
}

impl Signing {
    /// A signature that takes this time, unless a ticket saves it.
    #[must_use]
    pub const fn new(time: Duration, may_resume: bool) -> Self {
        Self { time, may_resume }
    }
}

/// The cost of signing with a server's keys of one kind.
///
/// ```
/// # mod tautline { pub use tautline_tls::KeyCost; }
/// use std::time::Duration;
/// use tautline::KeyCost;
///
/// let cheap = KeyCost::new("ECDSA-256", 3, Duration::from_micros(15));
/// let dear = KeyCost::new("RSA-2048", 1, Duration::from_micros(900));
/// let dearest = [&cheap, &dear].into_iter().max_by_key(|cost| cost.time);
/// assert_eq!(dearest, Some(&dear));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyCost {
    /// Algorithm and bits, such as `RSA-2048`.
    pub kind: String,
    /// How many certificates have such a key.
    pub certificates: usize,
    /// The shortest of three signatures with one of these keys.
    pub time: Duration,
}

impl KeyCost {
    /// The measured cost of keys of one kind.
    #[must_use]
    pub fn new(kind: impl Into<String>, certificates: usize, time: Duration) -> Self {
        Self { kind: kind.into(), certificates, time }
    }
}

/// Whether a handshake needs more from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Handshake {
    /// The handshake needs the peer's next bytes.
    Pending,
    /// The handshake is complete: application data can be sent and received.
    Complete,
}

/// The result of one [`Session::open`].
#[derive(Debug)]
#[must_use]
pub struct Opened {
    /// How many bytes of `wire` were used.
    pub used: usize,
    /// The content of the used bytes.
    pub content: Content,
}

/// The content of a record that [`Session::open`] opened.
#[derive(Debug, PartialEq, Eq)]
pub enum Content {
    /// Application data, which the caller may change in place.
    Data(Plain),
    /// A record for TLS itself (ticket, KeyUpdate, warning, empty record): call again with the rest.
    Control,
    /// `wire` holds no whole record: `used` is 0 and more bytes are needed.
    Partial,
    /// The peer's close_notify: no application data follows.
    Closed,
}

/// The place of a record's plaintext.
///
/// ```
/// use tautline_buf::Buf;
/// use tautline_tls::{Session, plain};
///
/// let (mut wire, mut scratch, mut out) = (*b"hello", Buf::new(), Buf::new());
/// let opened = plain::Session.open(&mut wire, &mut scratch, &mut out)?;
/// let tautline_tls::Content::Data(plain) = opened.content else { panic!("no data") };
/// assert_eq!(plain.range, 0..5);
/// assert_eq!(plain.bytes(&mut wire, &mut scratch), b"hello");
/// # Ok::<(), tautline_tls::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// The buffer of [`Session::open`] that holds it.
    pub place: Place,
    /// Its bytes in that buffer.
    pub range: Range<usize>,
}

/// A buffer of [`Session::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// `wire`, from its first byte as it was given.
    Wire,
    /// The filled bytes of `scratch`.
    Scratch,
}

impl Plain {
    /// These bytes of `wire`.
    #[inline]
    #[must_use]
    pub const fn in_wire(range: Range<usize>) -> Self {
        Self { place: Place::Wire, range }
    }

    /// The first `len` bytes of `scratch`.
    #[inline]
    #[must_use]
    pub const fn in_scratch(len: usize) -> Self {
        Self { place: Place::Scratch, range: 0..len }
    }

    /// Its bytes, in the buffers that [`Session::open`] got.
    #[inline]
    pub fn bytes<'b>(&self, wire: &'b mut [u8], scratch: &'b mut Buf) -> &'b mut [u8] {
        let buffer = match self.place {
            Place::Wire => wire,
            Place::Scratch => scratch.filled_mut(),
        };
        &mut buffer[self.range.clone()]
    }
}

/// The result of a TLS handshake.
///
/// ```
/// # mod tautline { pub use tautline_tls::{CipherSuite, ProtocolVersion, TlsInfo}; }
/// use tautline::{CipherSuite, ProtocolVersion, TlsInfo};
///
/// let mut info = TlsInfo::default();
/// assert_eq!(info.to_string(), "no TLS");
/// info.version = Some(ProtocolVersion::Tls13);
/// info.suite = Some(CipherSuite::Aes128GcmSha256);
/// assert_eq!(info.to_string(), "TLSv1.3, TLS_AES_128_GCM_SHA256");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsInfo {
    /// Version of TLS; `None` without TLS.
    pub version: Option<ProtocolVersion>,
    /// Cipher suite; `None` without TLS.
    pub suite: Option<CipherSuite>,
    /// Providers of the AEAD, such as `aws-lc`, if records are opened and sealed in place; otherwise empty.
    ///
    /// If there are two, each seals or opens records of other sizes.
    pub aead: &'static str,
    /// Group of the key exchange; `None` if there was none, or if the library names one that is unknown here.
    pub group: Option<NamedGroup>,
    /// Application protocol, negotiated by ALPN.
    pub alpn: Option<Vec<u8>>,
    /// Host name that the client sent in SNI.
    pub server_name: Option<String>,
    /// Whether the handshake resumed an earlier session.
    pub resumed: bool,
    /// The peer's certificates in DER, end entity first.
    pub peer_certificates: Vec<Vec<u8>>,
    /// Name of the [rule](crate::ClientRule) about clients' certificates by which a server made the handshake; `None` if its
    /// certificate has no rule of its own.
    pub client_rule: Option<String>,
}

/// Version, suite and group: `TLSv1.3, TLS_AES_128_GCM_SHA256, X25519`.
impl fmt::Display for TlsInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(version) = self.version else { return f.write_str("no TLS") };
        write!(f, "{version}")?;
        self.suite.iter().try_for_each(|suite| write!(f, ", {suite}"))?;
        self.group.iter().try_for_each(|group| write!(f, ", {group}"))
    }
}

/// Certificates are shown by their sizes, and the protocol as text.
impl fmt::Debug for TlsInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, suite, aead, group, alpn, server_name, resumed, peer_certificates, client_rule } = self;
        let certificates: Vec<String> = peer_certificates.iter().map(|der| format!("{} bytes", der.len())).collect();
        f.debug_struct("TlsInfo")
            .field("version", version)
            .field("suite", suite)
            .field("aead", aead)
            .field("group", group)
            .field("alpn", &alpn.as_deref().map(String::from_utf8_lossy))
            .field("server_name", server_name)
            .field("resumed", resumed)
            .field("peer_certificates", &certificates)
            .field("client_rule", client_rule)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::TlsInfo;

    #[test]
    fn certificates_are_shown_by_their_sizes() {
        let mut info = TlsInfo { alpn: Some(b"http/1.1".to_vec()), ..TlsInfo::default() };
        info.peer_certificates = vec![vec![48; 700], vec![48; 20]];
        let shown = format!("{info:?}");
        assert!(shown.contains(r#"peer_certificates: ["700 bytes", "20 bytes"]"#), "{shown}");
        assert!(shown.contains(r#"alpn: Some("http/1.1")"#), "{shown}");
    }
}
