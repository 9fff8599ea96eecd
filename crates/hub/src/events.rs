//! Server-sent events: topics for clients whose way lets no WebSocket through (`GET /events?topic=T`).
//!
//! The connection is one of the loop's like any other, and gets the same messages: tokens, rights, history and slow readers are
//! those of WebSockets. [`EventWriter`] writes the hub's messages as events, and keeps the place of each topic, which the client
//! brings back as `Last-Event-ID`.

use crate::answer::Fault;
use crate::asked::Turn;
use crate::credentials::{Found, find};
use crate::handler::HubHandler;
use crate::log::Position;
use crate::protocol::{Answer, Object, Request as Action};
use crate::rules::{Identity, Rights, Rules};
use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tautline::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use tautline::{Address, CloseCode, Conn, Kind, Origins, PieceWriter, Push, Reply, Request, RetryAfter};

/// The path of the interface.
pub(crate) const PATH: &str = "/events";
/// Most topics of a request, and bytes of the place that a client brings.
const MOST_TOPICS: usize = 32;
const MOST_ID: usize = 8 << 10;
/// The parameter with the place, for a client that cannot set the header: a page that begins anew.
const ID_PARAMETER: &str = "last-event-id";

/// The settings of events, in the file of rules.
#[derive(Clone, Debug)]
pub(crate) struct EventRules {
    /// Pages of other origins that may read.
    pub(crate) origins: Option<Origins>,
    /// Most streams of this process, and of one address.
    pub(crate) most: usize,
    pub(crate) per_address: usize,
    /// The time after which a client comes back.
    pub(crate) retry: Duration,
}

impl Default for EventRules {
    fn default() -> Self {
        Self { origins: None, most: 10_000, per_address: 100, retry: Duration::from_secs(2) }
    }
}

/// The number of streams, of all loops.
#[derive(Default)]
pub(crate) struct Streams(Mutex<HashMap<Option<IpAddr>, usize>>);

impl Streams {
    /// Counts one more. False if there are too many.
    fn enter(&self, peer: &Address, rules: &EventRules) -> bool {
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = has_room(&streams, peer, rules);
        if fits {
            *streams.entry(None).or_default() += 1;
            if let Some(source) = source(peer) {
                *streams.entry(Some(source)).or_default() += 1;
            }
        }
        fits
    }

    fn has_room(&self, peer: &Address, rules: &EventRules) -> bool {
        has_room(&self.0.lock().unwrap_or_else(PoisonError::into_inner), peer, rules)
    }

    fn leave(&self, peer: &Address) {
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut uncount = |key| {
            if let Some(number) = streams.get_mut(&key) {
                *number -= 1;
                if *number == 0 {
                    streams.remove(&key);
                }
            }
        };
        uncount(None);
        if let Some(source) = source(peer) {
            uncount(Some(source));
        }
    }
}

fn has_room(streams: &HashMap<Option<IpAddr>, usize>, peer: &Address, rules: &EventRules) -> bool {
    let number = |key| streams.get(&key).copied().unwrap_or_default();
    number(None) < rules.most && source(peer).is_none_or(|source| number(Some(source)) < rules.per_address)
}

/// The source that an address counts for: a host of IPv6 has a network of 64 bits.
fn source(peer: &Address) -> Option<IpAddr> {
    let Address::Tcp(address) = peer else { return None };
    Some(match address.ip().to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) >> 64 << 64).into()),
        ip => ip,
    })
}

const NO_GET: Fault = Fault::new(405, "method", "events are read with GET", "send the same with GET");
const NO_TOPICS: Fault = Fault::new(
    400,
    "bad-topics",
    "a topic is missing, there twice, too long or not allowed",
    "write /events?topic=T, with 1 to 32 topics; encode `&`, `%` and `+`",
);
const BAD_PLACE: Fault = Fault::new(
    400,
    "bad-last-event-id",
    "the Last-Event-ID belongs to another list of topics",
    "ask for the same topics in the same order, or begin without it",
);
const BAD_ORIGIN: Fault = Fault::new(
    403,
    "forbidden-origin",
    "a page of another origin",
    "add the page to `origins` of [events] in the file of rules",
);
const NO_RIGHT: Fault = Fault::new(
    403,
    "forbidden-topic",
    "no right to subscribe to a topic",
    "send a token with the right, in header, query or cookie",
);
const NEEDS_TOKEN: Fault =
    Fault::new(401, "unauthorized", "this hub needs a token", "send one in header, query or cookie");
const TOO_MANY: Fault = Fault::new(
    429,
    "too-many-streams",
    "too many streams of this address or process",
    "close others, or raise `per-address` or `most` of [events] in the file of rules",
);

impl HubHandler {
    /// Answers a request for events. `None` if it is none.
    pub(crate) fn begin_events(&mut self, request: &Request<'_>) -> Option<Reply> {
        if request.http.uri().path() != PATH || request.is_upgrade {
            return None;
        }
        let rules = self.rules.clone();
        let shared = shared_with(request, &rules.events);
        let reply = match (request.http.method(), &shared) {
            (_, Err(fault)) => refusal(fault),
            (&Method::OPTIONS, Ok(_)) => preflight(),
            (_, Ok(_)) => match self.try_events(request, &rules) {
                Ok(push) => push.into(),
                Err(fault) => refusal(&fault),
            },
        };
        Some(with_headers(reply, shared.unwrap_or_default()))
    }

    fn try_events(&mut self, request: &Request<'_>, rules: &Rules) -> Result<Push<()>, Fault> {
        if *request.http.method() != Method::GET {
            return Err(NO_GET);
        }
        let topics = self.topics_of(request.http)?;
        let places = places(request.http, &topics)?;
        let identity = self.reader_of(request, rules)?;
        let can_read = |topic: &String| rules.grant(identity.as_deref(), topic).rights.has(Rights::SUBSCRIBE);
        if !topics.iter().all(can_read) {
            return Err(NO_RIGHT);
        }
        if !self.hub.streams.has_room(request.peer, &rules.events) {
            return Err(TOO_MANY);
        }
        Ok(Push::new(EventWriter::new(topics, places, rules.events.retry)).with_type("text/event-stream"))
    }

    /// The user of a request, who is kept for the connection that opens next.
    fn reader_of(&mut self, request: &Request<'_>, rules: &Rules) -> Result<Option<Arc<Identity>>, Fault> {
        if rules.is_open {
            return Ok(None);
        }
        let refused = |reason| Fault::new(401, "unauthorized", reason, "send a valid token in header, query or cookie");
        match find(request.http, &rules.tokens) {
            Found::Token(token) => {
                let identity = self.identify(token).map_err(|error| refused(error.reason()))?;
                self.arriving = Some((token.into(), identity.clone()));
                Ok(Some(identity))
            }
            Found::None if rules.tokens.is_required => Err(NEEDS_TOKEN),
            Found::None => Ok(None),
            Found::Bad(reason) => Err(refused(reason)),
        }
    }

    fn topics_of(&self, request: &tautline::http::Request<()>) -> Result<Vec<String>, Fault> {
        let mut topics: Vec<String> = Vec::new();
        for value in parameters(request.uri().query(), "topic") {
            let topic = value.ok_or(NO_TOPICS)?;
            if topics.len() >= MOST_TOPICS || topics.contains(&topic) || !self.hub.config.allows(&topic) {
                return Err(NO_TOPICS);
            }
            topics.push(topic);
        }
        if topics.is_empty() { Err(NO_TOPICS) } else { Ok(topics) }
    }

    /// A response with events has begun: subscribes to its topics.
    pub(crate) fn open_events(&mut self, conn: &mut Conn<'_, ()>, request: &tautline::http::Request<()>) {
        let id = conn.id();
        if !self.hub.streams.enter(conn.peer(), &self.rules.events) {
            return conn.close(CloseCode::TRY_AGAIN_LATER, TOO_MANY.reason);
        }
        self.conns.entry(id).or_default().is_stream = true;
        let Ok(topics) = self.topics_of(request) else { return };
        let places = places(request, &topics).unwrap_or_default();
        for (at, topic) in topics.iter().enumerate() {
            let place = places.get(at).cloned().flatten();
            let action = Action {
                action: Cow::Borrowed("subscribe"),
                after: place.as_ref().map(|place| place.offset),
                epoch: place.as_ref().map(|place| Cow::Borrowed(&*place.epoch)),
                ..Action::default()
            };
            // As a message would have it, for an application that is asked.
            let text = Object::new("subscribe").text("topic", topic);
            let text = match &place {
                Some(place) => text.number("after", place.offset).text("epoch", &place.epoch).end(),
                None => text.end(),
            };
            if let Err(reason) = self.subscribe(conn, &topic.as_str().into(), &action, (&text, &Turn::Arrived)) {
                let refused = Object::new("error").text("reason", reason).text("topic", topic);
                conn.text(&refused.end());
                return conn.close(CloseCode::TRY_AGAIN_LATER, reason);
            }
        }
    }

    /// A stream has ended.
    pub(crate) fn end_events(&self, peer: &Address) {
        self.hub.streams.leave(peer);
    }
}

/// The headers that let a page of another origin read the answer.
fn shared_with(request: &Request<'_>, rules: &EventRules) -> Result<HeaderMap, Fault> {
    let mut headers = HeaderMap::new();
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    let Some(origin) = request.http.headers().get(header::ORIGIN) else { return Ok(headers) };
    if Origins::SameHost.allow(request.http) {
        return Ok(headers);
    }
    if !rules.origins.as_ref().is_some_and(|origins| origins.allow(request.http)) {
        return Err(BAD_ORIGIN);
    }
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    Ok(headers)
}

fn preflight() -> Reply {
    let mut response = Response::new(Vec::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET"));
    let allowed = HeaderValue::from_static("authorization, last-event-id, cache-control");
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    Reply::Respond(response)
}

fn refusal(fault: &Fault) -> Reply {
    let mut response = fault.response();
    if fault.status == 405 {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, OPTIONS"));
    }
    Reply::Respond(response)
}

fn with_headers(mut reply: Reply, headers: HeaderMap) -> Reply {
    match &mut reply {
        Reply::Push(push) => {
            let own = push.response.headers_mut();
            own.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            // nginx would keep events back until they fill a buffer.
            own.insert("x-accel-buffering", HeaderValue::from_static("no"));
            own.extend(headers);
        }
        Reply::Respond(response) => response.headers_mut().extend(headers),
        _ => {}
    }
    reply
}

/// The values of a parameter, decoded; `None` for one that is no text.
pub(crate) fn parameters(query: Option<&str>, name: &str) -> impl Iterator<Item = Option<String>> {
    let parts = query.unwrap_or_default().split('&');
    parts.filter_map(move |part| part.strip_prefix(name)?.strip_prefix('=').map(decode))
}

/// Undoes the encoding of a query.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let digits = std::str::from_utf8(&digits).ok().filter(|digits| !digits.starts_with('+'))?;
                u8::from_str_radix(digits, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// The place of each topic that a client brings. None without a place.
fn places(request: &tautline::http::Request<()>, topics: &[String]) -> Result<Vec<Option<Position>>, Fault> {
    let header = request.headers().get("last-event-id").map(|value| value.to_str().ok().map(str::to_owned));
    // A client that comes back has its place in the header, and the one with which it began in the query still.
    let given = header.or_else(|| parameters(request.uri().query(), ID_PARAMETER).next());
    let Some(text) = given else { return Ok(vec![None; topics.len()]) };
    let text = text.filter(|text| text.len() <= MOST_ID).ok_or(BAD_PLACE)?;
    if text.is_empty() {
        return Ok(vec![None; topics.len()]);
    }
    let places = text.split(',').map(place).collect::<Option<Vec<_>>>().ok_or(BAD_PLACE)?;
    if places.len() == topics.len() { Ok(places) } else { Err(BAD_PLACE) }
}

/// `EPOCH.OFFSET`, or nothing.
fn place(text: &str) -> Option<Option<Position>> {
    if text.is_empty() || text == "-" {
        return Some(None);
    }
    let (epoch, offset) = text.rsplit_once('.')?;
    let epoch = decode(epoch).filter(|epoch| epoch.len() <= 256 && !epoch.contains(char::is_control))?;
    Some(Some(Position { epoch: epoch.into(), offset: offset.parse().ok()? }))
}

/// Writes the hub's messages as events.
struct EventWriter {
    topics: Vec<Topic>,
    /// Milliseconds, until they were told.
    retry: Option<u128>,
}

struct Topic {
    name: String,
    /// The last message that the client has.
    at: Option<Position>,
    /// Whether messages before the topic's present place may follow.
    is_resumed: bool,
}

impl EventWriter {
    fn new(topics: Vec<String>, places: Vec<Option<Position>>, retry: Duration) -> Self {
        let topics = topics.into_iter().zip(places);
        let topics = topics.map(|(name, at)| Topic { name, is_resumed: at.is_some(), at }).collect();
        Self { topics, retry: Some(retry.as_millis()) }
    }

    /// Notes the place that a message says. Whether any has changed.
    fn note(&mut self, message: &Answer<'_>) -> bool {
        let Some(name) = &message.topic else { return false };
        let Some(topic) = self.topics.iter_mut().find(|topic| topic.name == **name) else { return false };
        match (&*message.action, message.position(), message.offset, &mut topic.at) {
            // The messages after the client's place follow.
            ("subscribed", Some(at), ..) if topic.is_resumed => {
                let before = topic.at.as_ref().map_or(at.offset, |before| before.offset.min(at.offset));
                topic.at = Some(Position { offset: before, ..at });
            }
            ("subscribed" | "late", Some(at), ..) => topic.at = Some(at),
            // The latest message of each key follows, of any place.
            ("subscribed", None, ..) => {
                let epoch = message.epoch.as_deref().map(Into::into);
                let offset = topic.at.as_ref().map_or(0, |at| at.offset);
                topic.at = epoch.map(|epoch| Position { epoch, offset });
            }
            ("message", _, Some(offset), Some(at)) => at.offset = offset,
            _ => return false,
        }
        true
    }

    /// The places of all topics, in their order.
    fn id(&self) -> Option<String> {
        if self.topics.iter().all(|topic| topic.at.is_none()) {
            return None;
        }
        let place = |topic: &Topic| match &topic.at {
            Some(at) => {
                let epoch = at.epoch.replace('%', "%25").replace(',', "%2C").replace('+', "%2B");
                format!("{epoch}.{}", at.offset)
            }
            None => "-".to_owned(),
        };
        Some(self.topics.iter().map(place).collect::<Vec<_>>().join(","))
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(retry) = self.retry.take() {
            out.extend_from_slice(format!("retry: {retry}\n\n").as_bytes());
        }
    }
}

impl PieceWriter for EventWriter {
    fn message(&mut self, _: Kind, payload: &[u8], out: &mut Vec<u8>) {
        self.begin(out);
        let Ok(text) = std::str::from_utf8(payload) else { return };
        let Ok(message) = serde_json::from_str::<Answer<'_>>(text) else { return };
        if self.note(&message)
            && let Some(id) = self.id()
        {
            out.extend_from_slice(format!("id: {id}\n").as_bytes());
        }
        match &*message.action {
            "message" => {}
            // `error` is what browsers call the end of a connection.
            "error" => out.extend_from_slice(b"event: refused\n"),
            action => out.extend_from_slice(format!("event: {action}\n").as_bytes()),
        }
        // A message of a client may have line ends between its values.
        for line in text.split(['\n', '\r']) {
            out.extend_from_slice(b"data: ");
            out.extend_from_slice(line.as_bytes());
            out.push(b'\n');
        }
        out.push(b'\n');
    }

    fn keepalive(&mut self, out: &mut Vec<u8>) {
        self.begin(out);
        out.extend_from_slice(b":\n\n");
    }

    fn close(&mut self, code: CloseCode, reason: &str, out: &mut Vec<u8>) {
        if let Some(RetryAfter(time)) = RetryAfter::read(code, reason) {
            out.extend_from_slice(format!("retry: {}\n\n", time.as_millis()).as_bytes());
        }
        let told = serde_json::json!({ "type": "close", "code": code.get(), "reason": reason });
        out.extend_from_slice(format!("event: close\ndata: {told}\n\n").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::{EventRules, EventWriter, Streams, decode, place, places};
    use std::time::Duration;
    use tautline::http::Request;
    use tautline::{CloseCode, Kind, PieceWriter as _};

    fn written(writer: &mut EventWriter, message: &str) -> String {
        let mut out = Vec::new();
        writer.message(Kind::Text, message.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    fn writer(topics: &[&str], id: &str) -> EventWriter {
        let topics: Vec<String> = topics.iter().map(|topic| (*topic).to_owned()).collect();
        let request = Request::get("/events").header("last-event-id", id).body(()).unwrap();
        let places = places(&request, &topics).unwrap();
        EventWriter::new(topics, places, Duration::from_secs(3))
    }

    #[test]
    fn events_have_the_place_of_each_topic() {
        let mut writer = writer(&["log:a", "room", "log:b"], "");
        let begun = written(&mut writer, r#"{"type":"subscribed","topic":"room"}"#);
        assert_eq!(begun, "retry: 3000\n\nevent: subscribed\ndata: {\"type\":\"subscribed\",\"topic\":\"room\"}\n\n");
        let begun = written(&mut writer, r#"{"type":"subscribed","topic":"log:b","epoch":"e,1.5","offset":7}"#);
        assert!(begun.starts_with("id: -,-,e%2C1.5.7\nevent: subscribed\n"), "{begun}");
        let message = written(&mut writer, r#"{"type":"message","topic":"log:b","offset":9,"data":1}"#);
        assert!(message.starts_with("id: -,-,e%2C1.5.9\ndata: {"), "{message}");
        let plain = written(&mut writer, "{\"type\":\"message\",\"topic\":\"room\",\"data\":[1,\r\n2]}");
        let lines = "data: {\"type\":\"message\",\"topic\":\"room\",\"data\":[1,\ndata: \ndata: 2]}\n\n";
        assert_eq!(plain, lines);
        let place = place("e%2C1.5.9").unwrap().unwrap();
        assert_eq!((&*place.epoch, place.offset), ("e,1.5", 9));
    }

    #[test]
    fn a_client_that_returns_keeps_its_place_until_messages_move_it() {
        let mut writer = writer(&["log:a"], "e.3");
        // The topic is further, and messages 4 to 7 follow.
        let begun = written(&mut writer, r#"{"type":"subscribed","topic":"log:a","epoch":"e","offset":7}"#);
        assert!(begun.contains("id: e.3\n"), "{begun}");
        let message = written(&mut writer, r#"{"type":"message","topic":"log:a","offset":4,"data":1}"#);
        assert!(message.starts_with("id: e.4\n"), "{message}");
        let late = written(&mut writer, r#"{"type":"late","topic":"log:a","epoch":"f","offset":90}"#);
        assert!(late.starts_with("id: f.90\nevent: late\n"), "{late}");
    }

    #[test]
    fn errors_have_another_name_and_the_end_is_told() {
        let mut writer = writer(&["a"], "");
        assert!(written(&mut writer, r#"{"type":"error","reason":"no"}"#).contains("event: refused\n"));
        let mut out = Vec::new();
        writer.close(CloseCode::new(4001), "the token has expired", &mut out);
        let end = String::from_utf8(out).unwrap();
        assert!(end.starts_with("event: close\ndata: {") && end.contains("\"code\":4001"), "{end}");
        let mut out = Vec::new();
        writer.keepalive(&mut out);
        assert_eq!(out, b":\n\n");
    }

    #[test]
    fn places_of_other_topics_and_garbage_are_refused() {
        let topics = ["a".to_owned(), "b".to_owned()];
        for (id, fits) in
            [("", true), ("-,-", true), ("e.1,-", true), ("e.1", false), ("e.1,f.x", false), ("e,f", false)]
        {
            let request = Request::get("/events").header("last-event-id", id).body(()).unwrap();
            assert_eq!(places(&request, &topics).is_ok(), fits, "{id}");
        }
        let request = Request::get("/events?topic=a&topic=b&last-event-id=e.1%2C-").body(()).unwrap();
        assert_eq!(places(&request, &topics).unwrap()[0].as_ref().unwrap().offset, 1);
    }

    #[test]
    fn queries_are_decoded_or_refused() {
        for (text, expected) in
            [("a%3Ab+c", Some("a:b c")), ("%C3%A4", Some("ä")), ("%", None), ("%4", None), ("%+4", None), ("%ff", None)]
        {
            assert_eq!(decode(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn streams_are_counted_by_process_and_address() {
        let (streams, rules) = (Streams::default(), EventRules { most: 3, per_address: 2, ..EventRules::default() });
        let [one, two, other] = ["1.2.3.4:1", "1.2.3.4:2", "[2001:db8::1]:3"].map(|text| text.parse().unwrap());
        assert!(streams.enter(&one, &rules) && streams.enter(&two, &rules) && !streams.enter(&one, &rules));
        assert!(streams.enter(&other, &rules) && !streams.has_room(&"unix:/run/hub.sock".parse().unwrap(), &rules));
        for peer in [&one, &two, &other] {
            streams.leave(peer);
        }
        assert!(streams.0.lock().unwrap().is_empty());
    }
}
