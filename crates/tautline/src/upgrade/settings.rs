//! The settings of an upgrade.

use crate::ServerHandle;
use std::time::Duration;
use tautline_engine::Totals;

/// Settings of [`ServerHandle::hand_over`](crate::ServerHandle::hand_over).
///
/// ```
/// use std::time::Duration;
/// use tautline::HandOver;
///
/// let mut settings = HandOver::default();
/// settings.deadline = Duration::from_secs(30);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HandOver {
    /// How long connections that cannot move have to close, after they got 1012. Default: 10 seconds.
    pub deadline: Duration,
    /// The user of the new process. Default: the user of this one.
    pub user: Option<u32>,
    /// Further servers of this process, such as an admin listener. Their listening sockets go along: the new process
    /// [takes them](crate::PreparedServer::take_listening_of) by their number here. Their connections do not move. These servers
    /// drain once the new process serves, and go on if the upgrade fails. Default: none.
    pub also: Vec<ServerHandle>,
    /// Totals of the application, which the new process finds in [`ServerHandle::totals_before`]. Default: none.
    pub totals: Totals,
}

impl Default for HandOver {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(10), user: None, also: Vec::new(), totals: Totals::default() }
    }
}
