use std::time::Duration;

/// Length of one measurement.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Time to run before measuring.
    pub warmup: Duration,
    /// Time to measure.
    pub duration: Duration,
}

impl Span {
    /// Both times in milliseconds.
    #[must_use]
    pub const fn millis(warmup: u64, duration: u64) -> Self {
        Self { warmup: Duration::from_millis(warmup), duration: Duration::from_millis(duration) }
    }
}
