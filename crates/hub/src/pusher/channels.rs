//! Channels of the Pusher protocol on this host: the loops that have subscribers, and events on their way to them and to other
//! hosts.

use super::app::App;
use super::delivery::{Delivery, What};
use super::name::{Channel, OWN};
use super::wire;
use crate::lock::lock;
use crate::mailbox::{Event, Mailbox};
use crate::protocol::{MOST_DEPTH, Object, depth};
use crate::rules::Rules;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use tautline::layers::engine::sized::{map_memory, name_memory, shrink_map};
use tautline::layers::ws::{Kind, Prepared};
use tautline::{Bridge, Listening, Outgoing};

/// Events of cache channels that are kept: their number, bytes and time.
const MOST_KEPT: usize = 1_000;
const MOST_KEPT_BYTES: usize = 4 << 20;
const KEPT: Duration = Duration::from_secs(30 * 60);

/// All channels with subscribers on this host.
pub(crate) struct Channels {
    bridge: Option<Bridge>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    map: HashMap<Arc<str>, Occupied>,
    kept: Kept,
    /// Connections by app. Their names are those of the file of rules, so they are few.
    conns: HashMap<String, usize>,
}

/// A channel with subscribers.
#[derive(Default)]
struct Occupied {
    /// Loops with the number of their subscribers.
    loops: Vec<(Arc<Mailbox>, usize)>,
    /// Hears other hosts.
    listening: Option<Listening>,
}

/// The last events of cache channels, by topic, and the order in which they came.
#[derive(Default)]
struct Kept {
    map: HashMap<Arc<str>, (Instant, Arc<str>)>,
    order: VecDeque<(Instant, Arc<str>)>,
    bytes: usize,
}

/// An event for other hosts.
#[derive(Serialize, Deserialize)]
struct Passed {
    /// The frame; none ends connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    frame: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    except: Option<String>,
}

impl Channels {
    pub(crate) fn new(bridge: Option<Bridge>) -> Self {
        Self { bridge, state: Arc::default() }
    }

    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let state = lock(&self.state);
        let names: usize = state.map.keys().map(|topic| name_memory(topic)).sum();
        map_memory(&state.map) + names + map_memory(&state.kept.map) + state.kept.bytes
    }

    /// Counts one more connection to an app. False if there are too many on this host.
    pub(crate) fn connect(&self, app: &App) -> bool {
        let mut state = lock(&self.state);
        let number = state.conns.entry(app.id.clone()).or_default();
        let fits = *number < app.limits.connections;
        *number += usize::from(fits);
        fits
    }

    pub(crate) fn disconnect(&self, app: &App) {
        if let Some(number) = lock(&self.state).conns.get_mut(&app.id) {
            *number -= 1;
        }
    }

    /// A loop has one subscriber more.
    pub(crate) fn enter(&self, topic: &Arc<str>, mailbox: &Arc<Mailbox>) {
        let mut state = lock(&self.state);
        let channel = state.map.entry(topic.clone()).or_default();
        if channel.listening.is_none()
            && let Some(bridge) = &self.bridge
        {
            let (ear, named) = (Arc::downgrade(&self.state), topic.clone());
            channel.listening =
                Some(bridge.listen(&format!("{OWN}{topic}"), move |_, payload| hear(&ear, &named, payload)));
        }
        match channel.loops.iter_mut().find(|(other, _)| Arc::ptr_eq(other, mailbox)) {
            Some((_, number)) => *number += 1,
            None => channel.loops.push((mailbox.clone(), 1)),
        }
    }

    /// A loop has one subscriber less.
    pub(crate) fn leave(&self, topic: &str, mailbox: &Arc<Mailbox>) {
        let mut state = lock(&self.state);
        let Some(channel) = state.map.get_mut(topic) else { return };
        channel.loops.retain_mut(|(other, number)| {
            *number -= usize::from(Arc::ptr_eq(other, mailbox));
            *number > 0
        });
        let ended = channel.loops.is_empty().then(|| state.map.remove(topic)).flatten();
        shrink_map(&mut state.map);
        drop(state);
        // Its end calls the bridge.
        drop(ended);
    }

    /// The subscribers of a channel on this host.
    pub(crate) fn subscribers(&self, topic: &str) -> usize {
        lock(&self.state).map.get(topic).map_or(0, |channel| channel.loops.iter().map(|(_, number)| number).sum())
    }

    /// The channels of an app with subscribers on this host whose names begin so.
    pub(crate) fn list(&self, app: &App, begin: &str) -> Vec<String> {
        let state = lock(&self.state);
        let names = state.map.keys().filter_map(|topic| app.channel(topic));
        names.filter(|name| name.starts_with(begin)).map(str::to_owned).collect()
    }

    /// Passes an event to all subscribers of its channel but one, on all hosts.
    pub(crate) fn publish(&self, topic: &Arc<str>, frame: &str, except: Option<&str>) {
        self.pass(topic, Passed { frame: Some(frame.to_owned()), except: except.map(str::to_owned) });
    }

    /// Ends the connections of a user, on all hosts.
    pub(crate) fn end(&self, topic: &Arc<str>) {
        self.pass(topic, Passed { frame: None, except: None });
    }

    fn pass(&self, topic: &Arc<str>, passed: Passed) {
        if let Some(bridge) = &self.bridge {
            let text = serde_json::to_string(&passed).unwrap_or_default();
            // If it is withheld, subscribers of other hosts miss it, as those of any plain topic do.
            let _ = bridge.publish(&format!("{OWN}{topic}"), Outgoing::text(&text));
        }
        lock(&self.state).deliver(topic, passed);
    }

    /// Keeps the event of a cache channel, also without subscribers.
    pub(crate) fn keep(&self, topic: &Arc<str>, channel: &str, frame: &str, now: Instant) {
        if Channel::read(channel).is_some_and(|channel| channel.is_cached) {
            lock(&self.state).kept.keep(topic, frame, now);
        }
    }

    /// The last event of a cache channel.
    pub(crate) fn kept(&self, topic: &str, now: Instant) -> Option<Arc<str>> {
        let state = lock(&self.state);
        let (since, frame) = state.kept.map.get(topic)?;
        (now.saturating_duration_since(*since) < KEPT).then(|| frame.clone())
    }

    /// Passes a message of a plain topic to its subscribers of this protocol: as the event `message`, whose data is JSON.
    pub(crate) fn publish_message(&self, rules: &Rules, topic: &Arc<str>, data: &str) {
        let Some(channel) = rules.apps.iter().find_map(|app| app.channel(topic)) else { return };
        let frame = wire::event("message", channel, data, None);
        self.keep(topic, channel, &frame, Instant::now());
        self.publish(topic, &frame, None);
    }
}

/// The hub's own message for an event. Data that is JSON is there as it is, and another text as a text.
pub(super) fn message(topic: &str, event: &str, data: &str) -> String {
    let text = || serde_json::to_string(data).unwrap_or_default();
    let is_json = depth(data) <= MOST_DEPTH && serde_json::from_str::<&RawValue>(data).is_ok();
    let data = if is_json { data.trim().to_owned() } else { text() };
    Object::new("message").text("topic", topic).text("event", event).raw("data", &data).end()
}

/// Hears an event of another host.
fn hear(state: &Weak<Mutex<State>>, topic: &Arc<str>, payload: &[u8]) {
    let Some(state) = state.upgrade() else { return };
    match serde_json::from_slice(payload) {
        Ok(passed) => lock(&state).deliver(topic, passed),
        Err(_) => log::debug!("an event of channel {topic:?} that is no JSON of a hub"),
    }
}

impl State {
    fn deliver(&self, topic: &Arc<str>, passed: Passed) {
        let Some(channel) = self.map.get(topic) else { return };
        let frame = passed.frame.map(|frame| Prepared::new(Kind::Text, frame.as_bytes()));
        let what = frame.map_or(What::End, What::Event);
        let delivery = Delivery { topic: topic.clone(), what, except: passed.except.map(Into::into) };
        let delivery = Arc::new(delivery);
        channel.loops.iter().for_each(|(mailbox, _)| mailbox.push(Event::Pusher(delivery.clone())));
    }
}

impl Kept {
    fn keep(&mut self, topic: &Arc<str>, frame: &str, now: Instant) {
        self.remove(topic);
        self.bytes += cost(topic, frame);
        self.map.insert(topic.clone(), (now, frame.into()));
        self.order.push_back((now, topic.clone()));
        while self.map.len() > MOST_KEPT || self.bytes > MOST_KEPT_BYTES || self.order.len() > 2 * MOST_KEPT {
            let Some((since, oldest)) = self.order.pop_front() else { break };
            // One that was replaced has another place.
            if self.map.get(&oldest).is_some_and(|(own, _)| *own == since) {
                self.remove(&oldest);
            }
        }
    }

    fn remove(&mut self, topic: &str) {
        if let Some((_, frame)) = self.map.remove(topic) {
            self.bytes -= cost(topic, &frame);
        }
    }
}

fn cost(topic: &str, frame: &str) -> usize {
    2 * topic.len() + frame.len() + 256
}

#[cfg(test)]
mod tests {
    use super::{Kept, MOST_KEPT, MOST_KEPT_BYTES, message};
    use std::sync::Arc;
    use std::time::Instant;

    #[test]
    fn kept_events_are_bounded_and_the_oldest_go() {
        let (mut kept, begin) = (Kept::default(), Instant::now());
        for number in 0..5 * MOST_KEPT {
            let topic: Arc<str> = format!("cache-{}", number % (2 * MOST_KEPT)).into();
            let now = begin + std::time::Duration::from_nanos(number as u64);
            kept.keep(&topic, "frame", now);
            assert!(kept.map.len() <= MOST_KEPT && kept.order.len() <= 2 * MOST_KEPT + 1);
        }
        let large = "x".repeat(MOST_KEPT_BYTES / 4);
        for number in 0..9 {
            kept.keep(&format!("large{number}").into(), &large, begin);
            assert!(kept.bytes <= MOST_KEPT_BYTES);
        }
        while let Some(topic) = kept.map.keys().next().cloned() {
            kept.remove(&topic);
        }
        assert_eq!(kept.bytes, 0);
    }

    #[test]
    fn data_that_is_json_is_json_for_others_and_a_text_is_a_text() {
        for (data, expected) in [("{\"a\":1}", "{\"a\":1}"), ("hello", "\"hello\""), (" 7 ", "7"), ("", "\"\"")] {
            let told = message("shop:a", "my-event", data);
            let expected = format!(r#"{{"type":"message","topic":"shop:a","event":"my-event","data":{expected}}}"#);
            assert_eq!(told, expected);
        }
        let deep = "[".repeat(1_000) + &"]".repeat(1_000);
        assert!(message("t", "e", &deep).contains("\"data\":\"[["));
    }
}
