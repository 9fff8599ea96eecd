use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tautline::TlsInfo;

/// The results of a handshake; `None` without TLS.
pub(crate) fn tls_dict<'py>(py: Python<'py>, tls: &TlsInfo) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(version) = tls.version else { return Ok(None) };
    let info = PyDict::new(py);
    info.set_item("version", version.to_string())?;
    info.set_item("cipher", tls.suite.map(|suite| suite.to_string()))?;
    info.set_item("group", tls.group.map(|group| group.to_string()))?;
    info.set_item("alpn", tls.alpn.as_deref().map(String::from_utf8_lossy))?;
    info.set_item("server_name", &tls.server_name)?;
    info.set_item("resumed", tls.resumed)?;
    let certificates: Vec<_> = tls.peer_certificates.iter().map(|der| PyBytes::new(py, der)).collect();
    info.set_item("peer_certificates", certificates)?;
    Ok(Some(info))
}
