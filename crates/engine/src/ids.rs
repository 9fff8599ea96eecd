use std::fmt;
use std::str::FromStr;
use tautline_io::Token;

/// Identifies a connection across all shards of a server, for example as a key in the application's maps.
///
/// ```
/// # mod tautline { pub use {tautline_engine::{Conn, ConnId, Handler}, tautline_ws::Message}; }
/// use std::collections::HashMap;
/// use tautline::{Conn, ConnId, Handler, Message};
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

/// One connection that moves to another process, or two that [move together](crate::Handler::moves_with).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Movers {
    first: ConnId,
    second: Option<ConnId>,
}

impl Movers {
    pub(crate) const fn new(first: ConnId, second: Option<ConnId>) -> Self {
        Self { first, second }
    }

    /// Its connections, in the order of their sockets.
    pub fn conns(self) -> impl Iterator<Item = ConnId> {
        [self.first].into_iter().chain(self.second)
    }

    /// The number of its connections.
    #[must_use]
    pub const fn count(self) -> usize {
        if self.second.is_some() { 2 } else { 1 }
    }
}

/// Prints the shard, the connection's slot in it, and the number of earlier uses of that slot.
impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.shard, self.token.index, self.token.generation)
    }
}

/// Reads what [`Display`](fmt::Display) prints.
impl FromStr for ConnId {
    type Err = ParseConnIdError;

    fn from_str(text: &str) -> Result<Self, ParseConnIdError> {
        let mut numbers = text.split('.').map(|number| number.parse::<u32>().map_err(|_| ParseConnIdError));
        let mut next = || numbers.next().unwrap_or(Err(ParseConnIdError));
        let id = Self { shard: next()?, token: Token { index: next()?, generation: next()? } };
        numbers.next().map_or(Ok(id), |_| Err(ParseConnIdError))
    }
}

/// A text is no identifier of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ParseConnIdError;

impl fmt::Display for ParseConnIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write an identifier of a connection as it is listed, such as 0.12.3")
    }
}

impl fmt::Debug for ParseConnIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ParseConnIdError {}

/// Identifies an outgoing connection across its reconnections.
///
/// ```
/// # mod tautline { pub use {tautline_engine::{Conn, ConnectError, DialId, Handler}, tautline_ws::Message}; }
/// use std::time::Duration;
/// use tautline::{Conn, ConnectError, DialId, Handler, Message};
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

#[cfg(test)]
mod tests {
    use super::{ConnId, ParseConnIdError};
    use tautline_io::Token;

    #[test]
    fn an_identifier_is_read_as_it_is_printed() {
        let id = ConnId { shard: 3, token: Token { index: 70_000, generation: u32::MAX } };
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "1", "1.2", "1.2.3.4", "1.2.x", "-1.2.3", "1.2.4294967296", "1..2"] {
            assert_eq!(bad.parse::<ConnId>(), Err(ParseConnIdError), "{bad:?}");
        }
    }
}
