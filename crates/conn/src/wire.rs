//! Sealed bytes on their way to the peer: records that wait for the outlet, and bytes that the outlet keeps.

use crate::config::SlowConsumer;
use crate::cork::Means;
use crate::phase::{Finish, Phase};
use crate::tick::Tick;
use tautline_buf::kernel_tls::TrafficKeys;
use tautline_buf::{Buf, Pool};
use tautline_tls::record::MAX_PLAIN;
use tautline_tls::{Error, Session};
use tautline_ws::deflate::SharedDeflater;

/// Bytes of one send. Further messages wait in the queue, where the slow-consumer policy can drop them.
pub const BATCH: usize = 256 << 10;
/// Room for messages of a handshake, in bytes.
const HANDSHAKE: usize = 4096;

/// The way out of a connection, and the means that all connections of a thread share.
///
/// That of a loop gives bytes to its driver. That of a connection without I/O keeps them until its caller has written them.
pub trait Outlet {
    /// The means to write frames.
    fn means(&mut self) -> Means<'_>;

    /// The policy of messages that have none of their own.
    fn policy(&self) -> SlowConsumer;

    /// Takes sealed bytes. `last` if none follow, ever.
    ///
    /// `None` if the peer's kernel has them, and their memory is given back. Otherwise the outlet keeps them, and nothing further
    /// is sent before [`Wire::sent`].
    fn send(&mut self, sealed: Buf, last: bool) -> Option<Kept>;

    /// Ends our direction behind all bytes.
    fn shutdown(&mut self) {}

    /// Passes keys to the kernel, behind all bytes that were sent.
    fn give_keys(&mut self, _: TrafficKeys) {}

    /// The pieces in which `len` bytes are sealed and sent.
    fn pieces(&self, _len: usize) -> Pieces {
        Pieces { size: usize::MAX, shared: false }
    }

    /// Seals a piece behind the bytes in `sealed`, which has room for it.
    ///
    /// # Errors
    /// Those of [`Session::seal`].
    fn seal(&mut self, session: &mut dyn Session, plain: &[&[u8]], sealed: &mut Buf, _: Pieces) -> Result<(), Error> {
        session.seal(plain, sealed)
    }

    /// Some records of a message may have left, and others not (`true`), or no more (`false`).
    fn amid_pieces(&mut self, _: bool) {}

    /// The compressor of published messages, and unused buffers.
    fn shared_deflater(&mut self) -> (&mut Pool, Option<&mut SharedDeflater>) {
        (self.means().pool, None)
    }

    /// A message is to be sent, or a piece of one.
    fn count_message(&mut self) {}

    /// Messages were dropped: by this policy, or because they would have lain within another.
    fn count_dropped(&mut self, by: Option<SlowConsumer>, number: u64);

    /// A published message was sent compressed.
    fn count_compressed(&mut self) {}

    /// Bytes were worked on.
    fn spend(&mut self, _bytes: usize) {}

    /// Whether so much was done that a flush stops.
    fn did_much(&self) -> bool {
        false
    }
}

/// Bytes that an outlet keeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept {
    /// When some of them were last taken.
    pub since: Tick,
    /// The bytes that were not taken then.
    pub bytes: usize,
}

/// The pieces of a large message. Sending bytes from the CPU's cache costs the kernel half of what sending them from memory costs.
#[derive(Clone, Copy, Debug)]
pub struct Pieces {
    /// Bytes of a piece. Less than two of them are one piece.
    pub size: usize,
    /// Whether other threads help, and send records before the piece is whole.
    pub shared: bool,
}

/// The sealed bytes of a connection that are not with the kernel yet.
#[derive(Default)]
pub struct Wire {
    sealed: Buf,
    /// Bytes that the outlet keeps until the kernel takes them.
    in_flight: usize,
    /// The progress of the bytes in flight.
    stuck: Kept,
    /// The error of a failed seal. Boxed, since it is rare.
    failed: Option<Box<Error>>,
}

impl Wire {
    /// Nothing was sealed.
    #[must_use]
    pub const fn new() -> Self {
        Self { sealed: Buf::new(), in_flight: 0, stuck: Kept { since: 0, bytes: 0 }, failed: None }
    }

    /// The buffer of sealed bytes, with room for handshake messages.
    pub fn buf(&mut self, pool: &mut Pool) -> &mut Buf {
        pool.reserve(&mut self.sealed, HANDSHAKE);
        &mut self.sealed
    }

    /// The buffer of sealed bytes as it is, to append alerts and key updates. They are rare, and need memory then.
    #[inline]
    pub const fn sealed_mut(&mut self) -> &mut Buf {
        &mut self.sealed
    }

    /// Bytes that wait, here or in the outlet.
    #[inline]
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.sealed.len() + self.in_flight
    }

    /// Whether it has memory, here or in the outlet.
    #[inline]
    #[must_use]
    pub const fn has_memory(&self) -> bool {
        self.sealed.has_memory() | (self.in_flight > 0)
    }

    /// Its memory, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.sealed.capacity() + self.in_flight
    }

    /// Whether all sealed bytes are with the kernel.
    #[inline]
    #[must_use]
    pub const fn is_flushed(&self) -> bool {
        self.waiting() == 0
    }

    /// Whether the outlet keeps bytes.
    #[inline]
    #[must_use]
    pub const fn is_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// Whether more bytes can be sealed and sent.
    #[inline]
    #[must_use]
    pub const fn is_free(&self) -> bool {
        self.in_flight == 0 && !self.has_failed()
    }

    /// When the last progress of the bytes in flight was seen.
    #[must_use]
    pub const fn stuck_since(&self) -> Tick {
        self.stuck.since
    }

    /// Whether the kernel took some of the bytes in flight since the last call, so that `unsent` are left.
    pub fn progresses(&mut self, unsent: usize, now: Tick) -> bool {
        let progresses = unsent < self.stuck.bytes;
        if progresses {
            self.stuck = Kept { since: now, bytes: unsent };
        }
        progresses
    }

    /// The kernel took `bytes` of those in flight.
    pub const fn took(&mut self, bytes: usize) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }

    /// The kernel took all bytes that the outlet kept in `buf`.
    pub fn sent(&mut self, buf: Buf, pool: &mut Pool) {
        self.in_flight = 0;
        pool.give(buf);
    }

    /// Whether a seal failed.
    #[inline]
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Takes the error of a failed seal.
    pub fn take_failure(&mut self) -> Option<Error> {
        self.failed.take().map(|error| *error)
    }

    /// Gives the buffer back if it is empty.
    #[inline]
    pub fn tidy(&mut self, pool: &mut Pool) {
        if self.sealed.is_empty() && self.sealed.has_memory() {
            pool.give(core::mem::take(&mut self.sealed));
        }
    }

    /// Drops all bytes. Those in flight are the outlet's.
    pub fn clear(&mut self) {
        self.sealed = Buf::new();
        self.in_flight = 0;
    }

    /// Gives all memory back.
    pub fn release(&mut self, pool: &mut Pool) {
        pool.give(core::mem::take(&mut self.sealed));
    }
}

/// The means to seal a connection's bytes: its session and its wire.
pub struct Transport<'a, W, R> {
    /// The state of the connection.
    pub phase: &'a mut Phase<W, R>,
    /// Its sealed bytes.
    pub wire: &'a mut Wire,
    /// Its TLS session.
    pub session: &'a mut dyn Session,
    /// Whether the kernel has keys of this connection, and may need further ones.
    pub in_kernel: bool,
}

impl<W, R> Transport<'_, W, R> {
    /// Gives the kernel new keys, if it needs any.
    #[inline]
    pub fn pass_keys<O: Outlet>(&mut self, outlet: &mut O) {
        if self.in_kernel {
            self.give_keys(outlet);
        }
    }

    #[inline(never)]
    fn give_keys<O: Outlet>(&mut self, outlet: &mut O) {
        while let Some(keys) = self.session.next_kernel_keys() {
            outlet.give_keys(keys);
        }
    }

    /// Seals the content of `cork`, and leaves it empty.
    #[inline]
    pub(crate) fn seal_cork<O: Outlet>(&mut self, cork: &mut Buf, outlet: &mut O) {
        if cork.is_empty() {
            return;
        }
        if self.wire.sealed.is_empty() && self.session.is_plain() {
            core::mem::swap(cork, &mut self.wire.sealed);
        } else {
            self.seal_records(cork, outlet);
        }
    }

    #[inline(never)]
    fn seal_records<O: Outlet>(&mut self, cork: &mut Buf, outlet: &mut O) {
        let taken = core::mem::take(cork);
        if taken.len() < 2 * BATCH {
            outlet.means().pool.reserve(&mut self.wire.sealed, sealed_len(taken.len()));
            if let Err(error) = self.session.seal(&[taken.filled()], &mut self.wire.sealed) {
                self.wire.failed = Some(Box::new(error));
            }
        } else {
            self.seal([&[]; 2], taken.filled(), outlet);
        }
        outlet.means().pool.give_back(taken);
    }

    /// Seals two short chunks and a long one, piece by piece.
    pub(crate) fn seal<O: Outlet>(&mut self, [one, two]: [&[u8]; 2], long: &[u8], outlet: &mut O) {
        let pieces = outlet.pieces(one.len() + two.len() + long.len());
        let Pieces { size, shared } = pieces;
        // The first piece takes the remainder, so that all others are whole records.
        let is_one = long.len() < size.saturating_mul(2);
        let first = if is_one { long.len() } else { size + long.len() % MAX_PLAIN };
        let (now, later) = long.split_at(first);
        if shared {
            // Helpers can send records directly only if no sealed bytes wait before them.
            self.send_unless_in_flight(outlet);
        }
        // Helpers send records before the piece is whole.
        outlet.amid_pieces(shared);
        self.seal_piece(&[one, two, now], pieces, outlet);
        for piece in later.chunks(size) {
            outlet.amid_pieces(true);
            self.send_unless_in_flight(outlet);
            self.seal_piece(&[piece], pieces, outlet);
        }
        outlet.amid_pieces(false);
    }

    fn seal_piece<O: Outlet>(&mut self, plain: &[&[u8]], pieces: Pieces, outlet: &mut O) {
        if self.wire.failed.is_some() {
            return;
        }
        let len = plain.iter().map(|chunk| chunk.len()).sum();
        outlet.means().pool.reserve(&mut self.wire.sealed, sealed_len(len));
        if let Err(error) = outlet.seal(self.session, plain, &mut self.wire.sealed, pieces) {
            self.wire.failed = Some(Box::new(error));
        }
    }

    fn send_unless_in_flight<O: Outlet>(&mut self, outlet: &mut O) {
        if !self.wire.is_in_flight() {
            self.send(outlet);
        }
    }

    /// Gives the outlet all sealed bytes.
    #[inline(always)]
    pub(crate) fn send<O: Outlet>(&mut self, outlet: &mut O) {
        self.pass_keys(outlet);
        if self.is_empty() {
            return self.wire.tidy(outlet.means().pool);
        }
        let sealed = core::mem::take(&mut self.wire.sealed);
        let len = sealed.len();
        let last = self.phase.finish_mut().is_some_and(|finish| *finish == Finish::Done);
        if let Some(kept) = outlet.send(sealed, last) {
            self.wire.in_flight = len;
            self.wire.stuck = kept;
        }
    }

    /// Ends our direction behind the sealed bytes, if that is due. False if it is not.
    ///
    /// close_notify is sent if the TLS session is alive.
    #[inline]
    pub(crate) fn finish<O: Outlet>(&mut self, outlet: &mut O) -> bool {
        let is_due = self.phase.finish_mut().is_some_and(|finish| finish.is_due());
        if is_due {
            self.finish_now(outlet);
        }
        is_due
    }

    #[cold]
    fn finish_now<O: Outlet>(&mut self, outlet: &mut O) {
        let Some(finish) = self.phase.finish_mut() else { return };
        if *finish == Finish::Wanted {
            outlet.means().pool.reserve(&mut self.wire.sealed, sealed_len(0));
            self.session.close(&mut self.wire.sealed);
        }
        *finish = Finish::Done;
        self.send(outlet);
        outlet.shutdown();
    }

    /// Whether no sealed bytes wait for the outlet.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.wire.sealed.is_empty()
    }
}

/// Room for `plain` bytes in records. An engine that needs more lets the buffer grow.
const fn sealed_len(plain: usize) -> usize {
    // 64 bytes for each record, and for the first one.
    plain + plain / 256 + 64
}
