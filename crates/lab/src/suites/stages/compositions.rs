use super::super::ENGINES;
#[cfg(feature = "xdp")]
use super::super::namespaces;
use crate::DriverKind;
#[cfg(feature = "xdp")]
use tautline::layers::io::Spin;
use tautline::{DriverConfig, KernelTls, TlsEngine};

/// Transport of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// Sockets of the kernel.
    Kernel(DriverKind),
    /// AF_XDP with our TCP/IP stack; whether it spins instead of sleeping.
    Xdp { spin: bool },
}

/// A composition to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Composition {
    /// Number in the report, if it is one of the report's.
    pub(super) mode: Option<u8>,
    pub(super) transport: Transport,
    /// Name of the TLS engine.
    pub(super) tls: &'static str,
}

/// The compositions of the report, in its order.
///
/// Its kernel TLS stands behind OpenSSL's handshake, and so does ours if OpenSSL is built in.
const REPORT: [(Transport, &str); 11] = [
    (Transport::Xdp { spin: true }, "wolfssl"),
    (Transport::Xdp { spin: true }, "libressl"),
    (Transport::Xdp { spin: true }, "openssl"),
    (Transport::Kernel(DriverKind::Epoll), KERNEL_TLS),
    (Transport::Kernel(DriverKind::Select), KERNEL_TLS),
    (Transport::Kernel(DriverKind::Select), "libressl"),
    (Transport::Kernel(DriverKind::Uring), "openssl"),
    (Transport::Kernel(DriverKind::Select), "openssl"),
    (Transport::Kernel(DriverKind::Epoll), "openssl"),
    (Transport::Kernel(DriverKind::Epoll), "wolfssl"),
    (Transport::Kernel(DriverKind::Epoll), "libressl"),
];

const KERNEL_TLS: &str = "ktls";

/// Every composition, whether it works here or not: our default on each driver, and those of the report.
pub(super) fn all() -> Vec<Composition> {
    let drivers = [DriverKind::Epoll, DriverKind::Uring, DriverKind::Select, DriverKind::Spin, DriverKind::UringSpin]
        .map(Transport::Kernel);
    let xdp = [false, true].map(|spin| Transport::Xdp { spin });
    let ours = drivers.into_iter().chain(xdp).map(|transport| Composition { mode: None, transport, tls: ENGINES[0] });
    let theirs = (1..).zip(REPORT).map(|(mode, (transport, tls))| Composition { mode: Some(mode), transport, tls });
    ours.chain(theirs).collect()
}

impl Transport {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kernel(driver) => driver.name(),
            Self::Xdp { spin: false } => "xdp",
            Self::Xdp { spin: true } => "xdp-spin",
        }
    }

    /// Whether it is one of these drivers over the kernel's sockets.
    pub(super) fn is_one_of(self, drivers: &[DriverKind]) -> bool {
        matches!(self, Self::Kernel(driver) if drivers.contains(&driver))
    }

    /// Network stack in results.
    pub(super) const fn stack(self) -> &'static str {
        match self {
            Self::Kernel(_) => "kernel",
            Self::Xdp { .. } => "xdp",
        }
    }

    /// # Errors
    /// Why it cannot be used here.
    fn driver(self) -> Result<DriverConfig, String> {
        match self {
            Self::Kernel(driver) => {
                driver.probe().map_err(|error| error.to_string())?;
                Ok(driver.config())
            }
            #[cfg(feature = "xdp")]
            Self::Xdp { spin } => {
                let mut config = tautline::layers::xdp::Config::new(namespaces::INTERFACE);
                config.spin = if spin { Spin::default().idle } else { std::time::Duration::ZERO };
                Ok(config.into())
            }
            #[cfg(not(feature = "xdp"))]
            Self::Xdp { .. } => Err("this build has no AF_XDP: build it with the feature `xdp`".to_owned()),
        }
    }
}

impl Composition {
    /// `fused epoll`.
    pub(super) fn name(&self) -> String {
        let name = format!("{} {}", self.tls, self.transport.name());
        self.mode.map_or_else(|| name.clone(), |mode| format!("{mode}. {name}"))
    }

    /// # Errors
    /// Why it cannot be used here.
    pub(super) fn driver(&self) -> Result<DriverConfig, String> {
        if self.tls != KERNEL_TLS {
            return self.transport.driver();
        }
        // Received records are measured.
        let refused = |_| format!("{} cannot leave received records to the kernel", self.transport.name());
        self.transport.driver()?.with_kernel_tls(KernelTls::Both).map_err(refused)
    }

    /// The TLS engine; `kernel_tls` tells whether the kernel has TLS.
    ///
    /// # Errors
    /// Why it cannot run here.
    pub(super) fn engine(&self, kernel_tls: Result<(), &str>) -> Result<TlsEngine, String> {
        if self.tls != KERNEL_TLS {
            return self.tls.parse();
        }
        kernel_tls?;
        // The library of the handshake matters little.
        "fused+openssl".parse().or_else(|_| "fused".parse())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_every_composition_of_the_report_and_says_why_it_cannot_run() {
        let rows = all();
        assert_eq!(rows.len(), 18);
        assert_eq!(rows.iter().filter_map(|row| row.mode).collect::<Vec<_>>(), (1..=11).collect::<Vec<u8>>());
        for row in rows {
            if let Err(why) = row.engine(Err("this kernel has no TLS")) {
                assert!(!why.is_empty() && row.tls != "fused", "{}: {why}", row.name());
            }
            if let Err(why) = row.driver() {
                assert!(
                    !why.is_empty() && row.transport != Transport::Kernel(DriverKind::Epoll),
                    "{}: {why}",
                    row.name()
                );
            }
        }
    }

    #[test]
    fn a_kernel_with_tls_has_no_composition_that_its_driver_refuses() {
        for row in all().iter().filter(|row| row.tls == KERNEL_TLS) {
            assert_eq!(row.engine(Err("none here")), Err("none here".to_owned()));
            let engine = row.engine(Ok(())).unwrap();
            // The kernel of this machine may have no TLS; there must be no other obstacle.
            assert!(tautline::settle_driver(row.driver().unwrap(), engine.capabilities()).is_ok(), "{}", row.name());
        }
    }
}
