use crate::DriverKind;
use std::sync::LazyLock;
use tautline::TlsEngine;

/// Names of the TLS engines of this build, the default first.
pub static ENGINES: LazyLock<Vec<&'static str>> = LazyLock::new(|| TlsEngine::all().map(TlsEngine::name).collect());

/// Drivers that are compared by default: epoll, and io_uring if it works here.
#[must_use]
pub fn drivers() -> Vec<DriverKind> {
    [DriverKind::Epoll, DriverKind::Uring].into_iter().filter(|driver| driver.probe().is_ok()).collect()
}
