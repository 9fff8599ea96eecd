//! The load generator: many connections of this project's own client on one thread, which checks every reply.

mod broadcast;
mod dial;
mod echo;
mod feed;
mod handshakes;
mod idle;
mod open_loop;
mod sink;
mod storm;

pub use broadcast::Broadcast;
pub use echo::Echo;
pub use feed::Feed;
pub use handshakes::{Handshakes, Shaken};
pub use idle::{Held, Idle};
pub use sink::Sink;
pub use storm::{Storm, Stormed};

use crate::Error;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use tautline::layers::engine::probe::Probe;
use tautline::layers::io::{Compose, Driver};
use tautline::layers::tls::{Engine, plain};
use tautline::layers::tls_rustls::{self, fused};
use tautline::{Address, Cause, ClientConfig, Config, ConnectError, Handler, Shard, Target, TlsEngine, Way};

/// Without any progress for this long, a run has failed.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long one wait for events may last; bounds how late a phase ends.
const WAIT: Duration = Duration::from_millis(20);

/// A server, and how to reach it.
#[derive(Clone)]
pub struct Server {
    /// What to connect to. Its address is looked up once, not once for each connection.
    pub target: Target,
    /// TLS for `wss://`.
    pub tls: ClientConfig,
    /// The engine that speaks it.
    pub engine: TlsEngine,
    /// The driver that the load is made over.
    pub way: Way,
    /// Its process, to measure CPU time and memory; must run on this machine.
    pub pid: Option<u32>,
}

/// Where a run stands, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stage {
    /// So many connections are open, of so many.
    Connecting(usize, usize),
    /// This share of the time is over, warming up included.
    Running(f64),
}

/// Told where a run stands, several times a second.
pub type Watch<'a> = &'a mut dyn FnMut(Stage);

impl Server {
    /// A server by its URI, with the platform's trusted authorities.
    ///
    /// # Errors
    /// The URI is no WebSocket URI.
    pub fn new(uri: &str) -> Result<Self, Error> {
        let target = Target::new(uri).map_err(|error| Error::Usage(error.to_string()))?;
        Ok(Self { target, tls: ClientConfig::default(), engine: TlsEngine::default(), way: Way::default(), pid: None })
    }

    /// The same with the address that answers, so that ten thousand connections need no ten thousand look-ups.
    fn resolved(&self) -> Result<Target, Error> {
        let mut target = self.target.clone();
        if target.address.is_some() || target.proxy.is_some() {
            return Ok(target);
        }
        let (host, port) = (target.host().to_owned(), target.port());
        let failed = |error: io::Error| {
            let hint = match error.kind() {
                io::ErrorKind::ConnectionRefused => "; nothing listens there: start `taut serve`, or check the port",
                _ => "",
            };
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

    /// Does `job` with the TLS engine that the target's scheme asks for.
    fn with_engine<J: Job>(&self, tls: &ClientConfig, job: J) -> Result<J::Output, Error> {
        if self.target.is_secure() {
            let failed = |error: tautline::layers::tls::Error| Error::Usage(error.to_string());
            match self.engine {
                TlsEngine::Rustls => self.with_driver(tls_rustls::Engine::client(tls).map_err(failed)?, job),
                #[cfg(feature = "libssl")]
                TlsEngine::Libssl(flavour) => {
                    let engine = tautline::layers::tls_libssl::Engine::new(flavour, None, Some(tls));
                    self.with_driver(engine.map_err(failed)?, job)
                }
                #[cfg(feature = "libssl")]
                TlsEngine::FusedLibssl(flavour) => {
                    let engine = tautline::layers::tls_libssl::fused::Engine::new(flavour, None, Some(tls));
                    self.with_driver(engine.map_err(failed)?, job)
                }
                TlsEngine::Fused => self.with_driver(fused::Engine::client(tls).map_err(failed)?, job),
                other => Err(Error::Usage(format!("no load is made by {other}"))),
            }
        } else {
            self.with_driver(plain::Engine, job)
        }
    }

    fn with_driver<E: Engine, J: Job>(&self, engine: E, job: J) -> Result<J::Output, Error> {
        let mut way = self.way.clone();
        if self.target.is_secure() {
            way = way.settled(engine.name()).map_err(|error| Error::Usage(error.to_string()))?;
        }
        way.choose(Composed { engine, job })
    }
}

/// Work that is the same for every TLS engine and driver.
trait Job {
    type Output;
    fn run<E: Engine, D: Driver>(self, engine: E, driver: D) -> Result<Self::Output, Error>;
}

/// A job with its engine, before its driver is known.
struct Composed<E, J> {
    engine: E,
    job: J,
}

impl<E: Engine, J: Job> Compose for Composed<E, J> {
    type Output = Result<J::Output, Error>;

    fn with<D: Driver>(self, open: impl Fn() -> io::Result<D> + Clone + Send + Sync + 'static) -> Self::Output {
        let driver = open().map_err(|error| Error::Failed(format!("cannot use the driver {}: {error}", D::NAME)))?;
        self.job.run(self.engine, driver)
    }
}

fn new_loop<E: Engine, D: Driver, H: Handler>(
    engine: E,
    driver: D,
    config: Config,
    handler: H,
) -> Result<Shard<E, D, H>, Error> {
    let made = Shard::new(0, config.into(), engine, driver, handler);
    made.map_err(|error| Error::Failed(format!("cannot make a loop: {error}")))
}

fn turn<E: Engine, D: Driver, H: Handler, P: Probe>(
    shard: &mut Shard<E, D, H, P>,
    longest: Duration,
) -> Result<(), Error> {
    shard.turn(Some(longest)).map_err(|error| Error::Failed(format!("the driver failed: {error}")))
}

/// Limits and deadlines of a client whose only concern is the server: nothing of its own may end a connection or hold
/// messages back. Above all it reads on while it cannot send: two echoing ends that both stop would wait for ever.
fn config(size: usize, in_flight: usize) -> Config {
    let mut config = Config::low_latency();
    config.limits.max_message = size.max(1 << 10);
    config.limits.max_connections = usize::MAX;
    config.limits.max_handshakes = usize::MAX;
    config.limits.pause_receive_above = usize::MAX;
    config.deadlines.ping = None;
    config.deadlines.idle = None;
    config.slow_consumer =
        tautline::SlowConsumer::Disconnect((size + 1024).saturating_mul(in_flight + 1).saturating_add(1 << 20));
    config
}

/// Why a connection could not be made, and what the user can do.
#[must_use]
pub fn explain(error: &ConnectError) -> String {
    use tautline::layers::tls::Error as Tls;
    use tautline::layers::ws::handshake::HandshakeError;
    let hint = match error {
        ConnectError::Io(io) if io.kind() == io::ErrorKind::ConnectionRefused => {
            "; nothing listens there: start `taut serve`, or check the port"
        }
        ConnectError::Ended(Cause::Tls(Tls::Certificate(why))) if why.contains("issuer") => {
            "; pass the authority with --ca FILE"
        }
        ConnectError::Handshake(error) if matches!(**error, HandshakeError::Malformed(_)) => {
            "; does the server speak wss:// rather than ws://?"
        }
        ConnectError::Ended(Cause::Finished | Cause::Io(_)) => {
            "; the server takes nobody now, as when it is overloaded, or it speaks wss:// and the URL says ws://"
        }
        _ => "",
    };
    format!("{error}{hint}")
}

#[cfg(test)]
mod tests;
