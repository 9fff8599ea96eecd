use crate::choice::Then;
use crate::driver::settle;
use crate::jobs::Jobs;
use crate::prepared::PreparedServer;
use crate::server_handle::ServerHandle;
use crate::thread::{Plan, run_to_end};
use crate::{
    ClientConfig, Config, ConnectError, DriverConfig, EngineChoice, Error, Handler, Reloader, Shard, Target, Tls,
};
use std::io;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use tautline_tls::{Engine, EngineKind, plain};
use tautline_tls_rustls::Fused;

/// Outgoing connections on one loop. All targets are `wss://`, or all are `ws://`.
///
/// ```no_run
/// use tautline::{Client, ClientConfig, Conn, Handler, Message, Target};
///
/// struct Print;
///
/// impl Handler for Print {
///     type State = ();
///     fn on_message(&mut self, _: &mut Conn<'_, ()>, message: Message<'_>) {
///         println!("{:?}", message.text());
///     }
/// }
///
/// Client::new(ClientConfig::default()).target(Target::new("wss://localhost:8443/")?).run(Print)?;
/// # Ok::<(), tautline::Error>(())
/// ```
#[must_use]
pub struct Client<E = Fused> {
    tls: Tls<ClientConfig, E>,
    plan: Plan,
}

impl Client<plain::Engine> {
    /// A client without TLS, for `ws://` targets that are given at run time.
    pub fn plain() -> Self {
        Self::new(Tls { engine: plain::Engine, config: ClientConfig::default() })
    }
}

impl<E: EngineChoice> Client<E> {
    /// A client without targets. Its default limits are those of [`Config::untrusted_internet`].
    pub fn new(tls: impl Into<Tls<ClientConfig, E>>) -> Self {
        let plan = Plan { ends_idle: true, ..Plan::new("tautline-client") };
        Self { tls: tls.into(), plan }
    }

    /// Sets the driver. Default: [epoll](DriverConfig::default).
    pub fn driver(mut self, driver: impl Into<DriverConfig>) -> Self {
        self.plan.driver = driver.into();
        self
    }

    /// Adds a target. [`Conn::dial`](crate::Conn::dial) numbers targets from 0, in this order.
    ///
    /// Further ones are given to the loop that runs, by [`ShardHandle::connect`](crate::ShardHandle::connect).
    pub fn target(mut self, target: Target) -> Self {
        self.plan.targets.push(Arc::new(target));
        self
    }

    /// Goes on without a target until it is [drained](ServerHandle::drain), for targets that are given
    /// [at run time](crate::ShardHandle::connect). It then needs no target at the start.
    pub fn stay(mut self) -> Self {
        self.plan.ends_idle = false;
        self
    }

    /// Sets limits, deadlines and policies.
    pub fn config(mut self, config: Config) -> Self {
        self.plan.config = Arc::new(config);
        self
    }

    /// Pins the loop's thread to this CPU. It has no effect on [`run`](Self::run).
    pub fn pin(mut self, cpu: usize) -> Self {
        self.plan.cpus = vec![cpu];
        self
    }

    /// Measures [stages](Self::start_with_stages) of one read in `every`, chosen at random. Default: 1, all reads.
    pub fn stages_of_one_read_in(mut self, every: NonZeroU32) -> Self {
        self.plan.every = every;
        self
    }

    /// Starts the loop on a thread of its own, with the handler that `make` returns there. `make` gets the loop's number, 0.
    ///
    /// The loop ends with the last connection that does not reconnect, unless it [stays](Self::stay).
    ///
    /// # Errors
    /// If the loop cannot start.
    pub fn start<H: Handler>(self, make: impl FnOnce(u32) -> H + Send + 'static) -> Result<ServerHandle, Error> {
        self.choose(Start { make })
    }

    /// Starts the loop like [`start`](Self::start), with a [probe](tautline_engine::probe) that times received messages.
    ///
    /// [`ServerHandle::stages`] returns the results. The probe costs 0.25 us per read, or [less](Self::stages_of_one_read_in).
    ///
    /// # Errors
    /// If the loop cannot start.
    pub fn start_with_stages<H: Handler>(
        mut self,
        make: impl FnOnce(u32) -> H + Send + 'static,
    ) -> Result<ServerHandle, Error> {
        self.plan.stages = true;
        self.start(make)
    }

    /// Runs the loop on this thread until the last connection that does not reconnect has ended. Returns the handler.
    ///
    /// # Errors
    /// If the loop cannot start, or the driver fails.
    pub fn run<H: Handler>(self, handler: H) -> Result<H, Error> {
        self.choose(Run { handler })
    }

    /// Chooses the engine by the targets' scheme: without TLS if it is `ws://`.
    fn choose<W: Work>(self, work: W) -> Result<W::Output, Error> {
        let secure = self.is_secure()?;
        let Self { tls: Tls { engine, config }, plan } = self;
        let then = Composed { plan, config, work };
        if secure { engine.choose(then) } else { then.with(plain::Engine) }
    }

    fn is_secure(&self) -> Result<bool, Error> {
        let targets = &self.plan.targets;
        let secure = targets.iter().filter(|target| target.is_secure()).count();
        if targets.is_empty() {
            if !self.plan.ends_idle {
                return Ok(true);
            }
            let what = "no target to connect to was given; a client that stays takes them later";
            return Err(ConnectError::Target(what.into()).into());
        }
        if secure != 0 && secure != targets.len() {
            let what = "ws:// and wss:// targets need a client each: a loop has one TLS engine";
            return Err(ConnectError::Target(what.into()).into());
        }
        Ok(secure != 0)
    }
}

/// A use of a loop for outgoing connections, generic over the engine.
trait Work {
    type Output;

    fn work<E: Engine>(self, engine: E, plan: Plan) -> Result<Self::Output, Error>;
}

/// A client before its engine is known.
struct Composed<W> {
    plan: Plan,
    config: ClientConfig,
    work: W,
}

impl<W: Work> Then for Composed<W> {
    type Output = Result<W::Output, Error>;

    fn with<K: EngineKind>(self, kind: K) -> Self::Output {
        let Self { mut plan, config, work } = self;
        plan.driver = settle(plan.driver, kind.capabilities())?;
        work.work(kind.client(&config)?, plan)
    }
}

/// Runs the loop on a thread of its own.
struct Start<M> {
    make: M,
}

impl<H: Handler, M: FnOnce(u32) -> H + Send + 'static> Work for Start<M> {
    type Output = ServerHandle;

    fn work<E: Engine>(self, engine: E, plan: Plan) -> Result<ServerHandle, Error> {
        let reloader = Reloader::new(engine.clone(), plan.config.offload.clone());
        let config = plan.config.clone();
        // The one loop takes it.
        let make = Mutex::new(Some(self.make));
        let launched = plan.launch_all(
            reloader,
            Box::new(move |number, driver| {
                let make = make.lock().unwrap_or_else(PoisonError::into_inner).take();
                let make = make.ok_or_else(|| io::Error::other("a client has one loop"))?;
                Ok(Box::new(Shard::new(number, config.clone(), engine.clone(), driver, make(number))?))
            }),
        );
        PreparedServer::new(launched?).go_on()
    }
}

/// Runs the loop on this thread.
struct Run<H> {
    handler: H,
}

impl<H: Handler> Work for Run<H> {
    type Output = H;

    fn work<E: Engine>(self, engine: E, plan: Plan) -> Result<H, Error> {
        let run = || {
            let mut shard = Shard::new(0, plan.config.clone(), engine, plan.driver.open()?, self.handler)?;
            for target in &plan.targets {
                shard.connect(target.clone());
            }
            run_to_end(&mut shard, plan.ends_idle, &Jobs::default())?;
            Ok(shard.into_handler())
        };
        run().map_err(|error| Error::Machine { what: "cannot run a loop", error })
    }
}
