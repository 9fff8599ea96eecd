//! What one connection sends: a cork for this turn, sealed bytes on their way, and a queue for when the peer is slow.
//!
//! ```text
//!              cork (frames)  ──seal──►  wire (records)  ──send──►  driver
//! send() ──┤
//!              queue (messages, not encoded) ── once the driver took everything ──► cork
//! ```
//! A message that may still be dropped is never encoded: sealed records cannot be taken back, and neither can what a
//! compressor has seen.

use crate::kernel::{Handover, pass_keys};
use crate::message::{Delivery, Outgoing, Publication};
use crate::offload::Seals;
use crate::queue::{Item, Pushed, Queue};
use crate::shared::Shared;
use crate::timer::Tick;
use tautline_io::{Driver, Sent, Token};
use tautline_tls::Session;
use tautline_tls::record::MAX_PLAIN;
use tautline_window::{Buf, Pool};
use tautline_ws::deflate::Deflater;
use tautline_ws::{CloseCode, Encoder, Fragment, Header, Kind, Opcode, Role};

/// Bytes that leave in one send; what comes on top waits in the queue, for the next one or the policy.
const BATCH: usize = 256 << 10;
/// Payloads from this size on are sealed from where they lie instead of being copied into the cork.
const LARGE: usize = 16 << 10;
/// Payloads from this size on are sealed and sent piece by piece: what lies in the processor's cache costs the kernel half of
/// what it costs to fetch it back from memory.
const PIECES: usize = 2 * BATCH;
/// Bytes that are shared at a time with other threads, who are waited for between.
const SHARED: usize = 1 << 20;
/// Control frames stop to gather behind a stuck send at this size: only the latest pings need an answer.
const MAX_STUCK_CONTROL: usize = 4096;

/// The way from [`Outbound`] to the peer, without the types of driver and session, so that [`Conn`](crate::Conn) need not
/// name them.
pub(crate) trait Way {
    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf, seals: Seals<'_>) -> Result<(), tautline_tls::Error>;
    fn facts(&self) -> tautline_tls::Facts;
    /// Gives the driver what is sealed, unless it still has something.
    fn pass(&mut self, out: &mut Outbound, shared: &mut Shared);
    /// Gives the driver all it takes.
    fn flush(&mut self, out: &mut Outbound, shared: &mut Shared);
}

/// The way of an open connection.
pub(crate) struct Path<'a, D, S> {
    pub(crate) driver: &'a mut D,
    pub(crate) token: Token,
    pub(crate) session: &'a mut S,
}

impl<D: Driver, S: Session> Way for Path<'_, D, S> {
    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf, seals: Seals<'_>) -> Result<(), tautline_tls::Error> {
        seals.seal(self.session, plain, out, || self.driver.direct(self.token))
    }

    fn facts(&self) -> tautline_tls::Facts {
        self.session.facts()
    }

    fn pass(&mut self, out: &mut Outbound, shared: &mut Shared) {
        if !out.is_in_flight() {
            out.send_wire(self.driver, self.token, self.session, shared);
        }
    }

    fn flush(&mut self, out: &mut Outbound, shared: &mut Shared) {
        out.flush(self.driver, self.token, self.session, shared);
    }
}

/// The way of a connection that has ended: nothing goes there.
pub(crate) struct Nowhere<'a, S>(pub(crate) &'a S);

impl<S: Session> Way for Nowhere<'_, S> {
    fn seal(&mut self, _plain: &[&[u8]], _out: &mut Buf, _seals: Seals<'_>) -> Result<(), tautline_tls::Error> {
        Ok(())
    }

    fn facts(&self) -> tautline_tls::Facts {
        self.0.facts()
    }

    fn pass(&mut self, _out: &mut Outbound, _shared: &mut Shared) {}

    fn flush(&mut self, _out: &mut Outbound, _shared: &mut Shared) {}
}

/// Where the end of our direction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finish {
    /// Open.
    No,
    /// close_notify and FIN once everything is sent.
    Wanted,
    /// FIN without close_notify.
    Abandoned,
    /// Both are sent.
    Done,
}

/// See the module.
pub(crate) struct Outbound {
    encoder: Encoder,
    role: Role,
    /// Shortest payload to compress; none is, without permessage-deflate.
    min_deflate: usize,
    cork: Buf,
    wire: Buf,
    queue: Queue,
    /// Bytes that the driver keeps until the kernel takes them.
    in_flight: usize,
    /// Since when, and how many of them the kernel did not take when that was last looked at.
    stuck: (Tick, usize),
    /// Messages taken so far.
    taken: u64,
    /// So many of the first of them do not wait any more.
    gone: u64,
    /// Kind of the message that was begun by a fragment and is not ended.
    streaming: Option<Kind>,
    close: Option<Box<(CloseCode, String)>>,
    closing: bool,
    finish: Finish,
    /// Whether the queue was used since it was last empty, so that `on_drain` is owed.
    drain_owed: bool,
    /// The policy gave up on this peer.
    overrun: bool,
    /// What of this connection is to go to the kernel, of both directions.
    pub(crate) kernel: Handover,
    /// Boxed, since it is rare.
    failed: Option<Box<tautline_tls::Error>>,
}

impl Outbound {
    pub(crate) fn new(role: Role) -> Self {
        Self {
            encoder: Encoder::new(role),
            role,
            min_deflate: usize::MAX,
            cork: Buf::new(),
            wire: Buf::new(),
            queue: Queue::default(),
            in_flight: 0,
            stuck: (0, 0),
            taken: 0,
            gone: 0,
            streaming: None,
            close: None,
            closing: false,
            finish: Finish::No,
            drain_owed: false,
            overrun: false,
            kernel: Handover::default(),
            failed: None,
        }
    }

    /// Messages of at least `min_size` bytes are compressed from now on, unless their sender wants otherwise.
    pub(crate) fn set_deflater(&mut self, deflater: Deflater, min_size: usize) {
        // A window too small for the library leaves nothing but stored blocks.
        self.min_deflate = if deflater.compresses() { min_size } else { usize::MAX };
        self.encoder = Encoder::new(self.role).with_deflater(deflater);
    }

    /// Sends now if the way is free, by the policy if not.
    pub(crate) fn send(&mut self, message: Outgoing<'_>, way: &mut dyn Way, shared: &mut Shared) -> Delivery {
        if self.closing {
            return Delivery::Closed;
        }
        shared.counters.messages_out += 1;
        if self.streaming.is_some() {
            shared.counters.messages_dropped += 1;
            return Delivery::Dropped;
        }
        self.make_way(message.payload.len(), way, shared);
        if self.is_blocked() {
            let Outgoing { kind, payload, compress, key } = message;
            return self.enqueue(Item::Message { kind, payload: payload.into(), compress, key }, shared);
        }
        self.taken += 1;
        let compress = message.compress && message.payload.len() >= self.min_deflate;
        if message.payload.len() >= LARGE && !compress && self.role == Role::Server {
            self.seal_in_place(message, way, shared);
        } else {
            self.encode(message.kind, message.payload, compress, shared);
        }
        Delivery::Sent
    }

    /// Sends one message of many connections.
    pub(crate) fn publish(&mut self, publication: &Publication, way: &mut dyn Way, shared: &mut Shared) -> Delivery {
        if self.closing {
            return Delivery::Closed;
        }
        shared.counters.messages_out += 1;
        if self.streaming.is_some() {
            shared.counters.messages_dropped += 1;
            return Delivery::Dropped;
        }
        if self.is_blocked() {
            return self.enqueue(Item::Shared(publication.clone()), shared);
        }
        self.taken += 1;
        self.encode_publication(publication, Some(way), shared);
        Delivery::Sent
    }

    /// Sends a piece of a streamed message. Once taken it is never dropped; [`Delivery::Dropped`] means that nothing of
    /// it was taken: because too much waits, so that it may be tried again after `on_drain`, or because the message that
    /// it would belong to is of another kind.
    pub(crate) fn fragment(
        &mut self,
        (kind, payload, last): (Kind, &[u8], bool),
        way: &mut dyn Way,
        shared: &mut Shared,
    ) -> Delivery {
        if self.closing {
            return Delivery::Closed;
        }
        if self.streaming.is_some_and(|begun| begun != kind) {
            log::error!("a piece was not sent: all pieces of a message have one kind");
            return Delivery::Dropped;
        }
        self.make_way(payload.len(), way, shared);
        if self.is_blocked() {
            if self.queue.bytes() > shared.config.slow_consumer.limit() {
                return Delivery::Dropped;
            }
            self.streaming = (!last).then_some(kind);
            return self.enqueue(Item::Fragment { kind, payload: payload.into(), last }, shared);
        }
        self.taken += 1;
        self.streaming = (!last).then_some(kind);
        self.encode_fragment(kind, payload, last, shared);
        Delivery::Sent
    }

    pub(crate) fn ping(&mut self, payload: &[u8], shared: &mut Shared) -> Result<(), tautline_ws::Error> {
        self.control(shared, |encoder, key, out| encoder.ping(payload, key, out))
    }

    pub(crate) fn pong(&mut self, payload: &[u8], shared: &mut Shared) -> Result<(), tautline_ws::Error> {
        self.control(shared, |encoder, key, out| encoder.pong(payload, key, out))
    }

    /// A close frame behind everything that waits. Later messages are refused.
    pub(crate) fn close(&mut self, code: CloseCode, reason: &str) {
        if !self.closing {
            self.closing = true;
            self.close = Some(Box::new((code, reason.to_owned())));
        }
    }

    /// A close frame in front of everything that waits, which is dropped.
    pub(crate) fn close_now(&mut self, code: CloseCode, reason: &str) {
        self.queue.clear();
        self.drain_owed = false;
        self.close(code, reason);
    }

    /// Bytes outside the WebSocket layer: HTTP heads and bodies, sealed at the next flush.
    pub(crate) fn raw(&mut self, pool: &mut Pool) -> &mut Buf {
        lend(&mut self.cork, pool)
    }

    /// Bytes below TLS: handshakes, alerts.
    pub(crate) fn wire(&mut self, pool: &mut Pool) -> &mut Buf {
        lend(&mut self.wire, pool)
    }

    /// Takes no messages any more.
    pub(crate) const fn refuse(&mut self) {
        self.closing = true;
    }

    /// Ends our direction once everything is sent.
    pub(crate) fn finish(&mut self) {
        self.closing = true;
        if self.finish == Finish::No {
            self.finish = Finish::Wanted;
        }
    }

    /// TLS is dead: only what is sealed already leaves (the alert), and the end of our direction without close_notify.
    pub(crate) fn abandon(&mut self) {
        self.cork.clear();
        self.queue.clear();
        self.close = None;
        self.closing = true;
        self.finish = Finish::Abandoned;
    }

    /// Whether the slow-consumer policy gave up on this peer.
    pub(crate) const fn is_overrun(&self) -> bool {
        self.overrun
    }

    /// Why sealing failed, once.
    pub(crate) fn take_failure(&mut self) -> Option<tautline_tls::Error> {
        self.failed.take().map(|error| *error)
    }

    /// Gives buffers back that hold nothing.
    pub(crate) fn tidy(&mut self, pool: &mut Pool) {
        if self.cork.is_empty() && self.cork.capacity() > 0 {
            pool.give(core::mem::take(&mut self.cork));
        }
        if self.wire.is_empty() && self.wire.capacity() > 0 {
            pool.give(core::mem::take(&mut self.wire));
        }
    }

    /// Bytes that wait.
    pub(crate) const fn buffered(&self) -> usize {
        self.queue.bytes() + self.cork.len() + self.wire.len() + self.in_flight
    }

    /// Messages taken so far: a mark for [`is_gone`](Self::is_gone).
    pub(crate) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether all messages up to `mark` are with the kernel, or were dropped.
    pub(crate) const fn is_gone(&self, mark: u64) -> bool {
        mark <= self.gone
    }

    pub(crate) const fn is_closing(&self) -> bool {
        self.closing
    }

    /// Whether all that was sealed is with the kernel.
    pub(crate) const fn is_flushed(&self) -> bool {
        !self.is_in_flight() && self.wire.is_empty()
    }

    pub(crate) const fn is_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// Since when bytes are in flight without any progress that was seen.
    pub(crate) const fn stuck_since(&self) -> Tick {
        self.stuck.0
    }

    /// Whether the kernel took something of what is in flight since it was last looked at.
    pub(crate) fn progresses<D: Driver>(&mut self, driver: &D, token: Token, now: Tick) -> bool {
        let unsent = driver.unsent(token);
        let progresses = unsent < self.stuck.1;
        if progresses {
            self.stuck = (now, unsent);
        }
        progresses
    }

    /// Whether anything would be done by [`flush`](Self::flush).
    pub(crate) fn is_dirty(&self) -> bool {
        !self.is_in_flight()
            && (!self.cork.is_empty()
                || !self.wire.is_empty()
                || !self.queue.is_empty()
                || self.close.is_some()
                || matches!(self.finish, Finish::Wanted | Finish::Abandoned))
    }

    /// The driver took everything it kept.
    pub(crate) fn sent(&mut self, buf: Buf, pool: &mut Pool) {
        self.in_flight = 0;
        // The rest of a message whose beginning this was.
        if self.wire.is_empty() {
            self.count_gone();
        }
        pool.give(buf);
    }

    /// Whether the handler is to be told that the queue is empty again.
    pub(crate) fn is_drained(&self) -> bool {
        self.drain_owed && self.queue.is_empty() && !self.is_in_flight() && !self.closing
    }

    /// It is told now.
    pub(crate) const fn tell_drained(&mut self) {
        self.drain_owed = false;
    }

    /// Gives the driver all it takes, from the queue too.
    pub(crate) fn flush<D: Driver, S: Session>(
        &mut self,
        driver: &mut D,
        token: Token,
        session: &mut S,
        shared: &mut Shared,
    ) {
        pass_keys(driver, token, session);
        while !self.is_in_flight() && self.failed.is_none() {
            self.fill_cork(shared);
            self.seal_cork(&mut Path { driver, token, session }, shared);
            if matches!(self.finish, Finish::Wanted | Finish::Abandoned) && self.queue.is_empty() {
                if self.finish == Finish::Wanted {
                    session.close(lend(&mut self.wire, &mut shared.pool));
                }
                self.finish = Finish::Done;
                self.send_wire(driver, token, session, shared);
                driver.shutdown(token);
                return;
            }
            if self.wire.is_empty() {
                self.count_gone();
                break;
            }
            self.send_wire(driver, token, session, shared);
        }
    }

    /// Gives all memory back.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        pool.give(core::mem::take(&mut self.cork));
        pool.give(core::mem::take(&mut self.wire));
        self.queue.clear();
    }

    /// Before the policy takes a peer for slow that had no chance to read: much that was sent in one call gives the driver
    /// what waits for the turn's end.
    fn make_way(&mut self, len: usize, way: &mut dyn Way, shared: &mut Shared) {
        let limit = shared.config.slow_consumer.limit();
        if self.is_blocked() && !self.is_in_flight() && self.queue.bytes().saturating_add(len) > limit {
            way.flush(self, shared);
        }
    }

    /// Whether the next message has to wait.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_in_flight() || !self.queue.is_empty() || self.cork.len() + self.wire.len() >= BATCH
    }

    fn enqueue(&mut self, item: Item, shared: &mut Shared) -> Delivery {
        match self.queue.push(item, shared.config.slow_consumer, &mut shared.counters.messages_dropped) {
            Pushed::Waits => {
                self.taken += 1;
                self.drain_owed = true;
            }
            Pushed::Replaces => {}
            Pushed::Dropped => return Delivery::Dropped,
            Pushed::Overrun => {
                self.overrun = true;
                self.close_now(CloseCode::POLICY, "too slow a reader");
                return Delivery::Closed;
            }
        }
        Delivery::Queued(self.buffered())
    }

    /// Nothing is with the driver: only what is in the queue waits.
    fn count_gone(&mut self) {
        self.gone = self.taken - self.queue.len() as u64;
    }

    fn fill_cork(&mut self, shared: &mut Shared) {
        while self.cork.len() + self.wire.len() < BATCH {
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
            let out = lend(&mut self.cork, pool);
            let (code, reason) = *close;
            // 1005 says that the frame has no code; other codes that must not be sent were a caller's mistake.
            let frame = code.is_sendable().then_some((code, reason.as_str()));
            if let Err(error) = self.encoder.close(frame, || keys.next(), out) {
                log::error!("a close frame was not sent: {error}");
            }
        }
    }

    fn seal_cork<D: Driver, S: Session>(&mut self, way: &mut Path<'_, D, S>, shared: &mut Shared) {
        if self.cork.is_empty() {
            return;
        }
        if S::PASSTHROUGH && self.wire.is_empty() {
            core::mem::swap(&mut self.cork, &mut self.wire);
            return;
        }
        let cork = core::mem::take(&mut self.cork);
        if cork.len() < PIECES {
            if let Err(error) = way.session.seal(&[cork.filled()], lend(&mut self.wire, &mut shared.pool)) {
                self.failed = Some(Box::new(error));
            }
        } else {
            self.seal_pieces([&[]; 2], cork.filled(), way, shared);
        }
        shared.pool.give(cork);
    }

    fn send_wire<D: Driver, S: Session>(&mut self, driver: &mut D, token: Token, session: &mut S, shared: &mut Shared) {
        pass_keys(driver, token, session);
        let wire = core::mem::take(&mut self.wire);
        if wire.is_empty() {
            shared.pool.give(wire);
            return;
        }
        let len = wire.len();
        shared.counters.bytes_out += len as u64;
        let sent = match self.finish {
            Finish::Done => driver.send_last(token, wire),
            _ => driver.send(token, wire),
        };
        match sent {
            Sent::Done(buf) => shared.pool.give(buf),
            Sent::Pending => {
                self.in_flight = len;
                self.stuck = (shared.now, driver.unsent(token));
            }
        }
    }

    fn seal_in_place(&mut self, message: Outgoing<'_>, way: &mut dyn Way, shared: &mut Shared) {
        let mut header = [0; Header::MAX_LEN];
        let len = message.payload.len() as u64;
        let len = Header { fin: true, rsv1: false, opcode: Opcode::from(message.kind), key: None, len }
            .encode_to(&mut header);
        self.seal_behind_cork(&header[..len], message.payload, way, shared);
    }

    /// Seals what waits, a frame's beginning and its rest.
    fn seal_behind_cork(&mut self, front: &[u8], rest: &[u8], way: &mut dyn Way, shared: &mut Shared) {
        let cork = core::mem::take(&mut self.cork);
        self.seal_pieces([cork.filled(), front], rest, way, shared);
        shared.pool.give(cork);
    }

    /// Seals two short chunks and a long one, piece by piece.
    fn seal_pieces(&mut self, [one, two]: [&[u8]; 2], long: &[u8], way: &mut dyn Way, shared: &mut Shared) {
        let shares = shared.records.as_ref().is_some_and(|pool| pool.wants(one.len() + two.len() + long.len()));
        let unit = if shares { SHARED } else { BATCH };
        // All pieces but the first are whole records.
        let first = if long.len() < 2 * unit { long.len() } else { unit + long.len() % MAX_PLAIN };
        let (now, later) = long.split_at(first);
        if shares {
            // Only what lies alone can leave as it is sealed.
            way.pass(self, shared);
        }
        self.seal_piece(&[one, two, now], shares, way, shared);
        for piece in later.chunks(unit) {
            way.pass(self, shared);
            self.seal_piece(&[piece], shares, way, shared);
        }
    }

    fn seal_piece(&mut self, plain: &[&[u8]], shares: bool, way: &mut dyn Way, shared: &mut Shared) {
        if self.failed.is_some() {
            return;
        }
        let Shared { pool, records, counters, .. } = shared;
        let seals = Seals { pool: records.as_ref().filter(|_| shares), counters };
        if let Err(error) = way.seal(plain, lend(&mut self.wire, pool), seals) {
            self.failed = Some(Box::new(error));
        }
    }

    fn encode(&mut self, kind: Kind, payload: &[u8], compress: bool, shared: &mut Shared) {
        let Shared { pool, keys, .. } = shared;
        lend(&mut self.cork, pool);
        if let Err(error) = self.encoder.message(kind, payload, compress, || keys.next(), &mut self.cork, pool) {
            log::error!("a message was not sent: {error}");
        }
    }

    /// A large frame is sealed from where it lies, if there is a `way`.
    fn encode_publication(&mut self, publication: &Publication, way: Option<&mut dyn Way>, shared: &mut Shared) {
        let message = &publication.message;
        let compress = publication.compress && message.payload().len() >= self.min_deflate;
        if self.role == Role::Client {
            self.encode(message.kind(), message.payload(), compress, shared);
            return;
        }
        let Shared { pool, press, .. } = shared;
        match (self.encoder.prepared(message, compress.then_some(press), pool), way) {
            (Ok(frame), Some(way)) if frame.len() >= LARGE => {
                self.seal_behind_cork(&[], frame, way, shared);
            }
            (Ok(frame), _) => lend(&mut self.cork, pool).put(frame),
            (Err(error), _) => log::error!("a published message was not sent: {error}"),
        }
    }

    fn encode_fragment(&mut self, kind: Kind, payload: &[u8], last: bool, shared: &mut Shared) {
        let Shared { pool, keys, .. } = shared;
        lend(&mut self.cork, pool);
        let fragment = Fragment { kind, payload, last, compress: self.min_deflate != usize::MAX };
        if let Err(error) = self.encoder.fragment(fragment, || keys.next(), &mut self.cork, pool) {
            log::error!("a fragment was not sent: {error}");
        }
    }

    fn control(
        &mut self,
        shared: &mut Shared,
        encode: impl FnOnce(&mut Encoder, &mut dyn FnMut() -> [u8; 4], &mut Buf) -> Result<(), tautline_ws::Error>,
    ) -> Result<(), tautline_ws::Error> {
        if self.closing || self.is_in_flight() && self.cork.len() >= MAX_STUCK_CONTROL {
            return Ok(());
        }
        let Shared { pool, keys, .. } = shared;
        encode(&mut self.encoder, &mut || keys.next(), lend(&mut self.cork, pool))
    }
}

/// A buffer with memory: an idle connection has none, so the pool's warmest comes in.
fn lend<'a>(buf: &'a mut Buf, pool: &mut Pool) -> &'a mut Buf {
    if buf.capacity() == 0 {
        *buf = pool.take();
    }
    buf
}
