//! Many records at once, by several threads.
//!
//! A record's nonce is its number, so records need not wait for each other: the numbers of all of them are reserved first,
//! and whoever has time seals the next one into its place on the wire.

use super::{IV, Keys, OVERHEAD, REFUSED, Record, USED_UP, nonce};
use crate::chunks::Chunks;
use crate::schedule::Suite;
use aws_lc_rs::aead::LessSafeKey;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tautline_tls::record::{HEADER, MAX_PLAIN};
use tautline_tls::{Error, Team};

/// Records that are worth another thread: with fewer for each, they are sealed before that thread is awake.
const WORTH: u64 = 4;

impl Keys {
    /// Seals `len` bytes of `plain`, as records of type `kind`, into `wire`, which is [`OVERHEAD`] longer for each of them.
    /// The first record is the short one, as when they are sealed one after the other.
    pub(crate) fn seal_many(
        &mut self,
        suite: Suite,
        kind: u8,
        (plain, len): (&[&[u8]], usize),
        wire: &mut [u8],
        team: &dyn Team,
    ) -> Result<(), Error> {
        let count = len.div_ceil(MAX_PLAIN) as u64;
        let sequence = self.sequence;
        // Whatever becomes of these records, no number is used twice.
        self.sequence = sequence.checked_add(count).ok_or(USED_UP)?;
        let Self { claim, key, iv, .. } = self;
        let rest = Mutex::new(Rest { chunks: Chunks::new(plain), len, wire, iv: *iv, sequence });
        let sealed = AtomicU64::new(0);
        let work = |context: &LessSafeKey| {
            // A panic on another thread leaves a record unsealed, which the count shows.
            while let Some(record) = { rest.lock().unwrap_or_else(PoisonError::into_inner).next() } {
                if record.seal(suite, kind, context).is_none() {
                    return;
                }
                sealed.fetch_add(1, Ordering::Relaxed);
            }
        };
        let others = usize::try_from(count / WORTH).unwrap_or(usize::MAX);
        claim.with(|| key.context(suite), |context| team.share(others, &|| work(context)))?;
        if sealed.load(Ordering::Relaxed) == count { Ok(()) } else { Err(REFUSED) }
    }
}

/// What nobody has taken yet.
struct Rest<'a> {
    chunks: Chunks<'a>,
    len: usize,
    wire: &'a mut [u8],
    iv: [u8; IV],
    sequence: u64,
}

impl<'a> Rest<'a> {
    fn next(&mut self) -> Option<Record<'a>> {
        let len = self.len.checked_sub(1)? % MAX_PLAIN + 1;
        let (wire, behind) = core::mem::take(&mut self.wire).split_at_mut_checked(len + OVERHEAD)?;
        let plain = self.chunks.take(len);
        if plain.is_none() {
            self.chunks.gather(&mut wire[HEADER..HEADER + len]);
        }
        let record = Record { plain, wire, nonce: nonce(self.iv, self.sequence) };
        self.len -= len;
        self.wire = behind;
        self.sequence += 1;
        Some(record)
    }
}
