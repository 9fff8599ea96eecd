use rustix::fd::OwnedFd;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use tautline_io::Token;

/// The listeners and the connections that are not accepted yet.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) all: Vec<Entry>,
    /// The index of each local endpoint's listener.
    pub(crate) by_endpoint: HashMap<SocketAddr, u32>,
    /// Connections whose handshake is not complete, the oldest first; some may be complete or gone.
    pub(crate) half_open: VecDeque<Token>,
    /// Number of connections in `half_open` whose handshake is still not complete.
    pub(crate) half_open_count: usize,
    /// Connections to accept, the oldest first; some may be gone.
    pub(crate) ready: VecDeque<Token>,
    pub(crate) paused: bool,
}

/// One listener.
pub(crate) struct Entry {
    /// A kernel socket that is bound and never listens, so that no other program gets the port.
    pub(crate) reserved: Option<OwnedFd>,
    pub(crate) backlog: usize,
}
