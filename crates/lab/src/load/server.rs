use crate::Error;
use std::io;
use std::net::ToSocketAddrs;
use std::time::Duration;
use tautline::{
    Address, Cause, ClientConfig, CloseCode, Config, ConnectError, Deadline, DriverConfig, EngineChoice as _, Socket,
    Target, Then, Tls, TlsEngine,
};

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
        let addresses: Vec<_> = (host.as_str(), port).to_socket_addrs().map_err(failed)?.collect();
        let mut last = None;
        for &address in &addresses {
            target.address = Some(Address::Tcp(address));
            // A look at the only address would tell nothing that the first connection does not.
            let answers = if addresses.len() == 1 { Ok(()) } else { self.try_out(&target) };
            match answers {
                Ok(()) => return Ok(target),
                Err(error) => last = Some(error),
            }
        }
        Err(last.map_or_else(|| Error::Network(format!("{host} has no address")), failed))
    }

    /// Finds out whether a server is at the address of `target`.
    ///
    /// Opens a whole connection, since the server would count one without a handshake as a failed one.
    fn try_out(&self, target: &Target) -> io::Result<()> {
        let tls = Tls { engine: self.engine, config: self.tls.clone() };
        let mut config = Config::default();
        config.deadlines.connect = PATIENCE;
        match Socket::connect(target.clone(), tls, config) {
            Err(tautline::Error::Connect(ConnectError::Io { error, .. })) => Err(error.kind().into()),
            Err(tautline::Error::Connect(ConnectError::Ended(Cause::Timeout(Deadline::Connect)))) => {
                Err(io::ErrorKind::TimedOut.into())
            }
            // The run itself will meet all other errors, and explain them.
            Err(_) => Ok(()),
            Ok(socket) => {
                // The address is known, whatever the server says to the end.
                let _ = socket.close(CloseCode::NORMAL, "");
                Ok(())
            }
        }
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
