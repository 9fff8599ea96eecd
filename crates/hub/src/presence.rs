//! Presence: the members of topics, on all hosts.
//!
//! Each host tells the others of its members' joins and leaves, and all of them a few times within a lease. A host that is silent
//! for a lease is dead: its members have left. Members of one host need no broker.

use crate::config::Config;
use crate::mailbox::{Event, Mailbox};
use crate::protocol::{Object, random_name};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tautline::{Bridge, Listening, Outgoing};

/// Other hosts that one topic's presence has at most.
const MOST_HOSTS: usize = 1_000;
/// Members of other hosts that one topic's presence has at most.
const MOST_OTHERS: usize = 100_000;
/// Most bytes of a member's or host's identifier.
const MOST_ID: usize = 128;
/// The shortest time between two lists of all members for hosts that ask. Each client that comes first to a topic has its host ask.
const PER_ANSWER: Duration = Duration::from_secs(1);
/// A host tells its members this number of times within a lease.
const PER_LEASE: u32 = 3;

/// Members by their identifiers, with their names.
type Members = BTreeMap<String, String>;
type Rooms = Mutex<HashMap<Arc<str>, Room>>;

pub(crate) struct Presence {
    /// This host among others.
    host: Arc<str>,
    bridge: Option<Bridge>,
    bounds: Bounds,
    lease: Duration,
    rooms: Arc<Rooms>,
    told: Mutex<Option<Instant>>,
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
    others: HashMap<String, Lease>,
    watchers: Vec<Arc<Mailbox>>,
    /// The last time at which this host listed its members for those who asked, and whether they have asked since.
    answered: Option<Instant>,
    is_asked: bool,
    /// Hears other hosts.
    listening: Option<Listening>,
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

fn lock(rooms: &Rooms) -> MutexGuard<'_, HashMap<Arc<str>, Room>> {
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
            told: Mutex::default(),
        }
    }

    /// A member joins. False if there are too many on this host.
    pub(crate) fn join(&self, topic: &Arc<str>, conn: &str, name: &str) -> bool {
        let id = self.member(conn);
        let mut rooms = lock(&self.rooms);
        let room = rooms.entry(topic.clone()).or_default();
        let fits = room.local.len() < self.bounds.members;
        if fits {
            self.open(topic, room);
            self.tell(topic, News { join: Some((id.clone(), name.to_owned())), ..News::default() });
            room.local.insert(id.clone(), name.to_owned());
            room.joined(topic, &id, name);
        }
        close_empty(&mut rooms, topic);
        fits
    }

    pub(crate) fn leave(&self, topic: &Arc<str>, conn: &str) {
        let id = self.member(conn);
        let mut rooms = lock(&self.rooms);
        let Some(room) = rooms.get_mut(topic) else { return };
        if room.local.remove(&id).is_some() {
            self.tell(topic, News { leave: Some(id.clone()), ..News::default() });
            room.left(topic, &id);
        }
        close_empty(&mut rooms, topic);
    }

    /// A loop wants to know joins and leaves. Returns the message with all present members.
    pub(crate) fn watch(&self, topic: &Arc<str>, mailbox: &Arc<Mailbox>) -> String {
        let mut rooms = lock(&self.rooms);
        let room = rooms.entry(topic.clone()).or_default();
        if !room.watchers.iter().any(|other| Arc::ptr_eq(other, mailbox)) {
            self.open(topic, room);
            room.watchers.push(mailbox.clone());
        }
        room.members(topic)
    }

    /// The message with all present members.
    pub(crate) fn members(&self, topic: &Arc<str>) -> String {
        lock(&self.rooms).get(topic).map_or_else(|| Room::default().members(topic), |room| room.members(topic))
    }

    pub(crate) fn unwatch(&self, topic: &Arc<str>, mailbox: &Arc<Mailbox>) {
        let mut rooms = lock(&self.rooms);
        let Some(room) = rooms.get_mut(topic) else { return };
        room.watchers.retain(|other| !Arc::ptr_eq(other, mailbox));
        close_empty(&mut rooms, topic);
    }

    /// Ends leases that were not renewed, and renews those of this host.
    pub(crate) fn tick(&self, now: Instant) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let renews = told.is_none_or(|told| now.duration_since(told) >= self.lease / PER_LEASE);
        if renews {
            *told = Some(now);
        }
        let mut rooms = lock(&self.rooms);
        for (topic, room) in &mut *rooms {
            if (renews || room.is_asked && room.may_answer(now)) && !room.local.is_empty() {
                room.is_asked = false;
                self.tell(topic, News { all: Some(room.local.clone()), ..News::default() });
            }
            let ended: Vec<String> =
                room.others.iter().filter(|(_, lease)| lease.until <= now).map(|(host, _)| host.clone()).collect();
            for host in ended {
                let members = room.others.remove(&host).map(|lease| lease.members).unwrap_or_default();
                members.keys().for_each(|id| room.left(topic, id));
            }
        }
    }

    fn member(&self, conn: &str) -> String {
        format!("{}/{conn}", self.host)
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
            bounds: self.bounds,
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

/// Forgets a topic without members of this host and watchers.
fn close_empty(rooms: &mut HashMap<Arc<str>, Room>, topic: &Arc<str>) {
    if rooms.get(topic).is_some_and(|room| room.local.is_empty() && room.watchers.is_empty()) {
        rooms.remove(topic);
    }
}

impl Room {
    fn joined(&self, topic: &Arc<str>, id: &str, name: &str) {
        self.report(topic, &Object::new("join").text("topic", topic).text("member", id).text("name", name).end());
    }

    /// The message with all present members.
    fn members(&self, topic: &str) -> String {
        let all: Vec<_> = self.others.values().map(|lease| &lease.members).chain([&self.local]).flatten().collect();
        let members = serde_json::to_string(&all).unwrap_or_else(|_| "[]".into());
        Object::new("members").text("topic", topic).raw("members", &members).end()
    }

    /// Whether this host may list its members for those who ask. If so, it is noted that it does.
    fn may_answer(&mut self, now: Instant) -> bool {
        let may = self.answered.is_none_or(|last| now.saturating_duration_since(last) >= PER_ANSWER);
        if may {
            self.answered = Some(now);
        }
        may
    }

    fn left(&self, topic: &Arc<str>, id: &str) {
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
        let Some(room) = rooms.get_mut(&self.topic) else { return };
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
        let mut lease = room.others.remove(&host).unwrap_or_else(|| Lease { until: now, members: Members::new() });
        lease.until = now + self.lease;
        let elsewhere: usize = room.others.values().map(|lease| lease.members.len()).sum();
        let most = self.bounds.members.min(MOST_OTHERS.saturating_sub(elsewhere));
        if let Some(all) = &all {
            let gone: Vec<String> = lease.members.keys().filter(|id| !all.contains_key(*id)).cloned().collect();
            gone.iter().for_each(|id| self.leaves(room, &mut lease.members, id));
        }
        for (id, name) in all.into_iter().flatten().chain(join) {
            let fits = id.len() <= MOST_ID && name.len() <= self.bounds.name && !name.contains(char::is_control);
            if fits && lease.members.len() < most && !lease.members.contains_key(&id) {
                room.joined(&self.topic, &id, &name);
                lease.members.insert(id, name);
            }
        }
        leave.iter().for_each(|id| self.leaves(room, &mut lease.members, id));
        if !lease.members.is_empty() {
            room.others.insert(host, lease);
        }
    }

    fn leaves(&self, room: &Room, members: &mut Members, id: &str) {
        if members.remove(id).is_some() {
            room.left(&self.topic, id);
        }
    }
}
