//! Connections that are not open yet: how many there may be, and how much of a turn they have.
//!
//! It owns the numbers that all loops share ([`admission`]), and calls the close of those that give way. The turn calls it for each
//! connection that is accepted, opens or ends.

pub(crate) mod admission;
pub(crate) mod admitting;
pub(crate) mod counting;
pub(crate) mod front;
pub(crate) mod gate;
pub(crate) mod limits;
pub(crate) mod opening;
pub(crate) mod openings;
pub(crate) mod pace;
pub(crate) mod waiting;
