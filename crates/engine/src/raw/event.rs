use tautline_conn::closed::Cause;

/// An event of a [raw](crate::Raw) connection, beside the bytes that arrive.
#[derive(Debug)]
#[non_exhaustive]
pub enum RawEvent<'a> {
    /// An outgoing connection is established, with TLS if its target has that.
    Opened,
    /// The peer has ended its direction. `whole` if that is certain: close_notify came, or there is no TLS.
    ///
    /// Ours still works.
    Finished {
        /// Whether nothing is missing at the end (RFC 8446, section 6.1).
        whole: bool,
    },
    /// The connection has arrived from another process, with its state and timers. Called instead of `Opened`.
    Restored,
    /// Everything that was written is with the kernel, after [`notify_drain`](crate::Conn::notify_drain).
    Drained,
    /// A timer that [`set_timer`](crate::Conn::set_timer) has set is due.
    Timer(u64),
    /// Another thread, or another connection, has called [`ShardHandle::notify`](crate::ShardHandle::notify).
    Notified,
    /// The server drains: the connection is to end soon. It is reset at the end of the drain.
    Drain,
    /// The connection has ended. Called once for each that was opened or taken, unless it was given back to HTTP. Bytes that are
    /// written to it now are discarded.
    Closed(&'a Cause),
}
