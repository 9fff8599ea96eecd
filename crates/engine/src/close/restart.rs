use std::num::NonZeroU32;
use std::time::Duration;

/// How a server closes its connections before a restart, so that their clients do not return all at once.
///
/// Each connection is closed with 1012 and a [time after which to come back](tautline_ws::RetryAfter) of its own. The clients return evenly
/// over the time that their handshakes take at the pace of this server.
///
/// ```
/// # mod tautline { pub use tautline_engine::Restart; }
/// use std::time::Duration;
/// use tautline::Restart;
///
/// // The next server of this address begins to accept about two seconds after this one's drain begins.
/// let restart = Restart::default().with_pause(Duration::from_secs(2)).with_reason("a new version");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restart {
    pub(crate) pause: Duration,
    pub(crate) pace: Option<NonZeroU32>,
    pub(crate) longest: Duration,
    pub(crate) reason: String,
}

impl Default for Restart {
    fn default() -> Self {
        let reason = "the server restarts".to_owned();
        Self { pause: Duration::ZERO, pace: None, longest: Duration::from_secs(30), reason }
    }
}

impl Restart {
    /// Sets the time from the begin of the drain during which no server accepts connections. The default is zero: another one
    /// does already.
    ///
    /// With zero, connections are closed one after the other, and their clients return at once, as long as the drain's deadline
    /// allows that. Otherwise all are closed at once, since the sooner this server ends, the sooner the next one begins.
    #[must_use]
    pub const fn with_pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Sets the number of clients of all loops that return per second.
    ///
    /// The default is the pace of the loops' recent handshakes: full ones that use half of each loop's time.
    #[must_use]
    pub const fn with_pace(mut self, pace: NonZeroU32) -> Self {
        self.pace = Some(pace);
        self
    }

    /// Sets the longest time over which clients return; 30 s by default.
    ///
    /// Our clients do not wait for longer than [`Reconnect::longest`](crate::Reconnect).
    #[must_use]
    pub const fn with_longest(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// Sets the text of the close reason, after the time.
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// The part of one loop of these.
    #[must_use]
    pub fn for_each_of(&self, loops: usize) -> Self {
        let loops = u32::try_from(loops).unwrap_or(u32::MAX).max(1);
        let pace = self.pace.map(|pace| NonZeroU32::new(pace.get() / loops).unwrap_or(NonZeroU32::MIN));
        Self { pace, ..self.clone() }
    }
}
