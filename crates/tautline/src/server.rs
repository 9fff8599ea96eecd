use crate::choice::Then;
use crate::driver::settle;
use crate::server_handle::ServerHandle;
use crate::thread::Plan;
use crate::{
    Address, Bridge, Config, DriverConfig, EngineChoice, Error, Handler, PreparedServer, Reloader, ServerConfig, Shard,
    TcpOptions, Tls,
};
use std::io;
use std::num::{NonZero, NonZeroU32};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tautline_engine::{HandshakePool, RecordPool, SharedLimits};
use tautline_io::machine::{self, OwnDescriptors};
use tautline_tls::{Capabilities, Engine, EngineKind, plain};
use tautline_tls_rustls::Fused;

/// A server, before it starts.
///
/// ```
/// use tautline::{Conn, Handler, Message, Outgoing, Server};
///
/// struct Echo;
///
/// impl Handler for Echo {
///     type State = ();
///     fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
///         conn.send(Outgoing::from(&message));
///     }
/// }
///
/// let server = Server::plain().listen("127.0.0.1:0".parse()?).start(|_shard| Echo)?;
/// let mut client = tautline::connect(&format!("ws://{}/", server.addresses()[0]))?;
/// client.text("hello")?;
/// assert_eq!(client.receive()?.data(), b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct Server<E = Fused> {
    tls: Tls<ServerConfig, E>,
    plan: Plan,
    adopts: bool,
}

impl Server<plain::Engine> {
    /// A server without TLS, for `ws://`.
    pub fn plain() -> Self {
        Self::new(Tls { engine: plain::Engine, config: ServerConfig::default() })
    }
}

impl<E: EngineChoice> Server<E> {
    /// A server with one loop, [`Config::untrusted_internet`], and no address yet.
    pub fn new(tls: impl Into<Tls<ServerConfig, E>>) -> Self {
        Self { tls: tls.into(), plan: Plan::new("tautline"), adopts: false }
    }

    /// Takes another engine, with the configuration of TLS that it has.
    pub fn with_engine<F: EngineChoice>(self, engine: F) -> Server<F> {
        let Self { tls: Tls { config, .. }, plan, adopts } = self;
        Server { tls: Tls { engine, config }, plan, adopts }
    }

    /// Sets the driver. Default: [epoll](DriverConfig::default).
    pub fn driver(mut self, driver: impl Into<DriverConfig>) -> Self {
        self.plan.driver = driver.into();
        self
    }

    /// Serves HTTP/2 too, to clients that ask for it by ALPN: requests, and WebSockets by extended CONNECT (RFC 8441).
    ///
    /// Each stream is a connection to the handler, and counts as one for limits. A connection that carries streams cannot move to
    /// another process: an upgrade drains it.
    ///
    /// ```
    /// # use tautline::{Conn, Handler, Message};
    /// # struct Echo;
    /// # impl Handler for Echo {
    /// #     type State = ();
    /// #     fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}
    /// # }
    /// use tautline::{Server, ServerConfig, http2};
    ///
    /// # fn serve(tls: ServerConfig) -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::new(tls).http2(http2::Limits::default()).listen("127.0.0.1:0".parse()?);
    /// server.start(|_shard| Echo)?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "http2")]
    pub const fn http2(mut self, limits: crate::http2::Limits) -> Self {
        self.plan.http2 = Some(limits);
        self
    }

    /// Adds an address to listen at. All loops share TCP addresses (`SO_REUSEPORT`); the first loop has Unix sockets.
    pub fn listen(mut self, address: Address) -> Self {
        self.plan.listen.push(address);
        self
    }

    /// Adds a listening socket that something else has made: [systemd](crate::activation::take), a parent process, or
    /// [this program](crate::activation::listen) before it gave up its privileges.
    ///
    /// All loops accept from it. If several sockets listen at one address, each loop has its own
    /// ([`reuse_port`](crate::ListenOptions::reuse_port)), as far as there are enough. The end of the server leaves the socket
    /// open for others that have it.
    ///
    /// ```no_run
    /// # use tautline::{Conn, Handler, Message};
    /// # struct Echo;
    /// # impl Handler for Echo {
    /// #     type State = ();
    /// #     fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}
    /// # }
    /// use tautline::{Server, activation};
    ///
    /// let mut server = Server::plain();
    /// for passed in activation::take()? {
    ///     server = server.listen_on(passed.socket);
    /// }
    /// server.start(|_shard| Echo)?.join()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn listen_on(mut self, socket: impl Into<OwnedFd>) -> Self {
        self.plan.listeners.sockets.push(socket.into());
        self
    }

    /// Sets the name of the threads, to which each loop appends its number.
    #[cfg(feature = "metrics")]
    pub(crate) const fn named(mut self, name: &'static str) -> Self {
        self.plan.name = name;
        self
    }

    /// Sets limits, deadlines and policies.
    pub fn config(mut self, config: Config) -> Self {
        self.plan.config = Arc::new(config);
        self
    }

    /// Sets the number of loops; 0 takes one per CPU that this process may use. Default: 1.
    pub fn shards(mut self, shards: usize) -> Self {
        let cpus = || std::thread::available_parallelism().map_or(1, NonZero::get);
        self.plan.shards = if shards == 0 { cpus() } else { shards };
        self
    }

    /// Lets other servers of the same user listen at the same TCP addresses, so that one can take over from another.
    ///
    /// The kernel spreads new connections over both until the first [drains](crate::ServerHandle::drain). The second server must
    /// allow this, and the first must allow it or have several loops. Otherwise an address in use is an error, since two servers
    /// at one address would go unnoticed.
    pub fn beside_others(mut self, yes: bool) -> Self {
        self.plan.listeners.beside_others = yes;
        self
    }

    /// Sets the mode of the files of Unix sockets, such as `0o660` for owner and group. Default: by the process' mask.
    ///
    /// A file has it before anybody can connect.
    pub const fn unix_mode(mut self, mode: u32) -> Self {
        self.plan.listeners.options.unix_mode = Some(mode);
        self
    }

    /// Sets options of the listening TCP sockets, which all accepted connections inherit. Sockets that something else has made
    /// keep theirs.
    pub fn tcp(mut self, options: TcpOptions) -> Self {
        self.plan.listeners.options.tcp = options;
        self
    }

    /// Extends topics to other hosts.
    ///
    /// ```
    /// use tautline::{Bridge, MemoryBroker, Server};
    /// # use tautline::{Conn, Handler, Message};
    /// # struct Echo;
    /// # impl Handler for Echo {
    /// #     type State = ();
    /// #     fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}
    /// # }
    ///
    /// let broker = MemoryBroker::new(); // between servers of one process
    /// for _host in 0..2 {
    ///     let bridge = Bridge::start(broker.clone())?;
    ///     Server::plain().listen("127.0.0.1:0".parse()?).bridge(bridge).start(|_shard| Echo)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bridge(mut self, bridge: Bridge) -> Self {
        self.plan.bridge = Some(bridge);
        self
    }

    /// Gives each loop a table of descriptors of its own, so that the limit of open files holds for each loop.
    ///
    /// A process that may have 20,000 descriptors so holds a million connections with 53 loops. The kernel spreads connections
    /// over loops by chance, so each loop needs room for a few percent more than its share.
    ///
    /// Loops then cannot [share records](crate::Offload::records) with other threads. Two descriptors of each loop stay
    /// open in the process after the loop's end.
    pub fn own_descriptors(mut self, own: OwnDescriptors) -> Self {
        self.plan.own_descriptors = Some(own);
        self
    }

    /// Takes the connections and listening sockets of the process at the other end of `stream` over, which
    /// [hands them over](crate::ServerHandle::hand_over). `docs/upgrade.md` has the steps.
    ///
    /// `stream` has to be the only copy of its socket in this process and its children, since its end tells the other process that
    /// this one has ended. It becomes close-on-exec. If standard input is that socket, `/dev/null` takes its place.
    ///
    /// [`start`](Self::start) returns once they are served here. If it fails, they stay with the other process. Addresses given
    /// to [`listen`](Self::listen) are opened in addition: leave out those that the other process listens at.
    pub fn take_over(mut self, stream: impl Into<UnixStream>) -> Self {
        self.plan.take_over = Some(stream.into());
        self
    }

    /// Allows a server without addresses, whose connections come from [`ServerHandle::adopt`].
    pub const fn adopts(mut self) -> Self {
        self.adopts = true;
        self
    }

    /// Pins loop *n* to the *n*th of these CPUs. At the end of the list it starts over.
    pub fn pin(mut self, cpus: Vec<usize>) -> Self {
        self.plan.cpus = cpus;
        self
    }

    /// Measures [stages](Self::start_with_stages) of one read in `every`, chosen at random. Default: 1, all reads.
    pub fn stages_of_one_read_in(mut self, every: NonZeroU32) -> Self {
        self.plan.every = every;
        self
    }

    /// Starts the loops. `make` is called once on each loop's thread, with the loop's number.
    ///
    /// # Errors
    /// If a loop cannot start. Then none runs.
    pub fn start<H: Handler>(self, make: impl Fn(u32) -> H + Send + Sync + 'static) -> Result<ServerHandle, Error> {
        self.prepare(make)?.go_on()
    }

    /// Starts the loops like [`start`](Self::start), which then wait until the server [goes on](PreparedServer::go_on).
    ///
    /// A program that [takes over](Self::take_over) does meanwhile what else may fail.
    ///
    /// # Errors
    /// If a loop cannot start. Then none runs.
    pub fn prepare<H: Handler>(self, make: impl Fn(u32) -> H + Send + Sync + 'static) -> Result<PreparedServer, Error> {
        let Self { tls: Tls { engine, config }, plan, adopts } = self;
        if plan.listen.is_empty() && plan.listeners.sockets.is_empty() && plan.take_over.is_none() && !adopts {
            return Err(Error::NothingToListenAt);
        }
        if plan.shards > plan.driver.max_loops() {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "this driver has one loop; ask for one shard");
            return Err(Error::Machine { what: "cannot share the driver", error });
        }
        if plan.own_descriptors.is_some() && plan.config.offload.records.is_some() {
            let what =
                "other threads know no sockets of a loop with descriptors of its own; leave out `offload.records`";
            let error = io::Error::new(io::ErrorKind::InvalidInput, what);
            return Err(Error::Machine { what: "cannot share the records of a message", error });
        }
        if plan.own_descriptors.is_some() && (!plan.listeners.sockets.is_empty() || plan.take_over.is_some()) {
            let what = "it would stay open in the tables of all loops; let the server make its sockets";
            let error = io::Error::new(io::ErrorKind::InvalidInput, what);
            return Err(Error::Machine {
                what: "loops with descriptors of their own cannot take a listening socket",
                error,
            });
        }
        engine.choose(Start { plan, config, make })
    }

    /// Starts the loops like [`start`](Self::start), with a [probe](tautline_engine::probe) that times received messages.
    ///
    /// [`ServerHandle::stages`] returns the results. The probe costs 0.25 us per read, or [less](Self::stages_of_one_read_in).
    ///
    /// # Errors
    /// If a loop cannot start. Then none runs.
    pub fn start_with_stages<H: Handler>(
        self,
        make: impl Fn(u32) -> H + Send + Sync + 'static,
    ) -> Result<ServerHandle, Error> {
        self.with_stages().start(make)
    }

    /// Has the loops [measure stages](Self::start_with_stages).
    pub const fn with_stages(mut self) -> Self {
        self.plan.stages = true;
        self
    }
}

/// A server before its engine is known.
struct Start<M> {
    plan: Plan,
    config: ServerConfig,
    make: M,
}

impl<H: Handler, M: Fn(u32) -> H + Send + Sync + 'static> Then for Start<M> {
    type Output = Result<PreparedServer, Error>;

    #[cfg(feature = "http2")]
    fn with<K: EngineKind>(mut self, kind: K) -> Self::Output {
        if self.plan.http2.is_none() {
            return self.launch(kind);
        }
        Arc::make_mut(&mut self.plan.config).http2 = true;
        self.launch(tautline_tls::carrying::Kind(kind))
    }

    #[cfg(not(feature = "http2"))]
    fn with<K: EngineKind>(self, kind: K) -> Self::Output {
        self.launch(kind)
    }
}

impl<M> Start<M> {
    fn launch<H: Handler, K: EngineKind>(self, kind: K) -> Result<PreparedServer, Error>
    where
        M: Fn(u32) -> H + Send + Sync + 'static,
    {
        let Self { mut plan, config, make } = self;
        bound_memory(&mut plan.config);
        bound_connections(&mut plan);
        let engine = kind.server(&config)?;
        plan.driver = settle(plan.driver, kind.capabilities())?;
        let inline = engine.is_plain() || plan.config.offload.threads == Some(0);
        let pool = (!inline).then(|| HandshakePool::start(&plan.config.offload)).transpose();
        let pool = pool.map_err(|error| Error::Machine { what: "cannot start a thread for handshakes", error })?;
        let records = record_pool(&plan, kind.capabilities())?;
        let reloader = Reloader::new(engine.clone(), plan.config.offload.clone()).with_config(&config);
        let bridge = plan.bridge.clone();
        let (shared, limits) = (plan.config.clone(), SharedLimits::default());
        let launched = plan.launch_all(
            reloader,
            Box::new(move |number, driver| {
                let mut shard = Shard::new(number, shared.clone(), engine.clone(), driver, make(number))?;
                shard.share_limits(limits.clone());
                if let Some(bridge) = &bridge {
                    shard.set_bridge(bridge.clone());
                }
                if let Some(pool) = &pool {
                    shard.set_handshake_pool(pool.clone());
                }
                if let Some(records) = &records {
                    shard.set_record_pool(records.clone());
                }
                Ok(Box::new(shard))
            }),
        );
        launched.map(PreparedServer::new)
    }
}

/// Descriptors of a loop beside its sockets: of its driver and what wakes it.
const OF_LOOP: usize = 4;
/// Least connections of a server, whatever the number of descriptors.
const LEAST: usize = 4;

/// Keeps the budget of memory below three quarters of the memory that there is. A process that needs more is killed.
fn bound_memory(config: &mut Arc<Config>) {
    let Some(memory) = machine::memory() else { return };
    let most = usize::try_from(memory / 4 * 3).unwrap_or(usize::MAX);
    if let Some(budget) = &config.limits.shared_memory {
        if budget.bytes() != usize::MAX && budget.bound(most) {
            log::info!("limits.shared_memory is {most}: three quarters of the memory of this machine or its group");
        }
        return;
    }
    let budget = config.limits.memory;
    if budget > most && budget != usize::MAX {
        log::info!(
            "limits.memory is {most} and not {budget}: three quarters of the memory of this machine or its group"
        );
        Arc::make_mut(config).limits.memory = most;
    }
}

/// Keeps connections below the descriptors that there are, so that some are left: each loop needs some itself, and files and the
/// admin listener need others.
fn bound_connections(plan: &mut Plan) {
    let Ok(free) = machine::free_descriptors() else { return };
    let limits = &plan.config.limits;
    let of_loops = plan.shards.saturating_mul(OF_LOOP + plan.listen.len());
    let spare = limits.spare_descriptors.min(free / 4);
    let most = free.saturating_sub(of_loops).saturating_sub(spare).max(LEAST);
    let most = if plan.own_descriptors.is_some() { most.saturating_mul(plan.shards) } else { most };
    let wanted = limits.max_connections;
    if wanted > most && wanted != usize::MAX {
        log::info!(
            "limits.max_connections is {most} and not {wanted}: {free} descriptors are left (ulimit -n), and {spare} of them are \
             for others"
        );
        Arc::make_mut(&mut plan.config).limits.max_connections = most;
    }
}

fn record_pool(plan: &Plan, engine: &Capabilities) -> Result<Option<RecordPool>, Error> {
    let Some(records) = &plan.config.offload.records else { return Ok(None) };
    if !engine.shares_records {
        return Err(engine.refusal("have the records of a message sealed by several threads").into());
    }
    let started = RecordPool::start(records);
    started.map(Some).map_err(|error| Error::Machine { what: "cannot start a thread for records", error })
}
