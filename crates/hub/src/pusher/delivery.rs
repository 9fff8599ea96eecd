//! Events of channels on their way to loops.

use std::sync::Arc;
use tautline::layers::ws::Prepared;

/// An event on its way to the subscribers of a loop.
pub(crate) struct Delivery {
    pub(crate) topic: Arc<str>,
    pub(crate) what: What,
    /// The socket that does not get it.
    pub(crate) except: Option<Box<str>>,
}

pub(crate) enum What {
    Event(Prepared),
    /// Ends the connections of the channel's user.
    End,
}

impl Delivery {
    /// The bytes of its event.
    pub(crate) fn event(&self) -> Option<usize> {
        match &self.what {
            What::Event(frame) => Some(frame.payload().len()),
            What::End => None,
        }
    }

    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.event().unwrap_or_default()
    }
}
