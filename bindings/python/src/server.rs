use crate::crossing::{Order, Outbox};
use crate::fork;
use crate::hub::Hub;
use crate::local::{self, EVENTS};
use crate::options::{Options, time};
use crate::relay::{Relay, Role, ServerSide};
use crate::request::header_map;
use crate::sys;
use crate::tls::TlsOptions;
use crate::worker::{self, Plan};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tautline::layers::engine::{HandshakePool, SharedLimits};
use tautline::layers::tls::Engine;
use tautline::{Address, EngineKind, Fused, Listeners, Plain};

/// Turns of a loop before the event loop goes on with other work.
const ROUNDS: usize = 32;

/// Loops that listen. Their events go to a [`Hub`].
#[pyclass(frozen, module = "tautline._native")]
pub(crate) struct Server {
    outboxes: Vec<Arc<Outbox>>,
    refuses: Arc<AtomicBool>,
    /// The addresses at which it listens, with actual ports.
    #[pyo3(get)]
    addresses: Vec<String>,
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (hub, listen, options, tls, *, sock = None, loops = 1, reuse_port = false, asks = false, headers = vec![]))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a constructor in Python")]
    fn new(
        py: Python<'_>,
        hub: &Hub,
        listen: Vec<String>,
        options: Options,
        tls: Option<TlsOptions>,
        sock: Option<&Bound<'_, PyAny>>,
        loops: u32,
        reuse_port: bool,
        asks: bool,
        headers: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let listen = listen.iter().map(|address| parsed(address)).collect::<PyResult<Vec<_>>>()?;
        let sock = sock.map(sys::take).transpose()?;
        let (refuses, windows) = (Arc::<AtomicBool>::default(), options.windows());
        let side = |outbox: Arc<Outbox>| -> PyResult<Relay> {
            let (inbox, queue, headers) = (hub.inbox(), options.queue(), header_map(headers.clone())?);
            let (windows, refuses) = (windows.clone(), refuses.clone());
            let side = ServerSide { inbox, outbox, queue, windows, asks, headers, refuses };
            Ok(Relay::new(Role::Server(side), options.keepalive()))
        };
        let mut config = options.config();
        config.front = options.front()?;
        let config = Arc::new(config);
        let limits = SharedLimits::default();
        let here = loops == 0;
        let loops = loops.max(1);
        // Loops share a socket of the program.
        let sockets = sock.into_iter().collect();
        let listeners = Arc::new(Listeners { sockets, beside_others: reuse_port, ..Listeners::default() });
        let plan = |number| -> PyResult<Plan> {
            let outbox = Arc::<Outbox>::default();
            let relay = side(outbox.clone())?;
            let (config, listen, limits) = (config.clone(), listen.clone(), limits.clone());
            let (listeners, loops) = (listeners.clone(), loops as usize);
            Ok(Plan { number, name: "tautline", config, listen, listeners, loops, outbox, relay, limits })
        };
        let plans = (0..loops).map(plan).collect::<PyResult<Vec<_>>>()?;
        let outboxes: Vec<_> = plans.iter().map(|plan| plan.outbox.clone()).collect();
        let started = match tls {
            None => py.detach(|| start_all(plans, Plain, here)),
            Some(tls) => {
                let config = tls.server()?;
                py.detach(|| match Fused.server(&config) {
                    Ok(engine) => start_all(plans, engine, here),
                    Err(error) => Err(io::Error::new(io::ErrorKind::InvalidInput, error.to_string())),
                })
            }
        };
        match started {
            Ok(addresses) => {
                Ok(Self { outboxes, refuses, addresses: addresses.iter().map(ToString::to_string).collect() })
            }
            Err(error) => {
                for outbox in &outboxes {
                    outbox.order(Order::Drain { code: 1001, len: 0, deadline: Duration::ZERO }, &[]);
                }
                Err(match error.kind() {
                    io::ErrorKind::InvalidInput => PyValueError::new_err(error.to_string()),
                    _ => error.into(),
                })
            }
        }
    }

    /// Answers requests with status 503 from now on.
    fn refuse(&self) {
        self.refuses.store(true, Ordering::Relaxed);
    }

    /// Stops accepting, and closes all connections.
    fn drain(&self, code: u16, reason: &str, deadline: Option<f64>) -> PyResult<()> {
        let deadline = time(deadline).unwrap_or(Duration::MAX / 4);
        for outbox in &self.outboxes {
            fork::check(outbox.generation())?;
            outbox.order(Order::Drain { code, len: reason.len(), deadline }, reason.as_bytes());
        }
        Ok(())
    }

    /// The descriptor of a loop of this thread: when it is readable, call `turn`. `None` if the loops have threads.
    fn fileno(&self) -> PyResult<Option<i32>> {
        let local = self.outboxes.first().and_then(|outbox| local::find(outbox));
        Ok(local.map(|local| local.borrow().descriptor()).transpose()?)
    }

    /// Turns a loop of this thread, and delivers what arrived. Call again when the time that is returned has passed, with
    /// `timed_out`; `None` leaves that time as it was.
    #[pyo3(signature = (hub, timed_out = false))]
    fn turn(&self, py: Python<'_>, hub: &Hub, timed_out: bool) -> PyResult<Option<f64>> {
        let Some(outbox) = self.outboxes.first() else { return Ok(None) };
        fork::check(outbox.generation())?;
        let Some(local) = local::find(outbox) else {
            return Err(PyRuntimeError::new_err("this server has ended, or it belongs to another thread's event loop"));
        };
        let mut delivered = Ok(0);
        for round in 0..ROUNDS {
            let Ok(turned) = local.try_borrow_mut().map(|mut local| local.turn(timed_out && round == 0)) else {
                return Err(PyRuntimeError::new_err("the server's loop is in a turn already"));
            };
            turned?;
            delivered = hub.deliver_all(py);
            let goes_on = delivered.as_ref().is_ok_and(|events| *events >= EVENTS);
            if delivered.is_err() || !goes_on && !local.borrow_mut().has_more() {
                break;
            }
        }
        let alarm = local.borrow_mut().alarm();
        delivered.map(|_| alarm.map(|wait| wait.as_secs_f64()))
    }

    /// Drops a loop of this thread that has ended.
    fn release(&self) {
        for outbox in &self.outboxes {
            local::end(outbox);
        }
    }

    /// The number of its loops.
    #[getter]
    fn loops(&self) -> usize {
        self.outboxes.len()
    }
}

/// A server that nobody refers to any more ends.
impl Drop for Server {
    fn drop(&mut self) {
        for outbox in &self.outboxes {
            if outbox.generation() != fork::generation() {
                continue;
            }
            if outbox.is_local() {
                // Nobody turns it any more.
                local::end(outbox);
            } else {
                outbox.order(Order::Drain { code: 1001, len: 0, deadline: Duration::from_secs(1) }, &[]);
            }
        }
    }
}

/// Starts all loops: `here`, in the thread of the caller, or on threads of their own.
fn start_all<E: Engine>(plans: Vec<Plan>, engine: E, here: bool) -> io::Result<Vec<Address>> {
    let start = if here { local::start } else { worker::start };
    let mut pool = None;
    if let Some(plan) = plans.first().filter(|_| !engine.is_plain()) {
        pool = Some(HandshakePool::start(&plan.config.offload)?);
    }
    let mut addresses = Vec::new();
    for mut plan in plans {
        if !plan.listen.is_empty() && !addresses.is_empty() {
            plan.listen.clone_from(&addresses);
        }
        addresses = start(plan, engine.clone(), pool.clone())?;
    }
    Ok(addresses)
}

/// An address in the notation of the crate: `HOST:PORT` or `unix:PATH`.
pub(crate) fn parsed(address: &str) -> PyResult<Address> {
    address.parse().map_err(|error| PyValueError::new_err(format!("{address:?} is no address: {error}")))
}
