use std::time::Duration;

/// How a driver spins: it asks the kernel again and again instead of sleeping, which saves the time that waking up
/// takes and costs a whole CPU.
///
/// Where the network card's queues can be polled, the kernel is told to do so (`SO_BUSY_POLL` and the like); the log
/// says which of it the kernel accepted. Loopback and most virtual cards have nothing to poll: there only the wake-up
/// is saved.
///
/// ```
/// # mod tautline { pub use tautline_io::{DriverConfig, Spin}; pub mod layers { pub mod io { pub use tautline_io::*; } } }
/// use std::time::Duration;
/// use tautline::layers::io::epoll;
/// use tautline::{DriverConfig, Spin};
///
/// let mut spin = Spin::default();
/// spin.idle = Duration::MAX; // it never sleeps
/// let mut config = epoll::Config::default();
/// config.spin = Some(spin);
/// assert_eq!(DriverConfig::Epoll(config).name(), "spin");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Spin {
    /// How long nothing may happen before it sleeps, as other drivers do; the next event makes it spin again.
    /// `Duration::MAX` never sleeps. Default 1 second.
    pub idle: Duration,
    /// How long the kernel may poll a card's queue for one call. Default 50 microseconds.
    pub busy_poll: Duration,
    /// Most packets that it takes from the card for one such poll. Default 64; more than 64 needs `CAP_NET_ADMIN`.
    pub budget: u16,
}

impl Default for Spin {
    fn default() -> Self {
        Self { idle: Duration::from_secs(1), busy_poll: Duration::from_micros(50), budget: 64 }
    }
}
