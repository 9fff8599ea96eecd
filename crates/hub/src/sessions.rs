//! The connections of users on this host: their number, for the limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tautline::layers::engine::sized::shrink_map;

/// Numbers of connections by user.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<Arc<str>, usize>>);

impl Sessions {
    /// Counts one more connection of a user. False if there are `most` already.
    pub(crate) fn enter(&self, user: &Arc<str>, most: usize) -> bool {
        let mut users = self.lock();
        let number = users.entry(user.clone()).or_default();
        if *number >= most {
            return false;
        }
        *number += 1;
        true
    }

    /// The connections of a user.
    pub(crate) fn number(&self, user: &str) -> usize {
        self.lock().get(user).copied().unwrap_or_default()
    }

    /// Some users with their connections, and the number of all users.
    pub(crate) fn list(&self, most: usize) -> (Vec<(String, usize)>, usize) {
        let users = self.lock();
        let some = users.iter().take(most).map(|(user, number)| (user.to_string(), *number)).collect();
        (some, users.len())
    }

    pub(crate) fn leave(&self, user: &str) {
        let mut users = self.lock();
        let Some(number) = users.get_mut(user) else { return };
        *number -= 1;
        if *number == 0 {
            users.remove(user);
            shrink_map(&mut users);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Users whose tokens are refused for a time.
#[derive(Default)]
pub(crate) struct Revoked(Mutex<HashMap<Arc<str>, Instant>>);

/// Most users that are revoked at a time.
const MOST_REVOKED: usize = 10_000;

impl Revoked {
    /// Refuses the tokens of a user. False if there are too many such users.
    pub(crate) fn add(&self, user: &Arc<str>, time: Duration, now: Instant) -> bool {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if users.len() >= MOST_REVOKED {
            users.retain(|_, until| *until > now);
        }
        let fits = users.len() < MOST_REVOKED || users.contains_key(user);
        if fits && let Some(until) = now.checked_add(time) {
            users.insert(user.clone(), until);
        }
        fits
    }

    pub(crate) fn has(&self, user: &str, now: Instant) -> bool {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(until) = users.get(user) else { return false };
        let is_revoked = *until > now;
        if !is_revoked {
            users.remove(user);
        }
        is_revoked
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
