use crate::{Capabilities, Error};
use std::io;
use tautline_io::{Compose, Io, KernelTls, Spin, kernel, uring};

/// How loops reach the wire: a driver and its settings.
#[derive(Clone, Debug, Default)]
pub struct Way {
    pub(crate) io: Io,
    pub(crate) spin: Spin,
    kernel_tls: KernelTls,
    zero_copy: Option<usize>,
    /// In place of `io`.
    #[cfg(feature = "xdp")]
    pub(crate) xdp: Option<tautline_xdp::Config>,
}

impl Way {
    /// Over the kernel's sockets, by the driver of this name; `spin` is for those that [spin](Io::spins).
    #[must_use]
    pub fn new(io: Io, spin: Spin) -> Self {
        Self {
            io,
            spin,
            kernel_tls: KernelTls::Off,
            zero_copy: None,
            #[cfg(feature = "xdp")]
            xdp: None,
        }
    }

    /// Has [`Io::Uring`] and [`Io::UringSpin`] send so many bytes or more from the driver's buffer instead of from a copy; other drivers copy. Pays
    /// only with a network card that can do it, see `tautline_io::uring::Config::zero_copy`.
    #[must_use]
    pub fn zero_copy(self, bytes: usize) -> Self {
        Self { zero_copy: Some(bytes), ..self }
    }

    /// Past the kernel's TCP/IP stack, over the interface of `config`.
    #[cfg(feature = "xdp")]
    #[must_use]
    pub fn xdp(config: tautline_xdp::Config) -> Self {
        Self { xdp: Some(config), ..Self::default() }
    }

    /// Leaves these records of established connections to the kernel, where it can take them.
    #[must_use]
    pub fn with_kernel_tls(mut self, kernel_tls: KernelTls) -> Self {
        self.kernel_tls = kernel_tls;
        self
    }

    /// The same without kernel TLS where the kernel has none, which the log says. To be asked before sessions of `engine`
    /// (by its name) go this way.
    ///
    /// # Errors
    /// The kernel is to have records, and this engine or this driver cannot give them away.
    pub fn settled(mut self, engine: &str) -> Result<Self, Error> {
        if self.kernel_tls == KernelTls::Off {
            return Ok(self);
        }
        if !Capabilities::of(engine).is_some_and(|can| can.key_export) {
            return Err(Capabilities::refusal(engine, "leave records to the kernel", |can| can.key_export).into());
        }
        if !self.has_kernel_tls() {
            let why = "epoll, spin and select can";
            let error = io::Error::new(io::ErrorKind::Unsupported, why);
            return Err(Error::Machine { what: "this driver cannot leave these records to the kernel", error });
        }
        if let Err(error) = kernel::probe() {
            log::warn!("all records stay in user space: {error}");
            self.kernel_tls = KernelTls::Off;
        }
        Ok(self)
    }

    fn has_kernel_tls(&self) -> bool {
        #[cfg(feature = "xdp")]
        if self.xdp.is_some() {
            return false;
        }
        self.io.has_kernel_tls(self.kernel_tls)
    }

    /// Hands `then` the driver that was asked for.
    pub fn choose<C: Compose>(self, then: C) -> C::Output {
        #[cfg(feature = "xdp")]
        if let Some(config) = self.xdp {
            return then.with(move || tautline_xdp::Driver::with(config.clone()));
        }
        let zero_copy = if matches!(self.io, Io::Uring | Io::UringSpin) { self.zero_copy } else { None };
        let Some(zero_copy) = zero_copy else { return self.io.choose(&self.spin, self.kernel_tls, then) };
        match self.io.here() {
            Io::Uring => {
                let spin = self.io.spins().then_some(self.spin);
                let config = uring::Config { zero_copy, spin, ..uring::Config::default() };
                then.with(move || uring::Driver::with(config.clone()))
            }
            other => other.choose(&self.spin, self.kernel_tls, then),
        }
    }

    /// Most loops that it serves.
    pub(crate) fn most_loops(&self) -> usize {
        #[cfg(feature = "xdp")]
        if self.xdp.is_some() {
            return 1;
        }
        usize::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_who_cannot_leave_records_to_the_kernel() {
        let epoll = Way::default().with_kernel_tls(KernelTls::Auto);
        let why = epoll.clone().settled("rustls").unwrap_err().to_string();
        assert!(why.contains("rustls cannot leave records to the kernel; take fused"), "{why}");
        if Io::Uring.probe().is_ok() {
            let uring = Way::new(Io::Uring, Spin::default()).with_kernel_tls(KernelTls::Transmit);
            let why = uring.settled("fused").unwrap_err().to_string();
            assert!(why.contains("epoll, spin and select can"), "{why}");
        }
        for halves in KernelTls::ALL {
            let select = Way::new(Io::Select, Spin::default()).with_kernel_tls(halves);
            assert!(select.settled("fused").is_ok(), "{halves}");
        }
        let expected = if kernel::probe().is_ok() { KernelTls::Auto } else { KernelTls::Off };
        assert_eq!(epoll.settled("fused").unwrap().kernel_tls, expected);
        assert!(Way::new(Io::Uring, Spin::default()).settled("rustls").is_ok(), "who does not ask is not refused");
    }
}
