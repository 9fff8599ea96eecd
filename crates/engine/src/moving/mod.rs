//! Connections that move to another process: what is saved of each, and in which format.
//!
//! [`Shard`](crate::Shard) calls it, between two turns.

pub(crate) mod restored;
pub(crate) mod restoring;
pub(crate) mod saved;
pub(crate) mod saving;
pub(crate) mod staying;
pub(crate) mod transfer;
