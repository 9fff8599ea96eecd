//! Words of one host for all: users whose connections end, and those whose tokens are refused.
//!
//! A host that comes later asks the others, so a revocation lasts as long as one host that knows it.

use crate::credentials::now;
use crate::mailbox::{Event, ToUser};
use crate::protocol::random_name;
use crate::sessions::{Added, TOKEN};
use crate::shared::Shared;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use tautline::{Bridge, Listening, Outgoing};

/// The channel of the broker. Names of topics do not begin with `$`.
const CHANNEL: &str = "$hub/control";
/// Revocations in one message.
const PAGE: usize = 500;
/// The shortest time between two answers to hosts that ask.
const PER_ANSWER: Duration = Duration::from_secs(1);
/// The longest time of a revocation that another host names, in seconds.
pub(crate) const MOST_REVOKED: u64 = 30 * 24 * 3_600;
/// Most bytes of the name of a user or token, and of a host.
const MOST_NAME: usize = 160;

/// This host among those that share a broker.
pub(crate) struct Control {
    host: String,
    bridge: Option<Bridge>,
    listening: OnceLock<Option<Listening>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The connections of the broker that this host has greeted.
    greeted: u64,
    answered: Option<Instant>,
    is_asked: bool,
}

#[derive(Default, Serialize, Deserialize)]
struct News {
    host: String,
    /// Users, or tokens, whose connections end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    end: Vec<String>,
    /// Names that are refused, each until a second since 1970.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    revoked: Vec<(String, u64)>,
    /// Whether the other hosts are asked for all that are refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ask: bool,
}

impl Control {
    pub(crate) fn new(bridge: Option<Bridge>) -> Self {
        Self { host: random_name(), bridge, listening: OnceLock::new(), state: Mutex::default() }
    }

    /// Hears the other hosts from now on.
    pub(crate) fn begin(&self, hub: &Arc<Shared>) {
        self.listening.get_or_init(|| {
            let bridge = self.bridge.as_ref()?;
            let hub = Arc::downgrade(hub);
            Some(bridge.listen(CHANNEL, move |_, payload| hear(&hub, payload)))
        });
    }

    /// Asks and tells the others after each connection to the broker, and answers those that have asked.
    pub(crate) fn tick(&self, hub: &Shared, at: Instant) {
        let Some(bridge) = &self.bridge else { return };
        let counters = bridge.counters();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = counters.connected && counters.connects != state.greeted;
        let may_answer = state.answered.is_none_or(|last| at.saturating_duration_since(last) >= PER_ANSWER);
        if is_new {
            state.greeted = counters.connects;
            self.tell(News { ask: true, ..News::default() });
        }
        if is_new || state.is_asked && may_answer {
            (state.answered, state.is_asked) = (Some(at), false);
            for page in hub.revoked.list(at, now().as_secs()).chunks(PAGE) {
                self.tell(News { revoked: page.to_vec(), ..News::default() });
            }
        }
    }

    /// Tells the other hosts of a user or token whose connections end, and that is refused until a time.
    pub(crate) fn pass(&self, name: &str, time: Option<Duration>) {
        let end = vec![name.to_owned()];
        let until = time.map(|time| (name.to_owned(), now().saturating_add(time).as_secs()));
        self.tell(News { end, revoked: until.into_iter().collect(), ..News::default() });
    }

    fn tell(&self, news: News) {
        let Some(bridge) = &self.bridge else { return };
        let text = serde_json::to_string(&News { host: self.host.clone(), ..news }).unwrap_or_default();
        // If it is withheld, the next connection to the broker says the same of those that are refused.
        let _ = bridge.publish(CHANNEL, Outgoing::text(&text));
    }
}

fn hear(hub: &Weak<Shared>, payload: &[u8]) {
    let Some(hub) = hub.upgrade() else { return };
    let Ok(News { host, end, revoked, ask }) = serde_json::from_slice(payload) else {
        return log::debug!("words of another host that are no JSON of a hub");
    };
    if host == hub.control.host {
        return;
    }
    if ask {
        hub.control.state.lock().unwrap_or_else(PoisonError::into_inner).is_asked = true;
    }
    let (at, since) = (Instant::now(), now().as_secs());
    for (name, until) in revoked {
        let left = until.saturating_sub(since).min(MOST_REVOKED);
        if !is_name(&name) {
            continue;
        }
        let name: Arc<str> = name.into();
        // One that is over was taken back.
        match hub.revoked.add(&name, Duration::from_secs(left), at) {
            Added::New if left > 0 => end_all(&hub, &name),
            Added::New | Added::Known => {}
            Added::Full => log::warn!("too many users are revoked: add them to `revoked` in the file of rules"),
        }
    }
    end.iter().filter(|name| is_name(name)).for_each(|name| end_all(&hub, &name.as_str().into()));
}

/// Ends all connections of a user, or those with a token, on this host.
pub(crate) fn end_all(hub: &Shared, name: &Arc<str>) {
    hub.calls.forget(name);
    hub.rules.tell(|| Event::User(name.clone(), ToUser::End));
}

fn is_name(text: &str) -> bool {
    let name = text.strip_prefix(TOKEN).unwrap_or(text);
    !name.is_empty() && text.len() <= MOST_NAME && !name.contains(char::is_control)
}
