//! Messages of a connection that are not sealed yet: a cork for this turn, and a queue for a slow peer.
//!
//! ```text
//!              cork (frames)  ──seal──►  wire (records)  ──send──►  driver
//! send() ──┤
//!              queue (messages, not encoded) ── once the kernel took all bytes ──► cork
//! ```
//! A message that can still be dropped is not encoded: neither sealed records nor bytes that a compressor has seen can be taken
//! back. The part behind the cork is [`wire`](crate::wire).

use crate::config::SlowConsumer;
use crate::counters::LiveCounters;
use crate::message::{Delivery, Encoded, Outgoing};
use crate::queue::{Item, Pushed, Queue};
use crate::saved::{Saved, Waiting};
use crate::shared::Shared;
use crate::wire::{BATCH, Transport, Wire};
use tautline_buf::{Buf, Pool};
use tautline_ws::deflate::{DeflateConfig, DeflateParams, Deflater};
use tautline_ws::{CloseCode, Encoder, EncoderState, Fragment, Header, Kind, Opcode, Role};

/// Size from which payloads are sealed in place instead of being copied into the cork.
const LARGE: usize = 16 << 10;
/// Most bytes in the cork to which control frames are added while a send is in flight. Not every ping needs an answer.
const MAX_STUCK_CONTROL: usize = 4096;
/// Longest control frame: a header and 125 bytes (RFC 6455, section 5.5).
const MOST_CONTROL: usize = Header::MAX_LEN + 125;

/// The messages of a connection that are not sealed yet.
pub(crate) struct Outbound {
    encoder: Encoder,
    role: Role,
    /// Least payload bytes to compress; `usize::MAX` without permessage-deflate.
    min_deflate: usize,
    deflate: Option<DeflateParams>,
    cork: Buf,
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
}

impl Outbound {
    pub(crate) fn new(role: Role) -> Self {
        Self {
            encoder: Encoder::new(role),
            role,
            min_deflate: usize::MAX,
            deflate: None,
            cork: Buf::new(),
            queue: Queue::default(),
            taken: 0,
            gone: 0,
            streaming: None,
            close: None,
            drain_owed: false,
        }
    }

    /// Compresses messages of at least [`min_size`](DeflateConfig::min_size) bytes from now on, unless their sender forbids it.
    pub(crate) fn set_deflate(&mut self, params: DeflateParams, config: &DeflateConfig) {
        let deflater = Deflater::new(&params, self.role, config.level);
        // If the window is too small for the library, there are only stored blocks.
        self.min_deflate = if deflater.compresses() { config.min_size } else { usize::MAX };
        self.deflate = Some(params);
        self.encoder = Encoder::new(self.role).with_deflater(deflater);
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
            shared.counters.messages_dropped.add(1);
            return Delivery::Dropped;
        }
        if self.is_blocked(transport.wire) && !self.make_room(message.payload.len(), message.policy, transport, shared)
        {
            let Outgoing { kind, payload, compress, key, policy, .. } = message;
            let item = Item::Message { kind, payload: copy(payload), compress, key };
            return self.enqueue(item, policy, transport, shared);
        }
        self.taken += 1;
        let compress = message.compress && message.payload.len() >= self.min_deflate;
        if message.payload.len() >= LARGE && !compress && self.role == Role::Server {
            self.seal_in_place(message, transport, shared);
        } else {
            self.encode(message.kind, message.payload, compress, shared);
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
            shared.counters.messages_dropped.add(1);
            return Delivery::Dropped;
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
        self.control(wire, shared, |encoder, key, out| encoder.ping(payload, key, out))
    }

    pub(crate) fn pong(&mut self, payload: &[u8], wire: &Wire, shared: &mut Shared) -> Result<(), tautline_ws::Error> {
        self.control(wire, shared, |encoder, key, out| encoder.pong(payload, key, out))
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
        lend(&mut self.cork, pool, 0)
    }

    /// Gives the cork back, or as much of its memory as its bytes do not need while they wait for the peer.
    #[inline]
    pub(crate) fn tidy(&mut self, pool: &mut Pool) {
        if self.cork.has_memory() {
            self.give_unneeded(pool);
        }
    }

    #[inline(never)]
    fn give_unneeded(&mut self, pool: &mut Pool) {
        if self.cork.is_empty() {
            pool.give_back(core::mem::take(&mut self.cork));
        } else {
            pool.fit(&mut self.cork);
        }
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
        let shared = self.queue.shared();
        (self.cork.capacity(), self.queue.bytes() - shared, shared, self.encoder.memory())
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

    /// Gives the driver as many bytes as it takes, also from the queue. Then ends our direction, if that is due.
    pub(crate) fn flush(&mut self, transport: &mut Transport<'_>, shared: &mut Shared) {
        transport.pass_keys();
        while transport.wire.is_free() {
            self.fill_cork(transport.wire, shared);
            transport.seal_cork(&mut self.cork, shared);
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
        }
    }

    /// Saves the messages that are not sealed, and the position in the stream.
    #[cold]
    pub(crate) fn save(&mut self, saved: &mut Saved, shared: &mut Shared) -> Result<(), tautline_ws::Error> {
        let Shared { pool, keys, .. } = shared;
        // The cork gets the bytes that a compressor holds of a streamed message.
        saved.encoder = self.encoder.state(|| keys.next(), &mut self.cork, pool)?.encode();
        saved.cork = self.cork.filled().to_vec();
        saved.streaming = self.streaming;
        saved.drain_owed = self.drain_owed;
        saved.queue = self.queue.items().map(|(item, drops)| Waiting::new(item, drops)).collect();
        Ok(())
    }

    /// Goes on with saved messages, after [`set_deflate`](Self::set_deflate) if they are compressed.
    #[cold]
    pub(crate) fn restore(&mut self, encoder: EncoderState, saved: &Saved) -> Result<(), tautline_ws::Error> {
        let new = core::mem::replace(&mut self.encoder, Encoder::new(self.role));
        self.encoder = new.import(encoder)?;
        self.cork.put(&saved.cork);
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
        pool.give(core::mem::take(&mut self.cork));
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
                self.flush(transport, shared);
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
        shared: &Shared,
    ) -> Delivery {
        let mut dropped = 0;
        let policy = policy.unwrap_or(shared.config.slow_consumer);
        let pushed = self.queue.push(item, policy, &mut dropped);
        if dropped > 0 {
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

    /// Notes that only the messages in the queue still wait.
    pub(crate) fn count_gone(&mut self) {
        self.gone = self.taken - self.queue.len() as u64;
    }

    fn fill_cork(&mut self, wire: &Wire, shared: &mut Shared) {
        while self.cork.len() + wire.len() < BATCH {
            let Some(item) = self.queue.pop() else { break };
            match item {
                Item::Message { kind, payload, compress, .. } => {
                    let compress = compress && payload.len() >= self.min_deflate;
                    self.encode(kind, &payload, compress, shared);
                }
                Item::Shared(publication) => self.encode_publication(&publication, None, shared),
                Item::Fragment { kind, payload, last } => self.encode_fragment(kind, &payload, last, shared),
            }
        }
        if self.queue.is_empty()
            && let Some(close) = self.close.take()
        {
            let Shared { pool, keys, .. } = shared;
            let out = lend(&mut self.cork, pool, MOST_CONTROL);
            let (code, reason) = *close;
            // 1005 stands for a frame without a code. Other codes that must not be sent are left out too.
            let frame = code.is_sendable().then_some((code, reason.as_str()));
            if let Err(error) = self.encoder.close(frame, || keys.next(), out) {
                log::error!("a close frame was not sent: {error}");
            }
        }
    }

    /// Seals a message's header and payload without copying the payload.
    fn seal_in_place(&mut self, message: Outgoing<'_>, transport: &mut Transport<'_>, shared: &mut Shared) {
        let mut header = [0; Header::MAX_LEN];
        let len = message.payload.len() as u64;
        let len = Header { fin: true, rsv1: false, opcode: Opcode::from(message.kind), key: None, len }
            .encode_to(&mut header);
        self.seal_behind_cork(&header[..len], message.payload, transport, shared);
    }

    /// Seals the cork, a frame's beginning and its rest.
    fn seal_behind_cork(&mut self, front: &[u8], rest: &[u8], transport: &mut Transport<'_>, shared: &mut Shared) {
        let cork = core::mem::take(&mut self.cork);
        transport.seal([cork.filled(), front], rest, shared);
        shared.pool.give_back(cork);
    }

    fn encode(&mut self, kind: Kind, payload: &[u8], compress: bool, shared: &mut Shared) {
        let Shared { pool, keys, .. } = shared;
        lend(&mut self.cork, pool, Header::MAX_LEN + payload.len());
        if let Err(error) = self.encoder.message(kind, payload, compress, || keys.next(), &mut self.cork, pool) {
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
        let compress = publication.compress && message.payload().len() >= self.min_deflate;
        if self.role == Role::Client {
            self.encode(message.kind(), message.payload(), compress, shared);
            return;
        }
        let Shared { pool, shared_deflater, .. } = shared;
        match (self.encoder.prepared(message, compress.then_some(shared_deflater), pool), transport) {
            (Ok(frame), Some(transport)) if frame.len() >= LARGE => {
                self.seal_behind_cork(&[], frame, transport, shared);
            }
            (Ok(frame), _) => lend(&mut self.cork, pool, frame.len()).put(frame),
            (Err(error), _) => log::error!("a published message was not sent: {error}"),
        }
        if compress {
            shared.counters.publications_compressed.set(shared.shared_deflater.runs());
        }
    }

    fn encode_fragment(&mut self, kind: Kind, payload: &[u8], last: bool, shared: &mut Shared) {
        let Shared { pool, keys, .. } = shared;
        lend(&mut self.cork, pool, Header::MAX_LEN + payload.len());
        let fragment = Fragment { kind, payload, last, compress: self.min_deflate != usize::MAX };
        if let Err(error) = self.encoder.fragment(fragment, || keys.next(), &mut self.cork, pool) {
            log::error!("a fragment was not sent: {error}");
        }
    }

    fn control(
        &mut self,
        wire: &Wire,
        shared: &mut Shared,
        encode: impl FnOnce(&mut Encoder, &mut dyn FnMut() -> [u8; 4], &mut Buf) -> Result<(), tautline_ws::Error>,
    ) -> Result<(), tautline_ws::Error> {
        if wire.is_in_flight() && self.cork.len() >= MAX_STUCK_CONTROL {
            return Ok(());
        }
        let Shared { pool, keys, .. } = shared;
        encode(&mut self.encoder, &mut || keys.next(), lend(&mut self.cork, pool, MOST_CONTROL))
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
        // It closes the connection instead.
        SlowConsumer::Disconnect(_) => {}
    }
}

/// Copies a payload that has to wait. A lack of memory panics, as with buffers, instead of aborting the process.
fn copy(payload: &[u8]) -> Box<[u8]> {
    let mut copy = Vec::new();
    assert!(copy.try_reserve_exact(payload.len()).is_ok(), "no memory for a message of {} bytes", payload.len());
    copy.extend_from_slice(payload);
    copy.into_boxed_slice()
}

/// Makes room for `n` bytes in a cork, with the pool's memory. A cork is sealed or given back before the turn ends, so it
/// may be larger than its bytes need.
fn lend<'a>(cork: &'a mut Buf, pool: &mut Pool, n: usize) -> &'a mut Buf {
    if !cork.has_memory() {
        *cork = pool.take();
    }
    pool.reserve(cork, n);
    cork
}
