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
}

/// An order done, with what was measured.
#[derive(Default)]
pub(super) struct Done {
    pub(super) latencies: Option<Latencies>,
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
