use crate::Error;
use crate::carrier_tls::CarrierTls;
use crate::loops::App;
use std::io;
use std::time::Duration;
use tautline::layers::engine::probe::Probe;
use tautline::{Cause, ClientConfig, Config, ConnectError, DriverConfig, Target, TlsEngine};
use tautline_measure::turned::{MakeLoop, Turned};

/// Time without any progress after which a run has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Hint for the user if a server refuses connections.
pub(super) const REFUSED: &str = "; nothing listens there: start `taut serve`, or check the port";

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
    /// HTTP/2: connections of the load on each connection of TCP, as streams.
    pub http2: Option<usize>,
    /// Takes the TLS of the last connection with HTTP/2.
    pub carrier_tls: Option<CarrierTls>,
}

impl Server {
    /// A server by its URI, with the platform's trusted authorities.
    ///
    /// # Errors
    /// The URI is not a WebSocket URI.
    pub fn new(uri: &str) -> Result<Self, Error> {
        let target = Target::new(uri).map_err(|error| Error::Usage(error.to_string()))?;
        let (tls, driver) = (ClientConfig::default(), DriverConfig::default());
        Ok(Self { target, tls, engine: TlsEngine::default(), driver, pid: None, http2: None, carrier_tls: None })
    }

    /// The TLS engine for the scheme of the target.
    pub(super) fn engine(&self) -> TlsEngine {
        if self.target.is_secure() { self.engine } else { TlsEngine::Plain }
    }

    /// A loop for connections to the server. Its targets are [those of a loop](Self::target_of_loop).
    pub(super) fn make_loop(
        &self,
        tls: &ClientConfig,
        config: Config,
        app: App,
        probe: Option<Box<dyn Probe>>,
    ) -> Result<Turned, Error> {
        let (_, driver, engine) = self.composed(&self.target, tls)?;
        MakeLoop { driver, tls, config, app, probe }.make(engine)
    }

    /// A target of this server, for a loop of [`make_loop`](Self::make_loop).
    pub(super) fn target_of_loop(&self, target: Target) -> Result<Target, Error> {
        if self.http2.is_none() { Ok(target) } else { Ok(self.composed(&target, &self.tls)?.0) }
    }

    /// Target, driver and engine of a loop. Over HTTP/2 the driver has the TLS.
    ///
    /// # Errors
    /// The target or this build has no HTTP/2.
    pub fn composed(&self, target: &Target, tls: &ClientConfig) -> Result<(Target, DriverConfig, TlsEngine), Error> {
        #[cfg(feature = "http2")]
        if let Some(streams) = self.http2 {
            let (driver, info) = (self.driver.clone(), self.carrier_tls.clone());
            let (target, driver) = crate::over_http2(target, (self.engine, tls, info), driver, streams)?;
            return Ok((target, driver, TlsEngine::Plain));
        }
        #[cfg(not(feature = "http2"))]
        if self.http2.is_some() {
            return Err(Error::Usage("this program was built without HTTP/2; build it with `--features http2`".into()));
        }
        let _ = tls;
        Ok((target.clone(), self.driver.clone(), self.engine()))
    }
}

/// The error of a run whose connections could not be opened.
pub(super) fn not_connected(error: &ConnectError) -> Error {
    let what = explain(error);
    if error.is_permanent() { Error::Usage(what) } else { Error::Network(what) }
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
        // A cause in words of its own needs no guess.
        ConnectError::Ended(Cause::Io(error)) if error.kind() == io::ErrorKind::Other => "",
        ConnectError::Ended(Cause::Finished | Cause::Io(_)) => {
            "; the server accepts no connections now, for example because it is overloaded, or it speaks wss:// and the \
             URL says ws://, or it waits for the header of a load balancer (PROXY protocol)"
        }
        _ => "",
    };
    format!("{error:#}{hint}")
}
