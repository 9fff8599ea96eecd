//! Presence: the members of topics, on all hosts.
//!
//! Each host tells the others of its members' joins and leaves, and all of them a few times within a lease. A host that is silent
//! for a lease is dead: its members have left. Members of one host need no broker.
//!
//! A user is one member on all hosts, who joins with the first connection and leaves with the last. Members of topics whose rules say
//! so are counted and not listed: then hosts tell each other numbers, about once in a second.

mod count;
mod ear;
mod room;
mod rooms;
mod users;

pub(crate) use self::count::Joined;
pub(crate) use self::room::user_of;
pub(crate) use self::users::Who;

use self::ear::{Ear, News, tell};
use self::room::{Room, shown};
use self::rooms::{Bounds, Counted, Rooms, channel};
use crate::config::Config;
use crate::lock::lock;
use crate::mailbox::{Event, Mailbox};
use crate::pages::Pages;
use crate::protocol::random_name;
use crate::pusher::{MOST_INFO, OWN};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline::layers::ws::Prepared;
use tautline::{ApplicationMemory, Bridge};

/// The shortest time between two looks at leases. Each loop looks once in a second.
const PER_TICK: Duration = Duration::from_millis(750);
/// Topics that are looked at in one go at least.
const LEAST_SLICE: usize = 1024;
/// A host tells its members this number of times within a lease.
const PER_LEASE: u32 = 3;

pub(crate) struct Presence {
    /// This host among others.
    pub(crate) host: Arc<str>,
    bridge: Option<Bridge>,
    bounds: Bounds,
    lease: Duration,
    rooms: Arc<Rooms>,
    rounds: Mutex<Rounds>,
}

/// Rounds through all topics, in which leases end and are renewed.
#[derive(Default)]
struct Rounds {
    last: Option<Instant>,
    /// Topics that are left of this round, and the number of them at a time.
    left: Vec<Arc<str>>,
    slice: usize,
    /// Whether this host's leases are renewed in this round, and when that began last.
    renews: bool,
    renewed: Option<Instant>,
}

impl Rounds {
    /// Another round begins. It takes no longer than the time between two renewals.
    fn begin(&mut self, topics: impl ExactSizeIterator<Item = Arc<str>>, renewal: Duration, now: Instant) {
        let ticks = usize::try_from(renewal.as_secs()).unwrap_or(usize::MAX).max(1);
        self.slice = topics.len().div_ceil(ticks).max(LEAST_SLICE);
        self.left.clear();
        self.left.shrink_to(topics.len());
        self.left.extend(topics);
        self.renews = self.renewed.is_none_or(|renewed| now.saturating_duration_since(renewed) >= renewal);
        if self.renews {
            self.renewed = Some(now);
        }
    }
}

impl Presence {
    pub(crate) fn new(config: &Config, bridge: Option<Bridge>) -> Self {
        Self {
            host: random_name()[..16].into(),
            bridge,
            bounds: Bounds { members: config.max_members, name: config.max_name },
            lease: config.lease,
            rooms: Arc::default(),
            rounds: Mutex::default(),
        }
    }

    /// Counts its memory from now on, unless it is counted already.
    pub(crate) fn count(&self, memory: &ApplicationMemory) {
        let mut rooms = lock(&self.rooms);
        rooms.memory.get_or_insert_with(|| memory.clone());
        rooms.tell();
    }

    /// A member joins: a connection, or a user with the first of some. Too many on this host are more than `most`, or fewer by the
    /// configuration.
    pub(crate) fn join(&self, topic: &Arc<str>, who: &Who<'_>, name: &str, most: Option<usize>) -> Joined {
        let id = self.member(who);
        let mut rooms = lock(&self.rooms);
        let room = rooms.map.entry(topic.clone()).or_default();
        if let Who::User(user) = who
            && room.users.again(user)
        {
            return Joined::Again;
        }
        let fits = room.local.len() < most.unwrap_or(self.bounds.members).min(self.bounds.members);
        if fits {
            self.open(topic, room);
            self.tell(topic, News { join: Some((id.clone(), name.to_owned())), ..News::default() });
            room.joined(topic, shown(&id), name);
            room.local.insert(&id, name);
            if let Who::User(user) = who {
                room.users.add(user);
            }
        }
        rooms.settle(topic);
        if fits { Joined::First } else { Joined::Full }
    }

    /// A member joins a topic whose members are counted and not listed.
    pub(crate) fn join_counted(&self, topic: &Arc<str>, who: &Who<'_>, most: Option<usize>) -> Joined {
        let mut rooms = lock(&self.rooms);
        let room = rooms.map.entry(topic.clone()).or_default();
        let joined = room.count.get_or_insert_default().join(who, most.unwrap_or(usize::MAX));
        if joined == Joined::First {
            self.open(topic, room);
        }
        rooms.settle(topic);
        joined
    }

    /// It leaves again. Whether a member has left.
    pub(crate) fn leave_counted(&self, topic: &Arc<str>, who: &Who<'_>) -> bool {
        let mut rooms = lock(&self.rooms);
        let Some(count) = rooms.map.get_mut(topic).and_then(|room| room.count.as_mut()) else { return false };
        let leaves = count.leave(who);
        if leaves && count.own() == 0 {
            // The topic may be forgotten before the next time at which numbers are told.
            count.passed = 0;
            self.tell(topic, News { count: Some(0), ..News::default() });
        }
        rooms.settle(topic);
        leaves
    }

    /// A connection leaves, and with the last one its user. Whether a member has left this host.
    pub(crate) fn leave(&self, topic: &Arc<str>, who: &Who<'_>) -> bool {
        let id = self.member(who);
        let mut rooms = lock(&self.rooms);
        let Some(room) = rooms.map.get_mut(topic) else { return false };
        if let Who::User(user) = who
            && !room.users.leave(user)
        {
            return false;
        }
        let leaves = room.local.remove(&id);
        if leaves {
            self.tell(topic, News { leave: Some(id.clone()), ..News::default() });
            room.left(topic, shown(&id));
        }
        rooms.settle(topic);
        leaves
    }

    /// A loop wants to know joins and leaves. Returns the messages with all present members.
    pub(crate) fn watch(&self, topic: &Arc<str>, mailbox: &Arc<Mailbox>) -> Vec<Prepared> {
        let mut rooms = lock(&self.rooms);
        let room = rooms.map.entry(topic.clone()).or_default();
        if !room.watchers.iter().any(|other| Arc::ptr_eq(other, mailbox)) {
            self.open(topic, room);
            room.watchers.reserve_exact(1);
            room.watchers.push(mailbox.clone());
        }
        let pages = room.frames(topic);
        rooms.settle(topic);
        pages
    }

    /// The messages with all present members.
    pub(crate) fn members(&self, topic: &Arc<str>) -> Vec<Prepared> {
        let mut rooms = lock(&self.rooms);
        let Some(room) = rooms.map.get_mut(topic) else { return Pages::default().frames(topic) };
        let pages = room.frames(topic);
        rooms.settle(topic);
        pages
    }

    /// A loop wants to know the number of members. Returns the present one.
    pub(crate) fn watch_number(&self, topic: &Arc<str>, mailbox: &Arc<Mailbox>) -> usize {
        let mut rooms = lock(&self.rooms);
        let room = rooms.map.entry(topic.clone()).or_default();
        self.open(topic, room);
        let number = room.number();
        let count = room.count.get_or_insert_default();
        if count.loops.is_empty() {
            count.told = Some(number);
        } else if count.told != Some(number) {
            // Loops that came before know another one, and are told this one.
            (count.told, count.is_changed) = (None, true);
        }
        if !count.loops.iter().any(|other| Arc::ptr_eq(other, mailbox)) {
            count.loops.reserve_exact(1);
            count.loops.push(mailbox.clone());
        }
        rooms.settle(topic);
        number
    }

    pub(crate) fn unwatch_number(&self, topic: &Arc<str>, mailbox: &Arc<Mailbox>) {
        let mut rooms = lock(&self.rooms);
        let Some(count) = rooms.map.get_mut(topic).and_then(|room| room.count.as_mut()) else { return };
        count.loops.retain(|other| !Arc::ptr_eq(other, mailbox));
        rooms.settle(topic);
    }

    /// The number of all present members, also where there are too many to list, and of those that can be listed.
    pub(crate) fn numbers(&self, topic: &str) -> (usize, usize) {
        lock(&self.rooms).map.get(topic).map_or((0, 0), |room| (room.number(), room.listed))
    }

    /// All present members, with their names. Those of other hosts are known while this host has members or watchers.
    pub(crate) fn list(&self, topic: &str) -> Vec<(String, String)> {
        let rooms = lock(&self.rooms);
        let Some(room) = rooms.map.get(topic) else { return Vec::new() };
        let all: BTreeMap<&str, &str> = room.all().collect();
        all.into_iter().map(|(id, name)| (id.to_owned(), name.to_owned())).collect()
    }

    pub(crate) fn unwatch(&self, topic: &Arc<str>, mailbox: &Arc<Mailbox>) {
        let mut rooms = lock(&self.rooms);
        let Some(room) = rooms.map.get_mut(topic) else { return };
        room.watchers.retain(|other| !Arc::ptr_eq(other, mailbox));
        rooms.settle(topic);
    }

    /// Ends leases that were not renewed, and renews those of this host: of some topics at each call, so that nobody waits for
    /// long. All loops call it, and one does it.
    pub(crate) fn tick(&self, now: Instant) {
        let mut rounds = lock(&self.rounds);
        if rounds.last.is_some_and(|last| now.saturating_duration_since(last) < PER_TICK) {
            return;
        }
        rounds.last = Some(now);
        let mut rooms = lock(&self.rooms);
        self.tell_numbers(&mut rooms, now);
        // Without a bridge there are no other hosts.
        if self.bridge.is_none() {
            return;
        }
        if rounds.left.is_empty() {
            rounds.begin(rooms.map.keys().cloned(), self.lease / PER_LEASE, now);
        }
        for _ in 0..rounds.slice {
            let Some(topic) = rounds.left.pop() else { break };
            if let Some(room) = rooms.map.get_mut(&topic)
                && self.tick_room(&topic, room, now, rounds.renews)
            {
                rooms.settle(&topic);
            }
        }
    }

    /// Tells numbers of members that have changed, of some topics at each call.
    fn tell_numbers(&self, rooms: &mut Counted, now: Instant) {
        let slice = rooms.changed.len().div_ceil(4).max(LEAST_SLICE).min(rooms.changed.len());
        for _ in 0..slice {
            let Some(topic) = rooms.changed.pop_front() else { break };
            let Some(room) = rooms.map.get_mut(&topic) else { continue };
            let number = room.number();
            let Some(count) = &mut room.count else { continue };
            if let Some(own) = count.unpassed() {
                self.tell(&topic, News { count: Some(own), ..News::default() });
            }
            match count.tells(number, now) {
                None => rooms.changed.push_back(topic),
                Some(tells) => {
                    (count.is_changed, count.is_queued) = (false, false);
                    for mailbox in count.loops.iter().filter(|_| tells) {
                        mailbox.push(Event::Number { topic: topic.clone(), number });
                    }
                }
            }
        }
        if rooms.changed.is_empty() {
            rooms.changed = VecDeque::new();
        }
        rooms.tell();
    }

    /// Whether members of the topic have left.
    fn tick_room(&self, topic: &Arc<str>, room: &mut Room, now: Instant, renews: bool) -> bool {
        if renews || room.is_asked && room.may_answer(now) {
            room.is_asked = false;
            let (all, count) = room.own();
            if all.is_some() || count.is_some() {
                self.tell(topic, News { all, count, ..News::default() });
            }
        }
        let ended: Vec<String> =
            room.others.iter().filter(|(_, lease)| lease.until <= now).map(|(host, _)| host.clone()).collect();
        for host in &ended {
            let Some(lease) = room.others.remove(host) else { continue };
            lease.members.ids().for_each(|id| room.left(topic, id));
            if lease.counted > 0 {
                room.number_changed();
            }
        }
        !ended.is_empty()
    }

    fn member(&self, who: &Who<'_>) -> String {
        match who {
            Who::Conn(conn) => format!("{}/{conn}", self.host),
            Who::User(user) => format!("{}/user:{user}", self.host),
        }
    }

    fn tell(&self, topic: &str, news: News) {
        let Some(bridge) = &self.bridge else { return };
        tell(bridge, topic, &News { host: self.host.to_string(), ..news });
    }

    /// Begins to hear other hosts, and asks them.
    fn open(&self, topic: &Arc<str>, room: &mut Room) {
        let Some(bridge) = self.bridge.as_ref().filter(|_| room.listening.is_none()) else { return };
        let ear = Ear {
            host: self.host.clone(),
            bridge: bridge.clone(),
            rooms: Arc::downgrade(&self.rooms),
            topic: topic.clone(),
            bounds: if topic.starts_with(OWN) { Bounds { name: MOST_INFO, ..self.bounds } } else { self.bounds },
            lease: self.lease,
        };
        room.listening = Some(bridge.listen(&channel(topic), move |_, payload| ear.hear(payload)));
        self.tell(topic, News { ask: true, ..News::default() });
    }
}

#[cfg(test)]
mod tests {
    use super::{Joined, LEAST_SLICE, Presence, Rounds, Who};
    use crate::config::Config;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};
    use tautline::{ApplicationMemory, Bridge, MemoryBroker};

    /// Two hosts with 100,000 users each in one topic.
    #[test]
    fn hosts_tell_each_other_numbers_of_many_members_within_bounds() {
        let broker = MemoryBroker::new();
        let [one, two] =
            [(); 2].map(|()| Presence::new(&Config::default(), Some(Bridge::start(broker.clone()).unwrap())));
        let memory = ApplicationMemory::default();
        one.count(&memory);
        let (words, bytes) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let sniffer = Bridge::start(broker).unwrap();
        let (number, sum) = (words.clone(), bytes.clone());
        let _ear = sniffer.listen("$presence/crowd", move |_, payload| {
            number.fetch_add(1, Ordering::Relaxed);
            sum.fetch_add(payload.len(), Ordering::Relaxed);
        });
        let (topic, mut now) = (Arc::<str>::from("crowd"), Instant::now());
        for number in 0..100_000 {
            let user = format!("user{number}");
            assert_eq!(one.join_counted(&topic, &Who::User(&user), None), Joined::First);
            assert_eq!(one.join_counted(&topic, &Who::User(&user), None), Joined::Again);
            assert_eq!(two.join_counted(&topic, &Who::Conn("1"), None), Joined::First);
        }
        let mut ticks = 0;
        while one.numbers("crowd").0 < 200_000 || two.numbers("crowd").0 < 200_000 {
            now += Duration::from_secs(1);
            ticks += 1;
            assert!(ticks < 2_000, "{:?} {:?}", one.numbers("crowd"), two.numbers("crowd"));
            [&one, &two].iter().for_each(|host| host.tick(now));
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!((one.numbers("crowd"), one.list("crowd").len()), ((200_000, 0), 0));
        // A word of each host in a tick: its number, or a renewal.
        let (words, bytes) = (words.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
        assert!(words <= 8 + 4 * ticks && bytes <= 64 * words, "{words} words with {bytes} bytes in {ticks} ticks");
        assert!(memory.bytes() < 16 << 20, "{} bytes", memory.bytes());
        for number in 0..100_000 {
            let user = format!("user{number}");
            assert!(!one.leave_counted(&topic, &Who::User(&user)) && one.leave_counted(&topic, &Who::User(&user)));
        }
        assert!(memory.bytes() < 100_000, "{} bytes", memory.bytes());
    }

    #[test]
    fn a_round_goes_through_all_topics_within_a_renewal() {
        let topics: Vec<Arc<str>> = (0..64_000).map(|number| format!("room{number}").into()).collect();
        let (mut rounds, now) = (Rounds::default(), Instant::now());
        rounds.begin(topics.iter().cloned(), Duration::from_secs(5), now);
        assert_eq!((rounds.left.len(), rounds.slice, rounds.renews), (64_000, 12_800, true));
        rounds.begin(topics[..10].iter().cloned(), Duration::from_secs(5), now + Duration::from_secs(4));
        assert_eq!((rounds.left.len(), rounds.slice, rounds.renews), (10, LEAST_SLICE, false));
        rounds.begin(topics[..10].iter().cloned(), Duration::from_secs(5), now + Duration::from_secs(5));
        assert!(rounds.renews && rounds.left.capacity() < 64_000);
    }
}
