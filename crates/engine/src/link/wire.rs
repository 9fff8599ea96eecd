//! Sealed bytes on their way to the peer: records that wait for the driver, and bytes that the driver keeps.

use crate::link::phase::{Finish, Phase};
use crate::offload::Seals;
use crate::turn::shared::Shared;
use crate::turn::timer::Tick;
use tautline_buf::{Buf, Pool};
use tautline_io::{Driver, Sent, Token};
use tautline_tls::record::MAX_PLAIN;
use tautline_tls::{Error, Session};

/// Bytes of one send. Further messages wait in the queue, where the slow-consumer policy can drop them.
pub(crate) const BATCH: usize = 256 << 10;
/// Size from which payloads are sealed and sent piece by piece. Sending bytes from the CPU's cache costs the kernel half of
/// what sending them from memory costs.
const PIECES: usize = 2 * BATCH;
/// Room for messages of a handshake, in bytes.
const HANDSHAKE: usize = 4096;
/// Bytes that are sealed with helper threads at a time.
const SHARED: usize = 1 << 20;

/// The sealed bytes of a connection that are not with the kernel yet.
pub(crate) struct Wire {
    sealed: Buf,
    /// Bytes that the driver keeps until the kernel takes them.
    in_flight: usize,
    /// When progress was last seen, and the bytes in flight that the kernel had not taken then.
    stuck: (Tick, usize),
    /// The error of a failed seal. Boxed, since it is rare.
    failed: Option<Box<Error>>,
}

impl Wire {
    pub(crate) const fn new() -> Self {
        Self { sealed: Buf::new(), in_flight: 0, stuck: (0, 0), failed: None }
    }

    /// The buffer of sealed bytes, with room for handshake messages.
    pub(crate) fn buf(&mut self, pool: &mut Pool) -> &mut Buf {
        pool.reserve(&mut self.sealed, HANDSHAKE);
        &mut self.sealed
    }

    /// The buffer of sealed bytes as it is, to append alerts and key updates. They are rare, and need memory then.
    pub(crate) const fn sealed_mut(&mut self) -> &mut Buf {
        &mut self.sealed
    }

    /// Bytes that wait, here or in the driver.
    pub(crate) const fn len(&self) -> usize {
        self.sealed.len() + self.in_flight
    }

    /// Whether it has memory, here or in the driver.
    #[inline]
    pub(crate) const fn has_memory(&self) -> bool {
        self.sealed.has_memory() | (self.in_flight > 0)
    }

    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.sealed.capacity() + self.in_flight
    }

    /// Whether all sealed bytes are with the kernel.
    pub(crate) const fn is_flushed(&self) -> bool {
        self.len() == 0
    }

    pub(crate) const fn is_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// Whether more bytes can be sealed and sent.
    pub(crate) const fn is_free(&self) -> bool {
        self.in_flight == 0 && !self.has_failed()
    }

    /// When the last progress of the bytes in flight was seen.
    pub(crate) const fn stuck_since(&self) -> Tick {
        self.stuck.0
    }

    /// Whether the kernel took some of the bytes in flight since the last call.
    pub(crate) fn progresses(&mut self, driver: &dyn Driver, token: Token, now: Tick) -> bool {
        let unsent = driver.unsent(token);
        let progresses = unsent < self.stuck.1;
        if progresses {
            self.stuck = (now, unsent);
        }
        progresses
    }

    /// The kernel took all bytes that the driver kept.
    pub(crate) fn sent(&mut self, buf: Buf, pool: &mut Pool) {
        self.in_flight = 0;
        pool.give(buf);
    }

    /// Whether a seal failed.
    pub(crate) const fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Takes the error of a failed seal.
    pub(crate) fn take_failure(&mut self) -> Option<Error> {
        self.failed.take().map(|error| *error)
    }

    /// Gives the buffer back if it is empty.
    #[inline]
    pub(crate) fn tidy(&mut self, pool: &mut Pool) {
        if self.sealed.is_empty() && self.sealed.has_memory() {
            pool.give(core::mem::take(&mut self.sealed));
        }
    }

    /// Gives all memory back.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        pool.give(core::mem::take(&mut self.sealed));
    }
}

/// The means to send a connection's bytes: its session, its wire and the driver.
pub(crate) struct Transport<'a> {
    pub(crate) phase: &'a mut Phase,
    pub(crate) wire: &'a mut Wire,
    pub(crate) session: &'a mut dyn Session,
    /// `None` once the connection has ended, so that nothing is sent.
    pub(crate) driver: Option<&'a mut dyn Driver>,
    pub(crate) token: Token,
    /// Whether the kernel has keys of this connection, and may need further ones.
    pub(crate) in_kernel: bool,
}

impl Transport<'_> {
    /// Gives the kernel new keys, if it needs any.
    pub(crate) fn pass_keys(&mut self) {
        if self.in_kernel
            && let Some(driver) = &mut self.driver
        {
            while let Some(keys) = self.session.next_kernel_keys() {
                if let Err(error) = driver.give_keys(self.token, keys) {
                    log::error!("cannot pass later keys to the kernel: {error}");
                }
            }
        }
    }

    /// Seals the content of `cork`, and leaves it empty.
    pub(crate) fn seal_cork(&mut self, cork: &mut Buf, shared: &mut Shared) {
        if cork.is_empty() {
            return;
        }
        if self.wire.sealed.is_empty() && self.session.is_plain() {
            core::mem::swap(cork, &mut self.wire.sealed);
            return;
        }
        let taken = core::mem::take(cork);
        if taken.len() < PIECES {
            shared.pool.reserve(&mut self.wire.sealed, sealed_len(taken.len()));
            if let Err(error) = self.session.seal(&[taken.filled()], &mut self.wire.sealed) {
                self.wire.failed = Some(Box::new(error));
            }
        } else {
            self.seal([&[]; 2], taken.filled(), shared);
        }
        shared.pool.give_back(taken);
    }

    /// Seals two short chunks and a long one, piece by piece.
    pub(crate) fn seal(&mut self, [one, two]: [&[u8]; 2], long: &[u8], shared: &mut Shared) {
        let shares = shared.records.as_ref().is_some_and(|pool| pool.wants(one.len() + two.len() + long.len()));
        let unit = if shares { SHARED } else { BATCH };
        // The first piece takes the remainder, so that all others are whole records.
        let first = if long.len() < 2 * unit { long.len() } else { unit + long.len() % MAX_PLAIN };
        let (now, later) = long.split_at(first);
        if shares {
            // Helpers can send records directly only if no sealed bytes wait before them.
            self.send_unless_in_flight(shared);
        }
        // Helpers send records before the piece is whole.
        shared.amid_pieces = shares;
        self.seal_piece(&[one, two, now], shares, shared);
        for piece in later.chunks(unit) {
            shared.amid_pieces = true;
            self.send_unless_in_flight(shared);
            self.seal_piece(&[piece], shares, shared);
        }
        shared.amid_pieces = false;
    }

    fn seal_piece(&mut self, plain: &[&[u8]], shares: bool, shared: &mut Shared) {
        if self.wire.failed.is_some() {
            return;
        }
        let Shared { pool, records, counters, .. } = shared;
        let seals = Seals { pool: records.as_ref().filter(|_| shares), counters };
        let (driver, token) = (self.driver.as_deref(), self.token);
        pool.reserve(&mut self.wire.sealed, sealed_len(plain.iter().map(|chunk| chunk.len()).sum()));
        if let Err(error) = seals.seal(self.session, plain, &mut self.wire.sealed, || driver?.direct(token)) {
            self.wire.failed = Some(Box::new(error));
        }
    }

    fn send_unless_in_flight(&mut self, shared: &mut Shared) {
        if !self.wire.is_in_flight() {
            self.send(shared);
        }
    }

    /// Gives the driver all sealed bytes.
    pub(crate) fn send(&mut self, shared: &mut Shared) {
        self.pass_keys();
        let Some(driver) = &mut self.driver else { return };
        let sealed = core::mem::take(&mut self.wire.sealed);
        if sealed.is_empty() {
            shared.pool.give(sealed);
            return;
        }
        let len = sealed.len();
        shared.counters.bytes_out.add(len as u64);
        shared.visit.spend(len);
        let last = self.phase.finish_mut().is_some_and(|finish| *finish == Finish::Done);
        let sent = if let Some(sends) = &mut shared.sends
            && sends.writes(self.token)
        {
            let (sent, number) = driver.send_stamped(self.token, sealed);
            sends.written(self.token, number);
            sent
        } else if last {
            driver.send_last(self.token, sealed)
        } else {
            driver.send(self.token, sealed)
        };
        match sent {
            // Without TLS it was the cork.
            Sent::Done(buf) => shared.pool.give_back(buf),
            Sent::Pending => {
                self.wire.in_flight = len;
                self.wire.stuck = (shared.now, driver.unsent(self.token));
            }
        }
    }

    /// Ends our direction behind the sealed bytes, if that is due. False if it is not.
    ///
    /// close_notify is sent if the TLS session is alive.
    pub(crate) fn finish(&mut self, shared: &mut Shared) -> bool {
        let Some(finish) = self.phase.finish_mut().filter(|finish| finish.is_due()) else { return false };
        if *finish == Finish::Wanted {
            shared.pool.reserve(&mut self.wire.sealed, sealed_len(0));
            self.session.close(&mut self.wire.sealed);
        }
        *finish = Finish::Done;
        self.send(shared);
        if let Some(driver) = &mut self.driver {
            driver.shutdown(self.token);
        }
        true
    }

    /// Whether no sealed bytes wait for the driver.
    pub(crate) const fn is_empty(&self) -> bool {
        self.wire.sealed.is_empty()
    }
}

/// Room for `plain` bytes in records. An engine that needs more lets the buffer grow.
const fn sealed_len(plain: usize) -> usize {
    // 64 bytes for each record, and for the first one.
    plain + plain / 256 + 64
}
