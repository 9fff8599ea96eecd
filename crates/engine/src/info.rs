use crate::handle::ConnHandle;
use crate::ids::DialId;
use crate::timers::Timer;
use std::sync::Arc;
use tautline_io::Address;
use tautline_ws::CloseCode;

/// The fixed properties of a connection.
pub(crate) struct Info {
    pub(crate) peer: Address,
    /// `None` on a server.
    pub(crate) dial: Option<DialId>,
}

/// State that few connections need, boxed so that idle connections are small.
#[derive(Default)]
pub(crate) struct Cold {
    /// The subprotocol that both sides speak.
    pub(crate) subprotocol: Option<Box<str>>,
    /// The subscribed topics, each once.
    pub(crate) subscriptions: Vec<Arc<str>>,
    /// Code and reason of the peer's close frame, until `on_close` reports them.
    pub(crate) peer_close: Option<Box<(CloseCode, String)>>,
    /// State that still fewer need.
    pub(crate) more: Option<Box<More>>,
}

impl Cold {
    pub(crate) fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }
}

/// State of connections that use more than topics.
#[derive(Default)]
pub(crate) struct More {
    /// The subscribed prefixes of topics, each once.
    pub(crate) prefixes: Vec<Arc<str>>,
    /// The timers that run, and cancelled ones whose entry in the wheel is not due yet.
    pub(crate) timers: Vec<Timer>,
    /// The handle that other threads have.
    pub(crate) handle: Option<ConnHandle>,
    /// Whether the application wants to connect again at once.
    pub(crate) reconnects: bool,
}

#[cfg(test)]
mod tests {
    use super::{Cold, More};

    /// A connection with a topic has the one, and a connection with a timer has both.
    #[test]
    fn are_small() {
        assert!(size_of::<Cold>() <= 56, "{}", size_of::<Cold>());
        assert!(size_of::<More>() <= 64, "{}", size_of::<More>());
    }
}
