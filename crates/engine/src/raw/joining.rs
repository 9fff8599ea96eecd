use crate::raw::terms::Terms;
use std::cell::RefCell;
use tautline_io::Token;

/// The part of an event that concerns other connections, or the next phase of its own.
#[derive(Default)]
pub(crate) struct Joining {
    /// The terms of the raw connection that is lent, if it becomes a WebSocket behind the call.
    pub(crate) terms: Option<Box<Terms>>,
    /// Messages that the event has sent to others, with their number, while somebody takes the access log.
    pub(crate) crossed: RefCell<Vec<(Token, u64)>>,
}
