//! Words of one host for all: users whose connections end, and those whose tokens are refused.
//!
//! A host that comes later asks the others, so a revocation lasts as long as one host that knows it.

use crate::credentials::now;
use crate::protocol::random_name;
use crate::sessions::{Revoked, TOKEN};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
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
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The connections of the broker that this host has greeted.
    greeted: u64,
    answered: Option<Instant>,
    is_asked: bool,
}

/// Words of another host.
pub(crate) struct Heard {
    /// Users, or tokens, whose connections end.
    pub(crate) end: Vec<Arc<str>>,
    /// Users and tokens that are refused for a time. One that is over was taken back.
    pub(crate) revoked: Vec<(Arc<str>, Duration)>,
}

#[derive(Default, Serialize, Deserialize)]
struct News {
    host: String,
    /// Users, or tokens, whose connections end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    end: Vec<String>,
    /// Users and tokens that are refused, each until a second since 1970.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    revoked: Vec<(String, u64)>,
    /// Whether the other hosts are asked for all that are refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ask: bool,
}

impl Control {
    pub(crate) fn new(bridge: Option<Bridge>) -> Self {
        Self { host: random_name(), bridge, listening: OnceLock::new(), state: Arc::default() }
    }

    /// Hears the other hosts from now on. `take` does what they say.
    pub(crate) fn begin(&self, take: impl Fn(Heard) + Send + Sync + 'static) {
        self.listening.get_or_init(|| {
            let bridge = self.bridge.as_ref()?;
            let (host, state) = (self.host.clone(), self.state.clone());
            Some(bridge.listen(CHANNEL, move |_, payload| {
                hear((&host, &state), payload).into_iter().for_each(&take);
            }))
        });
    }

    /// Asks and tells the others after each connection to the broker, and answers those that have asked.
    pub(crate) fn tick(&self, all: &Revoked, at: Instant) {
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
            for page in all.list(at, now().as_secs()).chunks(PAGE) {
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

/// Reads words of another host.
fn hear((own, state): (&str, &Mutex<State>), payload: &[u8]) -> Option<Heard> {
    let Ok(News { host, end, revoked, ask }) = serde_json::from_slice(payload) else {
        log::debug!("words of another host that are no JSON of a hub");
        return None;
    };
    if host == own {
        return None;
    }
    if ask {
        state.lock().unwrap_or_else(PoisonError::into_inner).is_asked = true;
    }
    let since = now().as_secs();
    let left = |until: u64| Duration::from_secs(until.saturating_sub(since).min(MOST_REVOKED));
    let revoked = revoked.into_iter().filter(|(name, _)| is_name(name));
    let end = end.into_iter().filter(|name| is_name(name));
    Some(Heard {
        end: end.map(Into::into).collect(),
        revoked: revoked.map(|(name, until)| (name.into(), left(until))).collect(),
    })
}

fn is_name(text: &str) -> bool {
    let name = text.strip_prefix(TOKEN).unwrap_or(text);
    !name.is_empty() && text.len() <= MOST_NAME && !name.contains(char::is_control)
}
