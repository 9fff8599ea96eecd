//! One connection of a loop: its state, its input and output, and its keys.
//!
//! [`state`] holds it all, and [`phase`] is its state machine, that of the crate `conn`. So are queue, cork and wire, whose
//! [`outlet`] is the driver. The turn calls it with bytes and with time: [`input`] gives bytes to the crate `conn`, [`inward`]
//! takes what that finds in them, and [`visitor`] the messages. Nothing here knows other connections.

pub(crate) mod info;
pub(crate) mod input;
mod inward;
pub(crate) mod kernel;
pub(crate) mod kernel_tls;
pub(crate) mod outlet;
pub(crate) mod phase;
pub(crate) mod state;
mod visitor;
