//! Messages of a connection that are not sealed yet: a cork for this turn, and a queue for a slow peer.
//!
//! ```text
//!              cork (frames)  ──seal──►  wire (records)  ──send──►  outlet
//! send() ──┤
//!              queue (messages, not encoded) ── once the kernel took all bytes ──► cork
//! ```
//! A message that can still be dropped is not encoded: neither sealed records nor bytes that a compressor has seen can be taken
//! back. The part behind the cork is [`wire`](crate::wire).

use crate::closed::Cause;
use crate::config::SlowConsumer;
use crate::cork::{Cork, Means};
use crate::message::{Delivery, Encoded, Outgoing};
use crate::phase::Phase;
use crate::pieces::Pieces;
use crate::queue::{Drops, Item, Pushed, Queue};
use crate::verdict::{End, Notice, Stop, Verdict, write_status};
use crate::wire::{BATCH, Outlet, Transport, Wire};
use http::HeaderValue;
use tautline_buf::{Buf, Pool};
use tautline_ws::deflate::{DeflateConfig, DeflateParams};
use tautline_ws::{CloseCode, EncoderState, Error, Kind, Prepared, Role};

/// Most bytes in the cork to which control frames are added while a send is in flight. Not every ping needs an answer.
const MAX_STUCK_CONTROL: usize = 4096;
/// Bytes below which plain bytes are copied, so that those of one turn share a record.
const IN_CORK: usize = 4096;

/// The messages of a connection that are not sealed yet.
pub struct Outbound {
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
    /// Nothing was sent.
    #[must_use]
    pub fn new(role: Role) -> Self {
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
    pub fn set_deflate(&mut self, params: DeflateParams, config: &DeflateConfig) {
        self.cork.set_deflate(&params, config);
        self.deflate = Some(params);
    }

    /// Writes messages as pieces of a response from now on.
    pub fn set_pieces(&mut self, pieces: Pieces) {
        self.cork.set_pieces(pieces);
    }

    /// Whether messages are pieces of a response.
    #[inline]
    #[must_use]
    pub fn is_push(&self) -> bool {
        self.cork.is_push()
    }

    /// The parameters of compression, if it was negotiated.
    #[must_use]
    pub const fn deflate(&self) -> Option<DeflateParams> {
        self.deflate
    }

    /// Sends a message with the next seal, or queues it by the policy if bytes wait already.
    pub fn send<O: Outlet, W, R>(
        &mut self,
        message: Outgoing<'_>,
        transport: &mut Transport<'_, W, R>,
        outlet: &mut O,
    ) -> Delivery {
        if !transport.phase.takes_messages() {
            return Delivery::Closed;
        }
        outlet.count_message();
        if self.streaming.is_some() {
            return self.drop_within_another(outlet);
        }
        if self.is_blocked(transport.wire) && !self.make_room(message.payload.len(), message.policy, transport, outlet)
        {
            let policy = message.policy;
            return self.enqueue(item(message), policy, transport, outlet);
        }
        if let Some((kind, payload, compress)) = self.seal_large(message, transport, outlet) {
            self.encode_or_log(kind, payload, compress, outlet);
        }
        Delivery::Sent
    }

    /// Encodes a message, or seals it where it lies. It overtakes those that wait.
    ///
    /// # Errors
    /// A streamed message is not ended, or the compressor failed.
    #[inline]
    pub fn take<O: Outlet, W, R>(
        &mut self,
        message: Outgoing<'_>,
        transport: &mut Transport<'_, W, R>,
        outlet: &mut O,
    ) -> Result<(), Error> {
        match self.seal_large(message, transport, outlet) {
            Some((kind, payload, compress)) => self.encode(kind, payload, compress, outlet),
            None => Ok(()),
        }
    }

    /// Takes a message that is framed once for many, and compressed once for each window size.
    ///
    /// # Errors
    /// Those of [`take`](Self::take).
    pub fn take_made<O: Outlet, W, R>(
        &mut self,
        made: &Prepared,
        compress: bool,
        transport: &mut Transport<'_, W, R>,
        outlet: &mut O,
    ) -> Result<(), Error> {
        self.taken += 1;
        let compress = compress && self.cork.compresses(made.payload().len());
        if self.cork.role() == Role::Client {
            return self.encode(made.kind(), made.payload(), compress, outlet);
        }
        let (pool, deflater) = outlet.shared_deflater();
        if let Some(frame) = self.cork.prepared(made, deflater.filter(|_| compress), true, pool)? {
            self.seal_behind_cork(&[], frame, transport, outlet);
        }
        Ok(())
    }

    /// Lets a message wait unencoded, by the policy.
    #[cold]
    pub fn wait<O: Outlet>(&mut self, message: Outgoing<'_>, outlet: &mut O) -> Pushed {
        let policy = message.policy;
        self.push(item(message), policy, outlet)
    }

    /// Sends a published message.
    pub fn publish<O: Outlet, W, R>(
        &mut self,
        publication: &Encoded,
        transport: &mut Transport<'_, W, R>,
        outlet: &mut O,
    ) -> Delivery {
        if !transport.phase.takes_messages() {
            return Delivery::Closed;
        }
        outlet.count_message();
        if self.streaming.is_some() {
            return self.drop_within_another(outlet);
        }
        if self.is_blocked(transport.wire) {
            return self.enqueue(Item::Shared(publication.clone()), publication.policy, transport, outlet);
        }
        self.taken += 1;
        self.encode_publication(publication, Some(transport), outlet);
        Delivery::Sent
    }

    /// Sends a piece of a streamed message.
    ///
    /// A piece that was taken is never dropped. [`Delivery::Dropped`] means that nothing of it was taken. Either too many bytes
    /// wait, and it can be sent again after `on_drain`, or its kind differs from the message's kind.
    pub fn fragment<O: Outlet, W, R>(
        &mut self,
        (kind, payload, last): (Kind, &[u8], bool),
        transport: &mut Transport<'_, W, R>,
        outlet: &mut O,
    ) -> Delivery {
        if !transport.phase.takes_messages() {
            return Delivery::Closed;
        }
        if self.streaming.is_some_and(|begun| begun != kind) {
            log::error!("a piece was not sent: all pieces of a message have one kind");
            return Delivery::Dropped;
        }
        if self.is_blocked(transport.wire) && !self.make_room(payload.len(), None, transport, outlet) {
            if self.queue.bytes() > outlet.policy().limit() {
                return Delivery::Dropped;
            }
            let item = Item::Fragment { kind, payload: copy(payload), last };
            self.streaming = (!last).then_some(kind);
            return self.enqueue(item, None, transport, outlet);
        }
        self.taken += 1;
        self.streaming = (!last).then_some(kind);
        self.encode_fragment(kind, payload, last, outlet);
        Delivery::Sent
    }

    /// Sends a ping, unless bytes are in flight and too many control frames wait.
    ///
    /// # Errors
    /// Its payload is longer than 125 bytes.
    pub fn ping(&mut self, payload: &[u8], wire: &Wire, means: Means<'_>) -> Result<(), Error> {
        if self.takes_control(wire) { self.cork.ping(payload, means) } else { Ok(()) }
    }

    /// Sends a pong, unless bytes are in flight and too many control frames wait.
    ///
    /// # Errors
    /// Its payload is longer than 125 bytes.
    pub fn pong(&mut self, payload: &[u8], wire: &Wire, means: Means<'_>) -> Result<(), Error> {
        if self.takes_control(wire) { self.cork.pong(payload, means) } else { Ok(()) }
    }

    /// Queues a close frame behind all waiting messages.
    pub fn queue_close(&mut self, code: CloseCode, reason: &str) {
        self.close = Some(Box::new((code, reason.to_owned())));
    }

    /// Queues a close frame behind all waiting messages, unless the connection closes already or is not open.
    pub fn close<W, R>(&mut self, phase: &mut Phase<W, R>, code: CloseCode, reason: &str) {
        if phase.close() {
            self.queue_close(code, reason);
        }
    }

    /// Drops the waiting messages, and queues a close frame.
    pub fn close_now<W, R>(&mut self, phase: &mut Phase<W, R>, code: CloseCode, reason: &str) {
        self.fail_queue(code, reason);
        self.close(phase, code, reason);
    }

    /// Queues the notice of an end to the peer, unless it is a response. Returns the phase of that end.
    pub fn begin_end<W, R>(&mut self, phase: &mut Phase<W, R>, verdict: Verdict, cause: &Cause) -> Phase<W, R> {
        if let Notice::Close(code, reason) = verdict.notice {
            if matches!(phase, Phase::Overrun) {
                self.queue_close(code, &reason);
            } else {
                self.close_now(phase, code, &reason);
            }
        }
        if verdict.end == End::Abandon {
            self.clear();
        }
        Phase::of_end(verdict.end, cause)
    }

    /// Begins the end of a connection whose input cannot be processed further, with a notice or a response to the peer. Returns
    /// the phase of that end, and the reason: the server's refusal, if one was being read.
    pub fn stop<W, R>(
        &mut self,
        phase: &mut Phase<W, R>,
        stop: Stop,
        date: &HeaderValue,
        pool: &mut Pool,
    ) -> (Phase<W, R>, Stop) {
        let verdict = Verdict::of(&stop, phase.stage(), self.role());
        let stop = match stop {
            Stop::Failed(cause) => phase.take_rejection().map_or(Stop::Failed(cause), Stop::Refused),
            stop => stop,
        };
        if let Notice::Status(status) = verdict.notice {
            write_status(status, date, self.raw(pool));
        }
        let cause = if let Stop::Failed(cause) = &stop { cause } else { &Cause::Local };
        (self.begin_end(phase, verdict, cause), stop)
    }

    /// The side of the connection that sends.
    #[inline]
    #[must_use]
    pub const fn role(&self) -> Role {
        self.cork.role()
    }

    /// Drops the queued messages.
    pub fn clear_queue(&mut self) {
        self.queue.clear();
        self.drain_owed = false;
    }

    /// Drops the queued messages. A close frame behind them gets this code: its own would say that they were sent.
    pub fn fail_queue(&mut self, code: CloseCode, reason: &str) {
        if !self.queue.is_empty() && self.close.is_some() {
            self.queue_close(code, reason);
        }
        self.clear_queue();
    }

    /// Drops all messages that are not sealed.
    pub fn clear(&mut self) {
        self.cork.clear();
        self.queue.clear();
        self.close = None;
    }

    /// Sends bytes as they are. Few wait in the cork for others of the turn, and many are sealed from where they lie.
    pub fn write<O: Outlet, W, R>(&mut self, bytes: &[u8], transport: &mut Transport<'_, W, R>, outlet: &mut O) {
        outlet.spend(bytes.len());
        if bytes.len() < IN_CORK && self.cork.len() < IN_CORK {
            self.cork.raw(outlet.means().pool).put(bytes);
        } else {
            self.seal_behind_cork(&[], bytes, transport, outlet);
        }
    }

    /// The cork, to append HTTP heads and bodies. The next flush seals them.
    pub fn raw(&mut self, pool: &mut Pool) -> &mut Buf {
        self.cork.raw(pool)
    }

    /// Gives the cork back, or as much of its memory as its bytes do not need while they wait for the peer.
    #[inline]
    pub fn tidy(&mut self, pool: &mut Pool) {
        self.cork.tidy(pool);
    }

    /// Bytes that wait: queued, in the cork, sealed or in flight.
    #[must_use]
    pub const fn buffered(&self, wire: &Wire) -> usize {
        self.queue.bytes() + self.encoded(wire)
    }

    /// Bytes that wait encoded: in the cork, sealed or in flight.
    #[inline]
    #[must_use]
    pub const fn encoded(&self, wire: &Wire) -> usize {
        self.cork.len() + wire.waiting()
    }

    /// Whether messages wait unencoded.
    #[inline]
    #[must_use]
    pub fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether messages here have memory.
    #[inline]
    #[must_use]
    pub const fn has_memory(&self) -> bool {
        self.cork.has_memory() | self.queue.has_memory()
    }

    /// Memory in bytes: of the cork, of queued messages, of those that other queues may have too, and of the compressor.
    #[must_use]
    pub fn memory(&self) -> (usize, usize, usize, usize) {
        let (cork, deflater) = self.cork.memory();
        (cork, self.queue.memory(), self.queue.shared(), deflater)
    }

    /// Messages taken so far: a mark for [`lags`](Self::lags).
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether messages up to `mark` still wait, the next message would wait too, and more than `most` bytes wait in all.
    #[inline]
    #[must_use]
    pub fn lags(&self, wire: &Wire, mark: u64, most: usize) -> bool {
        mark > self.gone && self.is_blocked(wire) && self.buffered(wire) > most
    }

    /// The kind of the streamed message that the application has begun.
    #[must_use]
    pub const fn streaming(&self) -> Option<Kind> {
        self.streaming
    }

    /// Whether the application has begun a streamed message.
    #[must_use]
    pub const fn is_streaming(&self) -> bool {
        self.streaming.is_some()
    }

    /// Whether no message waits here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cork.is_empty() && self.queue.is_empty() && self.close.is_none()
    }

    /// Whether `on_drain` must be called now.
    #[must_use]
    pub fn is_drained(&self, wire: &Wire) -> bool {
        self.drain_owed && self.queue.is_empty() && !wire.is_in_flight()
    }

    /// Whether `on_drain` must be called once nothing waits.
    #[must_use]
    pub const fn owes_drain(&self) -> bool {
        self.drain_owed
    }

    /// Has `on_drain` called once nothing waits.
    pub const fn owe_drain(&mut self) {
        self.drain_owed = true;
    }

    /// `on_drain` is called now.
    pub const fn report_drained(&mut self) {
        self.drain_owed = false;
    }

    /// Whether `on_dropped` must be called.
    #[must_use]
    pub const fn has_dropped(&self) -> bool {
        self.dropped > 0
    }

    /// The messages dropped so far, for a call of `on_dropped`.
    pub fn take_dropped(&mut self) -> u32 {
        core::mem::take(&mut self.dropped).into()
    }

    /// Gives the outlet as many bytes as it takes, also from the queue, until [much](Outlet::did_much) was done. Then ends our
    /// direction, if that is due.
    #[inline]
    pub fn flush<O: Outlet, W, R>(&mut self, transport: &mut Transport<'_, W, R>, outlet: &mut O) {
        self.flush_until(transport, outlet, O::did_much);
    }

    /// Gives the outlet all bytes that it takes: a peer is slow only if the kernel takes no more for it.
    #[inline]
    pub fn flush_all<O: Outlet, W, R>(&mut self, transport: &mut Transport<'_, W, R>, outlet: &mut O) {
        self.flush_until(transport, outlet, |_| false);
    }

    #[inline]
    fn flush_until<O: Outlet, W, R>(
        &mut self,
        transport: &mut Transport<'_, W, R>,
        outlet: &mut O,
        is_enough: impl Fn(&O) -> bool,
    ) {
        transport.pass_keys(outlet);
        while transport.wire.is_free() {
            self.fill_cork(transport.wire, outlet);
            transport.seal_cork(self.cork.frames(), outlet);
            if self.queue.is_empty() && transport.finish(outlet) {
                return;
            }
            if transport.is_empty() {
                self.count_gone();
                break;
            }
            transport.send(outlet);
            if transport.wire.is_flushed() && self.is_empty() {
                self.count_gone();
                break;
            }
            if is_enough(outlet) {
                break;
            }
        }
    }

    /// The state of the encoder, to go on elsewhere. The [cork](Self::cork)'s frames and [`queued`](Self::queued) are the rest.
    ///
    /// # Errors
    /// A close frame was sent, or the compressor failed.
    #[cold]
    pub fn save(&mut self, means: Means<'_>) -> Result<EncoderState, Error> {
        self.cork.save(means)
    }

    /// The frames that are not sealed, and their encoder.
    pub const fn cork(&mut self) -> &mut Cork {
        &mut self.cork
    }

    /// The messages that wait, with the means that a later message has to push each out.
    pub fn queued(&self) -> impl Iterator<Item = (&Item, Drops)> {
        self.queue.items()
    }

    /// Goes on with a saved state and these frames, after [`set_deflate`](Self::set_deflate) if they are compressed.
    ///
    /// # Errors
    /// The state is that of a compressor, and there is none.
    #[cold]
    pub fn restore(
        &mut self,
        encoder: EncoderState,
        frames: &[u8],
        streaming: Option<Kind>,
        waiting: impl Iterator<Item = (Item, Drops)>,
    ) -> Result<(), Error> {
        self.cork.restore(encoder, frames)?;
        self.streaming = streaming;
        for (item, drops) in waiting {
            self.queue.restore(item, drops);
        }
        self.taken = self.queue.len() as u64;
        Ok(())
    }

    /// Gives all memory back.
    pub fn release(&mut self, pool: &mut Pool) {
        self.cork.release(pool);
        self.queue.clear();
    }

    /// Flushes before the policy would apply to a peer that had no chance to read, after many sends in one call. True if a
    /// message of `len` bytes need not wait then.
    #[inline(never)]
    fn make_room<O: Outlet, W, R>(
        &mut self,
        len: usize,
        policy: Option<SlowConsumer>,
        transport: &mut Transport<'_, W, R>,
        outlet: &mut O,
    ) -> bool {
        if !transport.wire.is_in_flight() {
            let limit = policy.unwrap_or_else(|| outlet.policy()).limit();
            if self.queue.bytes().saturating_add(len) > limit {
                self.flush_all(transport, outlet);
            }
        }
        !self.is_blocked(transport.wire)
    }

    /// Whether the next message has to wait.
    #[must_use]
    pub fn is_blocked(&self, wire: &Wire) -> bool {
        wire.is_in_flight() || !self.queue.is_empty() || self.encoded(wire) >= BATCH
    }

    fn enqueue<O: Outlet, W, R>(
        &mut self,
        item: Item,
        policy: Option<SlowConsumer>,
        transport: &mut Transport<'_, W, R>,
        outlet: &mut O,
    ) -> Delivery {
        outlet.spend(item.cost());
        match self.push(item, policy, outlet) {
            Pushed::Waits => self.drain_owed = true,
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

    fn push<O: Outlet>(&mut self, item: Item, policy: Option<SlowConsumer>, outlet: &mut O) -> Pushed {
        let mut dropped = 0;
        let policy = policy.unwrap_or_else(|| outlet.policy());
        let pushed = self.queue.push(item, policy, &mut dropped);
        if dropped > 0 {
            self.note_dropped(dropped);
            outlet.count_dropped(Some(policy), dropped);
        }
        self.taken += u64::from(pushed == Pushed::Waits);
        pushed
    }

    /// Drops a message that would lie between the pieces of another.
    #[cold]
    fn drop_within_another<O: Outlet>(&mut self, outlet: &mut O) -> Delivery {
        outlet.count_dropped(None, 1);
        self.note_dropped(1);
        Delivery::Dropped
    }

    fn note_dropped(&mut self, dropped: u64) {
        self.dropped = self.dropped.saturating_add(u16::try_from(dropped).unwrap_or(u16::MAX));
    }

    /// Notes that only the messages in the queue still wait.
    pub fn count_gone(&mut self) {
        self.gone = self.taken - self.queue.len() as u64;
    }

    #[inline]
    fn fill_cork<O: Outlet>(&mut self, wire: &Wire, outlet: &mut O) {
        if self.queue.has_memory() {
            self.encode_queued(wire, outlet);
        }
        if self.close.is_some() && self.queue.is_empty() {
            self.encode_close(outlet);
        }
    }

    /// Encodes messages that waited, until the cork has enough for one send.
    #[inline(never)]
    fn encode_queued<O: Outlet>(&mut self, wire: &Wire, outlet: &mut O) {
        while self.encoded(wire) < BATCH {
            let Some(item) = self.queue.pop() else { break };
            match item {
                Item::Message { kind, payload, compress, .. } => {
                    let compress = compress && self.cork.compresses(payload.len());
                    self.encode_or_log(kind, &payload, compress, outlet);
                }
                Item::Shared(publication) => self.encode_publication::<O, (), ()>(&publication, None, outlet),
                Item::Fragment { kind, payload, last } => self.encode_fragment(kind, &payload, last, outlet),
            }
        }
    }

    #[cold]
    fn encode_close<O: Outlet>(&mut self, outlet: &mut O) {
        if let Some(close) = self.close.take() {
            let (code, reason) = *close;
            self.cork.close(code, &reason, outlet.means());
        }
    }

    /// Seals the cork, a frame's beginning and its rest.
    fn seal_behind_cork<O: Outlet, W, R>(
        &mut self,
        front: &[u8],
        rest: &[u8],
        transport: &mut Transport<'_, W, R>,
        outlet: &mut O,
    ) {
        let cork = core::mem::take(self.cork.frames());
        transport.seal([cork.filled(), front], rest, outlet);
        outlet.means().pool.give_back(cork);
    }

    /// Seals a large message where it lies, behind the cork. Returns a small one, and whether it is to be compressed.
    #[inline]
    fn seal_large<'m, O: Outlet, W, R>(
        &mut self,
        message: Outgoing<'m>,
        transport: &mut Transport<'_, W, R>,
        outlet: &mut O,
    ) -> Option<(Kind, &'m [u8], bool)> {
        self.taken += 1;
        let Outgoing { kind, payload, compress, .. } = message;
        let compress = compress && self.cork.compresses(payload.len());
        let Some(header) = self.cork.large(kind, payload, compress) else { return Some((kind, payload, compress)) };
        self.seal_behind_cork(header.filled(), payload, transport, outlet);
        None
    }

    #[inline]
    fn encode<O: Outlet>(&mut self, kind: Kind, payload: &[u8], compress: bool, outlet: &mut O) -> Result<(), Error> {
        if compress {
            // Few bytes may be left of it, after much work.
            outlet.spend(payload.len());
        }
        self.cork.message(kind, payload, compress, outlet.means())
    }

    /// Encodes a message. Out of line, so that the encoder is part of it, and nothing is left to do behind it.
    #[inline(never)]
    fn encode_or_log<O: Outlet>(&mut self, kind: Kind, payload: &[u8], compress: bool, outlet: &mut O) {
        if let Err(error) = self.encode(kind, payload, compress, outlet) {
            log::error!("a message was not sent: {error}");
        }
    }

    /// Encodes a published message into the cork. A large one is sealed in place, if there is a `transport`.
    fn encode_publication<O: Outlet, W, R>(
        &mut self,
        publication: &Encoded,
        transport: Option<&mut Transport<'_, W, R>>,
        outlet: &mut O,
    ) {
        let message = &publication.message;
        let compress = publication.compress && self.cork.compresses(message.payload().len());
        if self.cork.role() == Role::Client {
            return self.encode_or_log(message.kind(), message.payload(), compress, outlet);
        }
        let (pool, deflater) = outlet.shared_deflater();
        let deflater = deflater.filter(|_| compress);
        match (self.cork.prepared(message, deflater, transport.is_some(), pool), transport) {
            (Ok(Some(frame)), Some(transport)) => self.seal_behind_cork(&[], frame, transport, outlet),
            (Ok(_), _) => {}
            (Err(error), _) => log::error!("a published message was not sent: {error}"),
        }
        if compress {
            outlet.count_compressed();
        }
    }

    fn encode_fragment<O: Outlet>(&mut self, kind: Kind, payload: &[u8], last: bool, outlet: &mut O) {
        outlet.spend(payload.len());
        if let Err(error) = self.cork.fragment(kind, payload, last, outlet.means()) {
            log::error!("a fragment was not sent: {error}");
        }
    }

    /// Whether control frames are added to the cork.
    const fn takes_control(&self, wire: &Wire) -> bool {
        !wire.is_in_flight() || self.cork.len() < MAX_STUCK_CONTROL
    }
}

/// A message that has to wait.
fn item(message: Outgoing<'_>) -> Item {
    let Outgoing { kind, payload, compress, key, .. } = message;
    Item::Message { kind, payload: copy(payload), compress, key }
}

/// Copies a payload that has to wait. A lack of memory panics, as with buffers, instead of aborting the process.
fn copy(payload: &[u8]) -> Box<[u8]> {
    let mut copy = Vec::new();
    assert!(copy.try_reserve_exact(payload.len()).is_ok(), "no memory for a message of {} bytes", payload.len());
    copy.extend_from_slice(payload);
    copy.into_boxed_slice()
}

#[cfg(test)]
mod tests;
