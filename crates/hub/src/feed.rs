//! A topic's messages on their way from the log to the loops that follow it: once per host.

use crate::config::Kind;
use crate::lock::lock;
use crate::log::{Entry, Following, Log, Position, Sink};
use crate::mailbox::{Event, Framed, Mailbox};
use crate::protocol::Object;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tautline::layers::engine::sized::{map_memory, shrink_map};

/// All topics that loops of this host follow.
#[derive(Default)]
pub(crate) struct Feeds(Mutex<HashMap<Arc<str>, Followed>>);

/// A topic, and the log's promise to bring its messages.
type Followed = (Arc<Feed>, Following);

/// Memory of a topic's entry in a log, and of the promise, as measured with [`MemoryLog`](crate::MemoryLog).
const FOLLOWING: usize = 176;

/// One topic.
struct Feed {
    topic: Arc<str>,
    kind: Kind,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    at: Option<Position>,
    loops: Vec<Arc<Mailbox>>,
}

impl Feeds {
    /// The memory of all of them, in bytes, without the topics' names.
    pub(crate) fn memory(&self) -> usize {
        let feeds = lock(&self.0);
        map_memory(&feeds) + feeds.len() * (size_of::<Feed>() + size_of::<Arc<Mailbox>>() + FOLLOWING)
    }

    /// Begins to bring a topic's messages of a kind to a loop.
    pub(crate) fn follow(&self, log: &dyn Log, (topic, kind): (&Arc<str>, Kind), mailbox: &Arc<Mailbox>) {
        // Held while the log is called, so that its calls are in order. No sink takes this lock.
        let mut feeds = lock(&self.0);
        if feeds.get(topic).is_some_and(|(feed, _)| feed.kind != kind) {
            // Rules have changed it. Subscribers on other loops come back by the new rules.
            feeds.remove(topic).iter().for_each(|(feed, _)| feed.lost());
        }
        if let Some((feed, _)) = feeds.get(topic) {
            let mut state = lock(&feed.state);
            if let Some(at) = &state.at {
                mailbox.push(Event::Begin(topic.clone(), at.clone()));
            }
            state.loops.reserve_exact(1);
            return state.loops.push(mailbox.clone());
        }
        let state = State { at: None, loops: vec![mailbox.clone()] };
        let feed = Arc::new(Feed { topic: topic.clone(), kind, state: Mutex::new(state) });
        let following = log.follow(topic, kind, feed.clone());
        feeds.insert(topic.clone(), (feed, following));
    }

    /// Ends that.
    pub(crate) fn unfollow(&self, topic: &Arc<str>, mailbox: &Arc<Mailbox>) {
        let mut feeds = lock(&self.0);
        let Some((feed, _)) = feeds.get(topic) else { return };
        let mut state = lock(&feed.state);
        state.loops.retain(|other| !Arc::ptr_eq(other, mailbox));
        let is_unused = state.loops.is_empty();
        drop(state);
        if is_unused {
            feeds.remove(topic);
            shrink_map(&mut feeds);
        }
    }
}

/// The message of the hub for an entry.
pub(crate) fn frame(topic: &str, entry: &Entry) -> String {
    let message = Object::new("message").text("topic", topic).number("offset", entry.offset);
    message.optional("key", entry.key.as_deref()).raw("data", &entry.data).end()
}

impl Sink for Feed {
    fn begin(&self, at: Position) {
        let mut state = lock(&self.state);
        for mailbox in &state.loops {
            mailbox.push(Event::Begin(self.topic.clone(), at.clone()));
        }
        state.at = Some(at);
    }

    fn entry(&self, entry: Entry) {
        let framed = Arc::new(Framed::new(self.topic.clone(), entry.offset, &frame(&self.topic, &entry)));
        let mut state = lock(&self.state);
        if let Some(at) = &mut state.at {
            at.offset = entry.offset;
        }
        for mailbox in &state.loops {
            mailbox.push(Event::Entry(framed.clone()));
        }
    }

    fn lost(&self) {
        let mut state = lock(&self.state);
        state.at = None;
        for mailbox in &state.loops {
            mailbox.push(Event::Lost(self.topic.clone()));
        }
    }
}
