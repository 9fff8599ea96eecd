/// Totals of a shard since it began. `connections`, `handshaking` and `open` are the present numbers instead.
///
/// ```
/// use tautline_engine::Counters;
///
/// fn report(shards: &[Counters]) -> String {
///     let mut sum = Counters::default();
///     shards.iter().for_each(|shard| sum.merge(shard));
///     format!("{} open, {} dropped", sum.open, sum.messages_dropped)
/// }
/// assert_eq!(report(&[Counters::default()]), "0 open, 0 dropped");
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Connections accepted.
    pub accepted: u64,
    /// Present connections in any state.
    pub connections: u64,
    /// Present connections whose opening handshake is not complete.
    pub handshaking: u64,
    /// Present open WebSocket connections.
    pub open: u64,
    /// WebSocket connections opened.
    pub opened: u64,
    /// Opened connections whose TLS session was resumed.
    pub resumed: u64,
    /// Opening handshakes that failed, in TLS, in HTTP or by deadline.
    pub handshakes_failed: u64,
    /// Handshake steps done by the pool: one per handshake, or two after a HelloRetryRequest.
    pub handshakes_offloaded: u64,
    /// Offloaded steps that a watcher took over, because the scheduler did not run the pool's idle-priority threads.
    pub handshakes_stalled: u64,
    /// Failed handshakes that were refused because too many waited for the pool.
    pub handshakes_refused: u64,
    /// Seals of large messages for which the loop asked other threads for help.
    pub seals_offloaded: u64,
    /// Offloaded seals that another thread joined.
    pub seals_helped: u64,
    /// Offloaded seals that were delayed by a helper thread that the scheduler did not run.
    pub seals_late: u64,
    /// Messages received.
    pub messages_in: u64,
    /// Messages sent and published, once per receiving connection. Dropped ones are included, streamed ones are not.
    pub messages_out: u64,
    /// Messages that were not sent: dropped by the slow-consumer policy, inside a streamed message, or for a full shard.
    pub messages_dropped: u64,
    /// Compressions of published messages: one per message and window size, for any number of subscribers.
    pub publications_compressed: u64,
    /// Bytes that the driver received.
    pub bytes_in: u64,
    /// Bytes given to the driver to send.
    pub bytes_out: u64,
}

impl Counters {
    /// Adds the counters of another shard.
    pub const fn merge(&mut self, other: &Self) {
        // Destructured, so that a new counter cannot be forgotten.
        let Self {
            accepted,
            connections,
            handshaking,
            open,
            opened,
            resumed,
            handshakes_failed,
            handshakes_offloaded,
            handshakes_stalled,
            handshakes_refused,
            seals_offloaded,
            seals_helped,
            seals_late,
            messages_in,
            messages_out,
            messages_dropped,
            publications_compressed,
            bytes_in,
            bytes_out,
        } = self;
        *accepted += other.accepted;
        *connections += other.connections;
        *handshaking += other.handshaking;
        *open += other.open;
        *opened += other.opened;
        *resumed += other.resumed;
        *handshakes_failed += other.handshakes_failed;
        *handshakes_offloaded += other.handshakes_offloaded;
        *handshakes_stalled += other.handshakes_stalled;
        *handshakes_refused += other.handshakes_refused;
        *seals_offloaded += other.seals_offloaded;
        *seals_helped += other.seals_helped;
        *seals_late += other.seals_late;
        *messages_in += other.messages_in;
        *messages_out += other.messages_out;
        *messages_dropped += other.messages_dropped;
        *publications_compressed += other.publications_compressed;
        *bytes_in += other.bytes_in;
        *bytes_out += other.bytes_out;
    }
}
