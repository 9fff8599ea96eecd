use crate::dial::target::Target;
use crate::link::state::Link;
use crate::moving::saved::Outgoing;
use crate::turn::timer::Tick;

/// Connections that arrive from another process, and the time for which they and those that leave are saved.
pub(crate) struct Moving<S, T> {
    /// Connections that have not begun, by their numbers: one, or two that move together, or none that stayed there after all.
    pub(crate) restored: Vec<Vec<Restored<S, T>>>,
    /// The time up to which times of connections that move count.
    pub(crate) began: Option<Tick>,
}

impl<S, T> Moving<S, T> {
    pub(crate) const fn new() -> Self {
        Self { restored: Vec::new(), began: None }
    }

    /// The time up to which saved times count.
    pub(crate) fn at(&self, now: Tick) -> Tick {
        self.began.unwrap_or(now)
    }
}

/// A connection that has arrived from another process and has not begun. The driver holds its socket still.
pub(crate) struct Restored<S, T> {
    pub(crate) link: Box<Link<S, T>>,
    pub(crate) rest: Rest,
}

/// The parts of a connection that are not its link's until it begins.
#[derive(Default)]
pub(crate) struct Rest {
    pub(crate) topics: Vec<String>,
    pub(crate) prefixes: Vec<String>,
    /// Identifiers of timers, and the milliseconds until they are due.
    pub(crate) timers: Vec<(u64, u64)>,
    /// The entry of the access log.
    pub(crate) access: Vec<u8>,
    /// The target, with the one that the application has named for further connections.
    pub(crate) outgoing: Option<(Outgoing, Target)>,
}
