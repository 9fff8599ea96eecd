use super::end::{End, RECORD};
use super::maker::{Maker, Side};
use rustls::crypto::aws_lc_rs::{cipher_suite::TLS13_AES_128_GCM_SHA256, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};
use std::io::{Read, Write};
use std::sync::Arc;
use tautline::Roots;
use tautline::layers::buf::Buf;
use tautline::layers::tls::record::{Front, front};
use tautline_measure::Error;

/// rustls with its readers and writers, as in most programs.
struct Buffered {
    connection: Connection,
    /// Plaintext from the reader.
    plain: Vec<u8>,
}

/// A maker for the certificate of `server` and the trusted root of `client`.
pub(super) fn maker(server: &tautline::ServerConfig, client: &tautline::ClientConfig) -> Result<Maker, Error> {
    let (Some(certificate), Roots::Pem(authority)) = (server.certificates.first(), &client.roots) else {
        return Err(Error::Failed("there is no certificate".to_owned()));
    };
    let mut provider = default_provider();
    provider.cipher_suites = vec![TLS13_AES_128_GCM_SHA256];
    let provider = Arc::new(provider);
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate.chain).collect();
    let key = PrivateKeyDer::from_pem_slice(&certificate.key).map_err(Error::failed)?;
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(Error::failed)?
        .with_no_client_auth()
        .with_single_cert(chain.map_err(Error::failed)?, key)
        .map_err(Error::failed)?;
    server.send_tls13_tickets = 0;
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority).map_err(Error::failed)?;
    roots.add(root).map_err(Error::failed)?;
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(Error::failed)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (server, client) = (Arc::new(server), Arc::new(client));
    let name = ServerName::try_from("localhost").map_err(Error::failed)?;
    Ok(Maker::of(move |side| {
        let connection: Connection = match side {
            Side::Server => ServerConnection::new(Arc::clone(&server)).map_err(Error::failed)?.into(),
            Side::Client => ClientConnection::new(Arc::clone(&client), name.clone()).map_err(Error::failed)?.into(),
        };
        Ok(Box::new(Buffered { connection, plain: vec![0; RECORD] }))
    }))
}

impl Buffered {
    /// Passes all of `wire` to rustls.
    fn feed(&mut self, mut wire: &[u8]) -> Result<(), Error> {
        while !wire.is_empty() {
            self.connection.read_tls(&mut wire).map_err(Error::failed)?;
            self.connection.process_new_packets().map_err(Error::failed)?;
        }
        Ok(())
    }

    /// Appends everything that rustls has to send to `out`.
    fn collect(&mut self, out: &mut Buf) -> Result<(), Error> {
        /// Appends to a buffer.
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
            self.connection.write_tls(&mut Tail(out)).map_err(Error::failed)?;
        }
        Ok(())
    }
}

impl End for Buffered {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, bool), Error> {
        let mut used = 0;
        // Record by record, so that data behind the handshake remains in `wire`.
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
        // rustls buffers at most 64 KiB.
        for piece in plain.chunks(3 * RECORD) {
            self.connection.writer().write_all(piece).map_err(Error::failed)?;
            self.collect(out)?;
        }
        Ok(())
    }

    fn open(&mut self, wire: &mut [u8], _out: &mut Buf, take: &mut dyn FnMut(&[u8])) -> Result<usize, Error> {
        let Front::Whole(len) = front(wire) else { return Ok(0) };
        self.feed(&wire[..len])?;
        loop {
            match read(&mut self.connection, &mut self.plain)? {
                0 => return Ok(len),
                read => take(&self.plain[..read]),
            }
        }
    }

    fn read(&mut self, wire: &mut [u8], place: &mut [u8], _out: &mut Buf) -> Result<(usize, usize), Error> {
        let Front::Whole(len) = front(wire) else { return Ok((0, 0)) };
        self.feed(&wire[..len])?;
        let mut filled = 0;
        loop {
            match read(&mut self.connection, &mut place[filled..])? {
                0 => return Ok((len, filled)),
                read => filled += read,
            }
        }
    }
}

/// Reads plaintext; returns 0 if there is none.
fn read(connection: &mut Connection, place: &mut [u8]) -> Result<usize, Error> {
    match connection.reader().read(place) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(0),
        result => result.map_err(Error::failed),
    }
}
