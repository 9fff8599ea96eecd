use crate::dial::target::Target;
use crate::link::state::Link;
use crate::moving::saved::Outgoing;

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
