//! Frames in place of records that the kernel seals and opens (`tautline_buf::kernel_tls`).
//!
//! Limits, alerts, tickets and key updates stay with the session.

use super::{Meaning, REKEY_AFTER, Records, Refusal, not_authentic};
use crate::schedule::Suite;
use tautline_buf::Buf;
use tautline_buf::kernel_tls::{Cipher, DATA, Direction, HEAD, REFUSED, TrafficKeys, frame, head};
use tautline_tls::alert::Alert;
use tautline_tls::record::MAX_PLAIN;
use tautline_tls::{Content, Error, Opened, Plain};

impl Records {
    /// Whether the kernel seals or opens these records.
    pub(crate) const fn is_in_kernel(&self) -> bool {
        self.kernel.transmits() || self.kernel.receives()
    }

    /// See [`tautline_tls::Session::kernel_keys`].
    pub(crate) fn kernel_keys(&self, direction: Direction) -> Option<TrafficKeys> {
        let may_go = match direction {
            // If a KeyUpdate is due, the kernel would need a second key, which it may not accept.
            Direction::Transmit => !self.sent_close && !self.owes_update,
            Direction::Receive => !self.received_close,
        };
        may_go.then(|| self.traffic_keys(direction))
    }

    /// See [`tautline_tls::Session::kernel_took`].
    pub(crate) const fn kernel_took(&mut self, direction: Direction, rekeys: bool) {
        self.kernel.add(direction, rekeys);
    }

    /// See [`tautline_tls::Session::next_kernel_keys`].
    pub(crate) fn next_kernel_keys(&mut self) -> Option<TrafficKeys> {
        let keys = self.cold.as_mut()?.for_kernel.pop_front()?;
        self.free_cold();
        Some(keys)
    }

    /// See [`tautline_tls::Session::is_kernel_worn_out`].
    pub(crate) const fn is_kernel_worn_out(&self) -> bool {
        self.kernel.transmits() && !self.kernel.rekeys() && self.tx.sequence() >= REKEY_AFTER
    }

    /// Queues the direction's current keys for the kernel.
    pub(super) fn queue_kernel_keys(&mut self, direction: Direction) {
        let keys = self.traffic_keys(direction);
        self.cold.get_or_insert_default().for_kernel.push_back(keys);
    }

    fn traffic_keys(&self, direction: Direction) -> TrafficKeys {
        let cipher = match self.suite {
            Suite::Aes128Gcm => Cipher::Aes128Gcm,
            Suite::Aes256Gcm => Cipher::Aes256Gcm,
            Suite::Chacha20Poly1305 => Cipher::Chacha20Poly1305,
        };
        match direction {
            Direction::Transmit => self.tx.for_kernel(direction, cipher),
            Direction::Receive => self.rx.for_kernel(direction, cipher),
        }
    }

    /// Fails if a KeyUpdate of the peer needs new keys in a kernel that does not accept them.
    ///
    /// A KeyUpdate changes the receiving keys and, if `requested`, the sending keys.
    pub(super) fn check_kernel_can_rekey(&self, requested: bool) -> Result<(), Refusal> {
        let concerned = self.kernel.receives() || self.kernel.transmits() && requested;
        if concerned && !self.kernel.rekeys() {
            let why = "the peer changed its keys, and this kernel cannot replace TLS keys: Linux does from 6.14 on; \
                before, leave receiving out of the kernel, or all of it";
            return Err(Refusal(Alert::INTERNAL_ERROR, Error::Library(why.to_owned())));
        }
        Ok(())
    }

    /// Opens the frame at the front of `wire`.
    pub(super) fn open_frame(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<Opened, Error> {
        let Some((kind, len)) = frame(wire) else { return Ok(Opened { used: 0, content: Content::Partial }) };
        let Some(content) = wire[HEAD..].get_mut(..len) else {
            return Ok(Opened { used: 0, content: Content::Partial });
        };
        self.rx.count(len.div_ceil(MAX_PLAIN).max(1));
        let meaning = match kind {
            REFUSED => Err(refusal(content)),
            kind => self.dispatch(kind, content),
        };
        let content = match meaning {
            Ok(Meaning::Data(_)) => {
                self.quiet = 0;
                self.stop_taking_tickets();
                Content::Data(Plain::in_wire(HEAD..HEAD + len))
            }
            Ok(Meaning::Control) => Content::Control,
            Ok(Meaning::Closed) => {
                self.received_close = true;
                Content::Closed
            }
            Err(refusal) => return Err(self.refuse(refusal, out)),
        };
        Ok(Opened { used: HEAD + len, content })
    }

    /// Appends `plain` as a frame for the kernel to seal; changes keys after `limit` records.
    pub(super) fn seal_frame(&mut self, plain: &[&[u8]], out: &mut Buf, limit: u64) -> Result<(), Error> {
        if plain.iter().all(|chunk| chunk.is_empty()) {
            return Ok(());
        }
        if self.owes_update || self.kernel.rekeys() && self.tx.sequence() >= limit {
            self.update_keys(out)?;
        }
        self.put_frame(DATA, plain, out)
    }

    pub(super) fn put_frame(&mut self, kind: u8, content: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        let len: usize = content.iter().map(|chunk| chunk.len()).sum();
        let short = u32::try_from(len).map_err(|_| Error::ApiMisuse("one call seals at most 4 GiB"))?;
        out.reserve(HEAD + len);
        out.put(&head(kind, short));
        for chunk in content {
            out.put(chunk);
        }
        self.tx.count(len.div_ceil(MAX_PLAIN));
        Ok(())
    }
}

/// The reason why the kernel did not open a record, by the alert for the peer.
#[cold]
fn refusal(content: &[u8]) -> Refusal {
    match content.first().copied().map(Alert) {
        Some(Alert::BAD_RECORD_MAC) => not_authentic(),
        Some(alert @ Alert::RECORD_OVERFLOW) => Refusal::new(alert, "it sent a record of an impossible length"),
        Some(alert) => Refusal::new(alert, "it sent something that is not a protected record"),
        None => Refusal::new(Alert::INTERNAL_ERROR, "the kernel failed to open a record"),
    }
}

#[cfg(test)]
mod tests;
