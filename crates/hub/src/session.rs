//! A client's side of the protocol, without I/O: what it is subscribed to, its offsets, and its messages without an answer.

use crate::arrays::join;
use crate::error::ClientError;
use crate::log::Position;
use crate::protocol::{Answer, Object, random_name};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Messages without an answer that a session keeps.
const MOST_UNANSWERED: usize = 128;
/// Messages, and bytes of them, that a frame has at most, beside one that is longer.
const MOST_JOINED: usize = 64;
const MOST_JOINED_BYTES: usize = 64 << 10;
/// Begin of the reason with which hubs that know one message in a frame alone refuse `hello`.
const OLD_HUB: &str = "this type of message is not known";

/// The way in which a client subscribes to a topic.
///
/// By default it begins with now, or with the latest message of each key.
#[derive(Clone, Debug, Default)]
pub struct Subscribe {
    after: Option<(u64, Option<String>)>,
    member: Option<String>,
    presence: bool,
    count: bool,
}

impl Subscribe {
    /// From the message behind this offset on, the last that the client has, with its epoch from an earlier life.
    ///
    /// With 0 from the begin of the history that is kept. Another offset without an epoch counts as one of the present epoch, or as
    /// [late](Event::Late) if the topic has not come so far.
    #[must_use]
    pub fn after(mut self, offset: u64, epoch: Option<String>) -> Self {
        self.after = Some((offset, epoch));
        self
    }

    /// As a member with this name.
    #[must_use]
    pub fn as_member(mut self, name: impl Into<String>) -> Self {
        self.member = Some(name.into());
        self
    }

    /// With news of members.
    #[must_use]
    pub const fn with_presence(mut self) -> Self {
        self.presence = true;
        self
    }

    /// With the number of members.
    #[must_use]
    pub const fn with_count(mut self) -> Self {
        self.count = true;
        self
    }
}

/// A message of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// The topic's name.
    pub topic: Arc<str>,
    /// Its place in the topic's history, if there is one.
    pub offset: Option<u64>,
    /// The key.
    pub key: Option<String>,
    /// The message: a JSON text.
    pub data: String,
}

/// News for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The connection is open. Subscriptions and unanswered messages were sent again.
    Connected,
    /// The connection has ended, with this code of the hub and for this reason. It is opened again. The code is 1006 if there is
    /// none, and 4001 or 4004 if the hub does not accept the token any more.
    Disconnected(u16, String),
    /// The subscription to the topic holds. With history: messages after this offset follow.
    Subscribed(Arc<str>, Option<u64>),
    /// A message.
    Message(Received),
    /// Some messages before this offset are not kept any more: the client missed them. Those after it follow.
    Late(Arc<str>, u64),
    /// A message with this identifier is stored at this place, or was passed to the present subscribers.
    Published(String, Option<Position>),
    /// A message with this identifier went to one host only: the broker is away.
    Withheld(String),
    /// The members of a topic, by identifier, with their names: the first of them, if there are many.
    Members(Arc<str>, Vec<(String, String)>),
    /// Further members, which add to the list.
    MoreMembers(Arc<str>, Vec<(String, String)>),
    /// A member has joined.
    Joined(Arc<str>, String, String),
    /// A member has left.
    Left(Arc<str>, String),
    /// The number of a topic's members: at first, and after changes, about once in a second.
    Counted(Arc<str>, u64),
    /// The hub ended the subscription to the topic, for this reason: the right to it is gone.
    Ended(Arc<str>, String),
    /// The hub wants a fresh token within this number of seconds. With 0 it has closed the connection for lack of one.
    TokenWanted(u64),
    /// A message of the application to this user: a JSON text.
    Direct(String),
    /// The hub did not do what it was asked for: the topic, the message's identifier, and the reason.
    Refused(Option<String>, Option<String>, String),
}

/// The state of a client over all of its connections.
///
/// ```
/// use tautline_hub::{Session, Subscribe};
///
/// let mut session = Session::new();
/// session.subscribe("log:orders", Subscribe::default());
/// session.opened(); // a connection is open
/// while let Some(frame) = session.next_frame() {
///     println!("to be sent: {frame}");
/// }
/// let event = session.received(r#"{"type":"message","topic":"log:orders","offset":4,"data":7}"#);
/// assert!(event.is_some());
/// session.closed(); // the next `opened` asks for what comes after offset 4
/// ```
#[derive(Debug)]
pub struct Session {
    name: String,
    topics: BTreeMap<Arc<str>, Topic>,
    unanswered: VecDeque<(String, String)>,
    max_unanswered: usize,
    /// Identifiers of messages that the hub could not take yet.
    retries: Vec<String>,
    next_id: u64,
    outbox: VecDeque<String>,
    is_open: bool,
    /// Whether it says that it takes arrays of messages, and whether the hub does.
    has_arrays: bool,
    takes_many: bool,
    /// Sent first on each connection.
    token: Option<String>,
}

#[derive(Debug)]
struct Topic {
    subscribe: Subscribe,
    after: Option<u64>,
    epoch: Option<String>,
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

impl Session {
    /// A session without a connection.
    #[must_use]
    pub fn new() -> Self {
        Self {
            name: random_name(),
            topics: BTreeMap::new(),
            unanswered: VecDeque::new(),
            max_unanswered: MOST_UNANSWERED,
            retries: Vec::new(),
            next_id: 0,
            outbox: VecDeque::new(),
            is_open: false,
            has_arrays: false,
            takes_many: false,
            token: None,
        }
    }

    /// Sets the number of messages without an answer that it keeps, also without a connection. Default: 128.
    #[must_use]
    pub const fn with_max_unanswered(mut self, most: usize) -> Self {
        self.max_unanswered = most;
        self
    }

    /// Has frames be arrays of several messages, with hubs that know them. Takes all of them by [`received_all`](Self::received_all).
    #[must_use]
    pub const fn with_arrays(mut self) -> Self {
        self.has_arrays = true;
        self
    }

    /// Subscribes to a topic, on this connection and all later ones.
    pub fn subscribe(&mut self, topic: &str, subscribe: Subscribe) {
        let (after, epoch) = subscribe.after.clone().map_or((None, None), |(after, epoch)| (Some(after), epoch));
        let state = Topic { subscribe, after, epoch };
        if self.is_open {
            self.outbox.push_back(state.frame(topic));
        }
        self.topics.insert(topic.into(), state);
    }

    /// Sends a token now, and first on each later connection.
    pub fn set_token(&mut self, token: impl Into<String>) {
        let token = token.into();
        if self.is_open {
            self.outbox.push_back(token_frame(&token));
        }
        self.token = Some(token);
    }

    /// Ends the subscription to a topic.
    pub fn unsubscribe(&mut self, topic: &str) {
        if self.topics.remove(topic).is_some() && self.is_open {
            self.outbox.push_back(Object::new("unsubscribe").text("topic", topic).end());
        }
    }

    /// Publishes a JSON text once. Nothing repeats or answers it.
    ///
    /// # Errors
    /// If `data` is no JSON, or there is no connection.
    pub fn publish_once(&mut self, topic: &str, key: Option<&str>, data: &str) -> Result<(), ClientError> {
        check_json(data)?;
        if !self.is_open {
            return Err(ClientError::Offline);
        }
        self.outbox.push_back(publication(topic, key, data).end());
        Ok(())
    }

    /// Publishes a JSON text, and repeats it on later connections until the hub answers. Returns its identifier.
    ///
    /// In a topic with history it is stored once. Subscribers of a plain topic may get it twice after a reconnection.
    ///
    /// # Errors
    /// If `data` is no JSON, or too many messages have no answer.
    pub fn publish(&mut self, topic: &str, key: Option<&str>, data: &str) -> Result<String, ClientError> {
        let id = format!("{}-{}", self.name, self.next_id);
        self.publish_with_id(&id, topic, key, data)?;
        self.next_id += 1;
        Ok(id)
    }

    /// Publishes a JSON text likewise, with an identifier of your own: an earlier life of the program may have published it.
    ///
    /// # Errors
    /// If `data` is no JSON, too many messages have no answer, or the one with this identifier has none.
    pub fn publish_with_id(&mut self, id: &str, topic: &str, key: Option<&str>, data: &str) -> Result<(), ClientError> {
        check_json(data)?;
        if self.unanswered.len() >= self.max_unanswered || self.is_unanswered(id) {
            return Err(ClientError::Busy);
        }
        let frame = publication(topic, key, data).text("id", id).end();
        // Behind messages that have to be repeated, so that the order holds.
        if self.is_open && self.retries.is_empty() {
            self.outbox.push_back(frame.clone());
        }
        self.unanswered.push_back((id.to_owned(), frame));
        Ok(())
    }

    /// Asks the hub for a message, to see whether the connection works: it answers at once, without an event.
    pub fn ping(&mut self) {
        if self.is_open {
            self.outbox.push_back(Object::new("ping").end());
        }
    }

    /// The messages that have no answer yet.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    fn is_unanswered(&self, id: &str) -> bool {
        self.unanswered.iter().any(|(other, _)| other == id)
    }

    /// The last offset of a topic with history, and its epoch.
    #[must_use]
    pub fn position(&self, topic: &str) -> Option<(u64, Option<&str>)> {
        let topic = self.topics.get(topic)?;
        Some((topic.after?, topic.epoch.as_deref()))
    }

    /// A connection is open.
    pub fn opened(&mut self) {
        self.is_open = true;
        self.outbox.clear();
        self.retries.clear();
        self.takes_many = false;
        self.outbox.extend(self.token.as_deref().map(token_frame));
        if self.has_arrays {
            self.outbox.push_back(Object::new("hello").number("version", 2).end());
        }
        self.outbox.extend(self.topics.iter().map(|(name, topic)| topic.frame(name)));
        self.outbox.extend(self.unanswered.iter().map(|(_, frame)| frame.clone()));
    }

    /// The connection has ended.
    pub fn closed(&mut self) {
        self.is_open = false;
        self.outbox.clear();
    }

    /// Repeats the messages that the hub could not take. To be called about twice a second.
    pub fn retry(&mut self) {
        if self.is_open && !self.retries.is_empty() {
            self.retries.clear();
            self.outbox.extend(self.unanswered.iter().map(|(_, frame)| frame.clone()));
        }
    }

    /// The next text message to be sent: one of the protocol's messages, or an array of them if the hub takes those.
    pub fn next_frame(&mut self) -> Option<String> {
        if !self.takes_many || self.outbox.len() < 2 {
            return self.outbox.pop_front();
        }
        let mut bytes = 0;
        let fits = self.outbox.iter().take(MOST_JOINED).take_while(|message| {
            bytes += message.len();
            bytes <= MOST_JOINED_BYTES
        });
        let number = fits.count().max(1);
        Some(join(self.outbox.drain(..number).map(Cow::Owned).collect()).into_owned())
    }

    /// Takes a text message of the hub: one of the protocol's messages, or an array of them.
    pub fn received_all(&mut self, text: &str) -> Vec<Event> {
        if !text.starts_with('[') {
            return self.received(text).into_iter().collect();
        }
        let all: Vec<Answer<'_>> = serde_json::from_str(text).unwrap_or_default();
        all.into_iter().filter_map(|answer| self.take(answer)).collect()
    }

    /// Takes one message of the hub. Without [arrays](Self::with_arrays) each text has one.
    pub fn received(&mut self, text: &str) -> Option<Event> {
        self.take(serde_json::from_str(text).ok()?)
    }

    fn take(&mut self, answer: Answer<'_>) -> Option<Event> {
        let name = answer.topic.as_deref();
        let owned = |text: Option<&str>| text.unwrap_or_default().to_owned();
        match &*answer.action {
            "message" => self.message(&answer),
            "subscribed" | "late" => {
                let (name, topic) = self.topic_mut(name?)?;
                let is_late = answer.action == "late";
                let epoch = answer.epoch.map(Into::<String>::into);
                // An offset of another epoch means nothing. A conflating topic has no offset here: it begins with the latest of
                // each key.
                if is_late || topic.after.is_none() || topic.epoch.is_some() && topic.epoch != epoch {
                    topic.after = answer.offset;
                }
                topic.epoch = epoch;
                Some(match answer.offset {
                    Some(offset) if is_late => Event::Late(name, offset),
                    offset => Event::Subscribed(name, offset),
                })
            }
            "resync" => {
                let (name, topic) = self.topic_mut(name?)?;
                let frame = topic.frame(&name);
                self.outbox.push_back(frame);
                None
            }
            "published" => {
                let at = answer.position();
                let id = answer.id?.into_owned();
                self.unanswered.retain(|(other, _)| *other != id);
                let is_withheld = answer.reach.is_some_and(|reach| reach == "host");
                Some(if is_withheld { Event::Withheld(id) } else { Event::Published(id, at) })
            }
            "hello" => {
                self.takes_many = answer.version == Some(2);
                None
            }
            "error" => {
                if answer.reason.as_deref().is_some_and(|reason| reason.starts_with(OLD_HUB)) {
                    // It answers the `hello`.
                    return None;
                }
                let id = answer.id.map(Into::<String>::into);
                if let Some(id) = &id {
                    if answer.retry {
                        if self.is_unanswered(id) && !self.retries.contains(id) {
                            self.retries.push(id.clone());
                        }
                        return None;
                    }
                    self.unanswered.retain(|(other, _)| other != id);
                }
                Some(Event::Refused(name.map(Into::into), id, owned(answer.reason.as_deref())))
            }
            "members" if answer.more => Some(Event::MoreMembers(self.topic_mut(name?)?.0, answer.members?)),
            "members" => Some(Event::Members(self.topic_mut(name?)?.0, answer.members?)),
            "join" => {
                let member = owned(answer.member.as_deref());
                Some(Event::Joined(self.topic_mut(name?)?.0, member, answer.name.unwrap_or_default()))
            }
            "count" => Some(Event::Counted(self.topic_mut(name?)?.0, answer.number?)),
            "direct" => Some(Event::Direct(answer.data?.get().to_owned())),
            "token" => Some(Event::TokenWanted(answer.expires.unwrap_or_default())),
            "unsubscribed" => {
                // Without a reason the client has asked for it, and may have subscribed again since.
                let reason = answer.reason?.into_owned();
                let (topic, _) = self.topics.remove_entry(name?)?;
                Some(Event::Ended(topic, reason))
            }
            "leave" => Some(Event::Left(self.topic_mut(name?)?.0, owned(answer.member.as_deref()))),
            _ => None,
        }
    }

    fn message(&mut self, answer: &Answer<'_>) -> Option<Event> {
        let (name, topic) = self.topic_mut(answer.topic.as_deref()?)?;
        if let Some(offset) = answer.offset {
            if topic.after.is_some_and(|after| offset <= after) {
                return None;
            }
            topic.after = Some(offset);
        }
        Some(Event::Message(Received {
            topic: name,
            offset: answer.offset,
            key: answer.key.as_deref().map(Into::into),
            data: answer.data?.get().to_owned(),
        }))
    }

    /// A topic, and its name in the allocation that all messages share.
    fn topic_mut(&mut self, name: &str) -> Option<(Arc<str>, &mut Topic)> {
        let (shared, _) = self.topics.get_key_value(name)?;
        let shared = shared.clone();
        self.topics.get_mut(name).map(|topic| (shared, topic))
    }
}

impl Topic {
    fn frame(&self, name: &str) -> String {
        let mut frame = Object::new("subscribe").text("topic", name);
        if let Some(after) = self.after {
            frame = frame.number("after", after);
        }
        frame = frame.optional("epoch", self.epoch.as_deref()).optional("as", self.subscribe.member.as_deref());
        let frame = if self.subscribe.presence { frame.raw("presence", "true") } else { frame };
        if self.subscribe.count { frame.raw("count", "true").end() } else { frame.end() }
    }
}

fn token_frame(token: &str) -> String {
    Object::new("token").text("token", token).end()
}

fn check_json(data: &str) -> Result<(), ClientError> {
    serde_json::from_str::<&RawValue>(data).map(drop).map_err(|_| ClientError::NotJson)
}

fn publication(topic: &str, key: Option<&str>, data: &str) -> Object {
    Object::new("publish").text("topic", topic).optional("key", key).raw("data", data)
}
