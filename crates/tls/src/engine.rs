use crate::{Error, ServerConfig, Team};
use core::time::Duration;
use tautline_window::Buf;
use tautline_window::kernel::{Direction, TrafficKeys};

/// A TLS library with one configuration, shared by all shards; clones are the same engine.
pub trait Engine: Clone + Send + Sync + 'static {
    /// One connection's state.
    type Session: Session;

    /// The engine's name in configuration, logs and results: `rustls`, `plain`.
    fn name(&self) -> &'static str;

    /// A session for a connection that a client opened.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] where the engine was built without a server configuration.
    fn accept(&self) -> Result<Self::Session, Error>;

    /// A session for a connection to `host` (a DNS name or an IP address, without a port). The certificate must be
    /// valid for it.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] where the engine was built without a client configuration, [`Error::Config`] where `host`
    /// is neither a DNS name nor an IP address.
    fn connect(&self, host: &str) -> Result<Self::Session, Error>;

    /// What a server's signature in the handshake that begins with these bytes will cost; `None` where they are no whole
    /// record of a ClientHello, and where the engine does not know.
    fn signing(&self, hello: &[u8]) -> Option<Signing> {
        let _ = hello;
        None
    }

    /// What a server's keys take to sign, a line for each kind of them; empty where the engine does not know.
    fn key_costs(&self) -> Vec<KeyCost> {
        Vec::new()
    }

    /// Has every connection that begins from now on use `config`, in all clones. Those that stand go on as they are. Ticket
    /// keys stay where [`ServerConfig::tickets`] is equal to what it was.
    ///
    /// More is demanded than at the start, because there is something better to fall back on: certificates must be valid now,
    /// and where a chain has more than one, another of them must have issued the first.
    ///
    /// # Errors
    /// [`Error::Config`] where `config` cannot be used, and [`Error::ApiMisuse`] where the engine was built without a server
    /// configuration. Everything stays as it was then.
    fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        let _ = config;
        Err(Error::ApiMisuse("reload on an engine without server configuration"))
    }
}

/// One TLS connection, sans I/O.
///
/// Contract, for every method:
/// * The caller owns `wire`, `scratch` and `out`; the session keeps no reference. A session never needs to see a byte
///   twice: what it reports as used is done with, and everything else the caller presents again, with more behind it.
/// * A record is used whole or not at all, so the caller must be able to present one whole: up to 18,437 bytes.
/// * Reading can write (a KeyUpdate reply, an alert, a ticket). Such bytes are appended to `out` and must be sent in
///   order with what [`seal`](Self::seal) appends.
/// * After an error the session is dead; `out` holds the alert that tells the peer, to be sent before closing.
/// * Post-handshake messages and empty records are rate-limited; a flood is an error.
/// * A session may move to another thread between two calls: that is how expensive handshakes leave the loop.
pub trait Session: Send + 'static {
    /// Plaintext and wire bytes are the same, so the caller may skip [`open`](Self::open) and [`seal`](Self::seal).
    const PASSTHROUGH: bool = false;

    /// Advances the handshake with what is in `wire`. Once it says [`Handshake::Complete`], bytes behind `used` belong to
    /// [`open`](Self::open). A client's first call, with an empty `wire`, produces the ClientHello.
    ///
    /// # Errors
    /// Whatever made the handshake fail.
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error>;

    /// Opens the record at the front of `wire`. The plaintext lies in `wire` itself (in-place engines) or in `scratch`
    /// (which the session clears first).
    ///
    /// # Errors
    /// A record that does not authenticate or breaks the protocol, a fatal alert.
    fn open<'b>(&mut self, wire: &'b mut [u8], scratch: &'b mut Buf, out: &mut Buf) -> Result<Opened<'b>, Error>;

    /// Seals the concatenation of `plain` as few records as fit and appends them to `out`. All of it is sealed.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] before the handshake is complete or after [`close`](Self::close); a key that is used up.
    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error>;

    /// The same, with the records of one call sealed by several threads at once, where the engine can
    /// ([`Capabilities::shares_records`](crate::Capabilities)); the bytes are those of [`seal`](Self::seal).
    ///
    /// # Errors
    /// As [`seal`](Self::seal).
    fn seal_with(&mut self, plain: &[&[u8]], out: &mut Buf, team: &dyn Team) -> Result<(), Error> {
        let _ = team;
        self.seal(plain, out)
    }

    /// Appends close_notify, once. Nothing can be sealed afterwards; [`open`](Self::open) goes on.
    fn close(&mut self, out: &mut Buf);

    /// What the handshake agreed on; meaningful once it is complete.
    fn facts(&self) -> Facts;

    /// The keys of one direction, so that the kernel seals or opens its records from now on; `None` where they cannot be
    /// had, as with TLS 1.2. Nothing changes before the session hears that the kernel [took](Self::kernel_took) them.
    ///
    /// The caller asks between two records: all that was sealed is with the kernel, or nothing of the peer's is left that
    /// was not opened.
    fn kernel_keys(&self, direction: Direction) -> Option<TrafficKeys> {
        let _ = direction;
        None
    }

    /// The kernel has the keys of this direction, and takes others after them (`rekeys`) or not. From now on
    /// [`seal`](Self::seal) and [`close`](Self::close) write [frames](tautline_window::kernel), or [`open`](Self::open)
    /// reads them.
    fn kernel_took(&mut self, direction: Direction, rekeys: bool) {
        let _ = (direction, rekeys);
    }

    /// Keys that the kernel needs after those it has: for receiving before it opens another record, for sending before it
    /// meets the frame that says so. Asked for after every other call, until there are none.
    fn next_kernel_keys(&mut self) -> Option<TrafficKeys> {
        None
    }

    /// Whether a key has protected so much that the connection should end soon, as the kernel takes no other.
    fn is_kernel_worn_out(&self) -> bool {
        false
    }
}

/// What one handshake asks of a server's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signing {
    /// How long the key that fits takes to sign, as measured on this machine when the configuration was loaded.
    pub time: Duration,
    /// The client has a ticket: where it is a good one, nothing is signed.
    pub may_resume: bool,
}

/// What a server's keys of one kind take to sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyCost {
    /// Algorithm and bits, as `RSA-2048`.
    pub kind: String,
    /// Certificates with such keys.
    pub certificates: usize,
    /// The shortest of three signatures with one of them.
    pub time: Duration,
}

/// Whether a handshake needs more from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Handshake {
    /// The peer's next bytes are needed.
    Pending,
    /// Application data can flow.
    Complete,
}

/// What [`Session::open`] did.
#[derive(Debug)]
#[must_use]
pub struct Opened<'b> {
    /// Bytes of `wire` that are done with.
    pub used: usize,
    /// What they held.
    pub content: Content<'b>,
}

/// What one step of [`Session::open`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Content<'b> {
    /// Application data, to read and to change in place.
    Data(&'b mut [u8]),
    /// A record for TLS itself (ticket, KeyUpdate, warning, empty record): call again with the rest.
    Control,
    /// No whole record is in `wire`: `used` is 0 and more bytes are needed.
    Partial,
    /// The peer's close_notify: no application data follows.
    Closed,
}

/// What a handshake agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `TLSv1.3`, `TLSv1.2`; empty without TLS.
    pub version: &'static str,
    /// Cipher suite by its IANA name, as `TLS13_AES_128_GCM_SHA256`.
    pub suite: String,
    /// Key exchange group, as `X25519MLKEM768`.
    pub group: String,
    /// Application protocol by ALPN.
    pub alpn: Option<Vec<u8>>,
    /// Host name that the client asked for by SNI.
    pub server_name: Option<String>,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// The peer's certificates, end entity first, DER.
    pub peer_certificates: Vec<Vec<u8>>,
}
