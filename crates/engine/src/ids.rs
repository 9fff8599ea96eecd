use std::fmt;
use tautline_io::Token;

/// Identifies a connection across all shards of a server, for example as a key in the application's maps.
///
/// ```
/// use std::collections::HashMap;
/// use tautline_engine::{Conn, ConnId, Handler};
/// use tautline_ws::Message;
///
/// /// Keeps the name of the user of each connection.
/// #[derive(Default)]
/// struct Users {
///     names: HashMap<ConnId, String>,
/// }
///
/// impl Handler for Users {
///     type State = ();
///     fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
///         let name = message.text().unwrap_or_default().to_owned();
///         println!("{} on shard {} is {name}", conn.id(), conn.id().shard());
///         self.names.insert(conn.id(), name);
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId {
    pub(crate) shard: u32,
    pub(crate) token: Token,
}

impl ConnId {
    /// The shard that owns the connection.
    #[must_use]
    pub const fn shard(self) -> u32 {
        self.shard
    }
}

/// Prints the shard, the connection's slot in it, and the number of earlier uses of that slot.
impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.shard, self.token.index, self.token.generation)
    }
}

/// Identifies an outgoing connection across its reconnections.
///
/// ```
/// use std::time::Duration;
/// use tautline_engine::{Conn, ConnectError, DialId, Handler};
/// use tautline_ws::Message;
///
/// struct Client;
///
/// impl Handler for Client {
///     type State = ();
///     fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}
///     fn on_connect_failed(&mut self, dial: DialId, error: &ConnectError, _: Option<Duration>) {
///         println!("target {dial}: {error:#}");
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DialId(pub(crate) u32);

impl DialId {
    /// The connection's place in the shard's order of dialing, from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for DialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
