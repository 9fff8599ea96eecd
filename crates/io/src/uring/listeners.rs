use super::conn::Multi;
use crate::socket::Listening;
use rustix::fd::OwnedFd;
use std::collections::VecDeque;

/// The listening sockets of one driver.
#[derive(Default)]
pub(super) struct Listeners {
    /// Sockets by number; numbers are not reused.
    pub(super) sockets: Vec<Option<Socket>>,
    /// Some listeners need a new accept request.
    pub(super) unarmed: bool,
    /// Connections that the kernel accepted before it learnt that accepting rests.
    pub(super) waiting: VecDeque<(u32, OwnedFd)>,
}

pub(super) struct Socket {
    pub(super) listening: Listening,
    pub(super) accepting: Multi,
    pub(super) generation: u32,
}
