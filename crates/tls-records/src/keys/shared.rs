//! Many records at once, by several threads.
//!
//! A record's nonce is its number, so records need not wait for each other: the numbers of all of them are reserved first,
//! and whoever has time seals the next run of them into its place on the wire.

use super::{IV, Keys, OVERHEAD, REFUSED, Record, USED_UP, nonce};
use crate::chunks::Chunks;
use crate::schedule::Suite;
use aws_lc_rs::aead::LessSafeKey;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tautline_tls::record::{HEADER, MAX_PLAIN};
use tautline_tls::{Error, Team};

/// Runs that the records of one call make. Each leaves as one piece, and with more of them the connection would go to and fro
/// between processors, which takes longer than what is gained.
const RUNS: usize = 2;

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
        let count = len.div_ceil(MAX_PLAIN);
        let sequence = self.sequence;
        // Whatever becomes of these records, no number is used twice.
        self.sequence = sequence.checked_add(count as u64).ok_or(USED_UP)?;
        let Self { claim, key, iv, .. } = self;
        let all = Run { number: 0, chunks: Chunks::new(plain), len, wire, iv: *iv, sequence };
        let most = count.div_ceil(RUNS).max(1);
        let runs = count.div_ceil(most);
        let (rest, sealed) = (Mutex::new(all), AtomicUsize::new(0));
        let work = |context: &LessSafeKey| {
            // A panic on another thread leaves a run unsealed, which the count shows.
            while let Some(run) = { rest.lock().unwrap_or_else(PoisonError::into_inner).next(most) } {
                let number = run.number;
                let mut told = Told { team, number, records: None };
                let Some(records) = run.seal(suite, kind, context) else { return };
                told.records = Some(records);
                sealed.fetch_add(1, Ordering::Relaxed);
            }
        };
        claim.with(|| key.context(suite), |context| team.share(runs.saturating_sub(1), &|| work(context)))?;
        if sealed.load(Ordering::Relaxed) == runs { Ok(()) } else { Err(REFUSED) }
    }
}

/// Tells of a run when it is dropped, also where sealing it panicked: others wait for it.
struct Told<'a> {
    team: &'a dyn Team,
    number: usize,
    records: Option<&'a [u8]>,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.team.sealed(self.number, self.records);
    }
}

/// Records in a row. All of what nobody has taken yet is one, too.
struct Run<'a> {
    number: usize,
    chunks: Chunks<'a>,
    len: usize,
    wire: &'a mut [u8],
    iv: [u8; IV],
    sequence: u64,
}

impl<'a> Run<'a> {
    /// Takes the first records off, at `most` so many.
    fn next(&mut self, most: usize) -> Option<Self> {
        let records = self.len.div_ceil(MAX_PLAIN).min(most);
        let len = self.len.checked_sub(1)? % MAX_PLAIN + 1 + (records - 1) * MAX_PLAIN;
        let (wire, behind) = core::mem::take(&mut self.wire).split_at_mut_checked(len + records * OVERHEAD)?;
        let first = Self { chunks: self.chunks.clone(), len, wire, ..*self };
        self.chunks.skip(len);
        self.len -= len;
        self.wire = behind;
        self.number += 1;
        self.sequence += records as u64;
        Some(first)
    }

    /// Seals them, and gives what goes on the wire; `None` where the AEAD refuses.
    fn seal(mut self, suite: Suite, kind: u8, context: &LessSafeKey) -> Option<&'a [u8]> {
        let mut at = 0;
        while let Some(len) = self.len.checked_sub(1).map(|last| last % MAX_PLAIN + 1) {
            let wire = self.wire.get_mut(at..at + len + OVERHEAD)?;
            let plain = self.chunks.take(len);
            if plain.is_none() {
                self.chunks.gather(&mut wire[HEADER..HEADER + len]);
            }
            Record { plain, wire, nonce: nonce(self.iv, self.sequence) }.seal(suite, kind, context)?;
            self.sequence += 1;
            self.len -= len;
            at += len + OVERHEAD;
        }
        Some(self.wire)
    }
}
