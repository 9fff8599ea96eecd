//! The parts of a hub that its loops share.

use crate::account::CommonAccount;
use crate::config::Config;
use crate::feed::Feeds;
use crate::log::Log;
use crate::presence::Presence;
use std::sync::Arc;
use tautline::{Reply, Request};

/// Decides about requests to connect.
pub(crate) type Gate = Arc<dyn Fn(&Request<'_>) -> Reply + Send + Sync>;

pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) feeds: Feeds,
    pub(crate) presence: Presence,
    pub(crate) account: CommonAccount,
    pub(crate) gate: Option<Gate>,
}
