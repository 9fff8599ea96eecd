//! Seals many records with several threads.
//!
//! A record's nonce depends only on its sequence number, so records can be sealed in any order. The numbers of all
//! records are reserved first. Each thread then takes the next run of records and seals it into its place on the wire.

use super::{IV, Keys, OVERHEAD, Record, SEAL_FAILED, USED_UP, Way, choice, nonce};
use crate::aead::context::Context;
use crate::chunks::Chunks;
use crate::schedule::Suite;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tautline_tls::record::{HEADER, MAX_PLAIN};
use tautline_tls::{Error, Helpers};

/// Most runs per call.
///
/// Each run is sent as one piece. More runs would move the connection between processors more often, at a higher cost
/// than the gain.
const RUNS: usize = 2;

impl Keys {
    /// Seals `plain`, `len` bytes in all, as records of type `kind` into `wire`.
    ///
    /// `wire` is longer than `plain` by [`OVERHEAD`] per record. The first record is the short one, as it is if one
    /// thread seals them.
    pub(crate) fn seal_many(
        &mut self,
        suite: Suite,
        kind: u8,
        (plain, len): (&[&[u8]], usize),
        wire: &mut [u8],
        helpers: &dyn Helpers,
    ) -> Result<(), Error> {
        let count = len.div_ceil(MAX_PLAIN);
        let sequence = self.sequence;
        // Reserved before sealing: no number is used twice, even if sealing fails.
        self.sequence = sequence.checked_add(count as u64).ok_or(USED_UP)?;
        let Self { claim, key, iv, .. } = self;
        let all = Run { number: 0, chunks: Chunks::new(plain), len, wire, iv: *iv, sequence };
        let most = count.div_ceil(RUNS).max(1);
        let runs = count.div_ceil(most);
        let (rest, sealed) = (Mutex::new(all), AtomicUsize::new(0));
        let work = |context: &Context| {
            // If another thread panics, its run stays unsealed, and `sealed` falls short of `runs`.
            while let Some(run) = { rest.lock().unwrap_or_else(PoisonError::into_inner).next(most) } {
                let number = run.number;
                let mut report = ReportOnDrop { helpers, number, records: None };
                let Some(records) = run.seal(kind, context) else { return };
                report.records = Some(records);
                sealed.fetch_add(1, Ordering::Relaxed);
            }
        };
        // Of several records, all but the first are full ones.
        let provider = choice::provider(suite, MAX_PLAIN, Way::Seal);
        let share = |context: &Context| helpers.share(runs.saturating_sub(1), &|| work(context));
        claim.with(provider, || Context::new(provider, suite, key.of(suite)), share)?;
        if sealed.load(Ordering::Relaxed) == runs { Ok(()) } else { Err(SEAL_FAILED) }
    }
}

/// Reports a run when it is dropped, so also if sealing it panics: other threads wait for the report.
struct ReportOnDrop<'a> {
    helpers: &'a dyn Helpers,
    number: usize,
    records: Option<&'a [u8]>,
}

impl Drop for ReportOnDrop<'_> {
    fn drop(&mut self) {
        self.helpers.sealed(self.number, self.records);
    }
}

/// Consecutive records. The records that no thread has taken yet are one run, too.
struct Run<'a> {
    number: usize,
    chunks: Chunks<'a>,
    len: usize,
    wire: &'a mut [u8],
    iv: [u8; IV],
    sequence: u64,
}

impl<'a> Run<'a> {
    /// Splits off the first records, at most `most`.
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

    /// Seals the records and returns their bytes on the wire; `None` if the AEAD fails.
    fn seal(mut self, kind: u8, context: &Context) -> Option<&'a [u8]> {
        let mut at = 0;
        while let Some(len) = self.len.checked_sub(1).map(|last| last % MAX_PLAIN + 1) {
            let wire = self.wire.get_mut(at..at + len + OVERHEAD)?;
            let plain = self.chunks.take(len);
            if plain.is_none() {
                self.chunks.gather(&mut wire[HEADER..HEADER + len]);
            }
            Record { plain, wire, nonce: nonce(self.iv, self.sequence) }.seal(kind, context)?;
            self.sequence += 1;
            self.len -= len;
            at += len + OVERHEAD;
        }
        Some(self.wire)
    }
}
