//! Messages of a connection that are not sealed yet: a cork for this turn, and a queue for a slow peer.
//!
//! ```text
//!              cork (frames)  ──seal──►  wire (records)  ──send──►  driver
//! send() ──┤
//!              queue (messages, not encoded) ── once the kernel took all bytes ──► cork
//! ```
//! A message that can still be dropped is not encoded: neither sealed records nor bytes that a compressor has seen can be taken
//! back. The part behind the cork is [`wire`](crate::link::wire).

use crate::counts::counters::LiveCounters;
use crate::link::wire::{BATCH, Transport, Wire};
use crate::moving::saved::{Saved, Waiting};
use crate::turn::shared::Shared;
use tautline_buf::{Buf, Pool};
use tautline_conn::config::SlowConsumer;
use tautline_conn::cork::Cork;
use tautline_conn::message::{Delivery, Encoded, Outgoing};
use tautline_conn::queue::{Item, Pushed, Queue};
use tautline_ws::deflate::{DeflateConfig, DeflateParams};
use tautline_ws::{CloseCode, EncoderState, Kind, Role};

/// Most bytes in the cork to which control frames are added while a send is in flight. Not every ping needs an answer.
const MAX_STUCK_CONTROL: usize = 4096;
/// The messages of a connection that are not sealed yet.
pub(crate) struct Outbound {
    cork: Cork,
    deflate: Option<DeflateParams>,
    queue: Queue,
    /// Messages taken so far.
    taken: u64,
    /// The first messages of `taken` that no longer wait.
    gone: u64,
    /// Kind of the streamed message that is not ended.
    streaming: Option<Kind>,
    /// The close frame behind all waiting messages.
    close: Option<Box<(CloseCode, String)>>,
    /// Whether `on_drain` must be called once the queue is empty.
    drain_owed: bool,
    /// Messages that were dropped since the last call of `on_dropped`, or the largest number: an idle connection stays small.
    dropped: u16,
}

impl Outbound {
    pub(crate) fn new(role: Role) -> Self {
        Self {
            cork: Cork::new(role),
            deflate: None,
            queue: Queue::default(),
            taken: 0,
            gone: 0,
            streaming: None,
            close: None,
            drain_owed: false,
            dropped: 0,
        }
    }

    /// Compresses messages of at least [`min_size`](DeflateConfig::min_size) bytes from now on, unless their sender forbids it.
    pub(crate) fn set_deflate(&mut self, params: DeflateParams, config: &DeflateConfig) {
        self.cork.set_deflate(&params, config);
        self.deflate = Some(params);
    }

    /// The parameters of compression, if it was negotiated.
    pub(crate) const fn deflate(&self) -> Option<DeflateParams> {
        self.deflate
    }

    /// Sends a message in this turn, or queues it by the policy if bytes wait already.
    pub(crate) fn send(
        &mut self,
        message: Outgoing<'_>,
        transport: &mut Transport<'_>,
        shared: &mut Shared,
    ) -> Delivery {
        if !transport.phase.takes_messages() {
            return Delivery::Closed;
        }
        shared.counters.messages_out.add(1);
        if self.streaming.is_some() {
            return self.drop_within_another(shared);
        }
        if self.is_blocked(transport.wire) && !self.make_room(message.payload.len(), message.policy, transport, shared)
        {
            let Outgoing { kind, payload, compress, key, policy, .. } = message;
            let item = Item::Message { kind, payload: copy(payload), compress, key };
            return self.enqueue(item, policy, transport, shared);
        }
        self.taken += 1;
        let Outgoing { kind, payload, compress, .. } = message;
        let compress = compress && self.cork.compresses(payload.len());
        match self.cork.large(kind, payload, compress) {
            Some(header) => self.seal_behind_cork(header.filled(), payload, transport, shared),
            None => self.encode(kind, payload, compress, shared),
        }
        Delivery::Sent
    }

    /// Sends a published message.
    pub(crate) fn publish(
        &mut self,
        publication: &Encoded,
        transport: &mut Transport<'_>,
        shared: &mut Shared,
    ) -> Delivery {
        if !transport.phase.takes_messages() {
            return Delivery::Closed;
        }
        shared.counters.messages_out.add(1);
        if self.streaming.is_some() {
            return self.drop_within_another(shared);
        }
        if self.is_blocked(transport.wire) {
            return self.enqueue(Item::Shared(publication.clone()), publication.policy, transport, shared);
        }
        self.taken += 1;
        self.encode_publication(publication, Some(transport), shared);
        Delivery::Sent
    }

    /// Sends a piece of a streamed message.
    ///
    /// A piece that was taken is never dropped. [`Delivery::Dropped`] means that nothing of it was taken. Either too many bytes
    /// wait, and it can be sent again after `on_drain`, or its kind differs from the message's kind.
    pub(crate) fn fragment(
        &mut self,
        (kind, payload, last): (Kind, &[u8], bool),
        transport: &mut Transport<'_>,
        shared: &mut Shared,
    ) -> Delivery {
        if !transport.phase.takes_messages() {
            return Delivery::Closed;
        }
        if self.streaming.is_some_and(|begun| begun != kind) {
            log::error!("a piece was not sent: all pieces of a message have one kind");
            return Delivery::Dropped;
        }
        if self.is_blocked(transport.wire) && !self.make_room(payload.len(), None, transport, shared) {
            if self.queue.bytes() > shared.config.slow_consumer.limit() {
                return Delivery::Dropped;
            }
            let item = Item::Fragment { kind, payload: copy(payload), last };
            self.streaming = (!last).then_some(kind);
            return self.enqueue(item, None, transport, shared);
        }
        self.taken += 1;
        self.streaming = (!last).then_some(kind);
        self.encode_fragment(kind, payload, last, shared);
        Delivery::Sent
    }

    pub(crate) fn ping(&mut self, payload: &[u8], wire: &Wire, shared: &mut Shared) -> Result<(), tautline_ws::Error> {
        if self.takes_control(wire) { self.cork.ping(payload, shared.means()) } else { Ok(()) }
    }

    pub(crate) fn pong(&mut self, payload: &[u8], wire: &Wire, shared: &mut Shared) -> Result<(), tautline_ws::Error> {
        if self.takes_control(wire) { self.cork.pong(payload, shared.means()) } else { Ok(()) }
    }

    /// Queues a close frame behind all waiting messages.
    pub(crate) fn queue_close(&mut self, code: CloseCode, reason: &str) {
        self.close = Some(Box::new((code, reason.to_owned())));
    }

    /// Drops the queued messages.
    pub(crate) fn clear_queue(&mut self) {
        self.queue.clear();
        self.drain_owed = false;
    }

    /// Drops the queued messages. A close frame behind them gets this code: its own would say that they were sent.
    pub(crate) fn fail_queue(&mut self, code: CloseCode, reason: &str) {
        if !self.queue.is_empty() && self.close.is_some() {
            self.queue_close(code, reason);
        }
        self.clear_queue();
    }

    /// Drops all messages that are not sealed.
    pub(crate) fn clear(&mut self) {
        self.cork.clear();
        self.queue.clear();
        self.close = None;
    }

    /// The cork, to append HTTP heads and bodies. The next flush seals them.
    pub(crate) fn raw(&mut self, pool: &mut Pool) -> &mut Buf {
        self.cork.raw(pool)
    }

    /// Gives the cork back, or as much of its memory as its bytes do not need while they wait for the peer.
    #[inline]
    pub(crate) fn tidy(&mut self, pool: &mut Pool) {
        self.cork.tidy(pool);
    }

    /// Bytes that wait: queued, in the cork, sealed or in flight.
    pub(crate) const fn buffered(&self, wire: &Wire) -> usize {
        self.queue.bytes() + self.cork.len() + wire.len()
    }

    /// Whether messages here have memory.
    #[inline]
    pub(crate) const fn has_memory(&self) -> bool {
        self.cork.has_memory() | self.queue.has_memory()
    }

    /// Memory in bytes: of the cork, of queued messages, of those that other queues may have too, and of the compressor.
    pub(crate) fn memory(&self) -> (usize, usize, usize, usize) {
        let (cork, deflater) = self.cork.memory();
        (cork, self.queue.memory(), self.queue.shared(), deflater)
    }

    /// Messages taken so far: a mark for [`lags`](Self::lags).
    pub(crate) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether messages up to `mark` still wait, the next message would wait too, and more than `most` bytes wait in all.
    #[inline]
    pub(crate) fn lags(&self, wire: &Wire, mark: u64, most: usize) -> bool {
        mark > self.gone && self.is_blocked(wire) && self.buffered(wire) > most
    }

    /// Whether the application has begun a streamed message.
    pub(crate) const fn is_streaming(&self) -> bool {
        self.streaming.is_some()
    }

    /// Whether no message waits here.
    pub(crate) fn is_empty(&self) -> bool {
        self.cork.is_empty() && self.queue.is_empty() && self.close.is_none()
    }

    /// Whether `on_drain` must be called now.
    pub(crate) fn is_drained(&self, wire: &Wire) -> bool {
        self.drain_owed && self.queue.is_empty() && !wire.is_in_flight()
    }

    /// Has `on_drain` called once nothing waits.
    pub(crate) const fn owe_drain(&mut self) {
        self.drain_owed = true;
    }

    /// `on_drain` is called now.
    pub(crate) const fn report_drained(&mut self) {
        self.drain_owed = false;
    }

    /// Whether `on_dropped` must be called.
    pub(crate) const fn has_dropped(&self) -> bool {
        self.dropped > 0
    }

    /// The messages dropped so far, for a call of `on_dropped`.
    pub(crate) fn take_dropped(&mut self) -> u32 {
        core::mem::take(&mut self.dropped).into()
    }

    /// Gives the driver as many bytes as it takes, also from the queue, until the [visit](crate::turn::visit) has done much. Then ends
    /// our direction, if that is due.
    pub(crate) fn flush(&mut self, transport: &mut Transport<'_>, shared: &mut Shared) {
        self.flush_until(transport, shared, |shared| shared.visit.did_much());
    }

    /// Gives the driver as many bytes as it takes, also from the queue, until `is_enough`.
    fn flush_until(&mut self, transport: &mut Transport<'_>, shared: &mut Shared, is_enough: impl Fn(&Shared) -> bool) {
        transport.pass_keys();
        while transport.wire.is_free() {
            self.fill_cork(transport.wire, shared);
            transport.seal_cork(self.cork.frames(), shared);
            if self.queue.is_empty() && transport.finish(shared) {
                return;
            }
            if transport.is_empty() {
                self.count_gone();
                break;
            }
            transport.send(shared);
            if transport.wire.is_flushed() && self.is_empty() {
                self.count_gone();
                break;
            }
            if is_enough(shared) {
                break;
            }
        }
    }

    /// Gives the driver all bytes that it takes: a peer is slow only if the kernel takes no more for it.
    pub(crate) fn flush_all(&mut self, transport: &mut Transport<'_>, shared: &mut Shared) {
        self.flush_until(transport, shared, |_| false);
    }

    /// Saves the messages that are not sealed, and the position in the stream.
    #[cold]
    pub(crate) fn save(&mut self, saved: &mut Saved, shared: &mut Shared) -> Result<(), tautline_ws::Error> {
        saved.encoder = self.cork.save(shared.means())?.encode();
        saved.cork = self.cork.frames().filled().to_vec();
        saved.streaming = self.streaming;
        saved.drain_owed = self.drain_owed;
        saved.queue = self.queue.items().map(|(item, drops)| Waiting::new(item, drops)).collect();
        Ok(())
    }

    /// Goes on with saved messages, after [`set_deflate`](Self::set_deflate) if they are compressed.
    #[cold]
    pub(crate) fn restore(&mut self, encoder: EncoderState, saved: &Saved) -> Result<(), tautline_ws::Error> {
        self.cork.restore(encoder, &saved.cork)?;
        self.streaming = saved.streaming;
        self.drain_owed = saved.drain_owed;
        for waiting in &saved.queue {
            self.queue.restore(waiting.item(), waiting.drops);
        }
        self.taken = self.queue.len() as u64;
        Ok(())
    }

    /// Gives all memory back.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        self.cork.release(pool);
        self.queue.clear();
    }

    /// Flushes before the policy would apply to a peer that had no chance to read, after many sends in one call. True if a
    /// message of `len` bytes need not wait then.
    #[inline(never)]
    fn make_room(
        &mut self,
        len: usize,
        policy: Option<SlowConsumer>,
        transport: &mut Transport<'_>,
        shared: &mut Shared,
    ) -> bool {
        if !transport.wire.is_in_flight() {
            let limit = policy.unwrap_or(shared.config.slow_consumer).limit();
            if self.queue.bytes().saturating_add(len) > limit {
                self.flush_all(transport, shared);
            }
        }
        !self.is_blocked(transport.wire)
    }

    /// Whether the next message has to wait.
    pub(crate) fn is_blocked(&self, wire: &Wire) -> bool {
        wire.is_in_flight() || !self.queue.is_empty() || self.cork.len() + wire.len() >= BATCH
    }

    fn enqueue(
        &mut self,
        item: Item,
        policy: Option<SlowConsumer>,
        transport: &mut Transport<'_>,
        shared: &mut Shared,
    ) -> Delivery {
        shared.visit.spend(item.cost());
        let mut dropped = 0;
        let policy = policy.unwrap_or(shared.config.slow_consumer);
        let pushed = self.queue.push(item, policy, &mut dropped);
        if dropped > 0 {
            self.note_dropped(dropped);
            count_dropped(policy, dropped, &shared.counters);
        }
        match pushed {
            Pushed::Waits => {
                self.taken += 1;
                self.drain_owed = true;
            }
            Pushed::Replaces => {}
            Pushed::Dropped => return Delivery::Dropped,
            Pushed::Overrun => {
                self.clear_queue();
                transport.phase.overrun();
                return Delivery::Closed;
            }
        }
        Delivery::Queued(self.buffered(transport.wire))
    }

    /// Drops a message that would lie between the pieces of another.
    #[cold]
    fn drop_within_another(&mut self, shared: &Shared) -> Delivery {
        shared.counters.messages_dropped.add(1);
        self.note_dropped(1);
        Delivery::Dropped
    }

    fn note_dropped(&mut self, dropped: u64) {
        self.dropped = self.dropped.saturating_add(u16::try_from(dropped).unwrap_or(u16::MAX));
    }

    /// Notes that only the messages in the queue still wait.
    pub(crate) fn count_gone(&mut self) {
        self.gone = self.taken - self.queue.len() as u64;
    }

    fn fill_cork(&mut self, wire: &Wire, shared: &mut Shared) {
        while self.cork.len() + wire.len() < BATCH {
            let Some(item) = self.queue.pop() else { break };
            match item {
                Item::Message { kind, payload, compress, .. } => {
                    let compress = compress && self.cork.compresses(payload.len());
                    self.encode(kind, &payload, compress, shared);
                }
                Item::Shared(publication) => self.encode_publication(&publication, None, shared),
                Item::Fragment { kind, payload, last } => self.encode_fragment(kind, &payload, last, shared),
            }
        }
        if self.queue.is_empty()
            && let Some(close) = self.close.take()
        {
            let (code, reason) = *close;
            self.cork.close(code, &reason, shared.means());
        }
    }

    /// Seals the cork, a frame's beginning and its rest.
    fn seal_behind_cork(&mut self, front: &[u8], rest: &[u8], transport: &mut Transport<'_>, shared: &mut Shared) {
        let cork = core::mem::take(self.cork.frames());
        transport.seal([cork.filled(), front], rest, shared);
        shared.pool.give_back(cork);
    }

    fn encode(&mut self, kind: Kind, payload: &[u8], compress: bool, shared: &mut Shared) {
        if compress {
            // Few bytes may be left of it, after much work.
            shared.visit.spend(payload.len());
        }
        if let Err(error) = self.cork.message(kind, payload, compress, shared.means()) {
            log::error!("a message was not sent: {error}");
        }
    }

    /// Encodes a published message into the cork. A large one is sealed in place, if there is a `transport`.
    fn encode_publication(
        &mut self,
        publication: &Encoded,
        transport: Option<&mut Transport<'_>>,
        shared: &mut Shared,
    ) {
        let message = &publication.message;
        let compress = publication.compress && self.cork.compresses(message.payload().len());
        if self.cork.role() == Role::Client {
            self.encode(message.kind(), message.payload(), compress, shared);
            return;
        }
        let Shared { pool, shared_deflater, .. } = shared;
        let deflater = compress.then_some(shared_deflater);
        match (self.cork.prepared(message, deflater, transport.is_some(), pool), transport) {
            (Ok(Some(frame)), Some(transport)) => self.seal_behind_cork(&[], frame, transport, shared),
            (Ok(_), _) => {}
            (Err(error), _) => log::error!("a published message was not sent: {error}"),
        }
        if compress {
            shared.counters.publications_compressed.set(shared.shared_deflater.runs());
        }
    }

    fn encode_fragment(&mut self, kind: Kind, payload: &[u8], last: bool, shared: &mut Shared) {
        shared.visit.spend(payload.len());
        if let Err(error) = self.cork.fragment(kind, payload, last, shared.means()) {
            log::error!("a fragment was not sent: {error}");
        }
    }

    /// Whether control frames are added to the cork.
    const fn takes_control(&self, wire: &Wire) -> bool {
        !wire.is_in_flight() || self.cork.len() < MAX_STUCK_CONTROL
    }
}

/// Counts messages that a policy dropped.
#[cold]
fn count_dropped(policy: SlowConsumer, dropped: u64, counters: &LiveCounters) {
    counters.messages_dropped.add(dropped);
    match policy {
        SlowConsumer::DropNewest(_) => counters.dropped_newest.add(dropped),
        SlowConsumer::DropOldest(_) => counters.dropped_oldest.add(dropped),
        SlowConsumer::KeepLatest(_) => counters.dropped_latest.add(dropped),
        // `Disconnect` closes the connection instead.
        _ => {}
    }
}

/// Copies a payload that has to wait. A lack of memory panics, as with buffers, instead of aborting the process.
fn copy(payload: &[u8]) -> Box<[u8]> {
    let mut copy = Vec::new();
    assert!(copy.try_reserve_exact(payload.len()).is_ok(), "no memory for a message of {} bytes", payload.len());
    copy.extend_from_slice(payload);
    copy.into_boxed_slice()
}
