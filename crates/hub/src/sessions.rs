//! The connections of users on this host: their number, for the limit.

use crate::rules::Identity;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tautline::ConnId;
use tautline::layers::engine::sized::{map_memory, name_memory, shrink_map};

/// Numbers of connections by user.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Users<usize>>);

impl Sessions {
    /// Counts one more connection of a user. False if there are `most` already.
    pub(crate) fn enter(&self, user: &Arc<str>, most: usize) -> bool {
        let mut users = lock(&self.0);
        let number = users.map.get(user).copied().unwrap_or_default();
        let fits = number < most;
        if fits {
            users.insert(user, number + 1);
        }
        fits
    }

    /// The connections of a user.
    pub(crate) fn number(&self, user: &str) -> usize {
        lock(&self.0).map.get(user).copied().unwrap_or_default()
    }

    /// Some users with their connections, and the number of all users.
    pub(crate) fn list(&self, most: usize) -> (Vec<(String, usize)>, usize) {
        let users = lock(&self.0);
        let some = users.map.iter().take(most).map(|(user, number)| (user.to_string(), *number)).collect();
        (some, users.map.len())
    }

    pub(crate) fn leave(&self, user: &str) {
        let mut users = lock(&self.0);
        let Some(number) = users.map.get_mut(user) else { return };
        *number -= 1;
        if *number == 0 {
            users.remove(user);
        }
    }

    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        lock(&self.0).memory()
    }
}

/// Connections of users on a loop.
#[derive(Default)]
pub(crate) struct LoopUsers(HashMap<Arc<str>, Vec<ConnId>>);

impl LoopUsers {
    /// One more connection of a user, who has others on other loops. False if there are `most` already.
    pub(crate) fn enter(&mut self, all: &Sessions, (user, conn): (&Arc<str>, ConnId), most: usize) -> bool {
        let fits = all.enter(user, most);
        if fits {
            self.0.entry(user.clone()).or_default().push(conn);
        }
        fits
    }

    /// One less.
    pub(crate) fn leave(&mut self, all: &Sessions, user: &str, conn: ConnId) {
        all.leave(user);
        if let Some(conns) = self.0.get_mut(user) {
            conns.retain(|other| *other != conn);
            if conns.is_empty() {
                self.0.remove(user);
            }
        }
    }

    /// The connections of a user.
    pub(crate) fn of(&self, user: &str) -> &[ConnId] {
        self.0.get(user).map_or(&[], Vec::as_slice)
    }

    /// Memory of the table, in bytes.
    pub(crate) fn memory(&self) -> usize {
        map_memory(&self.0)
    }
}

/// Something by user.
struct Users<T> {
    map: HashMap<Arc<str>, T>,
    /// Bytes of the names.
    names: usize,
}

impl<T> Default for Users<T> {
    fn default() -> Self {
        Self { map: HashMap::new(), names: 0 }
    }
}

impl<T> Users<T> {
    fn insert(&mut self, user: &Arc<str>, value: T) {
        if self.map.insert(user.clone(), value).is_none() {
            self.names += name_memory(user);
        }
    }

    fn remove(&mut self, user: &str) {
        if self.map.remove(user).is_some() {
            self.names -= name_memory(user);
            shrink_map(&mut self.map);
        }
    }

    fn memory(&self) -> usize {
        map_memory(&self.map) + self.names
    }
}

fn lock<T>(users: &Mutex<Users<T>>) -> MutexGuard<'_, Users<T>> {
    users.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The begin of the names of tokens among those of users, which have no control characters.
pub(crate) const TOKEN: char = '\u{1}';

/// Users whose tokens are refused for a time, and single tokens.
#[derive(Default)]
pub(crate) struct Revoked(Mutex<Users<Instant>>);

/// Most users and tokens that are revoked at a time.
const MOST_REVOKED: usize = 10_000;

/// The result of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    New,
    /// It was revoked for that time already.
    Known,
    /// There are too many.
    Full,
}

impl Revoked {
    /// Refuses the tokens of a user, or one token. A time that ends sooner than that of before shortens nothing, unless it is over
    /// at once.
    pub(crate) fn add(&self, name: &Arc<str>, time: Duration, now: Instant) -> Added {
        let mut users = lock(&self.0);
        if users.map.len() >= MOST_REVOKED {
            users.map.retain(|_, until| *until > now);
            users.names = users.map.keys().map(|name| name_memory(name)).sum();
        }
        let before = users.map.get(name).copied();
        if before.is_none() && users.map.len() >= MOST_REVOKED {
            return Added::Full;
        }
        let Some(until) = now.checked_add(time) else { return Added::Full };
        // Hosts tell each other whole seconds.
        let is_known = before.is_some_and(|before| before + Duration::from_secs(2) > until);
        if time.is_zero() {
            users.remove(name);
        } else if !is_known {
            users.insert(name, until);
        }
        if is_known { Added::Known } else { Added::New }
    }

    /// Whether a token is revoked, by its user or itself.
    pub(crate) fn has_any(&self, identity: &Identity, now: Instant) -> bool {
        let has_token = |id: &Arc<str>| self.has(&format!("{TOKEN}{id}"), now);
        identity.user.as_deref().is_some_and(|user| self.has(user, now)) || identity.id.as_ref().is_some_and(has_token)
    }

    pub(crate) fn has(&self, name: &str, now: Instant) -> bool {
        let mut users = lock(&self.0);
        let Some(until) = users.map.get(name) else { return false };
        let is_revoked = *until > now;
        if !is_revoked {
            users.remove(name);
        }
        is_revoked
    }

    /// All that are revoked, each until a second since 1970. `since` is the present one.
    pub(crate) fn list(&self, now: Instant, since: u64) -> Vec<(String, u64)> {
        let users = lock(&self.0);
        let left = |until: &Instant| until.saturating_duration_since(now).as_secs();
        let all = users.map.iter().map(|(name, until)| (name.to_string(), since + left(until)));
        all.filter(|(_, until)| *until > since).collect()
    }

    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        lock(&self.0).memory()
    }
}

/// Events in a time, by name.
#[derive(Default)]
pub(crate) struct Rates(Mutex<HashMap<Box<str>, (Instant, u32)>>);

/// Most names whose events are counted at a time. Further ones count together.
const MOST_NAMES: usize = 20_000;

impl Rates {
    /// Counts an event. False if more than `most` have come within `time`.
    pub(crate) fn take(&self, name: &str, most: u32, time: Duration, now: Instant) -> bool {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |since: Instant| now.saturating_duration_since(since) >= time;
        if names.len() >= MOST_NAMES && !names.contains_key(name) {
            names.retain(|_, (since, _)| !is_over(*since));
        }
        let name = if names.len() >= MOST_NAMES && !names.contains_key(name) { "" } else { name };
        if !names.contains_key(name) {
            names.insert(name.into(), (now, 0));
        }
        let Some((since, number)) = names.get_mut(name) else { return false };
        if is_over(*since) {
            (*since, *number) = (now, 0);
        }
        *number = number.saturating_add(1);
        *number <= most
    }

    /// Its memory, in bytes, with names of 40 bytes.
    pub(crate) fn memory(&self) -> usize {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map_memory(&names) + 40 * names.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Added, MOST_NAMES, MOST_REVOKED, Rates, Revoked, Sessions};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    #[test]
    fn connections_of_a_user_are_counted_and_bounded() {
        let (sessions, ann): (_, Arc<str>) = (Sessions::default(), "ann".into());
        assert!(sessions.enter(&ann, 2) && sessions.enter(&ann, 2) && !sessions.enter(&ann, 2));
        assert_eq!((sessions.number("ann"), sessions.list(9)), (2, (vec![("ann".to_owned(), 2)], 1)));
        sessions.leave("ann");
        sessions.leave("ann");
        sessions.leave("ann");
        assert_eq!(sessions.list(9), (Vec::new(), 0));
    }

    #[test]
    fn the_memory_of_users_is_known_and_goes_with_them() {
        let (sessions, revoked, now) = (Sessions::default(), Revoked::default(), Instant::now());
        let users: Vec<Arc<str>> = (0..1_000).map(|number| format!("{number:0128}").into()).collect();
        let second = Duration::from_secs(1);
        for user in &users {
            assert!(sessions.enter(user, 2) && sessions.enter(user, 2) && !sessions.enter(user, 2));
            assert_eq!(revoked.add(user, second, now), Added::New);
            assert_eq!(revoked.add(user, second, now), Added::Known);
        }
        for memory in [sessions.memory(), revoked.memory()] {
            assert!((150_000..400_000).contains(&memory), "{memory}");
        }
        for user in &users {
            sessions.leave(user);
            sessions.leave(user);
            assert!(!revoked.has(user, now + second));
        }
        for memory in [sessions.memory(), revoked.memory()] {
            assert!(memory < 10_000, "{memory}");
        }
    }

    #[test]
    fn a_revocation_ends_and_their_number_is_bounded() {
        let (revoked, now) = (Revoked::default(), Instant::now());
        let second = Duration::from_secs(1);
        assert_eq!(revoked.add(&"ann".into(), second, now), Added::New);
        assert!(revoked.has("ann", now) && !revoked.has("bob", now));
        assert!(!revoked.has("ann", now + second));
        for number in 0..MOST_REVOKED {
            assert_eq!(revoked.add(&number.to_string().into(), second, now), Added::New);
        }
        assert_eq!(revoked.add(&"one more".into(), second, now), Added::Full);
        assert_eq!(revoked.add(&"one more".into(), second, now + second), Added::New, "the others are over");
        assert_eq!(revoked.list(now + second, 7), [("one more".to_owned(), 8)]);
        assert_eq!(revoked.add(&"one more".into(), Duration::ZERO, now + second), Added::Known);
        assert!(!revoked.has("one more", now + second), "it was taken back");
    }

    #[test]
    fn events_of_a_time_are_bounded_for_each_name() {
        let (rates, now, second) = (Rates::default(), Instant::now(), Duration::from_secs(1));
        let take = |name: &str, now| rates.take(name, 2, second, now);
        assert!(take("a", now));
        assert!(take("a", now) && !take("a", now));
        assert!(take("b", now) && take("a", now + second));
    }

    #[test]
    fn the_names_whose_events_are_counted_are_bounded() {
        let (rates, now, second) = (Rates::default(), Instant::now(), Duration::from_secs(1));
        let take = |number: usize, now| rates.take(&number.to_string(), 2, second, now);
        let taken = (0..MOST_NAMES + 1_000).filter(|number| take(*number, now)).count();
        assert_eq!(taken, MOST_NAMES + 2, "further ones count together");
        assert!(rates.memory() < 4 << 20, "{}", rates.memory());
        assert!(take(0, now), "one that is known counts for itself");
        assert!(take(MOST_NAMES + 5, now + second), "the others are over");
    }
}
