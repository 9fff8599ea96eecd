use crate::raw::terms::Terms;
use std::cell::RefCell;
use tautline_io::Token;

/// The part of an event that concerns other connections, or the next phase of its own.
#[derive(Default)]
pub(crate) struct Joining {
    /// The terms of the raw connection that is lent, if it becomes a WebSocket behind the call.
    pub(crate) terms: Option<Box<Terms>>,
    /// The event's traffic of others, while somebody takes the access log.
    pub(crate) crossed: RefCell<Vec<(Token, Crossed)>>,
}

/// Traffic that one connection's event has made of another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crossed {
    pub(crate) messages: u64,
    /// Bytes given to the kernel.
    pub(crate) bytes: u64,
}
