//! The HTTP interface of the Pusher protocol: server libraries publish and ask with signed requests (`/apps/ID/…`).

use super::app::App;
use super::channels::message;
use super::name::{Channel, Kind, MOST_EVENT, OF_USER, fits_user, room_topic, user_of};
use super::signature::is_md5;
use super::wire;
use crate::answer::{of_type, plain};
use crate::config::Kind as TopicKind;
use crate::credentials::now;
use crate::handler::HubHandler;
use crate::mailbox::Event;
use crate::presence::user_of as user_of_member;
use crate::query::{decode, parameters};
use crate::rules::Grant;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::time::Instant;
use tautline::http::{HeaderValue, Method, header};
use tautline::{Reply, Request};

pub(crate) const PATH: &str = "/apps/";
/// Seconds by which the clocks of both sides may differ.
const MOST_SKEW: u64 = 600;
/// Channels of an event, events of a batch, and parameters of a request, at most.
const MOST_CHANNELS: usize = 100;
const MOST_BATCH: usize = 10;
const MOST_PARAMETERS: usize = 64;

/// An event of a request.
#[derive(Deserialize)]
struct Publish {
    name: String,
    data: String,
    #[serde(default)]
    channel: Option<String>,
    #[serde(default)]
    channels: Vec<String>,
    #[serde(default)]
    socket_id: Option<String>,
    #[serde(default)]
    info: Option<String>,
}

#[derive(Deserialize)]
struct Batch {
    batch: Vec<Publish>,
}

/// A status and its reason.
type Fault = (u16, &'static str);

const BAD_BODY: Fault = (400, "the body is no JSON object with a name, data (a text) and channels");
const BAD_CHANNEL: Fault = (400, "a name of a channel is not allowed, or its topic has history");
const TOO_MUCH: Fault =
    (413, "the data is longer than `max-data` of the app, or `max-message` of a namespace, in the file of rules");

impl HubHandler {
    /// Does a request of a server library. `None` if it is none.
    pub(crate) fn call_app(&self, request: &Request<'_>) -> Option<Reply> {
        if self.rules.apps.is_empty() {
            return None;
        }
        let path = request.http.uri().path().strip_prefix(PATH)?;
        let mut response = match self.try_app(path, request) {
            Ok(answer) => of_type("application/json", 200, answer.to_string()),
            Err((status, reason)) => plain(status, reason),
        };
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Some(Reply::Respond(response))
    }

    fn try_app(&self, path: &str, request: &Request<'_>) -> Result<Value, Fault> {
        let (id, rest) = path.split_once('/').ok_or((404, "the path is /apps/ID/…"))?;
        let app = self.rules.apps.iter().find(|app| app.id == id).ok_or((401, "there is no app with this id"))?;
        check_signature(app, request)?;
        if !app.is_enabled {
            return Err((403, "the app is disabled"));
        }
        if !self.hub.bounds.request(&format!("app {id}"), app.limits.rate) {
            return Err((429, "more requests in a second than `rate` of the app"));
        }
        let query = request.http.uri().query();
        let info = parameters(query, "info").next().flatten();
        let parts: Vec<&str> = rest.split('/').collect();
        match (request.http.method(), &*parts) {
            (&Method::POST, ["events"]) => {
                let event: Publish = serde_json::from_slice(request.body).map_err(|_| BAD_BODY)?;
                self.check(app, &event)?;
                let answers = self.publish_event(app, &event);
                Ok(if event.info.is_some() { json!({ "channels": answers }) } else { json!({}) })
            }
            (&Method::POST, ["batch_events"]) => self.publish_batch(app, request.body),
            (&Method::GET, ["channels"]) => {
                let begin = parameters(query, "filter_by_prefix").next().flatten().unwrap_or_default();
                if asks(info.as_deref(), "user_count") && !begin.starts_with("presence-") {
                    return Err((400, "user_count needs filter_by_prefix=presence-"));
                }
                let names = self.hub.channels.list(app, &begin);
                let channels = names.into_iter().map(|name| {
                    let facts = self.facts(app, &name, info.as_deref());
                    (name, facts)
                });
                Ok(json!({ "channels": channels.collect::<Map<_, _>>() }))
            }
            (&Method::GET, ["channels", name]) => {
                let channel = Channel::read(name).ok_or(BAD_CHANNEL)?;
                if asks(info.as_deref(), "user_count") && channel.kind != Kind::Presence {
                    return Err((400, "user_count needs a presence channel"));
                }
                let mut facts = self.facts(app, name, info.as_deref());
                facts["occupied"] = (self.hub.channels.subscribers(&app.topic(name)) > 0).into();
                Ok(facts)
            }
            (&Method::GET, ["channels", name, "users"]) => {
                let is_presence = Channel::read(name).is_some_and(|channel| channel.kind == Kind::Presence);
                if !is_presence {
                    return Err((400, "users are those of a presence channel"));
                }
                let users: Vec<Value> = self.users(app, name).iter().map(|user| json!({ "id": user })).collect();
                Ok(json!({ "users": users }))
            }
            (&Method::POST, ["users", user, "terminate_connections"]) => {
                let user = decode(user).filter(|user| fits_user(user));
                let user = user.ok_or((400, "no identifier of a user"))?;
                self.hub.channels.end(&app.topic(&format!("{OF_USER}{user}")));
                Ok(json!({}))
            }
            _ => Err((404, "there is no such operation; see docs/hub.md")),
        }
    }

    fn publish_batch(&self, app: &App, body: &[u8]) -> Result<Value, Fault> {
        let Batch { batch } = serde_json::from_slice(body).map_err(|_| BAD_BODY)?;
        if batch.is_empty() || batch.len() > MOST_BATCH {
            return Err((400, "a batch has 1 to 10 events"));
        }
        // All are looked at before the first is published.
        batch.iter().try_for_each(|event| self.check(app, event))?;
        let asks = batch.iter().any(|event| event.info.is_some());
        let answers: Vec<Value> =
            batch.iter().map(|event| self.publish_event(app, event).into_values().next().unwrap_or_default()).collect();
        Ok(if asks { json!({ "batch": answers }) } else { json!({}) })
    }

    fn check(&self, app: &App, event: &Publish) -> Result<(), Fault> {
        let channels = channels(event);
        if channels.is_empty() || channels.len() > MOST_CHANNELS {
            return Err((400, "an event has 1 to 100 channels"));
        }
        let is_own = ["pusher:", "pusher_internal:"].iter().any(|own| event.name.starts_with(own));
        if event.name.is_empty() || event.name.len() > MOST_EVENT || is_own {
            return Err((
                400,
                "an event's name has 1 to 200 bytes, and does not begin with `pusher:` or `pusher_internal:`",
            ));
        }
        let most = |name: &&str| self.rules.grant(None, &app.topic(name)).terms.max_message.unwrap_or(usize::MAX);
        let most = channels.iter().map(most).min().unwrap_or(usize::MAX);
        if event.data.len() > app.limits.data.min(most) {
            return Err(TOO_MUCH);
        }
        let fits = |name: &&str| {
            user_of(name).is_some()
                || Channel::read(name).is_some()
                    && self.rules.kind(&self.hub.config, &app.topic(name)) == TopicKind::Plain
        };
        if !channels.iter().all(fits) {
            return Err(BAD_CHANNEL);
        }
        let count = |name: &&str| self.hub.bounds.publish_to(&self.rules.limits, &app.topic(name));
        channels.iter().try_for_each(count).map_err(|reason| (429, reason))
    }

    /// Publishes an event to its channels. Returns the facts of each that it asks for.
    fn publish_event(&self, app: &App, event: &Publish) -> Map<String, Value> {
        let mut answers = Map::new();
        for name in channels(event) {
            let topic = app.topic(name);
            let frame = wire::event(&event.name, name, &event.data, None);
            self.hub.channels.keep(&topic, name, &frame, Instant::now());
            self.hub.channels.publish(&topic, &frame, event.socket_id.as_deref());
            if user_of(name).is_none()
                && let Some(mailbox) = &self.mailbox
            {
                let Grant { terms, namespace, .. } = self.rules.grant(None, &topic);
                let slow = terms.slow;
                self.rules.publish(namespace);
                let frame = message(&topic, &event.name, &event.data);
                mailbox.push(Event::Post { topic, frame, slow });
            }
            answers.insert(name.to_owned(), self.facts(app, name, event.info.as_deref()));
        }
        answers
    }

    /// Facts that a request asks for about a channel.
    fn facts(&self, app: &App, name: &str, info: Option<&str>) -> Value {
        let mut facts = json!({});
        if asks(info, "subscription_count") {
            let topic = app.topic(name);
            let is_told = app.counts && !name.starts_with("presence-");
            let number = if is_told { self.hub.presence.numbers(&room_topic(&topic)).0 } else { 0 };
            // That of all hosts, where it is told.
            facts["subscription_count"] = number.max(self.hub.channels.subscribers(&topic)).into();
        }
        if asks(info, "user_count") && name.starts_with("presence-") {
            facts["user_count"] = self.users(app, name).len().into();
        }
        facts
    }

    /// The users of a presence channel.
    fn users(&self, app: &App, name: &str) -> BTreeSet<String> {
        let members = self.hub.presence.list(&room_topic(&app.topic(name)));
        members.iter().filter_map(|(member, _)| user_of_member(member)).map(str::to_owned).collect()
    }
}

fn channels(event: &Publish) -> Vec<&str> {
    event.channel.iter().chain(&event.channels).map(String::as_str).collect()
}

fn asks(info: Option<&str>, what: &str) -> bool {
    info.is_some_and(|info| info.split(',').any(|part| part == what))
}

/// Whether a request comes from somebody who knows the secret, in these minutes, with this body.
fn check_signature(app: &App, request: &Request<'_>) -> Result<(), Fault> {
    const WRONG: Fault = (401, "the signature is not that of the app's secret");
    let mut all: Vec<(String, String)> = Vec::new();
    for part in request.http.uri().query().unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let decoded = decode(name).zip(decode(value)).ok_or(WRONG)?;
        all.push((decoded.0.to_ascii_lowercase(), decoded.1));
        if all.len() > MOST_PARAMETERS {
            return Err((400, "too many parameters"));
        }
    }
    let get = |name: &str| all.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
    let (Some(key), Some(time), Some(signature)) = (get("auth_key"), get("auth_timestamp"), get("auth_signature"))
    else {
        return Err((401, "auth_key, auth_timestamp or auth_signature is missing"));
    };
    if get("auth_version") != Some("1.0") || key != app.key {
        return Err((401, "the auth_version is not 1.0, or the auth_key is not that of the app"));
    }
    let text: Vec<String> = {
        let mut signed: Vec<&(String, String)> = all.iter().filter(|(name, _)| name != "auth_signature").collect();
        signed.sort();
        signed.iter().map(|(name, value)| format!("{name}={value}")).collect()
    };
    let text = format!("{}\n{}\n{}", request.http.method(), request.http.uri().path(), text.join("&"));
    if !app.secret.verifies(&text, signature) {
        return Err(WRONG);
    }
    if time.parse::<u64>().map_or(true, |time| time.abs_diff(now().as_secs()) > MOST_SKEW) {
        return Err((401, "the auth_timestamp is more than 600 seconds from the time of this server"));
    }
    if !request.body.is_empty() && !get("body_md5").is_some_and(|given| is_md5(request.body, given)) {
        return Err((401, "body_md5 is not that of the body"));
    }
    Ok(())
}
