use crate::crossing::{Marks, Order, Outbox, Shared};
use crate::fork;
use crate::hub::Hub;
use crate::options::Options;
use crate::relay::{Relay, Role};
use crate::request::header_map;
use crate::server::parsed;
use crate::tls::TlsOptions;
use crate::windows::Windows;
use crate::worker::{self, Plan};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tautline::layers::engine::SharedLimits;
use tautline::layers::ws::handshake::{self, HandshakeError, parse_uri};
use tautline::{DeflateConfig, EngineKind, Fused, Plain, Target};

/// The host of a URI as the system's resolver takes it, and as the header `Host` has it.
#[pyfunction]
pub(crate) fn host_of(uri: &str) -> PyResult<(String, String)> {
    let wrong = |error: HandshakeError| PyValueError::new_err(error.to_string());
    let server = parse_uri(uri).and_then(|uri| handshake::Target::of(&uri)).map_err(wrong)?;
    let header = server.host_header();
    Ok((server.zone.map_or_else(|| server.host.clone(), |zone| format!("{}%{zone}", server.host)), header))
}

/// A loop for outgoing connections with the same settings and the same TLS.
#[pyclass(frozen, module = "tautline._native")]
pub(crate) struct Dialer {
    outbox: Arc<Outbox>,
    queue: Marks,
    deflate: Option<DeflateConfig>,
    windows: Arc<Windows>,
    secure: bool,
}

#[pymethods]
impl Dialer {
    #[new]
    fn new(py: Python<'_>, options: Options, tls: Option<TlsOptions>) -> PyResult<Self> {
        let outbox = Arc::<Outbox>::default();
        let plan = Plan {
            number: 0,
            name: "tautline-client",
            config: Arc::new(options.config()),
            listen: Vec::new(),
            listeners: Arc::default(),
            loops: 1,
            outbox: outbox.clone(),
            relay: Relay::new(Role::Client(HashMap::new()), options.keepalive()),
            limits: SharedLimits::default(),
        };
        let secure = tls.is_some();
        let config = tls.map(TlsOptions::client).transpose()?;
        let started = py.detach(|| match config {
            None => worker::start(plan, Plain, None),
            Some(config) => match Fused.client(&config) {
                Ok(engine) => worker::start(plan, engine, None),
                Err(error) => Err(io::Error::new(io::ErrorKind::InvalidInput, error.to_string())),
            },
        });
        match started {
            Ok(_) => {
                let (queue, deflate, windows) = (options.queue(), options.deflate(), options.windows());
                Ok(Self { outbox, queue, deflate, windows, secure })
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(PyValueError::new_err(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// Begins to connect, and returns the connection's key: an event `open` or `failed` of the hub follows.
    #[pyo3(signature = (hub, uri, *, address = None, addresses = vec![], server_name = None, headers = vec![], subprotocols = vec![], proxy = None, origin = None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a method in Python")]
    fn dial(
        &self,
        hub: &Hub,
        uri: &str,
        address: Option<&str>,
        addresses: Vec<String>,
        server_name: Option<String>,
        headers: Vec<(String, String)>,
        subprotocols: Vec<String>,
        proxy: Option<&str>,
        origin: Option<String>,
    ) -> PyResult<u64> {
        fork::check(self.outbox.generation())?;
        let mut target = Target::new(uri).map_err(|error| PyValueError::new_err(error.to_string()))?;
        if target.is_secure() != self.secure {
            return Err(PyValueError::new_err("wss:// needs TLS, and ws:// has none"));
        }
        target.address = address.map(parsed).transpose()?;
        let wrong = |address: &str| PyValueError::new_err(format!("{address:?} is no address with a port"));
        target.addresses =
            addresses.iter().map(|one| one.parse().map_err(|_| wrong(one))).collect::<PyResult<Vec<_>>>()?;
        target.server_name = server_name;
        target.headers = header_map(headers)?;
        target.origin = origin;
        target.subprotocols = subprotocols;
        let window = self.windows.take();
        target.deflate = self.deflate;
        if let Some(deflate) = target.deflate.as_mut().filter(|_| window.is_none()) {
            (deflate.server_no_context_takeover, deflate.client_no_context_takeover) = (true, true);
        }
        let unusable = |error| PyValueError::new_err(format!("unusable proxy: {error}"));
        target.proxy = proxy.map(|proxy| proxy.parse().map_err(unusable)).transpose()?;
        target.check().map_err(|error| PyValueError::new_err(error.to_string()))?;
        let shared = Shared::new(hub.inbox(), self.outbox.clone(), self.queue);
        let key = shared.key;
        if self.outbox.order(Order::Dial { target: Box::new(target), shared, window }, &[]) {
            Ok(key)
        } else {
            Err(PyRuntimeError::new_err("the loop for outgoing connections has ended"))
        }
    }
}

/// The loop ends once nobody can use it.
impl Drop for Dialer {
    fn drop(&mut self) {
        if self.outbox.generation() == fork::generation() {
            self.outbox.order(Order::Drain { code: 1001, len: 0, deadline: Duration::from_secs(1) }, &[]);
        }
    }
}
