use crate::raw::terms::Terms;
use crate::turn::shared::Shared;
use std::cell::RefCell;
use tautline_io::Token;

/// The part of an event that concerns other connections, or the next phase of its own.
#[derive(Default)]
pub(crate) struct Joining {
    /// The terms of the raw connection that is lent, if it becomes a WebSocket behind the call.
    pub(crate) terms: Option<Box<Terms>>,
    /// What the event has sent to others, while somebody takes the access log.
    pub(crate) crossed: RefCell<Vec<(Token, Crossed)>>,
}

/// What one connection's event has sent to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crossed {
    pub(crate) messages: u64,
    /// Bytes given to the kernel.
    pub(crate) bytes: u64,
}

impl Shared {
    /// Notes what has been sent to another connection than that of the event since `before` bytes of all were sent: it is the
    /// traffic of that one.
    pub(crate) fn note_crossed(&self, to: Token, messages: u64, before: u64) {
        if self.config.access_log.is_none() {
            return;
        }
        let bytes = self.counters.bytes_out.get() - before;
        let mut crossed = self.joining.crossed.borrow_mut();
        match crossed.last_mut().filter(|(token, _)| *token == to) {
            Some((_, sent)) => (sent.messages, sent.bytes) = (sent.messages + messages, sent.bytes + bytes),
            None => crossed.push((to, Crossed { messages, bytes })),
        }
    }
}
