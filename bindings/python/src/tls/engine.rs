use super::{Session, TlsOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tautline::layers::tls::Engine as _;
use tautline::{EngineKind, Fused};

type Fast = <Fused as EngineKind>::Engine;

/// The engine with the configuration of one context, for servers or for clients.
#[pyclass(frozen, module = "tautline._native")]
pub(crate) struct Engine {
    engine: Fast,
    is_server: bool,
}

#[pymethods]
impl Engine {
    #[new]
    fn new(options: TlsOptions, is_server: bool) -> PyResult<Self> {
        let engine = if is_server { Fused.server(&options.server()?) } else { Fused.client(&options.client()?) };
        let engine = engine.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { engine, is_server })
    }

    /// A session for one connection: of a client with the server `host`, or of a server with any client.
    #[pyo3(signature = (host = None))]
    fn session(&self, host: Option<&str>) -> PyResult<Session> {
        let made = match host {
            _ if self.is_server => self.engine.accept(),
            Some(host) => self.engine.connect(host),
            None => return Err(PyValueError::new_err("a client needs the server's name: pass server_hostname")),
        };
        Ok(Session::new(made.map_err(|error| PyValueError::new_err(error.to_string()))?))
    }
}
