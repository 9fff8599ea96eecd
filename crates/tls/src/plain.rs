//! The null engine: bytes pass unchanged.

use crate::{Capabilities, ClientConfig, Content, EngineKind, Error, Handshake, Opened, Plain, ServerConfig, TlsInfo};
use tautline_buf::Buf;

/// Nothing of TLS.
static CAPABILITIES: Capabilities = Capabilities {
    engine: "plain",
    library: "none",
    feature: "",
    versions: &[],
    suites: &[],
    alpn: false,
    client_certificates: false,
    post_quantum: false,
    ed25519: false,
    several_keys: false,
    resumes_tls13: false,
    stapling: false,
    key_log: false,
    own_verifier: false,
    exporter: false,
    challenges: false,
    key_export: false,
    in_place: false,
    shares_records: false,
    session_memory: 0,
};

/// The engine for connections without TLS.
///
/// ```
/// # mod tautline { pub use tautline_tls::{EngineKind, ServerConfig}; pub mod layers { pub use tautline_tls as tls; } }
/// use tautline::layers::tls::plain;
/// use tautline::{EngineKind, ServerConfig};
///
/// let engine = plain::Engine.server(&ServerConfig::default())?;
/// assert_eq!(EngineKind::name(engine), "plain");
/// # Ok::<(), tautline_tls::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Engine;

impl EngineKind for Engine {
    type Engine = Self;

    fn capabilities(self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn server(self, _: &ServerConfig) -> Result<Self, Error> {
        Ok(self)
    }

    fn client(self, _: &ClientConfig) -> Result<Self, Error> {
        Ok(self)
    }
}

/// A connection without TLS.
#[derive(Clone, Copy, Debug, Default)]
pub struct Session;

impl crate::Engine for Engine {
    type Session = Session;

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn is_plain(&self) -> bool {
        true
    }

    fn accept(&self) -> Result<Session, Error> {
        Ok(Session)
    }

    fn connect(&self, _host: &str) -> Result<Session, Error> {
        Ok(Session)
    }

    fn connect_plain(&self) -> Option<Session> {
        Some(Session)
    }

    fn restore(&self, saved: &[u8]) -> Result<Session, Error> {
        if saved.is_empty() {
            Ok(Session)
        } else {
            Err(Error::ApiMisuse("the saved session has TLS, and this has none"))
        }
    }
}

impl crate::Session for Session {
    fn is_plain(&self) -> bool {
        true
    }

    fn handshake(&mut self, _wire: &mut [u8], _out: &mut Buf) -> Result<(usize, Handshake), Error> {
        Ok((0, Handshake::Complete))
    }

    fn open(&mut self, wire: &mut [u8], _scratch: &mut Buf, _out: &mut Buf) -> Result<Opened, Error> {
        let used = wire.len();
        let content = if used == 0 { Content::Partial } else { Content::Data(Plain::in_wire(0..used)) };
        Ok(Opened { used, content })
    }

    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        for chunk in plain {
            out.put(chunk);
        }
        Ok(())
    }

    fn close(&mut self, _out: &mut Buf) {}

    fn save(&self, _out: &mut Vec<u8>) -> Result<(), Error> {
        Ok(())
    }

    fn tls_info(&self) -> TlsInfo {
        TlsInfo::default()
    }
}
