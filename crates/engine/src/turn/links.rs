use crate::ids::DialId;
use crate::link::state::Link;
use tautline_io::Token;

/// A place for a connection of a shard, at the index of its token.
pub(crate) enum Slot<S, T> {
    Free,
    Link(Box<Link<S, T>>),
    /// A socket that is still connecting.
    Attempt(Token, DialId),
}
