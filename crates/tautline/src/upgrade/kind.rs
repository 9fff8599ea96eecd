//! The kinds of frames between the two processes.

/// The purpose of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// New to old: the version of the protocol, and the latest format of a saved connection that the new process reads.
    Hello = 1,
    /// Old to new: the version, and a socket for each loop.
    Loops = 2,
    /// Old to new: a listening socket. The content is the number of its server, from 1 on; empty for the one that moves.
    Listening = 3,
    /// Old to new: all listening sockets were sent. The content is the ticket keys.
    Offered = 4,
    /// New to old: the loops have begun, and wait for connections. All that the program may fail at is done.
    Started = 5,
    /// Old to new, on a loop's socket: connections, each with its length in front.
    Connections = 6,
    /// Old to new, on a loop's socket: there are no further ones. The content is the loop's totals.
    End = 7,
    /// New to old, on a loop's socket: numbers of the connections that were refused. Without content after a frame of
    /// connections ahead: the next one may come.
    Taken = 8,
    /// New to old: all loops have taken their connections.
    Ready = 9,
    /// Old to new: go on with them. The content is the server's totals.
    Commit = 10,
    /// New to old: they go on here.
    Running = 11,
    /// Either: everything stays as it was. The content says why.
    Abort = 12,
    /// New to old: all connections go on here. The content is the time in nanoseconds since `Commit` arrived.
    Resumed = 13,
    /// Old to new, on a loop's socket: connections as in `Connections`, which go on there for now. Their numbers count on from
    /// those before.
    Ahead = 14,
    /// Old to new, on a loop's socket: later states of such connections, each with its number in front.
    AheadAgain = 15,
    /// Old to new, on a loop's socket: last states of such connections. From the first frame of this kind, of `Gone` or of
    /// `Connections` on, no connection of this loop goes on there.
    Changed = 16,
    /// Old to new, on a loop's socket: numbers of connections ahead that stay there after all.
    Gone = 17,
}

impl Kind {
    const ALL: [Self; 17] = [
        Self::Hello,
        Self::Loops,
        Self::Listening,
        Self::Offered,
        Self::Started,
        Self::Connections,
        Self::End,
        Self::Taken,
        Self::Ready,
        Self::Commit,
        Self::Running,
        Self::Abort,
        Self::Resumed,
        Self::Ahead,
        Self::AheadAgain,
        Self::Changed,
        Self::Gone,
    ];

    pub(super) fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}
