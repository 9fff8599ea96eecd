//! The parts of a hub that its loops share.

use crate::account::CommonAccount;
use crate::census::Census;
use crate::config::Config;
use crate::control::{Control, Heard};
use crate::credentials::now;
use crate::elsewhere::Elsewhere;
use crate::feed::Feeds;
use crate::hooks::Calls;
use crate::limits::Bounds;
use crate::lock::lock;
use crate::log::Log;
use crate::mailbox::{Event, Mailbox, ToUser};
use crate::presence::Presence;
use crate::protocol::Object;
use crate::pusher::channels::Channels;
use crate::repeats::Repeats;
use crate::rules::{Identity, Rules, TokenError};
use crate::sessions::{Added, CONNECTION, Revoked, Sessions};
use crate::streams::Streams;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use tautline::{Origins, Reply, Request};

/// Decides about requests to connect.
pub(crate) type Gate = Arc<dyn Fn(&Request<'_>) -> Reply + Send + Sync>;

pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) feeds: Feeds,
    pub(crate) presence: Presence,
    pub(crate) account: CommonAccount,
    pub(crate) gate: Option<Gate>,
    /// Pages that may read events, on a server that only this machine reaches.
    pub(crate) pages: Option<Origins>,
    pub(crate) rules: LiveRules,
    pub(crate) sessions: Sessions,
    pub(crate) elsewhere: Elsewhere,
    pub(crate) revoked: Revoked,
    /// The other hosts.
    pub(crate) control: Control,
    pub(crate) bounds: Bounds,
    pub(crate) census: Census,
    pub(crate) repeats: Arc<Repeats>,
    /// Questions to the application.
    pub(crate) calls: Arc<Calls>,
    /// Of server-sent events.
    pub(crate) streams: Streams,
    /// Of the Pusher protocol.
    pub(crate) channels: Channels,
}

impl Shared {
    /// Hears the other hosts from now on.
    pub(crate) fn begin(self: &Arc<Self>) {
        let hub = Arc::downgrade(self);
        if let Some(bridge) = &self.control.bridge {
            let hub = hub.clone();
            bridge.set_slow_readers(move |topic| hub.upgrade()?.rules.get().grant(None, topic).terms.slow);
        }
        self.control.begin(move |heard| {
            if let Some(hub) = hub.upgrade() {
                hub.take(heard);
            }
        });
    }

    /// Tells the server the memory of all parts.
    pub(crate) fn tell_memory(&self) {
        self.account.feeds.tell(|| self.feeds.memory());
        self.account.log.tell(|| self.log.memory());
        self.account.repeats.tell(|| self.repeats.memory());
        self.account.sessions.tell(|| self.sessions.memory());
        self.account.elsewhere.tell(|| self.elsewhere.memory());
        self.account.revoked.tell(|| self.revoked.memory());
        self.account.calls.tell(|| self.calls.memory());
        self.account.bounds.tell(|| self.bounds.memory());
        self.account.channels.tell(|| self.channels.memory());
    }

    fn take(&self, Heard { end, revoked, send }: Heard) {
        revoked.iter().for_each(|(name, decision)| self.revoke(name, *decision));
        end.iter().for_each(|name| self.end_all(name));
        send.iter().for_each(|(user, data)| self.send_here(user, data.get()));
    }

    /// Refuses the tokens of a user, or one token, on this host, for a time as decided at another.
    pub(crate) fn revoke(&self, name: &Arc<str>, decision: (Duration, u64)) {
        match self.revoked.add(name, decision, Instant::now()) {
            Added::New if !decision.0.is_zero() => self.end_all(name),
            Added::New | Added::Known => {}
            Added::Full => log::warn!("too many users are revoked: add them to `revoked` in the file of rules"),
        }
    }

    /// Sends data to all connections of a user, on all hosts.
    pub(crate) fn send_to_user(&self, user: &Arc<str>, data: &str) {
        self.send_here(user, data);
        self.control.send(user, data);
    }

    fn send_here(&self, user: &Arc<str>, data: &str) {
        let frame: Arc<str> = Object::new("direct").raw("data", data).end().into();
        self.rules.tell(|| Event::User(user.clone(), ToUser::Send(frame.clone())));
    }

    /// Ends all connections of a user, or those with a token, or one by its name, on this host.
    pub(crate) fn end_all(&self, name: &Arc<str>) {
        if let Some(name) = name.strip_prefix(CONNECTION) {
            if let Some(conn) = self.control.own(name) {
                self.rules.tell(|| Event::End(conn));
            }
            return;
        }
        self.calls.forget(name);
        self.rules.tell(|| Event::User(name.clone(), ToUser::End));
    }

    /// The user that a token names, unless it is refused.
    pub(crate) fn identify(&self, rules: &Rules, token: &str) -> Result<Arc<Identity>, TokenError> {
        let identity = rules.identify(token, now())?;
        if self.revoked.has_any(&identity, Instant::now()) { Err(TokenError::Revoked) } else { Ok(identity) }
    }

    /// The connections to this host that a user may have, with those to other hosts, if all hosts together have a limit.
    pub(crate) fn most_sessions(&self, rules: &Rules, user: &str) -> usize {
        match rules.max_sessions {
            usize::MAX => usize::MAX,
            most => most.saturating_sub(self.elsewhere.number(user)),
        }
    }

    /// Whether this user is refused, by the rules or by the application.
    pub(crate) fn refuses(&self, rules: &Rules, user: &str) -> bool {
        rules.revoked.contains(user) || self.revoked.has(user, Instant::now())
    }
}

/// The rules of the moment, and the loops that have to know them.
pub(crate) struct LiveRules(Mutex<(Arc<Rules>, Vec<Weak<Mailbox>>)>);

impl LiveRules {
    pub(crate) fn new(rules: Rules) -> Self {
        Self(Mutex::new((Arc::new(rules), Vec::new())))
    }

    /// The rules of the moment. `mailbox` is told later ones.
    pub(crate) fn follow(&self, mailbox: &Arc<Mailbox>) -> Arc<Rules> {
        let mut live = lock(&self.0);
        live.1.push(Arc::downgrade(mailbox));
        mailbox.begin(&live.0);
        live.0.clone()
    }

    pub(crate) fn get(&self) -> Arc<Rules> {
        lock(&self.0).0.clone()
    }

    /// Replaces the rules, and tells all loops.
    pub(crate) fn replace(&self, rules: Rules) {
        let rules = Arc::new(rules);
        // All loops are told under one lock, so that the last rules are the last for each of them.
        let mut live = lock(&self.0);
        live.0 = rules.clone();
        tell(&mut live.1, || Event::Rules(rules.clone()));
    }

    /// Has all loops take an event.
    pub(crate) fn tell(&self, event: impl Fn() -> Event) {
        tell(&mut lock(&self.0).1, event);
    }
}

fn tell(loops: &mut Vec<Weak<Mailbox>>, event: impl Fn() -> Event) {
    loops.retain(|mailbox| mailbox.strong_count() > 0);
    loops.iter().filter_map(Weak::upgrade).for_each(|mailbox| mailbox.push(event()));
}
