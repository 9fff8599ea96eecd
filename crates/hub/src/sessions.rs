//! The connections of users on this host: their names, and their number for the limit.

use crate::lock::lock;
use crate::rate::Rate;
use crate::rules::Identity;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline::ConnId;
use tautline::layers::engine::sized::{map_memory, name_memory, shrink_map};

/// Connections by user.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Users<Vec<ConnId>>>, Mutex<Option<HashSet<Arc<str>>>>);

impl Sessions {
    /// Counts one more connection of a user. False if there are `most` already.
    pub(crate) fn enter(&self, (user, conn): (&Arc<str>, ConnId), most: usize) -> bool {
        let mut users = lock(&self.0);
        if most <= users.map.get(user).map_or(0, Vec::len) {
            return false;
        }
        match users.map.get_mut(user) {
            Some(conns) => conns.push(conn),
            None => users.insert(user, vec![conn]),
        }
        users.inside += size_of::<ConnId>();
        self.note(user);
        true
    }

    /// Notes that the number of a user has changed, if other hosts want to know it. Called under the lock of the numbers.
    fn note(&self, user: &str) {
        let mut changed = lock(&self.1);
        if let Some(changed) = &mut *changed {
            changed.insert(user.into());
        }
    }

    /// The users whose numbers have changed since the last call, or all, with their connections. The first call begins to note
    /// changes.
    pub(crate) fn changes(&self, all: bool) -> Vec<(String, u32)> {
        let users = lock(&self.0);
        let mut changed = lock(&self.1);
        let is_first = changed.is_none();
        let changed = std::mem::take(changed.get_or_insert_default());
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        if all || is_first {
            return users.map.iter().map(|(user, conns)| (user.to_string(), number(conns.len()))).collect();
        }
        let now = |user: &Arc<str>| number(users.map.get(user).map_or(0, Vec::len));
        changed.iter().map(|user| (user.to_string(), now(user))).collect()
    }

    /// The number of a user's connections.
    pub(crate) fn number(&self, user: &str) -> usize {
        lock(&self.0).map.get(user).map_or(0, Vec::len)
    }

    /// Some connections of a user, and the number of all.
    pub(crate) fn of(&self, user: &str, most: usize) -> (Vec<ConnId>, usize) {
        let users = lock(&self.0);
        let conns = users.map.get(user).map_or(&[][..], Vec::as_slice);
        (conns[..conns.len().min(most)].to_vec(), conns.len())
    }

    /// Some users with their connections, and the number of all users.
    pub(crate) fn list(&self, most: usize) -> (Vec<(String, usize)>, usize) {
        let users = lock(&self.0);
        let some = users.map.iter().take(most).map(|(user, conns)| (user.to_string(), conns.len())).collect();
        (some, users.map.len())
    }

    pub(crate) fn leave(&self, user: &str, conn: ConnId) {
        let mut users = lock(&self.0);
        let Some(conns) = users.map.get_mut(user) else { return };
        let Some(at) = conns.iter().position(|other| *other == conn) else { return };
        conns.swap_remove(at);
        let is_last = conns.is_empty();
        users.inside -= size_of::<ConnId>();
        if is_last {
            users.remove(user);
        }
        self.note(user);
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
        let fits = all.enter((user, conn), most);
        if fits {
            self.0.entry(user.clone()).or_default().push(conn);
        }
        fits
    }

    /// One less.
    pub(crate) fn leave(&mut self, all: &Sessions, user: &str, conn: ConnId) {
        all.leave(user, conn);
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
    /// Bytes of the names, and of memory that values have.
    names: usize,
    inside: usize,
}

impl<T> Default for Users<T> {
    fn default() -> Self {
        Self { map: HashMap::new(), names: 0, inside: 0 }
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
        map_memory(&self.map) + self.names + self.inside
    }
}

/// The begin of the names of tokens, and of connections, among those of users, which have no control characters.
pub(crate) const TOKEN: char = '\u{1}';
pub(crate) const CONNECTION: char = '\u{2}';

/// Users whose tokens are refused for a time, and single tokens.
///
/// Hosts tell each other about them in any order, also after a time without a connection. Each revocation has the time of its
/// decision, and counts only if nothing decided later has taken it back.
#[derive(Default)]
pub(crate) struct Revoked(Mutex<Users<Decision>>);

/// The last decision about a user or token.
#[derive(Clone, Copy, Debug)]
struct Decision {
    /// The time at which it was made, in milliseconds since 1970.
    at: u64,
    /// Its end. A revocation that was taken back is remembered for longer than any revocation can last.
    until: Instant,
    takes_back: bool,
}

/// A decision as hosts tell it to each other: the name, the second since 1970 at which a revocation ends or 0 if it was taken back,
/// and the millisecond since 1970 of the decision.
pub(crate) type Revocation = (String, u64, u64);

/// Most users and tokens that are revoked at a time.
const MOST_REVOKED: usize = 10_000;
/// The longest time of a revocation.
pub(crate) const LONGEST: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The result of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    New,
    /// It was revoked for that time already, or a later decision is known.
    Known,
    /// There are too many.
    Full,
}

impl Revoked {
    /// The time of a decision about a name that is made now: later than all that are known here, also if the clock of another host
    /// is ahead. `since` are the milliseconds since 1970.
    pub(crate) fn next(&self, name: &str, since: u64) -> u64 {
        lock(&self.0).map.get(name).map_or(since, |last| since.max(last.at.saturating_add(1)))
    }

    /// Refuses the tokens of a user, or one token, as was decided at a time. No time takes a revocation back, and a time that ends
    /// sooner than that of before shortens nothing.
    pub(crate) fn add(&self, name: &Arc<str>, (time, at): (Duration, u64), now: Instant) -> Added {
        let mut users = lock(&self.0);
        if users.map.len() >= MOST_REVOKED {
            users.map.retain(|_, last| last.until > now && !last.takes_back);
            users.names = users.map.keys().map(|name| name_memory(name)).sum();
        }
        let before = users.map.get(name).copied();
        if before.is_none() && users.map.len() >= MOST_REVOKED {
            return Added::Full;
        }
        let takes_back = time.is_zero();
        let Some(until) = now.checked_add(if takes_back { LONGEST } else { time }) else { return Added::Full };
        let mut decision = Decision { at, until, takes_back };
        let mut is_known = false;
        match before {
            Some(before) if before.takes_back == takes_back => {
                // Hosts tell each other whole seconds, which must not prolong it.
                is_known = before.until + Duration::from_secs(2) > until;
                decision.at = at.max(before.at);
                decision.until = if is_known { before.until } else { until };
            }
            // Of two in the same millisecond, the revocation counts on all hosts.
            Some(before) if before.at > at || before.at == at && takes_back => return Added::Known,
            _ => {}
        }
        users.insert(name, decision);
        if is_known { Added::Known } else { Added::New }
    }

    /// Whether a token is revoked, by its user or itself.
    pub(crate) fn has_any(&self, identity: &Identity, now: Instant) -> bool {
        let has_token = |id: &Arc<str>| self.has(&format!("{TOKEN}{id}"), now);
        identity.user.as_deref().is_some_and(|user| self.has(user, now)) || identity.id.as_ref().is_some_and(has_token)
    }

    pub(crate) fn has(&self, name: &str, now: Instant) -> bool {
        let mut users = lock(&self.0);
        let Some(last) = users.map.get(name).copied() else { return false };
        if last.until <= now {
            users.remove(name);
            return false;
        }
        !last.takes_back
    }

    /// All decisions that hold. `since` is the present second since 1970.
    pub(crate) fn list(&self, now: Instant, since: u64) -> Vec<Revocation> {
        let users = lock(&self.0);
        let told = |(name, last): (&Arc<str>, &Decision)| {
            let left = last.until.saturating_duration_since(now).as_secs();
            let until = if last.takes_back { 0 } else { since + left };
            (left > 0).then(|| (name.to_string(), until, last.at))
        };
        users.map.iter().filter_map(told).collect()
    }

    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        lock(&self.0).memory()
    }
}

/// Events in a time, by name.
#[derive(Default)]
pub(crate) struct Rates(Mutex<Names>);

#[derive(Default)]
struct Names {
    known: HashMap<Box<str>, Rate>,
    /// The last time at which names were forgotten whose time is over.
    looked: Option<Instant>,
    /// The places of further names. Some names share one, and no client knows which.
    places: Vec<Rate>,
    hashes: RandomState,
}

/// Most names whose events are counted each by itself, and places of further ones.
const MOST_NAMES: usize = 20_000;
const PLACES: usize = 16_384;
/// The shortest time between two looks at all names: clients may choose names as often as they like.
const PER_LOOK: Duration = Duration::from_millis(100);

impl Rates {
    /// Counts an event. False if more than `most` have come within `time`.
    pub(crate) fn take(&self, name: &str, most: u32, time: Duration, now: Instant) -> bool {
        let mut names = lock(&self.0);
        let is_due = names.looked.is_none_or(|last| now.saturating_duration_since(last) >= PER_LOOK);
        if is_due && names.known.len() >= MOST_NAMES && !names.known.contains_key(name) {
            names.looked = Some(now);
            names.known.retain(|_, rate| !rate.is_over(time, now));
            if names.known.len() < MOST_NAMES / 2 {
                names.places = Vec::new();
            }
        }
        names.place(name, now).is_some_and(|rate| rate.take(most, time, now))
    }

    /// Its memory, in bytes, with names of 40 bytes.
    pub(crate) fn memory(&self) -> usize {
        let names = lock(&self.0);
        map_memory(&names.known) + 40 * names.known.len() + names.places.capacity() * size_of::<Rate>()
    }
}

impl Names {
    fn place(&mut self, name: &str, now: Instant) -> Option<&mut Rate> {
        let is_known = self.known.contains_key(name);
        if is_known || self.known.len() < MOST_NAMES {
            if !is_known {
                self.known.insert(name.into(), Rate::begin(now));
            }
            return self.known.get_mut(name);
        }
        if self.places.is_empty() {
            self.places.resize(PLACES, Rate::begin(now));
        }
        let hash = self.hashes.hash_one(name);
        self.places.get_mut(usize::try_from(hash % PLACES as u64).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::{Added, MOST_NAMES, MOST_REVOKED, PLACES, Rates, Revoked, Sessions};
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use tautline::ConnId;

    fn conns() -> [ConnId; 3] {
        ["0.1.2", "0.2.2", "1.1.2"].map(|name| name.parse().unwrap())
    }

    #[test]
    fn connections_of_a_user_are_counted_and_bounded() {
        let (sessions, ann): (_, Arc<str>) = (Sessions::default(), "ann".into());
        let [first, second, third] = conns();
        let enter = |conn| sessions.enter((&ann, conn), 2);
        assert!(enter(first) && enter(second) && !enter(third));
        assert_eq!(sessions.of("ann", 9), (vec![first, second], 2));
        assert_eq!((sessions.of("ann", 1), sessions.of("bob", 1)), ((vec![first], 2), (vec![], 0)));
        assert_eq!((sessions.number("ann"), sessions.list(9)), (2, (vec![("ann".to_owned(), 2)], 1)));
        assert_eq!((sessions.changes(false), sessions.changes(false)), (vec![("ann".to_owned(), 2)], vec![]));
        for conn in [first, third, first] {
            sessions.leave("ann", conn);
        }
        assert_eq!(sessions.of("ann", 9), (vec![second], 1), "each leaves once, and none that has not come");
        sessions.leave("ann", second);
        assert_eq!(sessions.list(9), (Vec::new(), 0));
        assert_eq!(sessions.changes(false), [("ann".to_owned(), 0)]);
        assert!(enter(first) && sessions.changes(true).len() == 1 && sessions.changes(false).is_empty());
    }

    #[test]
    fn the_memory_of_users_is_known_and_goes_with_them() {
        let (sessions, revoked, now) = (Sessions::default(), Revoked::default(), Instant::now());
        let users: Vec<Arc<str>> = (0..1_000).map(|number| format!("{number:0128}").into()).collect();
        let second = Duration::from_secs(1);
        for user in &users {
            assert_eq!(conns().map(|conn| sessions.enter((user, conn), 2)), [true, true, false]);
            assert_eq!(revoked.add(user, (second, 1), now), Added::New);
            assert_eq!(revoked.add(user, (second, 1), now), Added::Known);
        }
        for memory in [sessions.memory(), revoked.memory()] {
            assert!((150_000..400_000).contains(&memory), "{memory}");
        }
        for user in &users {
            conns().iter().for_each(|conn| sessions.leave(user, *conn));
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
        let add = |name: &str, now| revoked.add(&name.into(), (second, 1), now);
        assert_eq!(add("ann", now), Added::New);
        assert!(revoked.has("ann", now) && !revoked.has("bob", now));
        assert!(!revoked.has("ann", now + second));
        for number in 0..MOST_REVOKED {
            assert_eq!(add(&number.to_string(), now), Added::New);
        }
        assert_eq!(add("one more", now), Added::Full);
        assert_eq!(add("one more", now + second), Added::New, "the others are over");
        assert_eq!(revoked.list(now + second, 7), [("one more".to_owned(), 8, 1)]);
        for number in 1..MOST_REVOKED {
            assert_eq!(revoked.add(&number.to_string().into(), (Duration::ZERO, 1), now + second), Added::New);
        }
        assert_eq!(add("another", now + second), Added::New, "those that were taken back make room");
        assert_eq!(revoked.list(now + second, 7).len(), 2);
    }

    #[test]
    fn the_decision_that_was_made_last_counts_in_any_order() {
        let (user, now) = (Arc::<str>::from("ann"), Instant::now());
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
        let decisions = [(hour, 1), (Duration::ZERO, 2), (minute, 3), (minute, 3)];
        for order in [[0, 1, 2, 3], [2, 1, 0, 3], [1, 2, 3, 0], [1, 0, 3, 2]] {
            let revoked = Revoked::default();
            order.iter().for_each(|decision| _ = revoked.add(&user, decisions[*decision], now));
            assert!(revoked.has(&user, now), "{order:?}");
        }
        let revoked = Revoked::default();
        for decision in [(hour, 1), (Duration::ZERO, 2), (hour, 1), (hour, 0)] {
            revoked.add(&user, decision, now);
        }
        assert!(!revoked.has(&user, now), "it was taken back");
        assert_eq!(revoked.list(now, 7), [("ann".to_owned(), 0, 2)]);
        assert_eq!((revoked.next(&user, 1), revoked.next(&user, 9)), (3, 9));
        assert_eq!(revoked.add(&user, (minute, 2), now), Added::New, "of one time, the revocation counts");
        assert_eq!(revoked.add(&user, (Duration::ZERO, 2), now), Added::Known);
        assert!(revoked.has(&user, now) && !revoked.has(&user, now + minute));
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
    fn the_names_whose_events_are_counted_are_bounded_and_a_flood_of_names_locks_none_out() {
        let (rates, now, second) = (Rates::default(), Instant::now(), Duration::from_secs(1));
        let take = |number: usize, now| rates.take(&number.to_string(), 2, second, now);
        let taken = (0..MOST_NAMES + 1_000).filter(|number| take(*number, now)).count();
        assert!(taken > MOST_NAMES + 990, "{taken}: further names have places of their own, but for some");
        let taken = (0..10 * PLACES).filter(|number| take(100_000 + number, now)).count();
        assert!(taken <= 2 * PLACES, "{taken}");
        assert!(rates.memory() < 4 << 20, "{}", rates.memory());
        assert!(take(0, now), "one that is known counts for itself");
        assert!(take(MOST_NAMES + 5, now + second), "the others are over");
        assert!(rates.memory() < 4 << 20 && rates.0.lock().unwrap().places.is_empty());
    }
}
