//! The HTTP interface: applications publish, read and end connections with a key.
//!
//! It is on the hub's own listener, since applications reach that one over TLS and through the same load balancers as clients.
//! The admin listener is for operators, and on this machine.

use crate::answer::{Answer, Fault, response};
use crate::config::Kind;
use crate::control::millis;
use crate::credentials::{Found, bearer};
use crate::feed::frame;
use crate::handler::HubHandler;
use crate::log::{Append, LogError, Page, Position};
use crate::mailbox::{Event, Mailbox};
use crate::protocol::{MOST_DEPTH, Object, depth};
use crate::repeats::Known;
use crate::rules::{ApiKey, Grant, Rules, Scope, find_key, is_user};
use crate::sessions::{Added, CONNECTION, LONGEST, TOKEN};
use crate::shared::Shared;
use serde::{Deserialize, Deserializer};
use serde_json::json;
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::http::Method;
use tautline::{ConnId, Reply, Request};

/// Where the interface begins.
pub(crate) const PREFIX: &str = "/api/";
/// Most messages of a batch, users of a list, connections of a user that are named, and bytes of the name of a request.
const MOST_BATCH: usize = 64;
const MOST_USERS: usize = 1_000;
const MOST_CONNECTIONS: usize = 1_000;
/// Members of a topic that are listed. Of more only the number is told.
const MOST_LISTED: usize = 10_000;
const MOST_REPEAT: usize = 64;

/// The operations, and the scopes that they need.
pub(crate) const ROUTES: [(&str, Scope); 8] = [
    ("publish", Scope::Publish),
    ("batch", Scope::Publish),
    ("history", Scope::History),
    ("presence", Scope::Presence),
    ("connections", Scope::Users),
    ("disconnect", Scope::Users),
    ("revoke", Scope::Users),
    ("statistics", Scope::Statistics),
];

/// A message to be published: to a topic, or to all connections of a user.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Publish<'a> {
    #[serde(default, deserialize_with = "some")]
    topic: Option<String>,
    #[serde(default, deserialize_with = "some")]
    user: Option<String>,
    #[serde(default, deserialize_with = "some")]
    key: Option<String>,
    #[serde(borrow)]
    data: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<'a> {
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Topic {
    topic: String,
    #[serde(default, deserialize_with = "whole")]
    after: Option<u64>,
    #[serde(default, deserialize_with = "some")]
    epoch: Option<String>,
    /// Whether the members are not listed.
    #[serde(default, deserialize_with = "some")]
    count: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct User {
    #[serde(default, deserialize_with = "some")]
    user: Option<String>,
    /// The name of a connection.
    #[serde(default, deserialize_with = "some")]
    connection: Option<String>,
    /// The `jti` of a token.
    #[serde(default, deserialize_with = "some")]
    token: Option<String>,
    /// Seconds for which the token, or those of the user, are refused.
    #[serde(default, deserialize_with = "whole")]
    seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// A value that is there. `null` is none.
fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A whole number. JSON may write it with a fraction of zero.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = serde_json::Number::deserialize(deserializer)?.to_string();
    let digits = text.strip_suffix(".0").unwrap_or(&text);
    digits.parse().map(Some).map_err(|_| serde::de::Error::custom("no whole number"))
}

const UNKNOWN_KEY: Fault = Fault::new(
    401,
    "unauthorized",
    "no key of this interface",
    "send Authorization: Bearer KEY, with a key of a table [[key]] in the file of rules",
);
const GUESSING: Fault = Fault::new(
    429,
    "too-many-bad-keys",
    "too many requests of this address have no key of this interface",
    "wait a minute, and send a key of a table [[key]] in the file of rules",
);
const NO_SCOPE: Fault =
    Fault::new(403, "forbidden", "the key has not this scope", "add it to `scopes` of the key in the file of rules");
const NO_TOPIC: Fault = Fault::new(
    403,
    "forbidden-topic",
    "the key may not use this topic",
    "add a pattern to `topics` of the key in the file of rules",
);
const NO_ROUTE: Fault =
    Fault::new(404, "not-found", "there is no such operation", "see docs/hub.md for the operations");
const NO_POST: Fault = Fault::new(405, "method", "operations are requests with POST", "send the same with POST");
const BAD_BODY: Fault = Fault::new(
    400,
    "bad-request",
    "the body is no JSON object of this operation",
    "see docs/hub.md for its members; others are refused",
);
const BAD_NAME: Fault = Fault::new(
    400,
    "bad-name",
    "a topic, key or user is missing, too long or has control characters",
    "names have 1 to 256 bytes, users to 128; topics do not begin with `$`",
);
const BAD_CONNECTION: Fault = Fault::new(
    400,
    "bad-connection",
    "the name of the connection has not the form HOST/CONNECTION",
    "take it from `connections` of a user, from the members of `presence`, or from a question of [hooks]",
);
const BAD_DATA: Fault = Fault::new(
    400,
    "bad-data",
    "the data is nested too deeply or too long",
    "nest at most 128 deep; see `max-message`",
);
const TOO_OFTEN: Fault =
    Fault::new(429, "too-many-requests", "the key has more requests in a second than its `rate`", "repeat it later");
const BAD_REPEAT: Fault = Fault::new(
    400,
    "bad-idempotency-key",
    "the Idempotency-Key is there twice, empty, too long or has other characters",
    "write one of 1 to 64 visible ASCII characters",
);
const RUNNING: Fault =
    Fault::new(409, "running", "a request with this Idempotency-Key is being done", "repeat it for its answer");
const OTHER: Fault =
    Fault::new(409, "other-request", "another request had this Idempotency-Key", "take a key for each request");
const AWAY: Fault = Fault::new(503, "log-away", "the log takes no messages now", "repeat it later, with the same key");
const TOO_LATE: Fault =
    Fault::new(410, "too-late", "messages after that offset are not kept any more", "ask again without `after`");
const NO_HISTORY: Fault =
    Fault::new(404, "no-history", "the topic has no history", "name a topic with history or latest values");
const FULL: Fault = Fault::new(503, "full", "too many users are revoked", "add them to `revoked` in the file of rules");

impl HubHandler {
    /// Does a request to the interface. `None` if it is none, or if the rules have no key.
    pub(crate) fn call(&self, request: &Request<'_>) -> Option<Reply> {
        if self.rules.api_keys.is_empty() || !request.http.uri().path().starts_with(PREFIX) {
            return None;
        }
        Some(self.try_call(request).unwrap_or_else(|fault| Reply::Respond(fault.response())))
    }

    fn try_call(&self, request: &Request<'_>) -> Result<Reply, Fault> {
        let rules = self.rules.clone();
        let secret = if let Found::Token(secret) = bearer(request.http.headers()) { Some(secret) } else { None };
        let Some(key) = secret.and_then(|secret| find_key(&rules.api_keys, secret)) else {
            // A key that is known counts also from an address that guesses: many may share it.
            return Err(if self.hub.bounds.bad_key(request.peer, &rules.limits) { UNKNOWN_KEY } else { GUESSING });
        };
        if !self.hub.bounds.request(&key.name, key.rate) {
            return Err(TOO_OFTEN);
        }
        let name = request.http.uri().path().strip_prefix(PREFIX).unwrap_or_default();
        let (name, scope) = ROUTES.into_iter().find(|(own, _)| *own == name).ok_or(NO_ROUTE)?;
        if *request.http.method() != Method::POST {
            return Err(NO_POST);
        }
        if !key.scopes.contains(&scope) {
            return Err(NO_SCOPE);
        }
        let operation = self.read(name, request.body, key)?;
        let mut repeat = None;
        let mut ids = request.http.headers().get_all("idempotency-key").iter();
        if let Some(id) = ids.next() {
            let id = id.to_str().unwrap_or_default();
            // One that is passed over would have the request done twice.
            if ids.next().is_some()
                || id.is_empty()
                || id.len() > MOST_REPEAT
                || !id.bytes().all(|byte| byte.is_ascii_graphic())
            {
                return Err(BAD_REPEAT);
            }
            let id = format!("{}\n{name}\n{id}", key.name);
            let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(request.body);
            // One that only reads is done again.
            let known = operation.changes().then(|| self.hub.repeats.begin(&id, hash, Instant::now()));
            match known {
                Some(Known::New) => repeat = Some((self.hub.repeats.clone(), id)),
                Some(Known::Running) => return Err(RUNNING),
                Some(Known::Answered(status, body)) => return Ok(Reply::Respond(response(status, body))),
                Some(Known::Other) => return Err(OTHER),
                None => {}
            }
        }
        Ok(request.later(|ticket| self.run(operation, Answer::new(ticket, repeat))))
    }

    /// Understands a request, and checks what can be checked before it is done.
    fn read(&self, name: &str, body: &[u8], key: &ApiKey) -> Result<Operation, Fault> {
        match name {
            "publish" => Ok(Operation::Publish(VecDeque::from([self.message(parse(body)?, key)?]), false)),
            "batch" => {
                let Batch { messages } = parse(body)?;
                if messages.is_empty() || messages.len() > MOST_BATCH {
                    return Err(BAD_BODY);
                }
                let messages = messages.iter().map(|message| self.message(parse(message.get().as_bytes())?, key));
                Ok(Operation::Publish(messages.collect::<Result<_, _>>()?, true))
            }
            "history" | "presence" => {
                let Topic { topic, after, epoch, count } = parse(body)?;
                let topic = self.topic(Some(topic), key)?;
                match (name, &epoch, count) {
                    ("presence", None, count) if after.is_none() => {
                        return Ok(Operation::Presence(topic, count.unwrap_or_default()));
                    }
                    ("history", _, None) => {}
                    _ => return Err(BAD_BODY),
                }
                let kind = self.rules.kind(&self.hub.config, &topic);
                if kind == Kind::Plain { Err(NO_HISTORY) } else { Ok(Operation::History(topic, kind, after, epoch)) }
            }
            "statistics" => parse::<Nothing>(body).map(|Nothing {}| Operation::Statistics),
            _ => {
                let User { user, connection, token, seconds } = parse(body)?;
                if connection.as_deref().is_some_and(|name| !is_connection(name)) {
                    return Err(BAD_CONNECTION);
                }
                if [&user, &token].into_iter().flatten().any(|name| !is_user(name)) {
                    return Err(BAD_NAME);
                }
                // Only a token that is refused can be named: a host does not list tokens.
                let whose = match (user, token, connection) {
                    (Some(user), None, None) => Some(user),
                    (None, Some(token), None) if name == "revoke" => Some(format!("{TOKEN}{token}")),
                    (None, None, Some(conn)) if name == "disconnect" => Some(format!("{CONNECTION}{conn}")),
                    (None, None, None) => None,
                    _ => return Err(BAD_BODY),
                };
                match (name, whose, seconds) {
                    ("connections", user, None) => Ok(Operation::Connections(user)),
                    ("disconnect", Some(user), None) => Ok(Operation::Disconnect(user.into(), None)),
                    ("revoke", Some(name), Some(seconds)) if seconds <= LONGEST.as_secs() => {
                        Ok(Operation::Disconnect(name.into(), Some(Duration::from_secs(seconds))))
                    }
                    _ => Err(BAD_BODY),
                }
            }
        }
    }

    fn topic(&self, topic: Option<String>, key: &ApiKey) -> Result<Arc<str>, Fault> {
        let topic = topic.filter(|topic| self.hub.config.allows(topic)).ok_or(BAD_NAME)?;
        if key.may_use(&topic) { Ok(topic.into()) } else { Err(NO_TOPIC) }
    }

    fn message(&self, message: Publish<'_>, key: &ApiKey) -> Result<Post, Fault> {
        let Publish { topic, user, key: of_message, data } = message;
        if of_message.as_ref().is_some_and(|key| !self.hub.config.fits(key)) {
            return Err(BAD_NAME);
        }
        let to = match (topic, user) {
            (None, Some(user)) if is_user(&user) => {
                if !key.scopes.contains(&Scope::Users) {
                    return Err(NO_SCOPE);
                }
                To::User(user.into())
            }
            (topic @ Some(_), None) => To::Topic(self.topic(topic, key)?),
            _ => return Err(BAD_NAME),
        };
        let data = data.get();
        let most = match &to {
            To::Topic(topic) => self.rules.grant(None, topic).terms.max_message,
            To::User(_) => None,
        };
        if depth(data) > MOST_DEPTH || most.is_some_and(|most| data.len() > most) {
            return Err(BAD_DATA);
        }
        Ok(Post { to, key: of_message.map(Into::into), data: data.into() })
    }

    fn run(&self, operation: Operation, answer: Answer) {
        let hub = self.hub.clone();
        match operation {
            Operation::Publish(messages, is_batch) => {
                let Some(mailbox) = self.mailbox.clone() else { return answer.give(Err(AWAY)) };
                let posting = Posting { hub, rules: self.rules.clone(), is_batch, done: Vec::new(), answer };
                post_next(posting, messages, &mailbox);
            }
            Operation::History(topic, kind, after, epoch) => {
                let named = topic.clone();
                let done = move |page: Result<Page, LogError>| {
                    // An offset of another life means nothing here.
                    let of_life = |page: &Page| epoch.is_none_or(|epoch| *epoch == *page.upto.epoch);
                    let page =
                        page.map_err(fault).and_then(|page| if of_life(&page) { Ok(page) } else { Err(TOO_LATE) });
                    answer.give(page.map(|page| list(&named, &page)));
                };
                hub.log.read(&topic, kind, after.filter(|after| *after > 0), Box::new(done));
            }
            Operation::Presence(topic, counts) => {
                let (number, listed) = hub.presence.numbers(&topic);
                let mut found = json!({ "topic": &*topic, "number": number });
                if !counts {
                    let members = if listed <= MOST_LISTED { hub.presence.list(&topic) } else { Vec::new() };
                    found["members"] = json!(members);
                }
                answer.give(Ok(found.to_string()));
            }
            Operation::Connections(Some(user)) => {
                let (conns, number) = hub.sessions.of(&user, MOST_CONNECTIONS);
                let names: Vec<String> = conns.into_iter().map(|conn| hub.control.name(conn)).collect();
                answer.give(Ok(json!({ "user": user, "connections": number, "names": names }).to_string()));
            }
            Operation::Connections(None) => {
                let (users, number) = hub.sessions.list(MOST_USERS);
                answer.give(Ok(json!({ "users": users, "number": number }).to_string()));
            }
            Operation::Disconnect(user, revoked) => {
                let revoked = revoked.map(|time| (time, hub.revoked.next(&user, millis())));
                if let Some(decision) = revoked
                    && hub.revoked.add(&user, decision, Instant::now()) == Added::Full
                {
                    return answer.give(Err(FULL));
                }
                hub.end_all(&user);
                hub.control.pass(&user, revoked);
                let done = match (user.strip_prefix(TOKEN), user.strip_prefix(CONNECTION)) {
                    (Some(token), _) => json!({ "token": token }),
                    (_, Some(name)) => json!({ "connection": name }),
                    _ => json!({ "user": &*user, "connections": hub.sessions.number(&user) }),
                };
                answer.give(Ok(done.to_string()));
            }
            Operation::Statistics => {
                let (_, users) = hub.sessions.list(0);
                let statistics =
                    json!({ "users": users, "log_bytes": hub.log.memory(), "feeds_bytes": hub.feeds.memory() });
                answer.give(Ok(statistics.to_string()));
            }
        }
    }
}

enum Operation {
    Publish(VecDeque<Post>, bool),
    /// With the offset of the last message that is known, and its epoch.
    History(Arc<str>, Kind, Option<u64>, Option<String>),
    /// Whether the members are only counted.
    Presence(Arc<str>, bool),
    Connections(Option<String>),
    Disconnect(Arc<str>, Option<Duration>),
    Statistics,
}

impl Operation {
    const fn changes(&self) -> bool {
        matches!(self, Self::Publish(..) | Self::Disconnect(..))
    }
}

struct Post {
    to: To,
    key: Option<Box<str>>,
    data: Box<str>,
}

enum To {
    Topic(Arc<str>),
    User(Arc<str>),
}

/// Messages that are published one after the other.
struct Posting {
    hub: Arc<Shared>,
    rules: Arc<Rules>,
    is_batch: bool,
    done: Vec<String>,
    answer: Answer,
}

/// Publishes the next message, and the others once the log has it.
fn post_next(mut posting: Posting, mut left: VecDeque<Post>, mailbox: &Arc<Mailbox>) {
    while let Some(Post { to, key, data }) = left.pop_front() {
        let topic = match to {
            To::User(user) => {
                posting.hub.send_to_user(&user, &data);
                let number = posting.hub.sessions.number(&user);
                posting.done.push(json!({ "user": &*user, "connections": number }).to_string());
                continue;
            }
            To::Topic(topic) => topic,
        };
        let Grant { terms, namespace, .. } = posting.rules.grant(None, &topic);
        posting.rules.publish(namespace);
        let kind = terms.kind(&posting.hub.config, &topic);
        if kind == Kind::Plain {
            let message =
                Object::new("message").text("topic", &topic).optional("key", key.as_deref()).raw("data", &data);
            posting.hub.channels.publish_message(&posting.rules, &topic, &data);
            posting.done.push(json!({ "topic": &*topic }).to_string());
            mailbox.push(Event::Post { topic, frame: message.end(), slow: terms.slow });
            continue;
        }
        let id = posting.answer.id().map(|id| format!("{id}/{}", posting.done.len()).into());
        let (named, hub, mailbox) = (topic.clone(), posting.hub.clone(), mailbox.clone());
        let done = move |result: Result<Position, LogError>| match result {
            Ok(at) => {
                let place = json!({ "topic": &*named, "epoch": &*at.epoch, "offset": at.offset });
                posting.done.push(place.to_string());
                post_next(posting, left, &mailbox);
            }
            Err(error) => posting.answer.give(Err(fault(error))),
        };
        return hub.log.append(&topic, Append { kind, key, data, id }, Box::new(done));
    }
    let done = posting.done.join(",");
    posting.answer.give(Ok(if posting.is_batch { format!("{{\"published\":[{done}]}}") } else { done }));
}

/// Whether a text has the form of a connection's name: sixteen hexadecimal digits of the host, and its number there.
fn is_connection(text: &str) -> bool {
    let Some((host, conn)) = text.split_once('/') else { return false };
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    // Each connection has one name.
    let is_number = conn.parse::<ConnId>().is_ok_and(|number| number.to_string() == conn);
    is_number && host.len() == 16 && host.bytes().all(is_digit)
}

fn parse<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Fault> {
    // An array of the members' values would do for the parser, too.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(BAD_BODY);
    }
    serde_json::from_slice(body).map_err(|_| BAD_BODY)
}

fn fault(error: LogError) -> Fault {
    match error {
        LogError::TooLate => TOO_LATE,
        _ => AWAY,
    }
}

/// A page of history.
fn list(topic: &str, page: &Page) -> String {
    let entries: Vec<String> = page.entries.iter().map(|entry| frame(topic, entry)).collect();
    let Position { epoch, offset } = &page.upto;
    format!("{{\"messages\":[{}],\"epoch\":{},\"upto\":{offset}}}", entries.join(","), json!(&**epoch))
}
