//! Cipher suites whose records are judged before rustls sees their content.
//!
//! rustls ends some connections without an alert, or with decode_error where TLS has a better one. Only rustls can seal an
//! alert. It does so for an error of the decrypter, so these suites wrap the library's: what is found here becomes an error
//! for which rustls sends the right alert.

use core::cell::Cell;
use rustls::crypto::CipherSuiteCommon;
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, KeyBlockShape, MessageDecrypter, MessageEncrypter,
    Tls12AeadAlgorithm, Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::{
    ConnectionTrafficSecrets, ContentType, Error, PeerMisbehaved, SupportedCipherSuite, Tls12CipherSuite,
    Tls13CipherSuite,
};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tautline_tls::alert::Alert;
use tautline_tls::record::BadHeader;

/// Most records in a row without content.
const MOST_EMPTY: u8 = 31;

thread_local! {
    /// The verdict about the next record, made from its header.
    static NEXT: Cell<Option<BadHeader>> = const { Cell::new(None) };
    /// The verdict of the decrypter in this call, for the error that rustls returns.
    static SAID: Cell<Option<BadHeader>> = const { Cell::new(None) };
}

/// Has the next record that this thread decrypts be refused.
pub(crate) fn refuse_next(bad: BadHeader) {
    NEXT.set(Some(bad));
}

/// Has the next record be judged as any other again, if none was decrypted.
pub(crate) fn forget() {
    NEXT.set(None);
}

/// Takes the verdict of this thread's last record.
pub(crate) fn take_verdict() -> Option<BadHeader> {
    SAID.take()
}

/// The error for which rustls sends this alert.
fn refuse(bad: BadHeader) -> Error {
    SAID.set(Some(bad));
    match bad.alert {
        Alert::RECORD_OVERFLOW => Error::PeerSentOversizedRecord,
        _ => PeerMisbehaved::IllegalMiddleboxChangeCipherSpec.into(),
    }
}

fn unexpected(what: &'static str) -> Error {
    refuse(BadHeader { alert: Alert::UNEXPECTED_MESSAGE, what })
}

/// The suite with guarded records. Each is made once for the process.
pub(crate) fn guarded(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    static MADE: Mutex<BTreeMap<u16, SupportedCipherSuite>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    *made.entry(suite.suite().into()).or_insert_with(|| match suite {
        SupportedCipherSuite::Tls13(suite) => SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
            common: copy(&suite.common),
            hkdf_provider: suite.hkdf_provider,
            aead_alg: Box::leak(Box::new(Guarded(suite.aead_alg))),
            quic: suite.quic,
        }))),
        SupportedCipherSuite::Tls12(suite) => SupportedCipherSuite::Tls12(Box::leak(Box::new(Tls12CipherSuite {
            common: copy(&suite.common),
            prf_provider: suite.prf_provider,
            kx: suite.kx,
            sign: suite.sign,
            aead_alg: Box::leak(Box::new(Guarded(suite.aead_alg))),
        }))),
    })
}

fn copy(common: &CipherSuiteCommon) -> CipherSuiteCommon {
    let &CipherSuiteCommon { suite, hash_provider, confidentiality_limit } = common;
    CipherSuiteCommon { suite, hash_provider, confidentiality_limit }
}

/// An algorithm whose decrypters are guarded.
struct Guarded<A: ?Sized + 'static>(&'static A);

impl Tls13AeadAlgorithm for Guarded<dyn Tls13AeadAlgorithm> {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        self.0.encrypter(key, iv)
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        Box::new(Guard13 { inner: self.0.decrypter(key, iv), messages: Messages::default(), empty: 0 })
    }

    fn key_len(&self) -> usize {
        self.0.key_len()
    }

    fn extract_keys(&self, key: AeadKey, iv: Iv) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv)
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

impl Tls12AeadAlgorithm for Guarded<dyn Tls12AeadAlgorithm> {
    fn encrypter(&self, key: AeadKey, iv: &[u8], extra: &[u8]) -> Box<dyn MessageEncrypter> {
        self.0.encrypter(key, iv, extra)
    }

    fn decrypter(&self, key: AeadKey, iv: &[u8]) -> Box<dyn MessageDecrypter> {
        Box::new(Guard12(self.0.decrypter(key, iv)))
    }

    fn key_block_shape(&self) -> KeyBlockShape {
        self.0.key_block_shape()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: &[u8],
        explicit: &[u8],
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv, explicit)
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

/// Refuses records by their headers.
struct Guard12(Box<dyn MessageDecrypter>);

impl MessageDecrypter for Guard12 {
    fn decrypt<'a>(&mut self, record: InboundOpaqueMessage<'a>, seq: u64) -> Result<InboundPlainMessage<'a>, Error> {
        match NEXT.take() {
            Some(bad) => Err(refuse(bad)),
            None => self.0.decrypt(record, seq),
        }
    }
}

/// Refuses records of TLS 1.3 by their headers, and by their content.
struct Guard13 {
    inner: Box<dyn MessageDecrypter>,
    messages: Messages,
    /// Number of records in a row without content.
    empty: u8,
}

impl MessageDecrypter for Guard13 {
    fn decrypt<'a>(&mut self, record: InboundOpaqueMessage<'a>, seq: u64) -> Result<InboundPlainMessage<'a>, Error> {
        if let Some(bad) = NEXT.take() {
            return Err(refuse(bad));
        }
        let plain = self.inner.decrypt(record, seq).map_err(|error| match error {
            Error::PeerMisbehaved(PeerMisbehaved::IllegalTlsInnerPlaintext) => {
                unexpected("it sent a record of nothing but padding")
            }
            other => other,
        })?;
        match (plain.typ, plain.payload) {
            (ContentType::Handshake, []) => return Err(unexpected("it sent a handshake record without content")),
            (ContentType::Handshake, content) => self.messages.take(content),
            //= https://www.rfc-editor.org/rfc/rfc8446#section-5.1
            //# Handshake messages MUST NOT be interleaved with other record types.
            _ if self.messages.is_inside() => {
                return Err(unexpected("it sent another record within a handshake message"));
            }
            (ContentType::ApplicationData, []) if self.empty == MOST_EMPTY => {
                return Err(unexpected("it floods the connection with records that hold no data"));
            }
            (ContentType::ApplicationData, []) => {
                self.empty += 1;
                return Ok(plain);
            }
            (ContentType::Unknown(_), _) => {
                return Err(unexpected("it sent a record of a type that has no place here"));
            }
            _ => {}
        }
        self.empty = 0;
        Ok(plain)
    }
}

/// The place in the stream of handshake messages.
#[derive(Default)]
struct Messages {
    /// Bytes of the current message that are missing.
    missing: u32,
    /// The header so far: the type and three bytes of length.
    head: [u8; 4],
    head_len: u8,
}

impl Messages {
    fn take(&mut self, mut content: &[u8]) {
        while let [first, rest @ ..] = content {
            if self.missing > 0 {
                let n = content.len().min(self.missing as usize);
                content = &content[n..];
                self.missing -= u32::try_from(n).unwrap_or(self.missing);
                continue;
            }
            self.head[usize::from(self.head_len)] = *first;
            self.head_len = (self.head_len + 1) % 4;
            if self.head_len == 0 {
                let [_, a, b, c] = self.head;
                self.missing = u32::from_be_bytes([0, a, b, c]);
            }
            content = rest;
        }
    }

    const fn is_inside(&self) -> bool {
        self.missing > 0 || self.head_len > 0
    }
}

#[cfg(test)]
mod tests {
    use super::Messages;

    #[test]
    fn messages_end_where_their_lengths_say() {
        let stream = [&[24, 0, 0, 1, 7][..], &[4, 0, 1, 0], &[9; 256], &[5, 0, 0, 0]].concat();
        let ends = [0, 5, 265, 269];
        for step in 1..20 {
            let mut messages = Messages::default();
            let mut at = 0;
            for piece in stream.chunks(step) {
                messages.take(piece);
                at += piece.len();
                assert_eq!(messages.is_inside(), !ends.contains(&at), "{step} {at}");
            }
        }
    }
}
