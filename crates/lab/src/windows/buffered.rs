use super::end::{End, RECORD};
use super::{Maker, Side, failed};
use crate::Error;
use rustls::crypto::aws_lc_rs::{cipher_suite::TLS13_AES_128_GCM_SHA256, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};
use std::io::{Read, Write};
use std::sync::Arc;
use tautline::Certificate;
use tautline::layers::tls::record::{Front, front};
use tautline::layers::window::Buf;

/// rustls with its readers and writers, as most programs use it.
struct Buffered {
    connection: Connection,
    /// What comes out of the reader.
    plain: Vec<u8>,
}

pub(super) fn maker(certificate: &Certificate, authority: &str) -> Result<Maker, Error> {
    let mut provider = default_provider();
    provider.cipher_suites = vec![TLS13_AES_128_GCM_SHA256];
    let provider = Arc::new(provider);
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate.chain).collect();
    let key = PrivateKeyDer::from_pem_slice(&certificate.key).map_err(|error| failed(&error))?;
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| failed(&error))?
        .with_no_client_auth()
        .with_single_cert(chain.map_err(|error| failed(&error))?, key)
        .map_err(|error| failed(&error))?;
    server.send_tls13_tickets = 0;
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.as_bytes()).map_err(|error| failed(&error))?;
    roots.add(root).map_err(|error| failed(&error))?;
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| failed(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (server, client) = (Arc::new(server), Arc::new(client));
    let name = ServerName::try_from("localhost").map_err(|error| failed(&error))?;
    Ok(Maker(Box::new(move |side| {
        let connection: Connection = match side {
            Side::Server => ServerConnection::new(Arc::clone(&server)).map_err(|error| failed(&error))?.into(),
            Side::Client => {
                ClientConnection::new(Arc::clone(&client), name.clone()).map_err(|error| failed(&error))?.into()
            }
        };
        Ok(Box::new(Buffered { connection, plain: vec![0; RECORD] }))
    })))
}

impl Buffered {
    /// Has rustls read all of `wire`.
    fn feed(&mut self, mut wire: &[u8]) -> Result<(), Error> {
        while !wire.is_empty() {
            self.connection.read_tls(&mut wire).map_err(|error| failed(&error))?;
            self.connection.process_new_packets().map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    fn collect(&mut self, out: &mut Buf) -> Result<(), Error> {
        /// Appends.
        struct Tail<'a>(&'a mut Buf);

        impl Write for Tail<'_> {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.put(bytes);
                Ok(bytes.len())
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        while self.connection.wants_write() {
            self.connection.write_tls(&mut Tail(out)).map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}

impl End for Buffered {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, bool), Error> {
        let mut used = 0;
        // Record by record, so that data behind the handshake stays.
        while self.connection.is_handshaking()
            && let Front::Whole(len) = front(&wire[used..])
        {
            self.feed(&wire[used..used + len])?;
            used += len;
        }
        self.collect(out)?;
        Ok((used, !self.connection.is_handshaking()))
    }

    fn seal(&mut self, plain: &[u8], out: &mut Buf) -> Result<(), Error> {
        // rustls buffers no more than 64 KiB.
        for piece in plain.chunks(3 * RECORD) {
            self.connection.writer().write_all(piece).map_err(|error| failed(&error))?;
            self.collect(out)?;
        }
        Ok(())
    }

    fn open(&mut self, wire: &mut [u8], _out: &mut Buf, take: &mut dyn FnMut(&[u8])) -> Result<usize, Error> {
        let Front::Whole(len) = front(wire) else { return Ok(0) };
        self.feed(&wire[..len])?;
        loop {
            match self.connection.reader().read(&mut self.plain) {
                Ok(0) => return Ok(len),
                Ok(read) => take(&self.plain[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(len),
                Err(error) => return Err(failed(&error)),
            }
        }
    }

    fn read(&mut self, wire: &mut [u8], place: &mut [u8], _out: &mut Buf) -> Result<(usize, usize), Error> {
        let Front::Whole(len) = front(wire) else { return Ok((0, 0)) };
        self.feed(&wire[..len])?;
        let mut filled = 0;
        loop {
            match self.connection.reader().read(&mut place[filled..]) {
                Ok(0) => return Ok((len, filled)),
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok((len, filled)),
                Err(error) => return Err(failed(&error)),
            }
        }
    }
}
