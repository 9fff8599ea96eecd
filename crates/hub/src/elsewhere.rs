//! Connections of users to other hosts, for the limit of a user's connections.
//!
//! A host tells the others which numbers have changed, about once in a second. Its words are numbered, so that another host which
//! misses one notices, and asks for all. A host that is silent for a lease is dead.

use crate::control::MOST_NAME;
use crate::lock::lock;
use crate::protocol::random_name;
use crate::sessions::Sessions;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tautline::layers::engine::sized::{map_memory, shrink_map};
use tautline::{Bridge, Listening, Outgoing};

/// The channel of the broker. Names of topics do not begin with `$`.
const CHANNEL: &str = "$hub/users";
/// Users of one word.
const PAGE: usize = 500;
/// The shortest time between two looks at what has changed. Each loop looks once in a second.
const PER_TICK: Duration = Duration::from_millis(750);
/// A host says something this number of times within a lease.
const PER_LEASE: u32 = 3;
/// Other hosts, and users of one of them, at most.
const MOST_HOSTS: usize = 1_000;
const MOST_USERS: usize = 500_000;

/// The users of other hosts.
pub(crate) struct Elsewhere {
    host: String,
    bridge: Option<Bridge>,
    lease: Duration,
    listening: OnceLock<Listening>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    hosts: HashMap<String, Host>,
    /// The number of this host's last word, and its time.
    said: u64,
    spoke: Option<Instant>,
    looked: Option<Instant>,
    /// Whether another host wants all users of this one, and the hosts that this one asks.
    is_asked: bool,
    asks: Vec<String>,
    /// The connections of the broker that this host has greeted.
    greeted: u64,
}

/// Another host.
struct Host {
    until: Instant,
    /// The number of its last word.
    heard: u64,
    users: HashMap<Box<str>, u32>,
    /// Bytes of the names.
    names: usize,
}

#[derive(Default, Serialize, Deserialize)]
struct Word {
    host: String,
    number: u64,
    /// Whether a list of all users begins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    all: bool,
    /// Users with the numbers of their connections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    users: Vec<(String, u32)>,
    /// The host that is asked for all of its users. Without a name it is each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ask: Option<String>,
}

impl Elsewhere {
    pub(crate) fn new(bridge: Option<Bridge>, lease: Duration) -> Self {
        Self { host: random_name(), bridge, lease, listening: OnceLock::new(), state: Arc::default() }
    }

    /// The connections of a user to other hosts.
    pub(crate) fn number(&self, user: &str) -> usize {
        lock(&self.state).hosts.values().filter_map(|host| host.users.get(user)).map(|number| *number as usize).sum()
    }

    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let state = lock(&self.state);
        let hosts = state.hosts.values().map(|host| map_memory(&host.users) + host.names);
        map_memory(&state.hosts) + hosts.sum::<usize>()
    }

    /// Tells the others what has changed, and ends leases. All loops call it, while there is a limit, and one does it.
    pub(crate) fn tick(&self, sessions: &Sessions, now: Instant) {
        let Some(bridge) = &self.bridge else { return };
        let mut state = lock(&self.state);
        if state.looked.is_some_and(|last| now.saturating_duration_since(last) < PER_TICK) {
            return;
        }
        state.looked = Some(now);
        self.listening.get_or_init(|| {
            let (own, state, lease) = (self.host.clone(), self.state.clone(), self.lease);
            bridge.listen(CHANNEL, move |_, payload| match serde_json::from_slice(payload) {
                Ok(word) => lock(&state).hear(&own, word, lease, Instant::now()),
                Err(_) => log::debug!("words of another host about its users that are no JSON of a hub"),
            })
        });
        state.hosts.retain(|_, host| host.until > now);
        shrink_map(&mut state.hosts);
        let counters = bridge.counters();
        if counters.connected && counters.connects != state.greeted {
            // Words may have been lost.
            state.greeted = counters.connects;
            state.is_asked = true;
            self.say(bridge, Word { number: state.said, ask: Some(String::new()), ..Word::default() });
        }
        for host in std::mem::take(&mut state.asks) {
            self.say(bridge, Word { number: state.said, ask: Some(host), ..Word::default() });
        }
        let all = std::mem::take(&mut state.is_asked);
        let users = sessions.changes(all);
        let is_due = state.spoke.is_none_or(|last| now.saturating_duration_since(last) >= self.lease / PER_LEASE);
        if users.is_empty() && (all || is_due) {
            state.said += u64::from(all);
            self.say(bridge, Word { number: state.said, all, ..Word::default() });
            state.spoke = Some(now);
        }
        for (at, page) in users.chunks(PAGE).enumerate() {
            state.said += 1;
            let word = Word { number: state.said, all: all && at == 0, users: page.to_vec(), ..Word::default() };
            self.say(bridge, word);
            state.spoke = Some(now);
        }
    }

    fn say(&self, bridge: &Bridge, word: Word) {
        let text = serde_json::to_string(&Word { host: self.host.clone(), ..word }).unwrap_or_default();
        // If it is withheld, the others notice at the next word.
        let _ = bridge.publish(CHANNEL, Outgoing::text(&text));
    }
}

impl State {
    fn hear(&mut self, own: &str, word: Word, lease: Duration, now: Instant) {
        let Word { host, number, all, users, ask } = word;
        if host == own || host.len() > MOST_NAME {
            return;
        }
        self.is_asked |= ask.is_some_and(|asked| asked.is_empty() || asked == own);
        if !all && !self.hosts.contains_key(&host) || self.hosts.len() >= MOST_HOSTS {
            return self.ask(host);
        }
        let begun = || Host { until: now, heard: 0, users: HashMap::new(), names: 0 };
        let known = self.hosts.entry(host.clone()).or_insert_with(begun);
        known.until = now + lease;
        if all {
            (known.users, known.names) = (HashMap::new(), 0);
        } else if number != known.heard.wrapping_add(u64::from(!users.is_empty())) {
            return self.ask(host);
        }
        known.heard = number;
        users.into_iter().for_each(|(user, number)| known.set(&user, number));
        shrink_map(&mut known.users);
    }

    /// Asks a host for all of its users at the next tick.
    fn ask(&mut self, host: String) {
        if self.asks.len() < MOST_HOSTS && !self.asks.contains(&host) {
            self.asks.push(host);
        }
    }
}

impl Host {
    fn set(&mut self, user: &str, number: u32) {
        if number == 0 {
            if self.users.remove(user).is_some() {
                self.names -= user.len();
            }
            return;
        }
        let fits = user.len() <= MOST_NAME && self.users.len() < MOST_USERS;
        if let Some(known) = self.users.get_mut(user) {
            *known = number;
        } else if fits {
            self.names += user.len();
            self.users.insert(user.into(), number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{State, Word};
    use std::time::{Duration, Instant};

    fn word(number: u64, all: bool, users: &[(&str, u32)]) -> Word {
        let users = users.iter().map(|(user, number)| ((*user).to_owned(), *number)).collect();
        Word { host: "b".to_owned(), number, all, users, ask: None }
    }

    #[test]
    fn a_host_that_misses_a_word_asks_for_all() {
        let (mut state, now) = (State::default(), Instant::now());
        let mut hear = |word| {
            state.hear("a", word, Duration::from_secs(1), now);
            let users = state.hosts.get("b").map(|host| {
                let mut users: Vec<_> = host.users.iter().map(|(user, number)| (user.to_string(), *number)).collect();
                users.sort();
                users
            });
            (users.unwrap_or_default(), std::mem::take(&mut state.asks).len())
        };
        let (ann, bob) = (("ann".to_owned(), 2), ("bob".to_owned(), 1));
        assert_eq!(hear(word(7, false, &[("ann", 2)])), (vec![], 1), "nothing is known of the host");
        assert_eq!(hear(word(8, true, &[("ann", 2)])), (vec![ann.clone()], 0));
        assert_eq!(hear(word(9, false, &[("bob", 1)])), (vec![ann.clone(), bob.clone()], 0));
        assert_eq!(hear(word(9, false, &[])), (vec![ann.clone(), bob.clone()], 0), "it is alive");
        assert_eq!(hear(word(11, false, &[("ann", 0)])), (vec![ann, bob.clone()], 1), "10 is missing");
        assert_eq!(hear(word(12, true, &[("bob", 1)])), (vec![bob], 0));
        assert_eq!(hear(word(13, true, &[])), (vec![], 0));
        // Its own words come back to it, and are left out.
        let own = Word { host: "a".to_owned(), ..word(1, true, &[("ann", 9)]) };
        assert_eq!(hear(own), (vec![], 0));
    }

    #[test]
    fn a_host_answers_those_who_ask_it_or_all() {
        for (asked, answers) in [("a", true), ("", true), ("c", false)] {
            let mut state = State::default();
            let ask = Word { ask: Some(asked.to_owned()), ..word(0, false, &[]) };
            state.hear("a", ask, Duration::from_secs(1), Instant::now());
            assert_eq!(state.is_asked, answers);
        }
    }
}
