//! The parts of a hub that its loops share.

use crate::account::CommonAccount;
use crate::config::Config;
use crate::control::Control;
use crate::events::Streams;
use crate::feed::Feeds;
use crate::hooks::Calls;
use crate::limits::Bounds;
use crate::log::Log;
use crate::mailbox::{Event, Mailbox};
use crate::presence::Presence;
use crate::pusher::channels::Channels;
use crate::repeats::Repeats;
use crate::rules::Rules;
use crate::sessions::{Revoked, Sessions};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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
    pub(crate) rules: LiveRules,
    pub(crate) sessions: Sessions,
    pub(crate) revoked: Revoked,
    /// The other hosts.
    pub(crate) control: Control,
    pub(crate) bounds: Bounds,
    pub(crate) repeats: Arc<Repeats>,
    /// Questions to the application.
    pub(crate) calls: Arc<Calls>,
    /// Of server-sent events.
    pub(crate) streams: Streams,
    /// Of the Pusher protocol.
    pub(crate) channels: Channels,
}

/// The rules of the moment, and the loops that have to know them.
pub(crate) struct LiveRules(Mutex<(Arc<Rules>, Vec<Weak<Mailbox>>)>);

impl LiveRules {
    pub(crate) fn new(rules: Rules) -> Self {
        Self(Mutex::new((Arc::new(rules), Vec::new())))
    }

    /// The rules of the moment. `mailbox` is told later ones.
    pub(crate) fn follow(&self, mailbox: &Arc<Mailbox>) -> Arc<Rules> {
        let mut live = self.lock();
        live.1.push(Arc::downgrade(mailbox));
        live.0.clone()
    }

    pub(crate) fn get(&self) -> Arc<Rules> {
        self.lock().0.clone()
    }

    /// Replaces the rules, and tells all loops.
    pub(crate) fn replace(&self, rules: Rules) {
        let rules = Arc::new(rules);
        // All loops are told under one lock, so that the last rules are the last for each of them.
        let mut live = self.lock();
        live.0 = rules.clone();
        tell(&mut live.1, || Event::Rules(rules.clone()));
    }

    /// Has all loops take an event.
    pub(crate) fn tell(&self, event: impl Fn() -> Event) {
        tell(&mut self.lock().1, event);
    }

    fn lock(&self) -> MutexGuard<'_, (Arc<Rules>, Vec<Weak<Mailbox>>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(loops: &mut Vec<Weak<Mailbox>>, event: impl Fn() -> Event) {
    loops.retain(|mailbox| mailbox.strong_count() > 0);
    loops.iter().filter_map(Weak::upgrade).for_each(|mailbox| mailbox.push(event()));
}
