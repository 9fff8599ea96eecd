/// The others that a server connects to once it serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// Hosts, whose names it looks up.
    pub(super) internet: bool,
    /// Sockets of this machine.
    pub(super) unix: bool,
}
