use std::time::Duration;

/// Durations of the steps of an outgoing connection, in order. A step that was not needed took no time.
///
/// They belong to the attempt that succeeded. Waits before it and earlier attempts do not count.
///
/// ```
/// # mod tautline { pub use tautline_engine::DialTimes; }
/// use tautline::DialTimes;
///
/// fn describe(times: &DialTimes) -> String {
///     format!("{:?} until open, of which TLS took {:?}", times.total(), times.tls)
/// }
/// assert_eq!(describe(&DialTimes::default()), "0ns until open, of which TLS took 0ns");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DialTimes {
    /// Looking up the name of the host, or of the proxy.
    pub resolve: Duration,
    /// Connecting the socket, until the first of the addresses has answered.
    pub connect: Duration,
    /// Opening the tunnel through the proxy.
    pub proxy: Duration,
    /// The TLS handshake.
    pub tls: Duration,
    /// The upgrade request and its answer.
    pub upgrade: Duration,
}

impl DialTimes {
    /// The sum of all steps.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.resolve + self.connect + self.proxy + self.tls + self.upgrade
    }
}

/// A step of an attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DialStep {
    Resolved,
    Connected,
    Tunneled,
    Secured,
    Upgraded,
}

/// Times the steps of an attempt.
#[derive(Default)]
pub(crate) struct Steps {
    /// End of the last step, by the shard's clock.
    last: Duration,
    times: DialTimes,
}

impl Steps {
    /// An attempt begins.
    pub(crate) fn begin(now: Duration) -> Self {
        Self { last: now, times: DialTimes::default() }
    }

    /// A step has ended.
    pub(crate) fn end(&mut self, step: DialStep, now: Duration) {
        let times = &mut self.times;
        let time = match step {
            DialStep::Resolved => &mut times.resolve,
            DialStep::Connected => &mut times.connect,
            DialStep::Tunneled => &mut times.proxy,
            DialStep::Secured => &mut times.tls,
            DialStep::Upgraded => &mut times.upgrade,
        };
        *time = now.saturating_sub(self.last);
        self.last = now;
    }

    /// The steps so far.
    pub(crate) const fn times(&self) -> DialTimes {
        self.times
    }
}
