use crate::turn::timer::Tick;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tautline_io::machine::monotonic;

/// The time of a shard.
pub(crate) enum Clock {
    /// The system's monotonic clock, since this second. `Instant` has nanoseconds to subtract too, which each turn would do twice.
    System(u64),
    /// The time since the begin of a simulation.
    Simulated(Box<dyn Fn() -> Duration>),
}

impl Clock {
    /// The time since the second of the shard's begin, or since the simulation's. It does not go back.
    pub(crate) fn elapsed(&self) -> Duration {
        match self {
            Self::System(epoch) => {
                let now = monotonic();
                Duration::new(now.as_secs().saturating_sub(*epoch), now.subsec_nanos())
            }
            Self::Simulated(now) => now(),
        }
    }

    /// The time since the Unix epoch. A simulation begins there.
    pub(crate) fn since_epoch(&self) -> Duration {
        match self {
            Self::System(_) => since_epoch(),
            Self::Simulated(now) => now(),
        }
    }

    /// The present time as a tick.
    pub(crate) fn read(&self) -> Tick {
        tick(self.elapsed())
    }
}

/// The system's time since the Unix epoch; 0 if its clock stands before it.
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A time of a [`Clock`] as a tick.
pub(crate) const fn tick(now: Duration) -> Tick {
    // No `as_millis`, whose 128 bits cost more: 64 bits suffice for 500 million years.
    now.as_secs().saturating_mul(1_000).saturating_add(now.subsec_millis() as Tick)
}

impl Default for Clock {
    fn default() -> Self {
        Self::System(monotonic().as_secs())
    }
}
