mod differential;

use super::{Keys, OVERHEAD};
use crate::aead::provider::Provider;
use crate::schedule::{Key, Secret, Suite};
use rustls::crypto::aws_lc_rs::cipher_suite::{TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256};
use rustls::crypto::cipher::{AeadKey, InboundOpaqueMessage, Iv, OutboundChunks, OutboundPlainMessage};
use rustls::{ContentType, ProtocolVersion, SupportedCipherSuite};
use std::cell::RefCell;
use std::sync::mpsc::{Sender, channel};
use tautline_testkit::Random;
use tautline_tls::Error;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(16 * pair[0] + pair[1]).unwrap()).collect()
}

/// Keys without a secret.
fn keys_of(key: &[u8], iv: &[u8], sequence: u64) -> Keys {
    Keys::from_parts(sequence, Key::new(key).unwrap(), iv, Secret::new(&[]).unwrap()).unwrap()
}

/// RFC 8448, section 3: keys and IVs of application data, then records by sequence number, content type and content.
#[test]
fn protects_the_records_of_rfc_8448() {
    let client = ("17422dda596ed5d9acd890e3c63f5051", "5b78923dee08579033e523d9");
    let server = ("9f02283b6c9c07efc26bb9f2ac92e356", "cf782b88dd83549aadf1e984");
    let data: Vec<u8> = (0..50).collect();
    for ((key, iv), sequence, kind, content, record) in [
        (
            client,
            0,
            23,
            &data[..],
            "17 03 03 00 43 a2 3f 70 54 b6 2c 94 d0 af fa fe 82 28 ba 55 cb ef ac ea 42 f9 14 aa 66 bc ab 3f 2b 98 19 a8 \
             a5 b4 6b 39 5b d5 4a 9a 20 44 1e 2b 62 97 4e 1f 5a 62 92 a2 97 70 14 bd 1e 3d ea e6 3a ee bb 21 69 49 15 e4",
        ),
        (
            server,
            1,
            23,
            &data[..],
            "17 03 03 00 43 2e 93 7e 11 ef 4a c7 40 e5 38 ad 36 00 5f c4 a4 69 32 fc 32 25 d0 5f 82 aa 1b 36 e3 0e fa f9 \
             7d 90 e6 df fc 60 2d cb 50 1a 59 a8 fc c4 9c 4b f2 e5 f0 a2 1c 00 47 c2 ab f3 32 54 0d d0 32 e1 67 c2 95 5d",
        ),
        (client, 1, 21, &[1, 0], "17 03 03 00 13 c9 87 27 60 65 56 66 b7 4d 7f f1 15 3e fd 6d b6 d0 b0 e3"),
        (server, 2, 21, &[1, 0], "17 03 03 00 13 b5 8f d6 71 66 eb f5 99 d2 47 20 cf be 7e fa 7a 88 64 a9"),
    ] {
        let expected = bytes(record);
        let suite = Suite::Aes128Gcm;
        let keys = || keys_of(&bytes(key), &bytes(iv), sequence);
        for by in Provider::ALL {
            let mut sealed = vec![0; content.len() + OVERHEAD];
            keys().seal_by(by, suite, kind, Some(content), &mut sealed).unwrap();
            assert_eq!(sealed, expected, "{by}");
            sealed[5..5 + content.len()].copy_from_slice(content);
            keys().seal_by(by, suite, kind, None, &mut sealed).unwrap();
            assert_eq!(sealed, expected, "{by}, in place");
            let len = keys().open_by(by, suite, &mut sealed[5..]).unwrap().unwrap();
            assert_eq!(sealed[5..5 + len], [content, &[kind]].concat());
        }
    }
}

/// With the same keys, our records and those of rustls have the same bytes, and both reject the same changes.
#[test]
fn agrees_with_rustls() {
    let mut random = Random::new(5);
    for (suite, theirs) in
        [(Suite::Aes256Gcm, TLS13_AES_256_GCM_SHA384), (Suite::Chacha20Poly1305, TLS13_CHACHA20_POLY1305_SHA256)]
    {
        let SupportedCipherSuite::Tls13(tls13) = theirs else { panic!("a suite of TLS 1.3") };
        let key: [u8; 32] = random.bytes(32).try_into().unwrap();
        let iv = random.bytes(12);
        let ours = |sequence| keys_of(&key, &iv, sequence);
        let mut encrypter = tls13.aead_alg.encrypter(AeadKey::from(key), Iv::copy(&iv));
        let mut decrypter = tls13.aead_alg.decrypter(AeadKey::from(key), Iv::copy(&iv));
        let mut sequence = 0;
        for round in 0..300 {
            let plain = random.bytes(random.clone().below([40, 700, 16_385][round % 3]));
            let message = OutboundPlainMessage {
                typ: ContentType::ApplicationData,
                version: ProtocolVersion::TLSv1_2,
                payload: OutboundChunks::from(&plain[..]),
            };
            let theirs = encrypter.encrypt(message, sequence).unwrap().encode();
            let mut sealed = vec![0xa5; plain.len() + OVERHEAD];
            let by = Provider::ALL[round / 2 % Provider::ALL.len()];
            ours(sequence).seal_by(by, suite, 23, Some(&plain), &mut sealed).unwrap();
            assert!(sealed == theirs, "{by}: {} bytes", plain.len());

            if round % 2 == 1 {
                let at = 5 + random.below(sealed.len() - 5);
                sealed[at] ^= 1 << random.below(8);
            }
            let mut copy = sealed[5..].to_vec();
            let message = InboundOpaqueMessage::new(ContentType::ApplicationData, ProtocolVersion::TLSv1_2, &mut copy);
            let theirs = decrypter.decrypt(message, sequence).ok().map(|message| message.payload.to_vec());
            for by in Provider::ALL {
                let mut body = sealed[5..].to_vec();
                let opened = ours(sequence).open_by(by, suite, &mut body).unwrap();
                let opened = opened.map(|len| body[..len - 1].to_vec());
                assert!(opened == theirs, "{by}, round {round}");
                assert_eq!(opened.is_some(), round % 2 == 0);
            }
            // aws-lc seals TLS records in order only, from 0.
            sequence += 1 + random.next() % (1 << 40);
        }
    }
}

#[test]
fn sequence_numbers_never_wrap() {
    let mut keys = keys_of(&[1; 16], &[2; 12], u64::MAX);
    assert!(keys.seal(Suite::Aes128Gcm, 23, Some(b"one too many"), &mut [0; 12 + OVERHEAD]).is_err());
    assert!(matches!(keys.open(Suite::Aes128Gcm, &mut [0; 30]), Err(Error::ApiMisuse(_))));
}

thread_local! {
    static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
}

/// Opens a record when it is dropped, and sends the result.
struct Late(Keys, Sender<Result<Option<usize>, Error>>);

impl Drop for Late {
    fn drop(&mut self) {
        let _ = self.1.send(self.0.open(Suite::Aes128Gcm, &mut [0; 30]));
    }
}

/// A missing context is not the fault of a peer that changed a record.
#[test]
fn opening_without_a_context_is_an_api_error() {
    let mut keys = keys_of(&[1; 16], &[2; 12], 0);
    let late = std::thread::spawn(move || {
        let (sender, receiver) = channel();
        // A thread drops its locals in reverse order of their first use: its contexts before `LATE`.
        LATE.set(Some(Late(keys_of(&[1; 16], &[2; 12], 0), sender)));
        assert!(matches!(keys.open(Suite::Aes128Gcm, &mut [0; 30]), Ok(None)));
        receiver
    });
    let receiver = late.join().unwrap();
    assert!(matches!(receiver.recv(), Ok(Err(Error::ApiMisuse(_)))));
}
