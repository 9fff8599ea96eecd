//! Engines of loops whose connections may carry others, as those with HTTP/2 carry streams.
//!
//! A session is behind a virtual call for each record. One of a connection that is carried has no TLS of its own.

use crate::{
    Capabilities, ClientConfig, EngineKind, Error, Handshake, KeyCost, Opened, ServerConfig, Session, Signing, TlsInfo,
    plain,
};
use tautline_buf::Buf;

/// The protocols that a server offers, besides those of its configuration: the preferred one last.
const PROTOCOLS: [&[u8]; 2] = [b"http/1.1", b"h2"];

/// An engine that offers HTTP/2 (ALPN `h2`), also after each [reload](crate::Engine::reload).
#[derive(Clone, Debug)]
pub struct Engine<A>(A);

/// The kind of such engines, over another kind.
///
/// ```
/// # mod tautline { pub use tautline_tls::{EngineKind, ServerConfig, TlsInfo}; pub mod layers { pub use tautline_tls as tls; } }
/// use tautline::layers::tls::{Engine, carrying, plain};
/// use tautline::{EngineKind, ServerConfig, TlsInfo};
///
/// let engine = carrying::Kind(plain::Engine).server(&ServerConfig::default())?;
/// assert!(engine.carried(TlsInfo::default()).is_some());
/// # Ok::<(), tautline::layers::tls::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Kind<A>(pub A);

/// The configuration with the protocols of HTTP.
fn offering(config: &ServerConfig) -> ServerConfig {
    let mut config = config.clone();
    for protocol in PROTOCOLS {
        if !config.alpn.iter().any(|other| other == protocol) {
            config.alpn.insert(0, protocol.to_vec());
        }
    }
    config
}

impl<A: EngineKind> EngineKind for Kind<A> {
    type Engine = Engine<A::Engine>;

    fn capabilities(self) -> &'static Capabilities {
        self.0.capabilities()
    }

    fn server(self, config: &ServerConfig) -> Result<Self::Engine, Error> {
        self.0.server(&offering(config)).map(Engine)
    }

    fn client(self, config: &ClientConfig) -> Result<Self::Engine, Error> {
        self.0.client(config).map(Engine)
    }
}

impl<A: crate::Engine> crate::Engine for Engine<A> {
    type Session = Box<dyn Session>;

    fn capabilities(&self) -> &'static Capabilities {
        self.0.capabilities()
    }

    fn is_plain(&self) -> bool {
        self.0.is_plain()
    }

    fn accept(&self) -> Result<Self::Session, Error> {
        Ok(Box::new(self.0.accept()?))
    }

    fn connect(&self, host: &str) -> Result<Self::Session, Error> {
        Ok(Box::new(self.0.connect(host)?))
    }

    fn connect_plain(&self) -> Option<Self::Session> {
        Some(Box::new(plain::Session))
    }

    fn carried(&self, by: TlsInfo) -> Option<Self::Session> {
        Some(Box::new(Carried(by)))
    }

    fn restore(&self, saved: &[u8]) -> Result<Self::Session, Error> {
        // Sessions with TLS save something.
        if saved.is_empty() {
            return Ok(Box::new(plain::Session));
        }
        Ok(Box::new(self.0.restore(saved)?))
    }

    fn signing(&self, hello: &[u8]) -> Option<Signing> {
        self.0.signing(hello)
    }

    fn key_costs(&self) -> Vec<KeyCost> {
        self.0.key_costs()
    }

    fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        self.0.reload(&offering(config))
    }

    fn save_tickets(&self, out: &mut Vec<u8>) {
        self.0.save_tickets(out);
    }

    fn restore_tickets(&self, saved: &[u8]) -> Result<(), Error> {
        self.0.restore_tickets(saved)
    }
}

/// The session of a connection that another one carries, which has the TLS.
struct Carried(TlsInfo);

impl Session for Carried {
    fn is_plain(&self) -> bool {
        true
    }

    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error> {
        plain::Session.handshake(wire, out)
    }

    fn open(&mut self, wire: &mut [u8], scratch: &mut Buf, out: &mut Buf) -> Result<Opened, Error> {
        plain::Session.open(wire, scratch, out)
    }

    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        plain::Session.seal(plain, out)
    }

    fn close(&mut self, _: &mut Buf) {}

    fn tls_info(&self) -> TlsInfo {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::offering;
    use crate::ServerConfig;

    #[test]
    fn http2_is_preferred_and_other_protocols_stay() {
        let offered = |own: &[&[u8]]| {
            let config = ServerConfig::default().with_alpn(own.iter().map(|one| one.to_vec()).collect());
            offering(&config).alpn
        };
        assert_eq!(offered(&[]), [&b"h2"[..], b"http/1.1"]);
        assert_eq!(offered(&[b"http/1.1", b"own"]), [&b"h2"[..], b"http/1.1", b"own"]);
        assert_eq!(offered(&[b"http/1.1", b"h2"]), [&b"http/1.1"[..], b"h2"]);
    }
}
