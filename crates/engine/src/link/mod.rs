//! One connection of a loop: its state, its input and output, and its keys.
//!
//! [`state`] holds it all, and [`phase`] is its state machine, that of the crate `conn`. So are queue, cork and wire, whose
//! [`outlet`] is the driver. The turn calls it with bytes and with time. Nothing here knows other connections.

pub(crate) mod info;
pub(crate) mod input;
pub(crate) mod kernel;
pub(crate) mod kernel_tls;
pub(crate) mod outlet;
pub(crate) mod phase;
pub(crate) mod state;
