//! Times, which are numbers of the caller.

use std::time::Duration;

/// Milliseconds since an origin that the caller chooses.
pub type Tick = u64;

/// A duration in ticks. The longest are cut, so that their sum with a time does not overflow.
#[must_use]
pub fn millis(duration: Duration) -> Tick {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}
