//! rustls' record protection and key schedule, without its state machine, so that it seals any content.

use rustls::crypto::cipher::{
    InboundOpaqueMessage, MessageDecrypter, MessageEncrypter, OutboundChunks, OutboundPlainMessage,
};
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::{
    CipherSuite, ConnectionTrafficSecrets, ContentType, ProtocolVersion, SupportedCipherSuite, Tls13CipherSuite,
};
use std::sync::Arc;
use tautline_testkit::pair::{End, Side};
use tautline_testkit::rustls_peer::{Fixture, host};
use tautline_tls::Session;

/// Both directions of one end.
pub(crate) struct Layer {
    suite: &'static Tls13CipherSuite,
    /// Derives the next keys, of sending (`true`) or of receiving.
    next: Box<dyn FnMut(bool) -> ConnectionTrafficSecrets>,
    tx: Box<dyn MessageEncrypter>,
    rx: Box<dyn MessageDecrypter>,
    /// Number of records that the current keys sealed and opened.
    pub(crate) sealed: u64,
    pub(crate) opened: u64,
}

/// Completes a handshake of the unbuffered `$theirs` with `$ours`, and takes over the keys.
macro_rules! layer {
    ($theirs:expr, $ours:expr) => {{
        let (mut theirs, mut inbox) = ($theirs, Vec::new());
        loop {
            let UnbufferedStatus { discard, state, .. } = theirs.process_tls_records(&mut inbox);
            let done = match state.unwrap() {
                ConnectionState::EncodeTlsData(mut data) => {
                    let mut wire = vec![0; 1 << 16];
                    let len = data.encode(&mut wire).unwrap();
                    $ours.deliver(&wire[..len]).unwrap();
                    false
                }
                ConnectionState::TransmitTlsData(data) => {
                    data.done();
                    false
                }
                ConnectionState::BlockedHandshake => {
                    inbox.drain(..discard);
                    inbox.extend($ours.take_outbox());
                    continue;
                }
                ConnectionState::WriteTraffic(_) => true,
                other => panic!("{other:?}"),
            };
            inbox.drain(..discard);
            if done {
                break;
            }
        }
        let (secrets, mut kernel) = theirs.dangerous_into_kernel_connection().unwrap();
        let SupportedCipherSuite::Tls13(suite) = kernel.negotiated_cipher_suite() else { panic!("TLS 1.3") };
        let tx = encrypter(suite, secrets.tx.1);
        let rx = decrypter(suite, secrets.rx.1);
        let next = move |tx| if tx { kernel.update_tx_secret() } else { kernel.update_rx_secret() }.unwrap().1;
        Layer { suite, next: Box::new(next), tx, rx, sealed: 0, opened: 0 }
    }};
}

impl Layer {
    /// Makes the other end of `ours`, which has sent nothing yet, and completes the handshake.
    ///
    /// The bytes that `ours` sends after its last handshake message are discarded, mostly tickets.
    pub(crate) fn new<S: Session>(fixture: &Fixture, side: Side, suite: CipherSuite, ours: &mut End<S>) -> Self {
        ours.work().unwrap();
        let layer = match side {
            Side::Client => {
                let mut config = fixture.rustls_client(suite);
                config.enable_secret_extraction = true;
                layer!(rustls::client::UnbufferedClientConnection::new(Arc::new(config), host()).unwrap(), ours)
            }
            Side::Server => {
                let mut config = fixture.rustls_server(suite);
                config.enable_secret_extraction = true;
                config.send_tls13_tickets = 0;
                layer!(rustls::server::UnbufferedServerConnection::new(Arc::new(config)).unwrap(), ours)
            }
        };
        assert!(ours.open);
        ours.take_outbox();
        layer
    }

    /// Continues as if these numbers of records had been sealed and opened.
    pub(crate) fn skip(&mut self, sealed: u64, opened: u64) {
        // aws-lc compares each record's number with that of the first record.
        self.seal(0, &[], 0, &mut Vec::new());
        (self.sealed, self.opened) = (sealed.max(self.sealed), opened);
    }

    /// Appends a record with `padding` zeros to `wire`. Returns its length.
    pub(crate) fn seal(&mut self, kind: u8, content: &[u8], padding: usize, wire: &mut Vec<u8>) -> usize {
        let mut inner = content.to_vec();
        inner.push(kind);
        inner.resize(inner.len() + padding, 0);
        // rustls never pads. But it puts the content type last, and that may be a zero.
        let last = inner.pop().unwrap();
        let message = OutboundPlainMessage {
            typ: ContentType::from(last),
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::from(&inner[..]),
        };
        let record = self.tx.encrypt(message, self.sealed).unwrap().encode();
        self.sealed += 1;
        wire.extend(&record);
        record.len()
    }

    /// Opens a record. Returns content type and content.
    pub(crate) fn open(&mut self, record: &[u8]) -> (u8, Vec<u8>) {
        let mut body = record[5..].to_vec();
        let message = InboundOpaqueMessage::new(ContentType::from(record[0]), ProtocolVersion::TLSv1_2, &mut body);
        let message = self.rx.decrypt(message, self.opened).unwrap();
        self.opened += 1;
        (message.typ.into(), message.payload.to_vec())
    }

    /// Changes to the next keys for sealing.
    pub(crate) fn update_tx(&mut self) {
        (self.tx, self.sealed) = (encrypter(self.suite, (self.next)(true)), 0);
    }

    /// Changes to the next keys for opening.
    pub(crate) fn update_rx(&mut self) {
        (self.rx, self.opened) = (decrypter(self.suite, (self.next)(false)), 0);
    }
}

fn encrypter(suite: &Tls13CipherSuite, secrets: ConnectionTrafficSecrets) -> Box<dyn MessageEncrypter> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => suite.aead_alg.encrypter(key, iv),
        _ => panic!("another suite"),
    }
}

fn decrypter(suite: &Tls13CipherSuite, secrets: ConnectionTrafficSecrets) -> Box<dyn MessageDecrypter> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => suite.aead_alg.decrypter(key, iv),
        _ => panic!("another suite"),
    }
}
