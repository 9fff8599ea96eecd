//! A thread's live AEAD contexts.
//!
//! A context is 0.6 KiB that can be made of a key in a tenth of a microsecond. Kept for every connection, idle ones would
//! pay for it in memory, and busy ones, where they are many, in cache misses that cost more than making it anew. So a
//! connection keeps its keys alone, and a thread keeps the contexts of those that it hears of often: a key that comes up
//! again soon gets a place, of one that was not used for longest (a clock decides). All others use a context once,
//! which the library allocates for it, in C.
//!
//! A context belongs to one key for ever: each key has a number that is never given to another, and the number is asked
//! for whenever a context is used.

use aws_lc_rs::aead::LessSafeKey;
use core::cell::RefCell;
use core::sync::atomic::{AtomicU64, Ordering};
use tautline_tls::Error;

/// Most contexts of a thread: both directions of 512 busy connections, 0.6 MiB.
const PLACES: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 10;
const PLACE_MASK: u64 = PLACES as u64 - 1;

/// A key that was wanted within so many misses gets a place. As many keys as there are places are worth one each.
const SOON: u32 = 1 << PLACE_BITS;

thread_local! {
    static CONTEXTS: RefCell<Contexts> = const { RefCell::new(Contexts::new()) };
}

/// The number of the next key. 2^54 of them are enough for ever.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A key's claim to a context: whoever holds the key holds this with it.
pub(crate) struct Claim {
    /// The key's number, and in the low bits its place, where it has one. As bytes, it needs no room to be aligned.
    name: [u8; 8],
    /// When it was last missed; 0 for never.
    missed: u32,
}

impl Claim {
    /// A claim for a new key.
    pub(crate) fn new() -> Self {
        Self { name: (NEXT.fetch_add(1, Ordering::Relaxed) << PLACE_BITS).to_ne_bytes(), missed: 0 }
    }

    /// Has `act` use the context of this claim's key, which `make` makes where there is none.
    #[inline]
    pub(crate) fn with<R>(
        &mut self,
        make: impl FnOnce() -> Result<LessSafeKey, Error>,
        act: impl FnOnce(&LessSafeKey) -> R,
    ) -> Result<R, Error> {
        let used = CONTEXTS.try_with(|contexts| {
            let contexts = &mut *contexts.borrow_mut();
            if let Some(context) = contexts.find(self.name()) {
                return Ok(act(context));
            }
            let context = make()?;
            let result = act(&context);
            contexts.missed(self, context);
            Ok(result)
        });
        used.unwrap_or(Err(Error::ApiMisuse("the thread is ending, and with it its keys")))
    }

    const fn name(&self) -> u64 {
        u64::from_ne_bytes(self.name)
    }

    const fn place(&self) -> usize {
        (self.name() & PLACE_MASK) as usize
    }
}

impl Drop for Claim {
    /// The key is gone, and so is its context. (On another thread than that which used it, it waits there to be replaced.)
    fn drop(&mut self) {
        let _ = CONTEXTS.try_with(|contexts| {
            if let Ok(mut contexts) = contexts.try_borrow_mut() {
                contexts.forget(self);
            }
        });
    }
}

struct Contexts {
    places: Vec<Place>,
    /// Places whose keys are gone.
    free: Vec<usize>,
    /// Where the search for the next place to take begins.
    hand: usize,
    /// How many there were, never 0.
    misses: u32,
}

/// aws-lc wipes what a context held when it is dropped.
struct Place {
    /// Whose it is; 0 where it is free.
    name: u64,
    /// Since the hand was here.
    used: bool,
    context: Option<LessSafeKey>,
}

impl Contexts {
    const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new(), hand: 0, misses: 1 }
    }

    #[inline]
    fn find(&mut self, name: u64) -> Option<&LessSafeKey> {
        let place = self.places.get_mut((name & PLACE_MASK) as usize)?;
        if place.name != name {
            return None;
        }
        place.used = true;
        place.context.as_ref()
    }

    /// Keeps `context` where its key comes up often.
    #[cold]
    fn missed(&mut self, claim: &mut Claim, context: LessSafeKey) {
        self.misses = self.misses.wrapping_add(1).max(1);
        let last = core::mem::replace(&mut claim.missed, self.misses);
        if last == 0 || self.misses.wrapping_sub(last) > SOON {
            return;
        }
        let place = self.vacate();
        let name = claim.name() & !PLACE_MASK | place as u64;
        claim.name = name.to_ne_bytes();
        self.places[place] = Place { name, used: true, context: Some(context) };
    }

    /// A place to be taken.
    fn vacate(&mut self) -> usize {
        if let Some(place) = self.free.pop() {
            return place;
        }
        if self.places.len() < PLACES {
            // Once for all: later no record needs an allocation.
            self.places.reserve_exact(PLACES - self.places.len());
            self.free.reserve(PLACES);
            self.places.push(Place { name: 0, used: false, context: None });
            return self.places.len() - 1;
        }
        // Ends in the second round at the latest: the first one clears all marks.
        loop {
            let place = self.hand;
            self.hand = (self.hand + 1) % PLACES;
            if !core::mem::take(&mut self.places[place].used) {
                return place;
            }
        }
    }

    fn forget(&mut self, claim: &Claim) {
        if let Some(place) = self.places.get_mut(claim.place())
            && place.name == claim.name()
        {
            *place = Place { name: 0, used: false, context: None };
            self.free.push(claim.place());
        }
    }
}

#[cfg(test)]
mod tests;
