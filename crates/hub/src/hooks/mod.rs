//! Questions to an application over HTTP, and their answers.
//!
//! Nothing in here knows connections. A loop asks by a message, and goes on when its mailbox has the verdict.

mod cache;
mod calls;
mod counts;
mod sign;
mod verdict;

pub(crate) use self::calls::{Calls, Question};
pub use self::counts::HookCounts;
#[cfg(feature = "hooks")]
pub(crate) use self::sign::SIGNATURE;
pub(crate) use self::verdict::{Allowed, Verdict};
