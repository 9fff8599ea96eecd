//! Work that a feed gives its driver.

use crate::ids::{FetchId, LinkId, SymbolId};
use crate::outbox::Class;

/// Work for the driver of a [`Feed`](crate::Feed).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Open a connection. [`opened`](crate::Feed::opened) or [`closed`](crate::Feed::closed) follows.
    Connect {
        /// Its name from now on.
        link: LinkId,
        /// Where to.
        url: String,
    },
    /// Send a text message.
    Send {
        /// The connection.
        link: LinkId,
        /// The message.
        text: String,
        /// Its purpose.
        class: Class,
        /// The number of [`Feed::send_timed`](crate::Feed::send_timed), if its time is wanted.
        timed: Option<u64>,
    },
    /// Close a connection. The feed has forgotten it already.
    Close {
        /// The connection.
        link: LinkId,
        /// The reason, for logs.
        reason: &'static str,
    },
    /// Fetch a snapshot by HTTP. [`fetched`](crate::Feed::fetched) follows.
    FetchSnapshot {
        /// The request's name.
        fetch: FetchId,
        /// The symbol.
        symbol: SymbolId,
        /// Where from.
        url: String,
    },
}
