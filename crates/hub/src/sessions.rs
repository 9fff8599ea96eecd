//! The connections of users on this host: their number, for the limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
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

/// Users whose tokens are refused for a time.
#[derive(Default)]
pub(crate) struct Revoked(Mutex<Users<Instant>>);

/// Most users that are revoked at a time.
const MOST_REVOKED: usize = 10_000;

impl Revoked {
    /// Refuses the tokens of a user. False if there are too many such users.
    pub(crate) fn add(&self, user: &Arc<str>, time: Duration, now: Instant) -> bool {
        let mut users = lock(&self.0);
        if users.map.len() >= MOST_REVOKED {
            users.map.retain(|_, until| *until > now);
            users.names = users.map.keys().map(|user| name_memory(user)).sum();
        }
        let fits = users.map.len() < MOST_REVOKED || users.map.contains_key(user);
        if fits && let Some(until) = now.checked_add(time) {
            users.insert(user, until);
        }
        fits
    }

    pub(crate) fn has(&self, user: &str, now: Instant) -> bool {
        let mut users = lock(&self.0);
        let Some(until) = users.map.get(user) else { return false };
        let is_revoked = *until > now;
        if !is_revoked {
            users.remove(user);
        }
        is_revoked
    }

    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        lock(&self.0).memory()
    }
}

/// Requests of keys in a second.
#[derive(Default)]
pub(crate) struct Rates(Mutex<HashMap<String, (Instant, u32)>>);

impl Rates {
    /// Counts a request. False if it is one too many. Names are those of the file of rules, so they are few.
    pub(crate) fn take(&self, name: &str, most: u32, now: Instant) -> bool {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, number) = keys.entry(name.to_owned()).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= Duration::from_secs(1) {
            (*since, *number) = (now, 0);
        }
        *number = number.saturating_add(1);
        *number <= most
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST_REVOKED, Rates, Revoked, Sessions};
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
            assert!(revoked.add(user, second, now) && revoked.add(user, second, now));
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
        assert!(revoked.add(&"ann".into(), second, now));
        assert!(revoked.has("ann", now) && !revoked.has("bob", now));
        assert!(!revoked.has("ann", now + second));
        for number in 0..MOST_REVOKED {
            assert!(revoked.add(&number.to_string().into(), second, now));
        }
        assert!(!revoked.add(&"one more".into(), second, now));
        assert!(revoked.add(&"one more".into(), second, now + second), "the others are over");
    }

    #[test]
    fn requests_of_a_second_are_bounded() {
        let (rates, now) = (Rates::default(), Instant::now());
        assert!(rates.take("a", 2, now) && rates.take("a", 2, now) && !rates.take("a", 2, now));
        assert!(rates.take("b", 2, now) && rates.take("a", 2, now + Duration::from_secs(1)));
    }
}
