use tautline_io::{Compose, Io, Spin};

/// How loops reach the wire.
#[derive(Clone, Default)]
pub(crate) struct Way {
    pub(crate) io: Io,
    pub(crate) spin: Spin,
    /// In place of `io`.
    #[cfg(feature = "xdp")]
    pub(crate) xdp: Option<tautline_xdp::Config>,
}

impl Way {
    /// Hands `then` the driver that was asked for.
    pub(crate) fn choose<C: Compose>(self, then: C) -> C::Output {
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
