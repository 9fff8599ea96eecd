use crate::Error;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use tautline::{Address, Cause, ClientConfig, ConnectError, DriverConfig, EngineChoice as _, Target, Then, TlsEngine};

/// Time without any progress after which a run has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Hint for the user if a server refuses connections.
const REFUSED: &str = "; nothing listens there: start `taut serve`, or check the port";

/// A server, and how to reach it.
#[derive(Clone)]
pub struct Server {
    /// Target of connections. Its name is resolved once, not for each connection.
    pub target: Target,
    /// TLS for `wss://`.
    pub tls: ClientConfig,
    /// TLS engine of the load.
    pub engine: TlsEngine,
    /// Driver of the load.
    pub driver: DriverConfig,
    /// Process of the server on this machine, to measure its CPU time and memory.
    pub pid: Option<u32>,
}

impl Server {
    /// A server by its URI, with the platform's trusted authorities.
    ///
    /// # Errors
    /// The URI is not a WebSocket URI.
    pub fn new(uri: &str) -> Result<Self, Error> {
        let target = Target::new(uri).map_err(|error| Error::Usage(error.to_string()))?;
        let (tls, driver) = (ClientConfig::default(), DriverConfig::default());
        Ok(Self { target, tls, engine: TlsEngine::default(), driver, pid: None })
    }

    /// The target with an address that answers, so that no further connection needs a look-up.
    pub(super) fn resolved(&self) -> Result<Target, Error> {
        let mut target = self.target.clone();
        if target.address.is_some() || target.proxy.is_some() {
            return Ok(target);
        }
        let (host, port) = (target.host().to_owned(), target.port());
        let failed = |error: io::Error| {
            let hint = if error.kind() == io::ErrorKind::ConnectionRefused { REFUSED } else { "" };
            Error::Network(format!("cannot connect to {host}:{port}: {error}{hint}"))
        };
        let addresses = (host.as_str(), port).to_socket_addrs().map_err(failed)?;
        let mut last = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(_) => {
                    target.address = Some(Address::Tcp(address));
                    return Ok(target);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.map_or_else(|| Error::Network(format!("{host} has no address")), failed))
    }

    /// Continues with the TLS engine for the scheme of the target.
    pub(super) fn with_engine<T: Then>(&self, then: T) -> T::Output {
        let engine = if self.target.is_secure() { self.engine } else { TlsEngine::Plain };
        engine.choose(then)
    }
}

/// Describes why a connection could not be opened, with a hint for the user.
#[must_use]
pub fn explain(error: &ConnectError) -> String {
    use tautline::layers::tls::Error as Tls;
    use tautline::layers::ws::handshake::HandshakeError;
    let hint = match error {
        ConnectError::Io { error, .. } if error.kind() == io::ErrorKind::ConnectionRefused => REFUSED,
        ConnectError::Ended(Cause::Tls(Tls::Certificate(why))) if why.contains("issuer") => {
            "; pass the authority with --ca FILE"
        }
        ConnectError::Handshake(error) if matches!(**error, HandshakeError::Malformed(_)) => {
            "; does the server speak wss:// rather than ws://?"
        }
        ConnectError::Ended(Cause::Finished | Cause::Io(_)) => {
            "; the server accepts no connections now, for example because it is overloaded, or it speaks wss:// and the \
             URL says ws://"
        }
        _ => "",
    };
    format!("{error:#}{hint}")
}
