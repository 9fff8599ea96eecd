use std::time::Duration;

/// Random times, which spread the work of many servers. Nothing depends on that nobody can guess them.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A random time up to this one.
    pub(crate) fn up_to(&mut self, most: Duration) -> Duration {
        // SplitMix64 (Steele, Lea and Flood 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let part = u32::try_from((mixed ^ (mixed >> 31)) >> 40).unwrap_or_default();
        most.mul_f64(f64::from(part) / f64::from(1_u32 << 24))
    }
}
