use crate::link::Link;
use std::os::fd::OwnedFd;

/// A connection that has arrived from another process and has not begun.
pub(crate) struct Restored<S, T> {
    pub(crate) socket: OwnedFd,
    pub(crate) link: Link<S, T>,
    pub(crate) topics: Vec<String>,
    pub(crate) prefixes: Vec<String>,
    /// Identifiers of timers, and the milliseconds until they are due.
    pub(crate) timers: Vec<(u64, u64)>,
}
