//! The table `[events]`: settings of server-sent events.

use std::time::Duration;
use tautline::Origins;

/// The settings of events, in the file of rules.
#[derive(Clone, Debug)]
pub(crate) struct EventRules {
    /// Pages of other origins that may read.
    pub(crate) origins: Option<Origins>,
    /// Most streams of this process, and of one address.
    pub(crate) most: usize,
    pub(crate) per_address: usize,
    /// The time after which a client comes back.
    pub(crate) retry: Duration,
}

impl Default for EventRules {
    fn default() -> Self {
        Self { origins: None, most: 10_000, per_address: 100, retry: Duration::from_secs(2) }
    }
}
