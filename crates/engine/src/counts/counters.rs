use crate::counts::totals::Totals;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// Declares the counters once: their present values, and the cells that the loop adds to.
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Totals of a shard since it began. `connections`, `handshaking`, `http`, `open`, `carrying`, `carried` and the
        /// memory are the present numbers.
        ///
        /// ```
        /// # mod tautline { pub use tautline_engine::Counters; }
        /// use tautline::Counters;
        ///
        /// fn report(shards: &[Counters]) -> String {
        ///     let mut sum = Counters::default();
        ///     shards.iter().for_each(|shard| sum.merge(shard));
        ///     format!("{} open, {} dropped", sum.open, sum.messages_dropped)
        /// }
        /// assert_eq!(report(&[Counters::default()]), "0 open, 0 dropped");
        /// ```
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// The memory in bytes: the sum of all counters that begin with `memory_`, but `memory_closed`.
            #[must_use]
            pub const fn memory(&self) -> u64 {
                self.memory_connections
                    + self.memory_heads
                    + self.memory_partial
                    + self.memory_sending
                    + self.memory_queued
                    + self.memory_deflate
                    + self.memory_requests
                    + self.memory_topics
                    + self.memory_timers
                    + self.memory_sources
                    + self.memory_application
                    + self.memory_pooled
                    + self.memory_commands
                    + self.memory_published
            }

            /// The counters with their names, in the order in which they are declared.
            #[must_use]
            pub const fn named(&self) -> [(&'static str, u64); [$(stringify!($name)),+].len()] {
                [$((stringify!($name), self.$name)),+]
            }

            /// Adds the counters of another shard.
            pub fn merge(&mut self, other: &Self) {
                $(self.$name.add_assign(other.$name);)+
            }
        }

        /// The counters of a shard that runs. Its loop writes them, and any thread reads them without waiting.
        #[derive(Default)]
        #[repr(align(128))]
        pub(crate) struct LiveCounters {
            $(pub(crate) $name: Counter,)+
        }

        impl LiveCounters {
            /// The present values. Each is exact, but they are not all of one instant.
            pub(crate) fn snapshot(&self) -> Counters {
                Counters { $($name: self.$name.get(),)+ }
            }

            /// Adds to the counter of this name. Returns whether there is one that only grows.
            pub(crate) fn add_named(&self, name: &str, more: u64) -> bool {
                match name {
                    $(stringify!($name) if only_grows(stringify!($name)) => self.$name.add(more),)+
                    _ => return false,
                }
                true
            }
        }
    };
}

counters! {
    /// Connections accepted.
    accepted,
    /// Present connections in any state.
    connections,
    /// Present connections whose opening handshake is not complete.
    handshaking,
    /// Present connections that were answered plain HTTP and may ask again.
    http,
    /// Present open WebSocket connections.
    open,
    /// Present connections that carry others, or can: those with HTTP/2.
    carrying,
    /// Present connections that others carry, in any state: streams of HTTP/2.
    carried,
    /// WebSocket connections opened.
    opened,
    /// Opened connections whose TLS session was resumed.
    resumed,
    /// Opening handshakes that failed, in TLS, in HTTP or by deadline.
    handshakes_failed,
    /// Failed handshakes that gave way to newer ones at [`max_handshakes`](crate::Limits::max_handshakes).
    handshakes_evicted,
    /// Plain HTTP connections that gave way to newer ones at [`max_http`](crate::Limits::max_http).
    http_evicted,
    /// Handshake steps done by the pool: one per handshake, or two after a HelloRetryRequest.
    handshakes_offloaded,
    /// Offloaded steps that a watcher took over, because the scheduler did not run the pool's idle-priority threads.
    handshakes_stalled,
    /// Failed handshakes that were refused because too many waited for the pool.
    handshakes_refused,
    /// Failed handshakes of pages whose origin may not connect.
    origins_refused,
    /// Connections that carry others: those with HTTP/2. Their streams count as [accepted](Self::accepted), too.
    carriers,
    /// Of these, connections that were ended since the peer broke HTTP/2, or met a limit of it.
    carriers_failed,
    /// Streams of HTTP/2 that were refused because their client had too many at once.
    streams_refused,
    /// Streams of HTTP/2 that were reset because their client sent more than the window allows.
    stream_windows_exceeded,
    /// Requests on streams of HTTP/2 with more header bytes or fields than are taken: they got status 431.
    stream_heads_too_big,
    /// Streams of HTTP/2 that were reset because their client broke a rule.
    streams_faulty,
    /// Failed handshakes of peers that may send no header of the PROXY protocol though one is needed, and of proxies with a wrong one
    /// or none.
    proxy_headers_refused,
    /// Seals of large messages for which the loop asked other threads for help.
    seals_offloaded,
    /// Offloaded seals that another thread joined.
    seals_helped,
    /// Offloaded seals that were delayed by a helper thread that the scheduler did not run.
    seals_late,
    /// Messages received.
    messages_in,
    /// Messages sent and published, once per receiving connection. Dropped ones are included, streamed ones are not.
    messages_out,
    /// Messages that were not sent: dropped by the slow-consumer policy, inside a streamed message, or for a full shard.
    messages_dropped,
    /// Dropped messages of [`SlowConsumer::DropNewest`](crate::SlowConsumer::DropNewest).
    dropped_newest,
    /// Dropped messages of [`SlowConsumer::DropOldest`](crate::SlowConsumer::DropOldest).
    dropped_oldest,
    /// Dropped messages of [`SlowConsumer::KeepLatest`](crate::SlowConsumer::KeepLatest), replaced ones included.
    dropped_latest,
    /// Compressions of published messages: one per message and window size, for any number of subscribers.
    publications_compressed,
    /// Times that accepting paused at [`max_connections`](crate::Limits::max_connections), and streams that were refused there.
    accept_pauses,
    /// Connections that were refused because [`memory`](crate::Limits::memory) was short.
    connections_refused,
    /// Connections that were closed because [`memory`](crate::Limits::memory) was exceeded.
    memory_closed,
    /// Connections whose message exceeded [`max_message`](crate::Limits::max_message).
    messages_too_big,
    /// HTTP requests that exceeded [`head`](crate::Limits::head).
    heads_too_big,
    /// Subscriptions that were refused at [`max_subscriptions`](crate::Limits::max_subscriptions).
    subscriptions_refused,
    /// Times that reading from a client paused, by the application or at
    /// [`pause_receive_above`](crate::Limits::pause_receive_above).
    receive_pauses,
    /// Connections closed by [`SlowConsumer::Disconnect`](crate::SlowConsumer::Disconnect).
    slow_consumers,
    /// Handshakes and HTTP connections that missed [`handshake`](crate::Deadlines::handshake) or
    /// [`http`](crate::Deadlines::http).
    missed_handshake,
    /// Connections that missed [`idle`](crate::Deadlines::idle).
    missed_idle,
    /// Connections that missed [`silence`](crate::Deadlines::silence).
    missed_silence,
    /// Connections that missed [`close`](crate::Deadlines::close).
    missed_close,
    /// Connections that missed [`send`](crate::Deadlines::send).
    missed_send,
    /// Turns that took [`slow_turn`](crate::Config::slow_turn) or longer, because a handler blocked the loop.
    turns_slow,
    /// Panics of the application. Each ended its own connection, unless [`OnPanic`](crate::OnPanic) asks for more.
    panics,
    /// Bytes that the driver received.
    bytes_in,
    /// Bytes given to the driver to send.
    bytes_out,
    /// Memory of present connections' own state, with their TLS sessions, in bytes.
    memory_connections,
    /// Memory of handshakes, and of HTTP heads that are not whole.
    memory_heads,
    /// Memory of records and messages that are not whole.
    memory_partial,
    /// Memory of bytes on their way to peers.
    memory_sending,
    /// Memory of queued messages, each for one connection.
    memory_queued,
    /// Memory of compression's state.
    memory_deflate,
    /// Memory of HTTP requests that wait for the application's answer, and of those that get it piece by piece.
    memory_requests,
    /// Memory of subscriptions: topics, their subscribers and their names.
    memory_topics,
    /// Memory of the application's timers.
    memory_timers,
    /// Memory of the tables of connections without a WebSocket, by source.
    memory_sources,
    /// Memory that the application [counts](crate::ApplicationMemory), and that of [its connections](crate::Conn::set_memory).
    memory_application,
    /// Memory of unused buffers.
    memory_pooled,
    /// Memory of commands that wait for the shard, without messages that count as published.
    memory_commands,
    /// Memory of messages that were published or sent from other threads here, and that any queue still has.
    memory_published,
}

impl Counters {
    /// Adds the counters that only grow.
    pub(crate) fn put_totals(&self, totals: &mut Totals) {
        let growing = self.named().into_iter().filter(|(name, _)| only_grows(name));
        growing.for_each(|(name, value)| totals.put(name, value));
    }
}

/// Whether a counter is a total, and not a present number.
fn only_grows(name: &str) -> bool {
    let is_present = matches!(name, "connections" | "handshaking" | "http" | "open" | "carrying" | "carried");
    !is_present && (name == "memory_closed" || !name.starts_with("memory_"))
}

/// A number that one thread writes and all read.
///
/// There is one writer, so a load and a store do what a locked addition would: x86 has one instruction for both.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }

    pub(crate) fn sub(&self, less: u64) {
        self.set(self.get().wrapping_sub(less));
    }
}
