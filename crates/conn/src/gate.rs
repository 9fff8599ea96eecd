//! A bound of the application's own on the connections of each source.

use std::any::Any;
use std::fmt;
use tautline_io::Address;

/// Decides which clients may have one more connection, for all loops of a server.
///
/// It is asked once for each connection: before its handshake, or when a header of the PROXY protocol has named its client. A
/// connection that it refuses is reset. Each stream of HTTP/2 is one more connection of its client, and is refused such that the
/// client may try it again. Proxies are not asked for: peers in
/// [`forwarded_from`](crate::front::Front::forwarded_from), whose connections carry the requests of many clients, and connections
/// that a header says to be the proxy's own. Connections without a loop have no gate.
///
/// ```
/// # mod tautline { pub use {tautline_conn::gate::{Gate, Place}, tautline_io::Address}; }
/// use std::sync::Arc;
/// use tautline::{Address, Gate, Place};
///
/// /// At most ten connections at a time, of whomever.
/// #[derive(Debug, Default)]
/// struct Ten(Arc<()>);
///
/// impl Gate for Ten {
///     fn enter(&self, _: &Address) -> Option<Place> {
///         (Arc::strong_count(&self.0) <= 10).then(|| Place::new(self.0.clone()))
///     }
///
///     fn enter_again(&self, _: &Address) -> Place {
///         Place::new(self.0.clone())
///     }
/// }
/// ```
pub trait Gate: Send + Sync + fmt::Debug {
    /// Lets one more connection of a client in. `None` refuses it. The place is dropped when the connection ends.
    fn enter(&self, client: &Address) -> Option<Place>;

    /// Lets one more stream of a client's connection in, which has no handshake. `None` refuses it.
    fn enter_stream(&self, client: &Address) -> Option<Place> {
        self.enter(client)
    }

    /// Counts a connection of a client that another process has let in.
    fn enter_again(&self, client: &Address) -> Place;
}

/// The place of a connection behind a [`Gate`]: a value whose drop gives it back.
pub struct Place(#[expect(dead_code, reason = "its drop is its use")] Box<dyn Any + Send>);

impl Place {
    /// A place that is given back when `kept` is dropped.
    #[must_use]
    pub fn new(kept: impl Any + Send) -> Self {
        Self(Box::new(kept))
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place")
    }
}
