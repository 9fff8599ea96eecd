//! Plain words as vectors.

use super::vector::Vector;

macro_rules! word {
    ($word:ty, $bytes:literal) => {
        // SAFETY: unaligned reads and writes of a word touch exactly its bytes.
        unsafe impl Vector for $word {
            const WIDTH: usize = $bytes;

            #[inline(always)]
            unsafe fn splat(key: [u8; 4]) -> Self {
                // Repeats the key over the word: for `u64`, the key times 0x0000_0001_0000_0001.
                (Self::MAX / Self::from(u32::MAX)) * Self::from(u32::from_ne_bytes(key))
            }

            #[inline(always)]
            unsafe fn load(src: *const u8) -> Self {
                // SAFETY: the caller's promise.
                unsafe { src.cast::<Self>().read_unaligned() }
            }

            #[inline(always)]
            unsafe fn xor(self, other: Self) -> Self {
                self ^ other
            }

            #[inline(always)]
            unsafe fn store(self, dst: *mut u8) {
                // SAFETY: the caller's promise.
                unsafe { dst.cast::<Self>().write_unaligned(self) };
            }
        }
    };
}

word!(u32, 4);
word!(u64, 8);
#[cfg(any(test, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
word!(u128, 16);
