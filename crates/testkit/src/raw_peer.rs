//! A TLS 1.3 peer that seals whatever records a test asks for.
//!
//! rustls does the handshake. Afterwards the peer seals and opens records with keys that it derives from the traffic
//! secrets (RFC 8446, sections 5 and 7). It can thus send records that no library would.
#![expect(clippy::unwrap_used, reason = "runs inside tests, which fail by panicking")]

use crate::pair::End;
use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{CipherSuite, ClientConfig, Connection, KeyLog, RootCertStore, ServerConfig};
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use tautline_tls::{Certificate, Session};

/// Content types (RFC 8446, section 5.1).
pub mod kind {
    /// change_cipher_spec.
    pub const CHANGE_CIPHER_SPEC: u8 = 20;
    /// alert.
    pub const ALERT: u8 = 21;
    /// handshake.
    pub const HANDSHAKE: u8 = 22;
    /// application_data.
    pub const DATA: u8 = 23;
}

/// A TLS 1.3 peer after the handshake.
pub struct RawPeer {
    /// The direction it seals.
    pub tx: Half,
    /// The direction it opens.
    pub rx: Half,
}

/// The keys of one direction.
pub struct Half {
    hash: hkdf::Algorithm,
    algorithm: &'static aead::Algorithm,
    secret: Vec<u8>,
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl RawPeer {
    /// Connects to the accepting session `server`. It must show a certificate that `roots` (PEM) vouches for.
    ///
    /// # Panics
    /// If the handshake fails.
    pub fn client<S: Session>(server: &mut End<S>, roots: &str, suite: Option<CipherSuite>) -> Self {
        let secrets = Arc::new(Secrets::default());
        let config = client_config(roots, suite, &secrets);
        let name = ServerName::try_from("localhost").unwrap();
        let client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        Self::handshake(Connection::Client(client), server, &secrets)
    }

    /// Connects over a blocking `stream` to `localhost`, whose certificate `roots` (PEM) must vouch for.
    ///
    /// `suite` is the number of the only cipher suite to offer; `None` offers all. No byte after the record with the
    /// server's Finished is read.
    ///
    /// # Panics
    /// If the handshake fails.
    pub fn connect(stream: &mut (impl Read + Write), roots: &str, suite: Option<u16>) -> Self {
        let secrets = Arc::new(Secrets::default());
        Self::connect_with(stream, client_config(roots, suite.map(CipherSuite::from), &secrets), &secrets)
    }

    /// Connects like [`connect`](Self::connect) with all suites, and asks for one of these protocols by ALPN.
    ///
    /// # Panics
    /// If the handshake fails.
    pub fn connect_by(stream: &mut (impl Read + Write), roots: &str, protocols: &[&[u8]]) -> Self {
        let secrets = Arc::new(Secrets::default());
        let mut config = client_config(roots, None, &secrets);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Self::connect_with(stream, config, &secrets)
    }

    fn connect_with(stream: &mut (impl Read + Write), config: ClientConfig, secrets: &Arc<Secrets>) -> Self {
        let name = ServerName::try_from("localhost").unwrap();
        let mut own = Connection::Client(rustls::ClientConnection::new(Arc::new(config), name).unwrap());
        while own.is_handshaking() || own.wants_write() {
            while own.wants_write() {
                own.write_tls(stream).unwrap();
            }
            if own.is_handshaking() {
                let record = read_record(stream).unwrap();
                let mut wire = record.as_slice();
                while !wire.is_empty() {
                    own.read_tls(&mut wire).unwrap();
                    own.process_new_packets().unwrap();
                }
            }
        }
        Self::take_over(own, secrets)
    }

    /// Accepts the connecting session `client`, which must trust `certificate`.
    ///
    /// # Panics
    /// If the handshake fails.
    pub fn server<S: Session>(client: &mut End<S>, certificate: &Certificate, suite: Option<CipherSuite>) -> Self {
        let secrets = Arc::new(Secrets::default());
        let config = server_config(certificate, suite, &secrets);
        client.work().unwrap();
        let server = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        Self::handshake(Connection::Server(server), client, &secrets)
    }

    /// Connects like [`client`](Self::client), and returns the last flight, which the session has not got: its first bytes
    /// under the keys of application data may follow at once.
    ///
    /// # Panics
    /// If the handshake fails.
    pub fn client_last_flight<S: Session>(server: &mut End<S>, roots: &str) -> (Self, Vec<u8>) {
        let secrets = Arc::new(Secrets::default());
        let name = ServerName::try_from("localhost").unwrap();
        let config = client_config(roots, None, &secrets);
        let mut own = Connection::Client(rustls::ClientConnection::new(Arc::new(config), name).unwrap());
        loop {
            let wire = written(&mut own);
            if !own.is_handshaking() {
                return (Self::take_over(own, &secrets), wire);
            }
            server.deliver(&wire).unwrap();
            let wire = server.take_outbox();
            assert!(!wire.is_empty(), "the handshake goes on");
            read(&mut own, &wire);
        }
    }

    /// Accepts like [`server`](Self::server), and returns the flight with the server's Finished, which the session has not
    /// got. The session's bytes up to its own Finished go to the returned connection.
    ///
    /// # Panics
    /// If the handshake fails.
    pub fn server_flight<S: Session>(
        client: &mut End<S>,
        certificate: &Certificate,
    ) -> (Self, Vec<u8>, ServerHandshake) {
        let secrets = Arc::new(Secrets::default());
        client.work().unwrap();
        let config = server_config(certificate, None, &secrets);
        let mut own = Connection::Server(rustls::ServerConnection::new(Arc::new(config)).unwrap());
        read(&mut own, &client.take_outbox());
        let flight = written(&mut own);
        let suite = own.negotiated_cipher_suite().unwrap().suite();
        let half = |side| Half::new(suite, secrets.get(side), 0);
        (Self { tx: half("SERVER"), rx: half("CLIENT") }, flight, ServerHandshake(own))
    }

    fn handshake<S: Session>(mut own: Connection, peer: &mut End<S>, secrets: &Secrets) -> Self {
        while own.is_handshaking() || own.wants_write() {
            let mut wire = Vec::new();
            while own.wants_write() {
                own.write_tls(&mut wire).unwrap();
            }
            peer.deliver(&wire).unwrap();
            if !own.is_handshaking() {
                break;
            }
            let wire = peer.take_outbox();
            let mut wire = wire.as_slice();
            assert!(!wire.is_empty(), "the handshake goes on");
            while !wire.is_empty() {
                own.read_tls(&mut wire).unwrap();
                own.process_new_packets().unwrap();
            }
        }
        assert!(peer.open, "both ends are open");
        Self::take_over(own, secrets)
    }

    fn take_over(own: Connection, secrets: &Secrets) -> Self {
        let is_client = matches!(own, Connection::Client(_));
        let suite = own.negotiated_cipher_suite().unwrap().suite();
        let sequences = own.dangerous_extract_secrets().unwrap();
        let (tx, rx) = if is_client { ("CLIENT", "SERVER") } else { ("SERVER", "CLIENT") };
        Self {
            tx: Half::new(suite, secrets.get(tx), sequences.tx.0),
            rx: Half::new(suite, secrets.get(rx), sequences.rx.0),
        }
    }

    /// Seals a record with `content` of type `kind` and `padding` zeros.
    pub fn seal(&mut self, kind: u8, content: &[u8], padding: usize) -> Vec<u8> {
        let mut inner = content.to_vec();
        inner.push(kind);
        inner.resize(inner.len() + padding, 0);
        self.tx.seal(inner)
    }

    /// Opens every record in `wire` and returns types and contents. After a KeyUpdate it opens with the next keys.
    ///
    /// # Panics
    /// If a record is not whole or does not authenticate.
    pub fn open(&mut self, mut wire: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut contents = Vec::new();
        while !wire.is_empty() {
            let len = usize::from(u16::from_be_bytes([wire[3], wire[4]]));
            let (record, rest) = wire.split_at(5 + len);
            wire = rest;
            let (kind, content) = self.rx.open(record);
            // A KeyUpdate is the last message of its record, and may stand behind tickets.
            if kind == kind::HANDSHAKE && matches!(content[..], [24, ..] | [4, .., 24, 0, 0, 1, 0 | 1]) {
                self.rx.update();
            }
            contents.push((kind, content));
        }
        contents
    }
}

/// A server's handshake that lacks the client's Finished.
pub struct ServerHandshake(Connection);

impl ServerHandshake {
    /// Reads the client's flight up to its Finished, and returns the bytes behind it.
    ///
    /// # Panics
    /// If the flight is not whole, or not valid.
    pub fn finish<'w>(&mut self, mut wire: &'w [u8]) -> &'w [u8] {
        while self.0.is_handshaking() {
            let (record, rest) = wire.split_at(5 + usize::from(u16::from_be_bytes([wire[3], wire[4]])));
            read(&mut self.0, record);
            wire = rest;
        }
        wire
    }
}

fn written(own: &mut Connection) -> Vec<u8> {
    let mut wire = Vec::new();
    while own.wants_write() {
        own.write_tls(&mut wire).unwrap();
    }
    wire
}

fn read(own: &mut Connection, mut wire: &[u8]) {
    while !wire.is_empty() {
        own.read_tls(&mut wire).unwrap();
        own.process_new_packets().unwrap();
    }
}

fn server_config(certificate: &Certificate, suite: Option<CipherSuite>, secrets: &Arc<Secrets>) -> ServerConfig {
    let chain = CertificateDer::pem_slice_iter(&certificate.chain).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(&certificate.key).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider(suite))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.key_log = Arc::<Secrets>::clone(secrets);
    config.enable_secret_extraction = true;
    config.send_tls13_tickets = 0;
    config
}

fn client_config(roots: &str, suite: Option<CipherSuite>, secrets: &Arc<Secrets>) -> ClientConfig {
    let mut store = RootCertStore::empty();
    store.add(CertificateDer::from_pem_slice(roots.as_bytes()).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(provider(suite))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(store)
        .with_no_client_auth();
    config.key_log = Arc::<Secrets>::clone(secrets);
    config.enable_secret_extraction = true;
    config
}

/// Reads one record, header included.
///
/// # Errors
/// The stream's error, or `UnexpectedEof` if the stream ends.
pub fn read_record(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut record = vec![0; 5];
    stream.read_exact(&mut record)?;
    record.resize(5 + usize::from(u16::from_be_bytes([record[3], record[4]])), 0);
    stream.read_exact(&mut record[5..])?;
    Ok(record)
}

impl Half {
    fn new(suite: CipherSuite, secret: Vec<u8>, sequence: u64) -> Self {
        let (hash, algorithm) = match suite {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => (hkdf::HKDF_SHA256, &aead::AES_128_GCM),
            CipherSuite::TLS13_AES_256_GCM_SHA384 => (hkdf::HKDF_SHA384, &aead::AES_256_GCM),
            _ => (hkdf::HKDF_SHA256, &aead::CHACHA20_POLY1305),
        };
        let (key, iv) = traffic_keys(hash, algorithm, &secret);
        Self { hash, algorithm, secret, key, iv, sequence }
    }

    /// Switches to the next generation of keys (RFC 8446, section 7.2).
    pub fn update(&mut self) {
        self.secret = expand_label(self.hash, &self.secret, "traffic upd", self.secret.len());
        (self.key, self.iv) = traffic_keys(self.hash, self.algorithm, &self.secret);
        self.sequence = 0;
    }

    /// Seals `inner` as it is: content, content type, padding (RFC 8446, section 5.2).
    ///
    /// # Panics
    /// If the record is too long for its header.
    pub fn seal(&mut self, mut inner: Vec<u8>) -> Vec<u8> {
        let len = u16::try_from(inner.len() + 16).unwrap().to_be_bytes();
        let header = [23, 3, 3, len[0], len[1]];
        let nonce = self.nonce();
        self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut inner).unwrap();
        [&header[..], &inner].concat()
    }

    /// Opens a record under the next sequence number, or under any before it, and returns that number, its type and its content.
    ///
    /// `None` if it was sealed under none of them. The next sequence number is then the same as before.
    pub fn find(&mut self, record: &[u8]) -> Option<(u64, u8, Vec<u8>)> {
        let next = self.sequence;
        for sequence in (0..=next).rev() {
            self.sequence = sequence;
            if let Some((kind, content)) = self.try_to_open(record) {
                self.sequence = next.max(sequence + 1);
                return Some((sequence, kind, content));
            }
        }
        self.sequence = next;
        None
    }

    /// The next sequence number.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    fn open(&mut self, record: &[u8]) -> (u8, Vec<u8>) {
        self.try_to_open(record).unwrap()
    }

    fn try_to_open(&mut self, record: &[u8]) -> Option<(u8, Vec<u8>)> {
        let (header, body) = record.split_at(5);
        let mut body = body.to_vec();
        let nonce = self.nonce();
        let inner = self.key.open_in_place(nonce, Aad::from(header), &mut body).ok()?;
        let end = inner.iter().rposition(|&byte| byte != 0)?;
        Some((inner[end], inner[..end].to_vec()))
    }

    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, sequence) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= sequence;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

fn traffic_keys(hash: hkdf::Algorithm, algorithm: &'static aead::Algorithm, secret: &[u8]) -> (LessSafeKey, [u8; 12]) {
    let key = expand_label(hash, secret, "key", algorithm.key_len());
    let iv = expand_label(hash, secret, "iv", 12);
    (LessSafeKey::new(UnboundKey::new(algorithm, &key).unwrap()), iv.try_into().unwrap())
}

/// HKDF-Expand-Label with an empty context (RFC 8446, section 7.1).
pub(crate) fn expand_label(hash: hkdf::Algorithm, secret: &[u8], label: &str, len: usize) -> Vec<u8> {
    struct Len(usize);
    impl hkdf::KeyType for Len {
        fn len(&self) -> usize {
            self.0
        }
    }
    let label = format!("tls13 {label}");
    let len_bytes = u16::try_from(len).unwrap().to_be_bytes();
    let label_len = [u8::try_from(label.len()).unwrap()];
    let mut out = vec![0; len];
    hkdf::Prk::new_less_safe(hash, secret)
        .expand(&[&len_bytes, &label_len, label.as_bytes(), &[0]], Len(len))
        .unwrap()
        .fill(&mut out)
        .unwrap();
    out
}

/// Keeps the secrets that a connection would write to a key log.
#[derive(Debug, Default)]
struct Secrets(Mutex<Vec<(String, Vec<u8>)>>);

impl Secrets {
    fn get(&self, side: &str) -> Vec<u8> {
        let label = format!("{side}_TRAFFIC_SECRET_0");
        let secrets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        secrets.iter().find(|(name, _)| *name == label).unwrap().1.clone()
    }
}

impl KeyLog for Secrets {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((label.to_owned(), secret.to_owned()));
    }
}

fn provider(suite: Option<CipherSuite>) -> Arc<rustls::crypto::CryptoProvider> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|offered| suite.is_none_or(|suite| offered.suite() == suite));
    Arc::new(provider)
}

#[cfg(test)]
mod tests {
    use super::expand_label;
    use aws_lc_rs::hkdf::HKDF_SHA256;

    /// RFC 8448, section 3: the server's application traffic keys of the simple 1-RTT handshake.
    #[test]
    fn derives_the_keys_of_rfc_8448() {
        let secret = "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643";
        let secret: Vec<u8> =
            (0..secret.len()).step_by(2).map(|at| u8::from_str_radix(&secret[at..at + 2], 16).unwrap()).collect();
        let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(expand_label(HKDF_SHA256, &secret, "key", 16)), "9f02283b6c9c07efc26bb9f2ac92e356");
        assert_eq!(hex(expand_label(HKDF_SHA256, &secret, "iv", 12)), "cf782b88dd83549aadf1e984");
    }
}
