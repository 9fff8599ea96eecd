//! Words of one host for all: messages for all connections of a user, users whose connections end, single connections that end,
//! and users whose tokens are refused.
//!
//! A host that comes later asks the others, so a revocation lasts as long as one host that knows it.

use crate::credentials::now;
use crate::lock::lock;
use crate::protocol::{MOST_DEPTH, depth};
use crate::sessions::{CONNECTION, LONGEST, Revocation, Revoked, TOKEN};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tautline::{Bridge, ConnId, Listening, Outgoing};

/// The channel of the broker. Names of topics do not begin with `$`.
const CHANNEL: &str = "$hub/control";
/// Revocations in one message.
const PAGE: usize = 500;
/// The shortest time between two answers to hosts that ask.
const PER_ANSWER: Duration = Duration::from_secs(1);
/// The most by which the clock of another host counts as ahead, in milliseconds.
const MOST_AHEAD: u64 = 24 * 3_600_000;
/// Most bytes of the name of a user or token, and of a host.
pub(crate) const MOST_NAME: usize = 160;

/// This host among those that share a broker.
pub(crate) struct Control {
    host: String,
    pub(crate) bridge: Option<Bridge>,
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
    /// Users, or tokens, whose connections end, and single connections.
    pub(crate) end: Vec<Arc<str>>,
    /// Users and tokens that are refused for a time, each with the time of the decision. No time takes a revocation back.
    pub(crate) revoked: Vec<(Arc<str>, (Duration, u64))>,
    /// Data for all connections of users, as JSON.
    pub(crate) send: Vec<(Arc<str>, Box<RawValue>)>,
}

#[derive(Default, Serialize, Deserialize)]
struct News {
    host: String,
    /// Users, or tokens, whose connections end, and single connections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    end: Vec<String>,
    /// Decisions about users and tokens that are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    revoked: Vec<Revocation>,
    /// Data for all connections of users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    send: Vec<(String, Box<RawValue>)>,
    /// Whether the other hosts are asked for all that are refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ask: bool,
}

impl Control {
    /// `host` is this one's name, as members of topics have it.
    pub(crate) fn new(host: &str, bridge: Option<Bridge>) -> Self {
        Self { host: host.to_owned(), bridge, listening: OnceLock::new(), state: Arc::default() }
    }

    /// The name of a connection among those of all hosts. Members that are connections have it, too.
    pub(crate) fn name(&self, conn: ConnId) -> String {
        format!("{}/{conn}", self.host)
    }

    /// The connection to this host with a name.
    pub(crate) fn own(&self, name: &str) -> Option<ConnId> {
        let (host, conn) = name.split_once('/')?;
        if host == self.host { conn.parse().ok() } else { None }
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
        let mut state = lock(&self.state);
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

    /// Tells the other hosts of a user or token whose connections end, and that is refused for a time as decided at another, or of
    /// a connection.
    pub(crate) fn pass(&self, name: &str, revoked: Option<(Duration, u64)>) {
        let told = |(time, at): (Duration, u64)| {
            let until = if time.is_zero() { 0 } else { now().saturating_add(time).as_secs() };
            (name.to_owned(), until, at)
        };
        self.tell(News {
            end: vec![name.to_owned()],
            revoked: revoked.map(told).into_iter().collect(),
            ..News::default()
        });
    }

    /// Has the other hosts send data to all connections of a user.
    pub(crate) fn send(&self, user: &str, data: &str) {
        let Ok(data) = RawValue::from_string(data.to_owned()) else { return };
        self.tell(News { send: vec![(user.to_owned(), data)], ..News::default() });
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
    let Ok(News { host, end, revoked, send, ask }) = serde_json::from_slice(payload) else {
        log::debug!("words of another host that are no JSON of a hub");
        return None;
    };
    if host == own {
        return None;
    }
    if ask {
        lock(state).is_asked = true;
    }
    let revoked = revoked.into_iter().filter(|(name, ..)| is_name(name));
    let end = end.into_iter().filter(|name| is_name(name));
    let send = send.into_iter().filter(|(name, data)| is_name(name) && depth(data.get()) <= MOST_DEPTH);
    Some(Heard {
        end: end.map(Into::into).collect(),
        revoked: revoked.filter_map(|(name, until, at)| Some((name.into(), decided(until, at)?))).collect(),
        send: send.map(|(name, data)| (name.into(), data)).collect(),
    })
}

/// A decision of another host or process: the time for which somebody is refused, none if that was taken back, and the time of the
/// decision. `None` if it is over.
pub(crate) fn decided(until: u64, at: u64) -> Option<(Duration, u64)> {
    let takes_back = until == 0;
    let end = if takes_back { Duration::from_millis(at).saturating_add(LONGEST) } else { Duration::from_secs(until) };
    let left = end.checked_sub(now()).filter(|left| !left.is_zero())?;
    let time = if takes_back { Duration::ZERO } else { left.min(LONGEST) };
    Some((time, at.min(millis().saturating_add(MOST_AHEAD))))
}

/// The present millisecond since 1970.
pub(crate) fn millis() -> u64 {
    u64::try_from(now().as_millis()).unwrap_or(u64::MAX)
}

/// Whether a text can name a user, a token or a connection.
pub(crate) fn is_name(text: &str) -> bool {
    let name = text.strip_prefix([TOKEN, CONNECTION]).unwrap_or(text);
    !name.is_empty() && text.len() <= MOST_NAME && !name.contains(char::is_control)
}
