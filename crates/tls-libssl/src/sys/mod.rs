//! All unsafe code: calls into the shim (`csrc`), behind types that own its objects and lend it buffers.

mod connection;
mod context;
#[cfg(feature = "external")]
mod external;
mod identity;
mod library;
mod session;
mod table;
mod text;
mod tickets;

pub(crate) use connection::{Connection, Failure, Status, failure, verify};
pub(crate) use context::{Context, Options, Verify};
#[cfg(feature = "external")]
pub use external::External;
pub(crate) use identity::{Identity, KeyKind};
pub(crate) use library::{Library, Refusal, RefusalKind};
pub(crate) use session::ResumableSession;
#[cfg(feature = "external")]
pub use table::Table;
pub(crate) use tickets::{TicketKeys, ticket_keys};
