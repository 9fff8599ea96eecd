//! Upgrades without a disconnect: a new process takes over listening and established connections.
//!
//! ```text
//!  old                                                      new
//!                                                Hello ◄─── connects
//!  sockets for loops, listening ones, ticket keys ─► Loops, Listening, Offered
//!                                              Started ◄─── all its loops have begun
//!  loops save between turns ─── by loop: Ahead, AheadAgain ► restores
//!                                                Taken ◄─── is ready for more
//!  all loops stop, and save
//!  changes, others ─── by loop: Changed, Connections, End ──► restores
//!                                         Taken, Ready ◄─── has everything, and touches no connection
//!  ─────────────────────────────────────────────► Commit
//!                                              Running ◄─── goes on
//!                                              Resumed ◄─── all connections are served again
//!  forgets the connections, drains the others
//! ```
//! At each step at most one process goes on with a connection: [`protocol`] has the rule and its proof.

mod arriving;
mod batch;
mod channel;
mod error;
mod hand_over;
mod handed;
mod kind;
mod ledger;
mod part;
mod protocol;
mod settings;
mod take_over;
mod upgrades;

pub use error::HandOverError;
pub use handed::HandedOver;
pub use settings::HandOver;
pub(crate) use take_over::{Arrivals, TakeOver};
pub(crate) use upgrades::Legacy;
pub use upgrades::Upgrades;

#[cfg(test)]
mod tests;
