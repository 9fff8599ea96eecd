//! A per-thread cache of AEAD contexts.
//!
//! A context takes 0.6 KiB and is made from a key in 0.1 us with AWS-LC. If every connection kept its contexts, idle ones
//! would cost memory. Many busy ones would cost cache misses, which take longer than making a context.
//!
//! So a connection keeps only its keys, and each thread caches the contexts of the busy ones. A key that is used again
//! soon gets a slot of the cache. If the cache is full, the CLOCK algorithm picks a slot that was not used lately.
//! Other keys use a context once, which the library allocates in C.
//!
//! A key has a context for each provider of its AEAD that it needs: small records may be sealed by one and large ones by
//! another. Both lie in the key's slot. The second one is only made when a record needs it.
//!
//! A context is never used with another key. Each key has a unique number, which is compared before each use.

use crate::aead::context::Context;
use crate::aead::provider::{PROVIDERS, Provider};
use core::cell::RefCell;
use core::sync::atomic::{AtomicU64, Ordering};
use tautline_tls::Error;

/// Most contexts per thread: both directions of 512 busy connections, 0.6 MiB.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 10;
const SLOT_MASK: u64 = SLOTS as u64 - 1;

/// A key gets a slot if at most this many misses of the cache lie between two of its own.
///
/// It equals the number of slots, so that as many keys as there are slots get one each.
const REUSE_WITHIN: u32 = 1 << SLOT_BITS;

thread_local! {
    static CONTEXTS: RefCell<Contexts> = const { RefCell::new(Contexts::new()) };
}

/// The number of the next key; 2^54 of them never run out.
static NEXT: AtomicU64 = AtomicU64::new(1);

const ENDING: Error = Error::ApiMisuse("the thread is ending, and with it its keys");

/// A key's claim to a context in the cache; stored beside the key.
pub(crate) struct Claim {
    /// The key's number and, in the low bits, the index of its slot. An array of bytes needs no padding for alignment.
    handle: [u8; 8],
    /// The cache's count of misses at the key's last miss; 0 if it had none.
    missed: u32,
}

impl Claim {
    /// Makes a claim for a new key.
    pub(crate) fn new() -> Self {
        Self { handle: (NEXT.fetch_add(1, Ordering::Relaxed) << SLOT_BITS).to_ne_bytes(), missed: 0 }
    }

    /// Calls `act` with the provider's context of the claim's key, which `make` makes if it is not in the cache.
    ///
    /// There is one call of `act`, so that it becomes a part of the caller: each further function costs a record time.
    #[inline(always)]
    pub(crate) fn with<R>(
        &mut self,
        provider: Provider,
        make: impl FnOnce() -> Result<Context, Error>,
        act: impl FnOnce(&Context) -> R,
    ) -> Result<R, Error> {
        let handle = self.handle();
        let done = CONTEXTS.try_with(|contexts| {
            let mut contexts = contexts.borrow_mut();
            let mut new = None;
            let context = match contexts.find(handle, provider) {
                Some(context) => context,
                None => new.insert(make()?),
            };
            let result = act(context);
            if let Some(new) = new {
                contexts.missed(self, provider, new);
            }
            Ok(result)
        });
        done.unwrap_or(Err(ENDING))
    }

    const fn handle(&self) -> u64 {
        u64::from_ne_bytes(self.handle)
    }

    const fn slot(&self) -> usize {
        (self.handle() & SLOT_MASK) as usize
    }
}

impl Drop for Claim {
    /// Frees the key's slot on this thread. On other threads that used the key, its context stays until it is replaced.
    fn drop(&mut self) {
        let _ = CONTEXTS.try_with(|contexts| {
            if let Ok(mut contexts) = contexts.try_borrow_mut() {
                contexts.forget(self);
            }
        });
    }
}

struct Contexts {
    slots: Vec<Slot>,
    /// Indices of slots whose keys were dropped.
    free: Vec<usize>,
    /// The clock's hand: the slot where the search for the next victim begins.
    hand: usize,
    /// Number of misses, never 0; it wraps.
    misses: u32,
}

/// One slot of the cache. Its contexts are wiped when they are dropped.
struct Slot {
    /// The handle of the key's claim; 0 if the slot is free.
    handle: u64,
    /// Whether the context was used since the hand last passed.
    used: bool,
    /// The key's contexts, by provider. Each is a pointer to the context itself.
    contexts: [Option<Context>; PROVIDERS],
}

impl Slot {
    const FREE: Self = Self { handle: 0, used: false, contexts: [const { None }; PROVIDERS] };
}

impl Contexts {
    const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), hand: 0, misses: 1 }
    }

    #[inline]
    fn find(&mut self, handle: u64, provider: Provider) -> Option<&Context> {
        let slot = self.slots.get_mut((handle & SLOT_MASK) as usize)?;
        if slot.handle != handle {
            return None;
        }
        slot.used = true;
        slot.contexts[provider as usize].as_ref()
    }

    /// Counts a miss, and keeps `context` if its key was used again soon.
    #[cold]
    fn missed(&mut self, claim: &mut Claim, provider: Provider, context: Context) {
        self.misses = self.misses.wrapping_add(1).max(1);
        let last = core::mem::replace(&mut claim.missed, self.misses);
        if last == 0 || self.misses.wrapping_sub(last) > REUSE_WITHIN {
            return;
        }
        let slot = match self.slots.get_mut(claim.slot()) {
            // It has a context of another provider.
            Some(slot) if slot.handle == claim.handle() => slot,
            _ => {
                let index = self.vacate();
                let handle = claim.handle() & !SLOT_MASK | index as u64;
                claim.handle = handle.to_ne_bytes();
                let slot = &mut self.slots[index];
                *slot = Slot { handle, used: true, ..Slot::FREE };
                slot
            }
        };
        slot.contexts[provider as usize] = Some(context);
    }

    /// Returns the index of a slot to fill.
    fn vacate(&mut self) -> usize {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        if self.slots.len() < SLOTS {
            // All memory at once, so that no later record allocates.
            self.slots.reserve_exact(SLOTS - self.slots.len());
            self.free.reserve(SLOTS);
            self.slots.push(Slot::FREE);
            return self.slots.len() - 1;
        }
        // Ends in the second round at the latest, since the first one clears all marks.
        loop {
            let slot = self.hand;
            self.hand = (self.hand + 1) % SLOTS;
            if !core::mem::take(&mut self.slots[slot].used) {
                return slot;
            }
        }
    }

    fn forget(&mut self, claim: &Claim) {
        if let Some(slot) = self.slots.get_mut(claim.slot())
            && slot.handle == claim.handle()
        {
            *slot = Slot::FREE;
            self.free.push(claim.slot());
        }
    }
}

#[cfg(test)]
mod tests;
