//! Presence: the members of topics, on all hosts.
//!
//! Each host tells the others of its members' joins and leaves, and all of them a few times within a lease. A host that is silent
//! for a lease is dead: its members have left. Members of one host need no broker.

use crate::config::Config;
use crate::mailbox::{Event, Mailbox};
use crate::members::Members;
use crate::pages::Pages;
use crate::protocol::{Object, random_name};
use crate::pusher::{MOST_INFO, OWN};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tautline::layers::engine::sized::{map_memory, name_memory, shrink_map};
use tautline::layers::ws::Prepared;
use tautline::{ApplicationMemory, Bridge, Listening, Outgoing};

/// Other hosts that one topic's presence has at most.
const MOST_HOSTS: usize = 1_000;
/// Members of other hosts that one topic's presence has at most.
const MOST_OTHERS: usize = 100_000;
/// Most bytes of a member's or host's identifier.
const MOST_ID: usize = 192;
/// The shortest time between two lists of all members for hosts that ask. Each client that comes first to a topic has its host ask.
const PER_ANSWER: Duration = Duration::from_secs(1);
/// Memory of what hears other hosts about one topic, beside the topic's name: here and in the bridge.
const EAR: usize = 512;
/// The shortest time between two looks at leases. Each loop looks once in a second.
const PER_TICK: Duration = Duration::from_millis(750);
/// Topics that are looked at in one go at least.
const LEAST_SLICE: usize = 1024;
/// A host tells its members this number of times within a lease.
const PER_LEASE: u32 = 3;

type Rooms = Mutex<Counted>;

/// All topics with members or watchers, and their memory.
#[derive(Default)]
struct Counted {
    map: HashMap<Arc<str>, Box<Room>>,
    /// Memory of the topics, in bytes, and the part that the account of memory knows.
    bytes: usize,
    told: usize,
    memory: Option<ApplicationMemory>,
}

impl Counted {
    /// Counts the memory of a topic that has changed. One without members of this host and watchers is forgotten.
    fn settle(&mut self, topic: &Arc<str>) {
        if let Some(room) = self.map.get_mut(topic) {
            let now = if room.is_unused() { 0 } else { room.memory(topic) };
            self.bytes = self.bytes - room.told + now;
            room.told = now;
            if now == 0 {
                self.map.remove(topic);
                shrink_map(&mut self.map);
            }
        }
        self.tell();
    }

    fn tell(&mut self) {
        if let Some(memory) = &self.memory {
            let now = map_memory(&self.map) + self.bytes;
            memory.replace(self.told, now);
            self.told = now;
        }
    }
}

pub(crate) struct Presence {
    /// This host among others.
    host: Arc<str>,
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

#[derive(Clone, Copy)]
struct Bounds {
    /// Members of one host in one topic.
    members: usize,
    /// Bytes of a name.
    name: usize,
}

/// A topic with members, or with loops that want to know them.
#[derive(Default)]
struct Room {
    local: Members,
    /// Connections of the users among these.
    users: HashMap<Box<str>, u32>,
    others: HashMap<String, Lease>,
    /// All of them, once somebody has asked for them.
    pages: Option<Pages>,
    watchers: Vec<Arc<Mailbox>>,
    /// The last time at which this host listed its members for those who asked, and whether they have asked since.
    answered: Option<Instant>,
    is_asked: bool,
    /// Hears other hosts.
    listening: Option<Listening>,
    /// Its memory as it was counted, in bytes.
    told: usize,
}

/// The result of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// There are too many members on this host.
    Full,
    First,
    /// The user is a member by another connection.
    Again,
}

/// A member: one connection, or all connections of a user.
pub(crate) enum Who<'w> {
    Conn(&'w str),
    User(&'w str),
}

struct Lease {
    until: Instant,
    members: Members,
}

/// News of a host for the others.
#[derive(Default, Serialize, Deserialize)]
struct News {
    host: String,
    /// All members of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    all: Option<Members>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    join: Option<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    leave: Option<String>,
    /// Whether the other hosts are asked for all of their members.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ask: bool,
}

fn lock(rooms: &Rooms) -> MutexGuard<'_, Counted> {
    rooms.lock().unwrap_or_else(PoisonError::into_inner)
}

fn channel(topic: &str) -> String {
    format!("$presence/{topic}")
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
        if room.is_known(who) {
            return Joined::Again;
        }
        let fits = room.local.len() < most.unwrap_or(self.bounds.members).min(self.bounds.members);
        if fits {
            self.open(topic, room);
            self.tell(topic, News { join: Some((id.clone(), name.to_owned())), ..News::default() });
            room.local.insert(&id, name);
            room.joined(topic, &id, name);
            if let Who::User(user) = who {
                room.users.insert((*user).into(), 1);
            }
        }
        rooms.settle(topic);
        if fits { Joined::First } else { Joined::Full }
    }

    /// A connection leaves, and with the last one its user. Whether a member has left.
    pub(crate) fn leave(&self, topic: &Arc<str>, who: &Who<'_>) -> bool {
        let id = self.member(who);
        let mut rooms = lock(&self.rooms);
        let Some(room) = rooms.map.get_mut(topic) else { return false };
        if room.has_others(who) {
            return false;
        }
        let leaves = room.local.remove(&id);
        if leaves {
            self.tell(topic, News { leave: Some(id.clone()), ..News::default() });
            room.left(topic, &id);
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

    /// The number of all present members, also where there are too many to list.
    pub(crate) fn number(&self, topic: &str) -> usize {
        let rooms = lock(&self.rooms);
        let Some(room) = rooms.map.get(topic) else { return 0 };
        room.local.len() + room.others.values().map(|lease| lease.members.len()).sum::<usize>()
    }

    /// All present members, with their names. Those of other hosts are known while this host has members or watchers.
    pub(crate) fn list(&self, topic: &str) -> Vec<(String, String)> {
        let rooms = lock(&self.rooms);
        let Some(room) = rooms.map.get(topic) else { return Vec::new() };
        let all = room.others.values().map(|lease| &lease.members).chain([&room.local]).flat_map(Members::iter);
        all.map(|(id, name)| (id.to_owned(), name.to_owned())).collect()
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
        // Without a bridge there are no other hosts.
        if self.bridge.is_none() {
            return;
        }
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        if rounds.last.is_some_and(|last| now.saturating_duration_since(last) < PER_TICK) {
            return;
        }
        rounds.last = Some(now);
        let mut rooms = lock(&self.rooms);
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

    /// Whether members of the topic have left.
    fn tick_room(&self, topic: &Arc<str>, room: &mut Room, now: Instant, renews: bool) -> bool {
        if (renews || room.is_asked && room.may_answer(now)) && !room.local.is_empty() {
            room.is_asked = false;
            self.tell(topic, News { all: Some(room.local.clone()), ..News::default() });
        }
        let ended: Vec<String> =
            room.others.iter().filter(|(_, lease)| lease.until <= now).map(|(host, _)| host.clone()).collect();
        for host in &ended {
            let members = room.others.remove(host).map(|lease| lease.members).unwrap_or_default();
            members.ids().for_each(|id| room.left(topic, id));
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

fn tell(bridge: &Bridge, topic: &str, news: &News) {
    let text = serde_json::to_string(news).unwrap_or_default();
    // If it is withheld, the next renewal says the same.
    let _ = bridge.publish(&channel(topic), Outgoing::text(&text));
}

impl Room {
    /// Whether the user is a member already, with one connection more now.
    fn is_known(&mut self, who: &Who<'_>) -> bool {
        let Who::User(user) = who else { return false };
        let Some(number) = self.users.get_mut(*user) else { return false };
        *number += 1;
        true
    }

    /// Whether the user stays a member, with one connection less now.
    fn has_others(&mut self, who: &Who<'_>) -> bool {
        let Who::User(user) = who else { return false };
        let Some(number) = self.users.get_mut(*user) else { return false };
        *number -= 1;
        let stays = *number > 0;
        if !stays {
            self.users.remove(*user);
            shrink_map(&mut self.users);
        }
        stays
    }

    fn is_unused(&self) -> bool {
        self.local.is_empty() && self.watchers.is_empty()
    }

    /// Its memory, in bytes.
    fn memory(&self, topic: &str) -> usize {
        let hosts = self.others.iter().map(|(host, lease)| host.capacity() + lease.members.memory());
        let listening = self.listening.as_ref().map_or(0, |_| EAR + 2 * name_memory(topic));
        // The topic's name is that of a subscription.
        size_of::<Self>()
            + self.local.memory()
            + map_memory(&self.users)
            + self.users.keys().map(|user| user.len()).sum::<usize>()
            + map_memory(&self.others)
            + hosts.sum::<usize>()
            + self.watchers.capacity() * size_of::<Arc<Mailbox>>()
            + self.pages.as_ref().map_or(0, Pages::memory)
            + listening
    }

    fn joined(&mut self, topic: &Arc<str>, id: &str, name: &str) {
        self.pages.iter_mut().for_each(|pages| pages.insert(id, name));
        self.report(topic, &Object::new("join").text("topic", topic).text("member", id).text("name", name).end());
    }

    /// The messages with all present members. From the first time on, their pages are kept up to date.
    fn frames(&mut self, topic: &str) -> Vec<Prepared> {
        let Self { pages, others, local, .. } = self;
        let all = || others.values().map(|lease| &lease.members).chain([&*local]).flat_map(Members::iter);
        pages.get_or_insert_with(|| all().fold(Pages::default(), Pages::with)).frames(topic)
    }

    /// Whether this host may list its members for those who ask. If so, it is noted that it does.
    fn may_answer(&mut self, now: Instant) -> bool {
        let may = self.answered.is_none_or(|last| now.saturating_duration_since(last) >= PER_ANSWER);
        if may {
            self.answered = Some(now);
        }
        may
    }

    fn left(&mut self, topic: &Arc<str>, id: &str) {
        self.pages.iter_mut().for_each(|pages| pages.remove(id));
        self.report(topic, &Object::new("leave").text("topic", topic).text("member", id).end());
    }

    fn report(&self, topic: &Arc<str>, frame: &str) {
        for mailbox in &self.watchers {
            mailbox.push(Event::Presence { topic: topic.clone(), frame: frame.to_owned() });
        }
    }
}

/// Hears the other hosts of one topic.
struct Ear {
    host: Arc<str>,
    bridge: Bridge,
    rooms: Weak<Rooms>,
    topic: Arc<str>,
    bounds: Bounds,
    lease: Duration,
}

impl Ear {
    fn hear(&self, payload: &[u8]) {
        let Ok(News { host, all, join, leave, ask }) = serde_json::from_slice(payload) else {
            return log::debug!("news of presence in topic {:?} that is no JSON of a hub", self.topic);
        };
        let Some(rooms) = self.rooms.upgrade().filter(|_| host != *self.host && host.len() <= MOST_ID) else { return };
        let (mut rooms, now) = (lock(&rooms), Instant::now());
        let Some(room) = rooms.map.get_mut(&self.topic) else { return };
        if ask && !room.local.is_empty() {
            if room.may_answer(now) {
                let all = Some(room.local.clone());
                tell(&self.bridge, &self.topic, &News { host: self.host.to_string(), all, ..News::default() });
            } else {
                room.is_asked = true;
            }
        }
        let knows = room.others.contains_key(&host);
        if all.is_none() && join.is_none() && leave.is_none() || room.others.len() >= MOST_HOSTS && !knows {
            return;
        }
        let mut lease = room.others.remove(&host).unwrap_or_else(|| Lease { until: now, members: Members::default() });
        lease.until = now + self.lease;
        let elsewhere: usize = room.others.values().map(|lease| lease.members.len()).sum();
        let most = self.bounds.members.min(MOST_OTHERS.saturating_sub(elsewhere));
        if let Some(all) = &all {
            let gone: Vec<String> = lease.members.ids().filter(|id| !all.contains(id)).map(str::to_owned).collect();
            gone.iter().for_each(|id| self.leaves(room, &mut lease.members, id));
        }
        let join = join.iter().map(|(id, name)| (id.as_str(), name.as_str()));
        for (id, name) in all.iter().flat_map(Members::iter).chain(join) {
            let fits = id.len() <= MOST_ID && name.len() <= self.bounds.name && !name.contains(char::is_control);
            if fits && lease.members.len() < most && !lease.members.contains(id) {
                room.joined(&self.topic, id, name);
                lease.members.insert(id, name);
            }
        }
        leave.iter().for_each(|id| self.leaves(room, &mut lease.members, id));
        if !lease.members.is_empty() {
            room.others.insert(host, lease);
        }
        rooms.settle(&self.topic);
    }

    fn leaves(&self, room: &mut Room, members: &mut Members, id: &str) {
        if members.remove(id) {
            room.left(&self.topic, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LEAST_SLICE, Rounds};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

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
