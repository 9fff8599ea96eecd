/// The end of a connection that connected, and the one that accepted.
pub(crate) const CLIENT: usize = 0;
pub(crate) const SERVER: usize = 1;

/// One end of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EndId {
    pub(crate) tcp: usize,
    pub(crate) side: usize,
}

impl EndId {
    pub(crate) const fn other(self) -> Self {
        Self { tcp: self.tcp, side: 1 - self.side }
    }
}
