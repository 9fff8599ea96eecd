/// The hash of what requests of one client share: its address, a header or a cookie.
///
/// It is the same in all processes, so that several proxies choose alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// The key of these bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        // FNV-1a. The finish of SplitMix64 spreads it.
        Self(mix(bytes
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))))
    }

    pub(super) const fn hash(self) -> u64 {
        self.0
    }
}

/// The finish of `SplitMix64`: every bit of the result depends on every bit of the input.
pub(super) const fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
