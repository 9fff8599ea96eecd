//! All that is unsafe here: calls into the shim (`csrc`), behind types that own what the shim gives and lend what it takes.

mod connection;
mod context;
mod identity;
mod library;
#[cfg(feature = "outside")]
mod outside;
mod session;
mod table;
mod tickets;

pub(crate) use connection::{Agreed, Connection, Failure, Status, failure, verify};
pub(crate) use context::{Context, Options, Verify};
pub(crate) use identity::{Identity, KeyKind};
pub(crate) use library::{Library, Refusal, RefusalKind};
#[cfg(feature = "outside")]
pub use outside::Outside;
pub(crate) use session::ResumableSession;
#[cfg(feature = "outside")]
pub use table::Table;
pub(crate) use tickets::{TicketKeys, ticket_keys};

/// Text that the shim wrote, up to its end.
fn text(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

/// Bytes of either end of a certificate's validity.
const TIME: usize = 24;

/// Most bytes of a certificate's names.
const NAMES: usize = 16 * 1024;
