//! Hand-made offers of TLS 1.0, TLS 1.1 and suites without AEAD, which the TLS library does not speak.
//!
//! One record is sent, and the type of the answer is read. The handshake is never completed.

use super::dialer::Dialer;
use super::facts::Answer;
use std::io::ErrorKind;
use std::net::SocketAddr;

/// An old offer: its name, the version on the wire, and the suites.
pub(crate) const OFFERS: [(&str, u16, &[u16]); 3] =
    [("TLSv1.0", 0x0301, OLD), ("TLSv1.1", 0x0302, OLD), ("TLSv1.2 without AEAD", 0x0303, CBC)];

/// Suites of TLS 1.0: ECDHE and RSA with AES-CBC, and 3DES.
const OLD: &[u16] = &[0xc00a, 0xc014, 0xc009, 0xc013, 0x0035, 0x002f, 0x000a];

/// Suites of TLS 1.2 without AEAD: some of [`OLD`], and their successors with SHA-2.
const CBC: &[u16] = &[0xc024, 0xc028, 0xc023, 0xc027, 0xc00a, 0xc014, 0xc009, 0xc013, 0x003c, 0x0035, 0x002f, 0x000a];

/// Makes an offer, and reads the answer.
pub(crate) fn ask(dialer: &Dialer, address: SocketAddr, (version, suites): (u16, &[u16]), random: [u8; 32]) -> Answer {
    let (mut stream, _) = match dialer.connect(address) {
        Ok(connected) => connected,
        Err(trouble) => return Answer::Unclear(trouble.text),
    };
    let until = dialer.until();
    if let Err(error) = stream.write(&hello(&dialer.host, version, suites, random), until) {
        return Answer::Unclear(error.to_string());
    }
    let mut bytes = Vec::new();
    let mut chunk = [0; 512];
    loop {
        if let Some(answer) = read(&bytes, version) {
            return answer;
        }
        match stream.read(&mut chunk, until) {
            // A server that closes the connection rejects the offer, too.
            Ok(0) => return Answer::Refused,
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Answer::Refused,
            Err(error) => return Answer::Unclear(error.to_string()),
        }
    }
}

/// The answer in the first record of a server; `None` if more bytes are needed.
fn read(bytes: &[u8], version: u16) -> Option<Answer> {
    let [kind, _, _, _, _, body @ ..] = bytes else { return None };
    match kind {
        21 => Some(Answer::Refused),
        // Type and length of the handshake message, then the version of ServerHello.
        22 => match body {
            [2, _, _, _, high, low, ..] if u16::from_be_bytes([*high, *low]) == version => Some(Answer::Taken),
            [2, _, _, _, _, _, ..] => Some(Answer::Refused),
            [other, ..] if *other != 2 => Some(Answer::Unclear("the server began with another message".to_owned())),
            _ => None,
        },
        _ => Some(Answer::Unclear("the port does not speak TLS".to_owned())),
    }
}

/// A ClientHello in its record (RFC 5246, section 7.4.1.2).
fn hello(host: &str, version: u16, suites: &[u16], random: [u8; 32]) -> Vec<u8> {
    let list = |values: &[u16]| -> Vec<u8> { values.iter().flat_map(|value| value.to_be_bytes()).collect() };
    let mut extensions = Vec::new();
    // An address is no name (RFC 6066, section 3).
    if host.parse::<std::net::IpAddr>().is_err() {
        let name = [&[0], &*prefixed(host.as_bytes())].concat();
        extensions.extend(extension(0, &prefixed(&name)));
    }
    // Groups P-256, P-384 and X25519, and points without compression (RFC 8422).
    extensions.extend(extension(10, &prefixed(&list(&[23, 24, 29]))));
    extensions.extend(extension(11, &[1, 0]));
    if version == 0x0303 {
        extensions.extend(extension(13, &prefixed(&list(&[0x0403, 0x0503, 0x0401, 0x0501, 0x0203, 0x0201]))));
    }
    let mut body = version.to_be_bytes().to_vec();
    body.extend_from_slice(&random);
    // No session.
    body.push(0);
    body.extend(prefixed(&list(suites)));
    // No compression.
    body.extend_from_slice(&[1, 0]);
    body.extend(prefixed(&extensions));
    let message = [&[1, 0], &*prefixed(&body)].concat();
    [&[22, 3, 1], &*prefixed(&message)].concat()
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes(), &*prefixed(body)].concat()
}

/// The bytes behind their length in two bytes. A host name has 253 at most, and all else is shorter than 64 KiB.
fn prefixed(bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    [&len.to_be_bytes(), bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::server::Acceptor;

    #[test]
    fn another_library_reads_the_hello() {
        for (host, name) in [("chat.test", Some("chat.test")), ("127.0.0.1", None)] {
            let hello = hello(host, 0x0303, CBC, [7; 32]);
            let mut acceptor = Acceptor::default();
            acceptor.read_tls(&mut &*hello).unwrap();
            let accepted = acceptor.accept().unwrap().unwrap();
            let read = accepted.client_hello();
            assert_eq!((read.server_name(), read.cipher_suites().len()), (name, CBC.len()));
        }
    }

    #[test]
    fn answers_are_told_apart_at_every_cut() {
        let taken = [22, 3, 1, 0, 50, 2, 0, 0, 46, 3, 1, 9];
        let refused = [21, 3, 1, 0, 2, 2, 70];
        let other = [22, 3, 3, 0, 50, 2, 0, 0, 46, 3, 3, 9];
        for (bytes, expected) in [(&taken[..], Answer::Taken), (&refused, Answer::Refused), (&other, Answer::Refused)] {
            assert_eq!(read(bytes, 0x0301), Some(expected.clone()));
            for cut in 0..bytes.len() {
                assert!(read(&bytes[..cut], 0x0301).is_none_or(|answer| answer == expected), "{bytes:?} at {cut}");
            }
        }
        assert!(matches!(read(b"HTTP/1.1 400", 0x0301), Some(Answer::Unclear(_))));
    }
}
