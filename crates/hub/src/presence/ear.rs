//! News of other hosts about the members of a topic.

use super::room::{Lease, Room, shown};
use super::rooms::{Bounds, Rooms, channel};
use crate::lock::lock;
use crate::members::Members;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tautline::{Bridge, Outgoing};

/// Other hosts that one topic's presence has at most.
const MOST_HOSTS: usize = 1_000;
/// Members of other hosts that one topic's presence has at most.
const MOST_OTHERS: usize = 100_000;
/// Members of a host that are counted at most.
const MOST_COUNTED: usize = 100_000_000;
/// Most bytes of a member's or host's identifier.
const MOST_ID: usize = 192;

/// News of a host for the others.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct News {
    pub(super) host: String,
    /// All members of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) all: Option<Members>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) join: Option<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) leave: Option<String>,
    /// The number of members that are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) count: Option<usize>,
    /// Whether the other hosts are asked for all of their members.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) ask: bool,
}

pub(super) fn tell(bridge: &Bridge, topic: &str, news: &News) {
    let text = serde_json::to_string(news).unwrap_or_default();
    // If it is withheld, the next renewal says the same.
    let _ = bridge.publish(&channel(topic), Outgoing::text(&text));
}

/// Hears the other hosts of one topic.
pub(super) struct Ear {
    pub(super) host: Arc<str>,
    pub(super) bridge: Bridge,
    pub(super) rooms: Weak<Rooms>,
    pub(super) topic: Arc<str>,
    pub(super) bounds: Bounds,
    pub(super) lease: Duration,
}

impl Ear {
    pub(super) fn hear(&self, payload: &[u8]) {
        let Ok(news) = serde_json::from_slice::<News>(payload) else {
            return log::debug!("news of presence in topic {:?} that is no JSON of a hub", self.topic);
        };
        let is_other = news.host != *self.host && news.host.len() <= MOST_ID;
        let Some(rooms) = self.rooms.upgrade().filter(|_| is_other) else { return };
        let (mut rooms, now) = (lock(&rooms), Instant::now());
        let Some(room) = rooms.map.get_mut(&self.topic) else { return };
        if news.ask {
            self.answer(room, now);
        }
        let says_nothing = news.all.is_none() && news.join.is_none() && news.leave.is_none() && news.count.is_none();
        if says_nothing || room.others.len() >= MOST_HOSTS && !room.others.contains_key(&news.host) {
            return;
        }
        self.take(room, news, now);
        rooms.settle(&self.topic);
    }

    fn answer(&self, room: &mut Room, now: Instant) {
        let (all, count) = room.own();
        if all.is_none() && count.is_none() {
            return;
        }
        if room.may_answer(now) {
            tell(&self.bridge, &self.topic, &News { host: self.host.to_string(), all, count, ..News::default() });
        } else {
            room.is_asked = true;
        }
    }

    fn take(&self, room: &mut Room, News { host, all, join, leave, count, .. }: News, now: Instant) {
        let begun = || Lease { until: now, members: Members::default(), counted: 0 };
        let mut lease = room.others.remove(&host).unwrap_or_else(begun);
        lease.until = now + self.lease;
        if let Some(count) = count.map(|count| count.min(MOST_COUNTED))
            && std::mem::replace(&mut lease.counted, count) != count
        {
            room.number_changed();
        }
        let elsewhere: usize = room.others.values().map(|lease| lease.members.len()).sum();
        let most = self.bounds.members.min(MOST_OTHERS.saturating_sub(elsewhere));
        if let Some(all) = &all {
            let named: std::collections::HashSet<&str> = all.ids().map(shown).collect();
            let gone: Vec<String> = lease.members.ids().filter(|id| !named.contains(id)).map(str::to_owned).collect();
            gone.iter().for_each(|id| self.leaves(room, &mut lease.members, id));
        }
        let join = join.iter().map(|(id, name)| (id.as_str(), name.as_str()));
        for (id, name) in all.iter().flat_map(Members::iter).chain(join) {
            let fits = id.len() <= MOST_ID && name.len() <= self.bounds.name && !name.contains(char::is_control);
            let id = shown(id);
            if fits && lease.members.len() < most && !lease.members.contains(id) {
                room.joined(&self.topic, id, name);
                lease.members.insert(id, name);
            }
        }
        leave.iter().for_each(|id| self.leaves(room, &mut lease.members, shown(id)));
        if !lease.members.is_empty() || lease.counted > 0 {
            room.others.insert(host, lease);
        }
    }

    fn leaves(&self, room: &mut Room, members: &mut Members, id: &str) {
        if members.remove(id) {
            room.left(&self.topic, id);
        }
    }
}
