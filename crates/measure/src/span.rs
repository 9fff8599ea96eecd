use std::time::Duration;

/// Length of one measurement.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Time to run before measuring.
    pub warmup: Duration,
    /// Time to measure.
    pub duration: Duration,
}
