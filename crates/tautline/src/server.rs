use crate::thread::{Parts, Plan, Running};
use crate::way::Way;
use crate::{Address, Certificate, Config, Error, Handler, ServerConfig, Shard};
use std::io;
use std::num::{NonZero, NonZeroU32};
use std::sync::Arc;
use tautline_engine::probe::{Off, Probe, Stamps};
use tautline_engine::{HandshakePool, RecordPool};
use tautline_io::{Compose, Driver, Io, Spin};
use tautline_tls::{Capabilities, Engine, Session, plain};

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
    /// A library of the OpenSSL family.
    #[cfg(feature = "libssl")]
    Libssl(tautline_tls_libssl::Flavour, Box<ServerConfig>),
    /// The handshakes of a library of the OpenSSL family, and TLS 1.3 records opened and sealed in place.
    #[cfg(feature = "libssl")]
    FusedLibssl(tautline_tls_libssl::Flavour, Box<ServerConfig>),
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

/// A server, before it starts.
#[must_use]
pub struct Server {
    tls: Tls,
    way: Way,
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
            every: NonZeroU32::MIN,
            beside_others: false,
            name: "tautline",
        };
        Self { tls, way: Way::default(), plan }
    }

    /// How its loops reach the wire: a driver with its settings, in place of [`io`](Self::io).
    pub fn way(mut self, way: Way) -> Self {
        self.way = way;
        self
    }

    /// How its loops reach the wire.
    pub fn io(mut self, io: Io) -> Self {
        self.way.io = io;
        self
    }

    /// How they spin, where they do ([`Io::spins`]).
    pub fn spin(mut self, spin: Spin) -> Self {
        self.way.spin = spin;
        self
    }

    /// Takes frames past the kernel's TCP/IP stack instead. One loop serves the whole interface.
    #[cfg(feature = "xdp")]
    pub fn xdp(mut self, config: tautline_xdp::Config) -> Self {
        self.way.xdp = Some(config);
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

    /// Lets other servers of the same user listen at its TCP addresses, so that one can take over from another without a
    /// gap: the kernel spreads newcomers over both until the first [drains](crate::Running::drain). Both must say so, or have
    /// several loops. Otherwise an address that is in use is an error, because nobody would notice two servers at one.
    pub fn beside_others(mut self, yes: bool) -> Self {
        self.plan.beside_others = yes;
        self
    }

    /// Pins loop *n* to the *n*th of these CPUs, starting over at the end of the list.
    pub fn pin(mut self, cpus: Vec<usize>) -> Self {
        self.plan.cpus = cpus;
        self
    }

    /// Has [stages](Self::start_with_stages) taken of the messages of one read in `every`, chosen by chance. Default 1, all.
    pub fn stages_of_one_read_in(mut self, every: NonZeroU32) -> Self {
        self.plan.every = every;
        self
    }

    /// Starts the loops. `make` is called once in each of them, with its number.
    ///
    /// # Errors
    /// Nothing runs where any of it fails.
    pub fn start<H: Handler>(self, make: impl Fn(u32) -> H + Send + Sync + 'static) -> Result<Running, Error> {
        self.launch(make, |_| Off)
    }

    /// As [`start`](Self::start), with a [probe](tautline_engine::probe) that takes the time of messages received:
    /// [`Running::stages`] tells it. Costs a quarter of a microsecond for each read, or
    /// [less](Self::stages_of_one_read_in); a program that never calls this has no trace of it.
    ///
    /// # Errors
    /// Nothing runs where any of it fails.
    pub fn start_with_stages<H: Handler>(
        self,
        make: impl Fn(u32) -> H + Send + Sync + 'static,
    ) -> Result<Running, Error> {
        self.launch(make, Stamps::of_one_in)
    }

    fn launch<H: Handler, Q: Probe>(
        self,
        make: impl Fn(u32) -> H + Send + Sync + 'static,
        probe: fn(NonZeroU32) -> Q,
    ) -> Result<Running, Error> {
        if self.plan.listen.is_empty() {
            return Err(Error::NothingToListenAt);
        }
        let Self { tls, way, plan } = self;
        if plan.shards > way.most_loops() {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "an interface has one loop; ask for one shard");
            return Err(Error::Machine { what: "cannot share the XDP driver", error });
        }
        match tls {
            Tls::Plain => way.choose(Start { plan, engine: plain::Engine, make, probe }),
            Tls::Fused(config) => {
                let engine = tautline_tls_rustls::fused::Engine::server(&config)?;
                way.settled(engine.name())?.choose(Start { plan, engine, make, probe })
            }
            Tls::Rustls(config) => {
                let engine = tautline_tls_rustls::Engine::server(&config)?;
                way.settled(engine.name())?.choose(Start { plan, engine, make, probe })
            }
            #[cfg(feature = "libssl")]
            Tls::Libssl(flavour, config) => {
                let engine = tautline_tls_libssl::Engine::new(flavour, Some(&config), None)?;
                way.settled(engine.name())?.choose(Start { plan, engine, make, probe })
            }
            #[cfg(feature = "libssl")]
            Tls::FusedLibssl(flavour, config) => {
                let engine = tautline_tls_libssl::fused::Engine::new(flavour, Some(&config), None)?;
                way.settled(engine.name())?.choose(Start { plan, engine, make, probe })
            }
        }
    }
}

/// A server whose engine is chosen.
struct Start<E, M, Q> {
    plan: Plan,
    engine: E,
    make: M,
    probe: fn(NonZeroU32) -> Q,
}

impl<E: Engine, H: Handler, M: Fn(u32) -> H + Send + Sync + 'static, Q: Probe> Compose for Start<E, M, Q> {
    type Output = Result<Running, Error>;

    fn with<D: Driver>(self, open: impl Fn() -> io::Result<D> + Clone + Send + Sync + 'static) -> Self::Output {
        let Self { plan, engine, make, probe } = self;
        let inline = E::Session::PASSTHROUGH || plan.config.offload.threads == Some(0);
        let pool = (!inline).then(|| HandshakePool::start(&plan.config.offload)).transpose();
        let pool = pool.map_err(|error| Error::Machine { what: "cannot start a thread for handshakes", error })?;
        let records = plan.config.offload.records.as_ref();
        if records.is_some() && !Capabilities::of(engine.name()).is_some_and(|can| can.shares_records) {
            let what = "have the records of a message sealed by several threads";
            return Err(Capabilities::refusal(engine.name(), what, |can| can.shares_records).into());
        }
        let records = records.map(RecordPool::start).transpose();
        let records = records.map_err(|error| Error::Machine { what: "cannot start a thread for records", error })?;
        let prepare = move |shard: &mut Shard<E, D, H, Q>| {
            if let Some(pool) = &pool {
                shard.set_handshake_pool(pool.clone());
            }
            if let Some(records) = &records {
                shard.set_record_pool(records.clone());
            }
        };
        plan.start(Parts { engine, open, make, prepare, probe, work: Shard::run })
    }
}
