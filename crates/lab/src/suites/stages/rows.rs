use tautline::layers::io::{Io, KernelTls, Spin};
use tautline::{TlsEngine, Way};

/// What the client reads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// The kernel's sockets.
    Kernel(Io),
    /// AF_XDP and a TCP/IP stack of ours, without sleeping or not.
    Xdp { spin: bool },
}

/// A composition to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Number in the report, where it is one of its.
    pub(super) mode: Option<u8>,
    pub(super) wire: Wire,
    /// Name of the TLS engine.
    pub(super) tls: &'static str,
}

/// The report's compositions, in its order. Its kernel TLS stands behind OpenSSL's handshake, and so does ours where it is built in.
const REPORT: [(Wire, &str); 11] = [
    (Wire::Xdp { spin: true }, "wolfssl"),
    (Wire::Xdp { spin: true }, "libressl"),
    (Wire::Xdp { spin: true }, "openssl"),
    (Wire::Kernel(Io::Epoll), KERNEL_TLS),
    (Wire::Kernel(Io::Select), KERNEL_TLS),
    (Wire::Kernel(Io::Select), "libressl"),
    (Wire::Kernel(Io::Uring), "openssl"),
    (Wire::Kernel(Io::Select), "openssl"),
    (Wire::Kernel(Io::Epoll), "openssl"),
    (Wire::Kernel(Io::Epoll), "wolfssl"),
    (Wire::Kernel(Io::Epoll), "libressl"),
];

const KERNEL_TLS: &str = "ktls";

/// Every row, whether it can run here or not: our default on each driver, and the report's.
pub(super) fn all() -> Vec<Row> {
    let drivers = [Io::Epoll, Io::Uring, Io::Select, Io::Spin, Io::UringSpin].map(Wire::Kernel);
    let xdp = [false, true].map(|spin| Wire::Xdp { spin });
    let ours = drivers.into_iter().chain(xdp).map(|wire| Row { mode: None, wire, tls: super::ENGINES[0] });
    let theirs = (1..).zip(REPORT).map(|(mode, (wire, tls))| Row { mode: Some(mode), wire, tls });
    ours.chain(theirs).collect()
}

impl Wire {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kernel(io) => io.name(),
            Self::Xdp { spin: false } => "xdp",
            Self::Xdp { spin: true } => "xdp-spin",
        }
    }

    /// Network stack, as results call it.
    pub(super) const fn transport(self) -> &'static str {
        match self {
            Self::Kernel(_) => "kernel",
            Self::Xdp { .. } => "xdp",
        }
    }

    /// # Errors
    /// Why it cannot be used here.
    fn way(self) -> Result<Way, String> {
        match self {
            Self::Kernel(io) => {
                io.probe().map_err(|error| error.to_string())?;
                Ok(Way::new(io, Spin::default()))
            }
            #[cfg(feature = "xdp")]
            Self::Xdp { spin } => {
                let spin = if spin { Spin::default().idle } else { std::time::Duration::ZERO };
                let config = tautline::layers::xdp::Config::new(super::super::space::INTERFACE);
                Ok(Way::xdp(tautline::layers::xdp::Config { spin, ..config }))
            }
            #[cfg(not(feature = "xdp"))]
            Self::Xdp { .. } => Err("this build has no AF_XDP: build it with the feature `xdp`".to_owned()),
        }
    }
}

impl Row {
    /// `fused epoll`.
    pub(super) fn name(&self) -> String {
        let name = format!("{} {}", self.tls, self.wire.name());
        self.mode.map_or_else(|| name.clone(), |mode| format!("{mode}. {name}"))
    }

    /// # Errors
    /// Why it cannot be used here.
    pub(super) fn way(&self) -> Result<Way, String> {
        if self.tls != KERNEL_TLS {
            return self.wire.way();
        }
        match self.wire {
            Wire::Kernel(io) if io.has_kernel_tls(KernelTls::Both) => {
                self.wire.way().map(|way| way.with_kernel_tls(KernelTls::Both))
            }
            // What is measured is what a client receives.
            wire => Err(format!("{} cannot leave received records to the kernel", wire.name())),
        }
    }

    /// By `kernel_tls`, what the kernel said when it was asked for its TLS.
    ///
    /// # Errors
    /// Why it cannot run here.
    pub(super) fn engine(&self, kernel_tls: Result<(), &str>) -> Result<TlsEngine, String> {
        if self.tls != KERNEL_TLS {
            return self.tls.parse();
        }
        kernel_tls?;
        // Whose handshake it is behind matters little.
        "fused+openssl".parse().or_else(|_| "fused".parse())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_report_is_there_and_says_why_it_cannot_run() {
        let rows = all();
        assert_eq!(rows.len(), 18);
        assert_eq!(rows.iter().filter_map(|row| row.mode).collect::<Vec<_>>(), (1..=11).collect::<Vec<u8>>());
        for row in rows {
            if let Err(why) = row.engine(Err("this kernel has no TLS")) {
                assert!(!why.is_empty() && row.tls != "fused", "{}: {why}", row.name());
            }
            if let Err(why) = row.way() {
                assert!(!why.is_empty() && row.wire != Wire::Kernel(Io::Epoll), "{}: {why}", row.name());
            }
        }
    }

    #[test]
    fn a_kernel_with_tls_makes_no_row_of_what_its_driver_refuses() {
        for row in all().iter().filter(|row| row.tls == KERNEL_TLS) {
            assert_eq!(row.engine(Err("none here")), Err("none here".to_owned()));
            let engine = row.engine(Ok(())).unwrap();
            // The kernel of this machine may have none after all; nothing else may speak against it.
            assert!(row.way().unwrap().settled(engine.name()).is_ok(), "{}", row.name());
        }
    }
}
