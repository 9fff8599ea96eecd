use tautline_io::{Compose, Io, Spin};

/// How loops reach the wire: a driver and its settings.
#[derive(Clone, Debug, Default)]
pub struct Way {
    pub(crate) io: Io,
    pub(crate) spin: Spin,
    /// In place of `io`.
    #[cfg(feature = "xdp")]
    pub(crate) xdp: Option<tautline_xdp::Config>,
}

impl Way {
    /// Over the kernel's sockets, by the driver of this name; `spin` is for [`Io::Spin`].
    #[must_use]
    pub fn new(io: Io, spin: Spin) -> Self {
        Self {
            io,
            spin,
            #[cfg(feature = "xdp")]
            xdp: None,
        }
    }

    /// Past the kernel's TCP/IP stack, over the interface of `config`.
    #[cfg(feature = "xdp")]
    #[must_use]
    pub fn xdp(config: tautline_xdp::Config) -> Self {
        Self { xdp: Some(config), ..Self::default() }
    }

    /// Hands `then` the driver that was asked for.
    pub fn choose<C: Compose>(self, then: C) -> C::Output {
        #[cfg(feature = "xdp")]
        if let Some(config) = self.xdp {
            return then.with(move || tautline_xdp::Driver::with(config.clone()));
        }
        self.io.choose(&self.spin, then)
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
