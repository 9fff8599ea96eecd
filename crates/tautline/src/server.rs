use crate::thread::{Parts, Plan, Running};
use crate::{Address, Certificate, Config, Error, Handler, ServerConfig, Shard};
use std::num::NonZero;
use std::sync::Arc;
use tautline_io::{epoll, uring};
use tautline_tls::{Engine, plain};

/// Which TLS a server speaks. The choice is made once, here; behind it everything is static.
#[derive(Clone)]
#[non_exhaustive]
pub enum Tls {
    /// None: `ws://`.
    Plain,
    /// The default: rustls' handshakes, and TLS 1.3 records opened and sealed in place.
    Fused(Box<ServerConfig>),
    /// rustls, handshakes and records.
    Rustls(Box<ServerConfig>),
}

impl Tls {
    /// TLS 1.2 and 1.3 with one certificate and the defaults of [`ServerConfig`].
    #[must_use]
    pub fn with_certificate(certificate: Certificate) -> Self {
        Self::with(ServerConfig { certificates: vec![certificate], ..ServerConfig::default() })
    }

    /// The default engine with this configuration.
    #[must_use]
    pub fn with(config: ServerConfig) -> Self {
        Self::Fused(Box::new(config))
    }
}

/// How a server's loops reach the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Io {
    /// The default: readiness by epoll(7), on every Linux.
    #[default]
    Epoll,
    /// Completions by io_uring(7), from Linux 6.12 on; epoll where the kernel has none or refuses it, and a warning in the
    /// log. Small messages cost a little less.
    Uring,
}

/// A server, before it starts.
#[must_use]
pub struct Server {
    tls: Tls,
    io: Io,
    plan: Plan,
}

impl Server {
    /// A server with one loop, [`Config::untrusted_internet`], and no address yet.
    pub fn new(tls: Tls) -> Self {
        let plan = Plan {
            config: Arc::new(Config::default()),
            listen: Vec::new(),
            shards: 1,
            cpus: Vec::new(),
            backlog: 4096,
            name: "tautline",
        };
        Self { tls, io: Io::default(), plan }
    }

    /// How its loops reach the wire.
    pub fn io(mut self, io: Io) -> Self {
        self.io = io;
        self
    }

    /// Listens here too. TCP addresses are shared by all loops (`SO_REUSEPORT`); Unix sockets belong to the first.
    pub fn listen(mut self, address: Address) -> Self {
        self.plan.listen.push(address);
        self
    }

    /// Limits, deadlines and policies.
    pub fn config(mut self, config: Config) -> Self {
        self.plan.config = Arc::new(config);
        self
    }

    /// So many loops; 0 is one per CPU that this process may use.
    pub fn shards(mut self, shards: usize) -> Self {
        let cpus = || std::thread::available_parallelism().map_or(1, NonZero::get);
        self.plan.shards = if shards == 0 { cpus() } else { shards };
        self
    }

    /// Pins loop *n* to the *n*th of these CPUs, starting over at the end of the list.
    pub fn pin(mut self, cpus: Vec<usize>) -> Self {
        self.plan.cpus = cpus;
        self
    }

    /// Starts the loops. `make` is called once in each of them, with its number.
    ///
    /// # Errors
    /// Nothing runs where any of it fails.
    pub fn start<H: Handler>(self, make: impl Fn(u32) -> H + Send + Sync + 'static) -> Result<Running, Error> {
        if self.plan.listen.is_empty() {
            return Err(Error::NothingToListenAt);
        }
        let Self { tls, io, plan } = self;
        match tls {
            Tls::Plain => start(plan, io, plain::Engine, make),
            Tls::Fused(config) => start(plan, io, tautline_tls_rustls::fused::Engine::server(&config)?, make),
            Tls::Rustls(config) => start(plan, io, tautline_tls_rustls::Engine::server(&config)?, make),
        }
    }
}

fn start<E: Engine, H: Handler>(
    plan: Plan,
    io: Io,
    engine: E,
    make: impl Fn(u32) -> H + Send + Sync + 'static,
) -> Result<Running, Error> {
    if io == Io::Uring {
        // Tried once, so that all loops go the same way, and on a thread of its own: taking a ring down interrupts the
        // system calls that its thread makes next.
        let tried = std::thread::spawn(|| uring::Driver::new().map(drop)).join();
        match tried.unwrap_or_else(|_| Err(std::io::Error::other("it panicked"))) {
            Ok(()) => {
                let (open, work) = (uring::Driver::new as fn() -> _, Shard::run as fn(&mut _) -> _);
                return plan.start(Parts { engine, open, make, prepare: |_: &mut _| {}, work });
            }
            Err(error) => log::warn!("io_uring cannot be used, epoll is: {error}"),
        }
    }
    let (open, work) = (epoll::Driver::new as fn() -> _, Shard::run as fn(&mut _) -> _);
    plan.start(Parts { engine, open, make, prepare: |_: &mut _| {}, work })
}
