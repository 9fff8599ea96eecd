//! TLS of attackers: rustls for the handshake, whose flights a script may edit, and records by hand behind it.

use crate::outcome::Result;
use crate::server::Server;
use crate::wire;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, Stream};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tautline_testkit::raw_peer::RawPeer;

/// Edits a flight of a client, by its number from 0. An empty flight ends the handshake there.
pub(crate) type Edit = fn(usize, Vec<u8>) -> Vec<u8>;

/// The handshake of a client whose records are sealed by hand from then on. It may ask for HTTP/2.
pub(crate) fn connect(stream: &mut TcpStream, roots: &str, http2: bool) -> Result<RawPeer> {
    let protocols: &[&[u8]] = if http2 { &[b"h2"] } else { &[] };
    // The test kit panics if a handshake fails.
    catch_unwind(AssertUnwindSafe(|| RawPeer::connect_by(stream, roots, protocols)))
        .map_err(|_| "the TLS handshake failed".into())
}

/// A configuration of rustls that trusts the server.
pub(crate) fn client_config(server: &Server) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(server.roots.as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// A client's side of TLS that is not connected to anything.
pub(crate) fn client(config: ClientConfig) -> Result<ClientConnection> {
    Ok(ClientConnection::new(Arc::new(config), ServerName::try_from("localhost")?)?)
}

/// The first flight of a client, in one record.
pub(crate) fn hello() -> Result<Vec<u8>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])?;
    let mut own = client(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())?;
    let mut wire = Vec::new();
    own.write_tls(&mut wire)?;
    Ok(wire)
}

/// The end of an edited handshake.
pub(crate) enum Ended {
    /// The client has sent its last flight, edited or not, and can read the server's records.
    Complete(Box<ClientConnection>),
    /// The script sends no more.
    Cut,
    /// The server sent this alert.
    Alert(u8),
    /// The client cannot go on: it and the server have read different hellos.
    Differs,
}

/// Does a handshake, with the client's flights edited, up to its last flight.
pub(crate) fn handshake(stream: &mut TcpStream, server: &Server, edit: Edit) -> Result<Ended> {
    let mut own = client(client_config(server)?)?;
    for flight in 0.. {
        let mut wire = Vec::new();
        while own.wants_write() {
            own.write_tls(&mut wire)?;
        }
        let edited = edit(flight, wire);
        stream.write_all(&edited)?;
        if !own.is_handshaking() {
            return Ok(Ended::Complete(Box::new(own)));
        }
        if edited.is_empty() {
            break;
        }
        while own.is_handshaking() && !own.wants_write() {
            if own.read_tls(stream)? == 0 {
                return Ok(Ended::Cut);
            }
            match own.process_new_packets() {
                Ok(_) => {}
                Err(rustls::Error::AlertReceived(alert)) => return Ok(Ended::Alert(alert.into())),
                Err(_) => return Ok(Ended::Differs),
            }
        }
    }
    Ok(Ended::Cut)
}

/// Upgrades and echoes with rustls alone, and returns the kind of handshake.
pub(crate) fn converse(server: &Server, config: ClientConfig) -> Result<HandshakeKind> {
    let mut socket = TcpStream::connect(server.address)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut own = client(config)?;
    let mut stream = Stream::new(&mut own, &mut socket);
    stream.write_all(&wire::upgrade(""))?;
    stream.write_all(&wire::masked(wire::TEXT, b"hello"))?;
    let mut plain = Vec::new();
    let mut bytes = [0; 4096];
    while !plain.ends_with(b"\r\n\r\n\x81\x05hello") {
        match stream.read(&mut bytes)? {
            0 => return Err("the server hung up".into()),
            len => plain.extend_from_slice(&bytes[..len]),
        }
    }
    own.handshake_kind().ok_or_else(|| "no handshake".into())
}

/// The number of the alert that an error of [`converse`] tells of.
pub(crate) fn alert(error: &(dyn std::error::Error + 'static)) -> Option<u8> {
    let error = error.downcast_ref::<io::Error>()?.get_ref()?;
    match error.downcast_ref()? {
        rustls::Error::AlertReceived(alert) => Some((*alert).into()),
        _ => None,
    }
}
