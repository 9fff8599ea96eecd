//! Server-sent events: topics for clients whose way lets no WebSocket through (`GET /events?topic=T`).
//!
//! The connection is one of the loop's like any other, and gets the same messages: tokens, rights, history and slow readers are
//! those of WebSockets. [`EventWriter`] writes the hub's messages as events, and keeps the place of each topic, which the client
//! brings back as `Last-Event-ID`.

use crate::access::Arriving;
use crate::answer::{Fault, plain};
use crate::asking::{Decided, Questions};
use crate::config::{Config, Kind as TopicKind};
use crate::credentials::{Found, find};
use crate::log::Position;
use crate::protocol::{Answer, Object};
use crate::query::{decode, parameters};
use crate::rules::{About, EventRules, Identity, Rights, Rules};
use crate::shared::Shared;
use std::sync::Arc;
use std::time::Duration;
use tautline::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use tautline::layers::ws::handshake::{authority, is_loopback};
use tautline::{CloseCode, Kind, Origins, PieceWriter, Push, Reply, Request, RetryAfter};

/// The path of the interface.
pub(crate) const PATH: &str = "/events";
/// Most topics of a request, and bytes of the place that a client brings.
const MOST_TOPICS: usize = 32;
const MOST_ID: usize = 8 << 10;
/// The parameter with the place, for a client that cannot set the header: a page that begins anew.
const ID_PARAMETER: &str = "last-event-id";
/// The parameters of a client that begins without a place: an offset, and its epoch.
const AFTER: &str = "after";
const EPOCH: &str = "epoch";

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
const BAD_AFTER: Fault = Fault::new(
    400,
    "bad-after",
    "`after` or `epoch` of the query is there twice, has another form or lacks the other",
    "write after=0 for all that is kept, or after=N&epoch=E for one topic; leave out last-event-id",
);
const BAD_ORIGIN: Fault = Fault::new(
    403,
    "forbidden-origin",
    "a page of another origin",
    "add the page to `origins` of [events] in the file of rules",
);
const BAD_HOST: Fault = Fault::new(
    403,
    "forbidden-host",
    "this server listens on loopback, and serves localhost only (DNS rebinding)",
    "behind a proxy, name the origin of its pages (taut serve: --origin), or have rules",
);
const NO_RIGHT: Fault = Fault::new(
    403,
    "forbidden-topic",
    "no right to subscribe to a topic",
    "send a token with the right, in header, query or cookie",
);
const NEEDS_TOKEN: Fault =
    Fault::new(401, "unauthorized", "this hub needs a token", "send one in header, query or cookie");
pub(crate) const TOO_MANY: Fault = Fault::new(
    429,
    "too-many-streams",
    "too many streams of this address or process",
    "close others, or raise `per-address` or `most` of [events] in the file of rules",
);

/// Whether a request is for events.
pub(crate) fn is_for(request: &Request<'_>) -> bool {
    request.http.uri().path() == PATH && !request.is_upgrade
}

/// Whether a browser asks first what a page may send.
pub(crate) fn is_preflight(request: &Request<'_>) -> bool {
    request.http.method() == Method::OPTIONS
}

/// Answers a request for events. The user of a token comes with the answer, for the connection that opens.
pub(crate) fn begin(
    (hub, rules, questions): (&Arc<Shared>, &Arc<Rules>, &Questions),
    request: &Request<'_>,
) -> (Reply, Option<Arriving>) {
    let is_foreign = |pages: &Origins| !is_of_host(request, pages);
    if rules.is_open && hub.pages.as_ref().is_some_and(is_foreign) {
        return (Reply::Respond(BAD_HOST.response()), None);
    }
    let shared = match shared_with(request, &rules.events) {
        Ok(shared) => shared,
        Err(fault) => return (Reply::Respond(fault.response()), None),
    };
    if is_preflight(request) {
        return (Reply::Respond(with(preflight(), &shared)), None);
    }
    let begun = try_begin((hub, rules, questions), request, &shared);
    begun.unwrap_or_else(|fault| (Reply::Respond(with(refused(&fault), &shared)), None))
}

fn try_begin(
    (hub, rules, questions): (&Arc<Shared>, &Arc<Rules>, &Questions),
    request: &Request<'_>,
    shared: &HeaderMap,
) -> Result<(Reply, Option<Arriving>), Fault> {
    if *request.http.method() != Method::GET {
        return Err(NO_GET);
    }
    let topics = topics_of(&hub.config, request.http)?;
    let places = places(request.http, &topics)?;
    let wanted: Vec<_> = topics.iter().zip(&places).map(|at| wanted((hub, rules), at)).collect();
    let arriving = reader_of(hub, rules, request)?;
    if !hub.streams.has_room(request.peer, &rules.events) {
        return Err(TOO_MANY);
    }
    let Some(hooks) = rules.hooks_about(About::CONNECT) else {
        check(rules, arriving.as_ref().map(|(_, identity)| &**identity), &wanted)?;
        return Ok((stream(topics, places, (rules, shared)).into(), arriving));
    };
    let (identity, of_rules, shared) = (arriving.map(|(_, identity)| identity), rules.clone(), shared.clone());
    let reply = questions.connect((hub, rules, hooks), request, identity, move |found| match found {
        Err((status, reason)) => Decided::Respond(with(plain(*status, reason), &shared)),
        Ok(identity) => match check(&of_rules, identity, &wanted) {
            Ok(()) => Decided::Push(stream(topics, places, (&of_rules, &shared))),
            Err(fault) => Decided::Respond(with(refused(&fault), &shared)),
        },
    });
    Ok((reply, None))
}

/// A topic, with the rights that reading it from a place needs. One who returns without a right to history is told that it is late.
fn wanted((hub, rules): (&Shared, &Rules), (topic, place): (&String, &Option<Position>)) -> (String, Rights) {
    let is_all = place.as_ref().is_some_and(is_all_kept) && rules.kind(&hub.config, topic) == TopicKind::History;
    (topic.clone(), if is_all { Rights::SUBSCRIBE | Rights::HISTORY } else { Rights::SUBSCRIBE })
}

/// Whether somebody may read these topics.
fn check(rules: &Rules, identity: Option<&Identity>, wanted: &[(String, Rights)]) -> Result<(), Fault> {
    if identity.is_none() && rules.tokens.is_required && !rules.is_open {
        return Err(NEEDS_TOKEN);
    }
    let can_read = |(topic, rights): &(String, Rights)| rules.grant(identity, topic).rights.has(*rights);
    if wanted.iter().all(can_read) { Ok(()) } else { Err(NO_RIGHT) }
}

/// The user of a request.
fn reader_of(hub: &Shared, rules: &Rules, request: &Request<'_>) -> Result<Option<Arriving>, Fault> {
    if rules.is_open {
        return Ok(None);
    }
    let refused = |reason| Fault::new(401, "unauthorized", reason, "send a valid token in header, query or cookie");
    match find(request.http, &rules.tokens) {
        Found::Token(token) => {
            let identity = hub.identify(rules, token).map_err(|error| refused(error.reason()))?;
            Ok(Some((token.into(), identity)))
        }
        Found::None => Ok(None),
        Found::Bad(reason) => Err(refused(reason)),
    }
}

fn topics_of(config: &Config, request: &tautline::http::Request<()>) -> Result<Vec<String>, Fault> {
    let mut topics: Vec<String> = Vec::new();
    for value in parameters(request.uri().query(), "topic") {
        let topic = value.ok_or(NO_TOPICS)?;
        if topics.len() >= MOST_TOPICS || topics.contains(&topic) || !config.allows(&topic) {
            return Err(NO_TOPICS);
        }
        topics.push(topic);
    }
    if topics.is_empty() { Err(NO_TOPICS) } else { Ok(topics) }
}

/// The messages of a client of WebSockets that subscribe to the topics of a request.
pub(crate) fn subscriptions(config: &Config, request: &tautline::http::Request<()>) -> Vec<String> {
    let topics = topics_of(config, request).unwrap_or_default();
    let places = places(request, &topics).unwrap_or_default();
    let places = places.into_iter().chain(std::iter::repeat(None));
    let message = |(topic, place): (&String, Option<Position>)| {
        let message = Object::new("subscribe").text("topic", topic);
        match place {
            Some(place) if is_all_kept(&place) => message.number("after", 0).end(),
            Some(place) => message.number("after", place.offset).text("epoch", &place.epoch).end(),
            None => message.end(),
        }
    };
    topics.iter().zip(places).map(message).collect()
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

/// Whether a request names a host whose pages may read.
fn is_of_host(request: &Request<'_>, pages: &Origins) -> bool {
    // Browsers always send a host.
    let host = authority(request.http).filter(|host| !host.is_empty());
    host.is_none_or(|host| is_loopback(host) || pages.allow_host(host))
}

fn preflight() -> Response<Vec<u8>> {
    let mut response = Response::new(Vec::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET"));
    let allowed = HeaderValue::from_static("authorization, last-event-id, cache-control");
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

fn refused(fault: &Fault) -> Response<Vec<u8>> {
    let mut response = fault.response();
    if fault.status == 405 {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, OPTIONS"));
    }
    response
}

fn with(mut response: Response<Vec<u8>>, shared: &HeaderMap) -> Response<Vec<u8>> {
    response.headers_mut().extend(shared.clone());
    response
}

/// The response with events.
fn stream(topics: Vec<String>, places: Vec<Option<Position>>, (rules, shared): (&Rules, &HeaderMap)) -> Push<()> {
    let mut push = Push::new(EventWriter::new(topics, places, rules.events.retry)).with_type("text/event-stream");
    let own = push.response.headers_mut();
    own.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // nginx would keep events back until they fill a buffer.
    own.insert("x-accel-buffering", HeaderValue::from_static("no"));
    own.extend(shared.clone());
    push
}

/// The place of each topic that a client brings. None without a place.
fn places(request: &tautline::http::Request<()>, topics: &[String]) -> Result<Vec<Option<Position>>, Fault> {
    let header = request.headers().get("last-event-id").map(|value| value.to_str().ok().map(str::to_owned));
    // A client that comes back has its place in the header, and the one with which it began in the query still.
    let has_header = header.is_some();
    let begin = after(request.uri().query(), topics.len())?;
    let given = header.or_else(|| parameters(request.uri().query(), ID_PARAMETER).next());
    let text = given.unwrap_or_else(|| Some(String::new())).filter(|text| text.len() <= MOST_ID).ok_or(BAD_PLACE)?;
    if text.is_empty() {
        return Ok(vec![begin; topics.len()]);
    }
    if begin.is_some() && !has_header {
        return Err(BAD_AFTER);
    }
    let places = text.split(',').map(place).collect::<Option<Vec<_>>>().ok_or(BAD_PLACE)?;
    if places.len() == topics.len() { Ok(places) } else { Err(BAD_PLACE) }
}

/// Whether a place is before all messages that are kept, of any epoch.
fn is_all_kept(place: &Position) -> bool {
    place.epoch.is_empty()
}

/// The place of a query's `after` and `epoch`, for all topics or the only one.
fn after(query: Option<&str>, topics: usize) -> Result<Option<Position>, Fault> {
    let one = |name: &str| {
        let mut values = parameters(query, name);
        let value = values.next().map(|value| value.ok_or(BAD_AFTER)).transpose()?;
        if values.next().is_some() { Err(BAD_AFTER) } else { Ok(value) }
    };
    let (offset, epoch) = match (one(AFTER)?, one(EPOCH)?) {
        (None, None) => return Ok(None),
        (offset, epoch) => (offset.and_then(|offset| offset.parse().ok()).ok_or(BAD_AFTER)?, epoch),
    };
    let place = Position { epoch: epoch.unwrap_or_default().into(), offset };
    if fits(&place) && (is_all_kept(&place) || topics == 1) { Ok(Some(place)) } else { Err(BAD_AFTER) }
}

/// Whether a place has the form of one.
fn fits(place: &Position) -> bool {
    let epoch = &place.epoch;
    epoch.len() <= 256 && !epoch.contains(char::is_control) && (!is_all_kept(place) || place.offset == 0)
}

/// `EPOCH.OFFSET`, or nothing.
fn place(text: &str) -> Option<Option<Position>> {
    if text.is_empty() || text == "-" {
        return Some(None);
    }
    let (epoch, offset) = text.rsplit_once('.')?;
    let place = Position { epoch: decode(epoch)?.into(), offset: offset.parse().ok()? };
    fits(&place).then_some(Some(place))
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
    use super::{EventWriter, place, places};
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
    fn a_query_names_all_that_is_kept_or_one_place() {
        let topics = ["log:a".to_owned(), "log:b".to_owned()];
        let begin = |query: &str, topics: &[String]| {
            let request = Request::get(format!("/events?{query}")).body(()).unwrap();
            places(&request, topics).map(|places| {
                places.into_iter().map(|at| at.map(|at| (at.epoch.to_string(), at.offset))).collect::<Vec<_>>()
            })
        };
        let at = |epoch: &str, offset| Some((epoch.to_owned(), offset));
        assert_eq!(begin("after=0", &topics), Ok(vec![at("", 0), at("", 0)]));
        assert_eq!(begin("epoch=e%2Cf&after=7", &topics[..1]), Ok(vec![at("e,f", 7)]));
        assert_eq!(begin("after=0&last-event-id=", &topics[..1]), Ok(vec![at("", 0)]));
        for query in [
            "after=",
            "after=x",
            "after=-1",
            "after=1",
            "after=%ff",
            "epoch=e",
            "after=0&after=0",
            "after=1&epoch=",
            "after=1&epoch=e&epoch=f",
            "after=1&epoch=%00",
            "after=0&last-event-id=e.1",
            "after=18446744073709551616&epoch=e",
        ] {
            assert!(begin(query, &topics[..1]).is_err_and(|fault| fault.status == 400), "{query}");
        }
        assert!(begin("after=1&epoch=e", &topics).is_err(), "of several topics");
        // A browser that comes back has the first query still.
        let request = Request::get("/events?after=0").header("last-event-id", "e.5").body(()).unwrap();
        assert_eq!(places(&request, &topics[..1]).unwrap()[0].as_ref().unwrap().offset, 5);
    }

    #[test]
    fn a_client_that_was_cut_off_before_its_first_message_begins_with_all_that_is_kept_again() {
        let topics = || vec!["log:a".to_owned(), "log:b".to_owned()];
        let all = || vec![place(".0").unwrap(); 2];
        let mut writer = EventWriter::new(topics(), all(), Duration::from_secs(2));
        assert_eq!(writer.id().unwrap(), ".0,.0");
        written(&mut writer, r#"{"type":"subscribed","topic":"log:a","epoch":"e","offset":9}"#);
        assert_eq!(writer.id().unwrap(), "e.0,.0");
    }

    #[test]
    fn places_of_other_topics_and_garbage_are_refused() {
        let topics = ["a".to_owned(), "b".to_owned()];
        for (id, fits) in [
            ("", true),
            ("-,-", true),
            ("e.1,-", true),
            (".0,e.1", true),
            (".1,-", false),
            ("e.1", false),
            ("e.1,f.x", false),
            ("e,f", false),
        ] {
            let request = Request::get("/events").header("last-event-id", id).body(()).unwrap();
            assert_eq!(places(&request, &topics).is_ok(), fits, "{id}");
        }
        let request = Request::get("/events?topic=a&topic=b&last-event-id=e.1%2C-").body(()).unwrap();
        assert_eq!(places(&request, &topics).unwrap()[0].as_ref().unwrap().offset, 1);
    }
}
