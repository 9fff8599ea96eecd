use crate::load::Errors;
use crate::{Error, Latencies, Span};
use std::sync::atomic::AtomicUsize;

/// The result of an order on one thread.
pub(super) type Report = Result<Done, Error>;

/// The part of an order that one thread does.
pub(super) enum Order {
    /// Open connections until there are this many.
    Open(usize),
    /// Echo one message on each connection.
    EchoOnEach,
    /// Echo messages at a rate, from a number of connections in all, on random ones.
    Echo { rate: f64, span: Span },
    /// Have the server send a message to all.
    Publish,
    /// Give the latencies of messages to all.
    Published,
    /// Expect the end of connections from now on.
    ExpectEnd,
    /// Count errors from now on.
    CountErrors,
    /// Give the errors so far.
    Errors,
}

/// An order done, with what was measured.
#[derive(Default)]
pub(super) struct Done {
    pub(super) latencies: Option<Latencies>,
    /// The errors, and the number of connections that are open in spite of them.
    pub(super) errors: Option<(Errors, usize)>,
}

impl Done {
    pub(super) fn add_to(&self, latencies: &mut Latencies) {
        self.latencies.iter().for_each(|some| latencies.add(some));
    }
}

/// Counts of all threads.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) open: AtomicUsize,
    /// Connections that resumed a session.
    pub(super) resumed: AtomicUsize,
    /// Messages to all that arrived.
    pub(super) published: AtomicUsize,
    /// Connections that the server has closed.
    pub(super) closed: AtomicUsize,
}
