use crate::Error;
use std::time::Duration;

/// Bytes of payload in a batch.
const BYTES: usize = 64 << 10;

/// Least and greatest number of messages in a batch.
const MESSAGES: [usize; 2] = [16, 512];

/// Messages that are timed together, because one is too short for a clock.
pub(super) trait Batch {
    /// Processes the messages once. Returns the CPU time of the measured part, and the number of messages.
    fn run(&mut self) -> Result<(Duration, usize), Error>;
}

/// Number of messages of `size` bytes in a batch.
pub(super) fn messages(size: usize) -> usize {
    (BYTES / size.max(1)).clamp(MESSAGES[0], MESSAGES[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_long_enough_to_time_and_small_enough_for_the_cache() {
        assert_eq!([0, 64, 1024, 16_384, 1 << 20].map(messages), [512, 512, 64, 16, 16]);
    }
}
