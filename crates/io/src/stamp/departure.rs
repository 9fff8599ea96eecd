/// When a sent byte left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Departure {
    /// The byte's number.
    pub(crate) number: u32,
    /// Nanoseconds of `CLOCK_REALTIME`.
    pub(crate) nanos: u64,
}
