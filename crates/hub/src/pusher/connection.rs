//! Connections of the Pusher protocol on one loop.

use super::app::App;
use super::channels::{Delivery, OWN, What, message};
use super::name::{Channel, Kind, MOST_EVENT, OF_USER, fits_user, user_of};
use super::room::{News, Room};
use super::wire::{self, Member, Message, SignIn, Subscribe, code};
use crate::config::Kind as TopicKind;
use crate::credentials::parameter;
use crate::handler::HubHandler;
use crate::mailbox::Event;
use crate::presence::{Joined, Who};
use crate::protocol::{Answer, MOST_DEPTH, depth, random_name};
use crate::track::Subscribers;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::http::Request;
use tautline::layers::engine::sized::{map_memory, name_memory, shrink_map};
use tautline::{CloseCode, Conn, ConnId, Outgoing, ShardContext};

/// Where connections begin.
const PATH: &str = "/app/";
/// The version of the protocol.
const VERSION: u32 = 7;
/// Seconds without a message after which a client asks whether the connection works.
const ACTIVITY: u32 = 120;
/// Events that a client may send in a second.
const MOST_EVENTS: u32 = 10;
/// Most bytes of a member's information.
pub(crate) const MOST_INFO: usize = 1024;
/// Memory of a channel on a loop beside its subscribers, in bytes.
const CHANNEL: usize = 600;

/// The part of a loop.
#[derive(Default)]
pub(crate) struct Pushers {
    conns: HashMap<ConnId, Box<Pusher>>,
    /// Connections by the names that their clients know.
    sockets: HashMap<Arc<str>, ConnId>,
    /// Channels with subscribers, by topic.
    channels: HashMap<Arc<str>, Box<LoopChannel>>,
}

/// A connection.
struct Pusher {
    app: Arc<App>,
    socket: Arc<str>,
    /// Its channels by topic, with its user in a presence channel.
    channels: HashMap<Arc<str>, Option<Arc<str>>>,
    /// The user that it has signed in as.
    user: Option<Arc<str>>,
    /// The second that counts, and its events.
    rate: (Instant, u32),
    /// Its memory as it was counted, in bytes.
    told: usize,
}

struct LoopChannel {
    name: Arc<str>,
    subscribers: Subscribers,
    /// The members of a presence channel.
    room: Option<Room>,
}

impl Pushers {
    pub(crate) fn has(&self, conn: ConnId) -> bool {
        self.conns.contains_key(&conn)
    }

    /// Memory of its tables, in bytes.
    pub(crate) fn memory(&self) -> usize {
        map_memory(&self.conns) + map_memory(&self.sockets) + map_memory(&self.channels)
    }

    /// The topics with the number of this loop's subscribers, at its end.
    pub(crate) fn topics(&self) -> impl Iterator<Item = (&Arc<str>, usize, bool)> {
        self.channels.iter().map(|(topic, channel)| (topic, channel.subscribers.list().len(), channel.room.is_some()))
    }
}

/// The topic of the hub's presence that has the members of a channel.
pub(crate) fn room_topic(topic: &str) -> Arc<str> {
    format!("{OWN}{topic}").into()
}

/// Data of a message: an object, or a text that has it.
fn object<T: for<'d> Deserialize<'d>>(data: Option<&RawValue>) -> Option<T> {
    let data = data?.get();
    if data.starts_with('"') {
        let text: String = serde_json::from_str(data).ok()?;
        return serde_json::from_str(&text).ok();
    }
    serde_json::from_str(data).ok()
}

/// The reason why a subscription is refused: its type, text and status.
type Refused = (&'static str, &'static str, u16);

impl HubHandler {
    /// The key of the app that a request is for.
    pub(crate) fn app_key<'r>(&self, request: &'r Request<()>) -> Option<&'r str> {
        if self.rules.apps.is_empty() {
            return None;
        }
        request.uri().path().strip_prefix(PATH)
    }

    /// A connection has opened.
    pub(crate) fn open_pusher(&mut self, conn: &mut Conn<'_, ()>, key: &str, request: &Request<()>) {
        let version =
            parameter(request.uri().query().unwrap_or_default(), "protocol").map(|version| version.parse::<u32>());
        let app = self.rules.apps.iter().find(|app| app.key == key).cloned();
        let (code, why) = match (app, version) {
            _ if key.is_empty() || key.contains('/') => (code::NO_PATH, "the path is /app/KEY"),
            (None, _) => (code::NO_APP, "there is no app with this key"),
            (_, None) => (code::NO_VERSION, "the query has no protocol"),
            (_, Some(Err(_))) => (code::BAD_VERSION, "the protocol is no number"),
            (_, Some(Ok(version))) if version != VERSION => (code::OTHER_VERSION, "this hub speaks protocol 7"),
            (Some(app), _) if !app.is_enabled => (code::DISABLED, "the app is disabled"),
            (Some(app), _) if !self.hub.channels.connect(&app) => (code::QUOTA, "the app has too many connections"),
            (Some(app), _) => return self.establish(conn, app),
        };
        fail(conn, code, why);
    }

    fn establish(&mut self, conn: &mut Conn<'_, ()>, app: Arc<App>) {
        let (id, socket) = (conn.id(), socket_name());
        self.pushers.sockets.insert(socket.clone(), id);
        let data = json!({ "socket_id": &*socket, "activity_timeout": ACTIVITY });
        conn.text(&wire::told("pusher:connection_established", None, &data));
        let rate = (Instant::now(), 0);
        let pusher = Pusher { app, socket, channels: HashMap::new(), user: None, rate, told: 0 };
        self.pushers.conns.insert(id, Box::new(pusher));
        self.weigh(conn);
    }

    /// Takes a message of a client.
    pub(crate) fn take_pusher(&mut self, conn: &mut Conn<'_, ()>, text: Option<&str>) {
        let parsed = text.and_then(|text| serde_json::from_str::<Message<'_>>(text).ok());
        let Some(Message { event, channel, data }) = parsed else {
            conn.text(&wire::error(None, "no JSON object of the Pusher protocol"));
            return;
        };
        match &*event {
            "pusher:ping" => _ = conn.text(r#"{"event":"pusher:pong","data":{}}"#),
            "pusher:pong" => {}
            "pusher:subscribe" => match object(data) {
                Some(subscribe) => self.join_channel(conn, &subscribe),
                None => _ = conn.text(&wire::error(None, "a subscription without a channel")),
            },
            "pusher:unsubscribe" => {
                if let Some(subscribe) = object::<Subscribe>(data).filter(|data| user_of(&data.channel).is_none()) {
                    self.part(conn, &subscribe.channel);
                }
            }
            "pusher:signin" => match object(data) {
                Some(sign_in) => self.sign_in(conn, &sign_in),
                None => _ = conn.text(&wire::error(None, "a sign-in without auth and user_data")),
            },
            client if client.starts_with("client-") => {
                if let Err((code, why)) = self.client_event(conn, client, channel.as_deref(), data) {
                    conn.text(&wire::error(code, why));
                }
            }
            _ => _ = conn.text(&wire::error(None, "this event is not known; those of clients begin with `client-`")),
        }
        self.weigh(conn);
    }

    fn join_channel(&mut self, conn: &mut Conn<'_, ()>, subscribe: &Subscribe) {
        let name = &*subscribe.channel;
        match self.try_join(conn, subscribe) {
            Ok(Some(succeeded)) => {
                conn.text(&wire::told("pusher_internal:subscription_succeeded", Some(name), &succeeded));
                self.send_kept(conn, name);
            }
            Ok(None) => _ = conn.text(&wire::error(None, &format!("Existing subscription to channel {name}"))),
            Err((kind, reason, status)) => _ = conn.text(&wire::refused(name, kind, reason, status)),
        }
    }

    /// Subscribes. The data of the answer; `None` if it is subscribed already.
    fn try_join(&mut self, conn: &mut Conn<'_, ()>, subscribe: &Subscribe) -> Result<Option<Value>, Refused> {
        let (id, name) = (conn.id(), &*subscribe.channel);
        let Some(pusher) = self.pushers.conns.get(&id) else { return Ok(None) };
        let app = pusher.app.clone();
        if let Some(user) = user_of(name) {
            // Its connection has subscribed when it signed in.
            let is_own = pusher.user.as_deref() == Some(user);
            return if is_own { Ok(Some(json!({}))) } else { Err(("AuthError", "sign in as this user first", 401)) };
        }
        let channel = Channel::read(name).ok_or((
            "InvalidChannel",
            "names of channels have 1 to 164 letters, digits and _-=@,.;",
            400,
        ))?;
        if channel.kind != Kind::Public {
            check_auth(pusher, subscribe)?;
        }
        let topic = app.topic(name);
        if pusher.channels.contains_key(&topic) {
            return Ok(None);
        }
        if pusher.channels.len() >= self.hub.config.max_subscriptions {
            return Err(("LimitReached", "the connection has too many subscriptions", 4004));
        }
        if conn.shard().is_memory_short() {
            return Err(("LimitReached", "memory is short; try again later", 4100));
        }
        if self.kind_of(&topic) != TopicKind::Plain {
            return Err(("InvalidChannel", "this topic has history, and its messages are for other clients", 400));
        }
        if channel.kind != Kind::Presence {
            self.enter_channel(id, &topic, name, None);
            return Ok(Some(json!({})));
        }
        let (user, info) = member_of(subscribe)?;
        self.enter_channel(id, &topic, name, Some(user.clone()));
        let limit = app.limits.members;
        let room = self.pushers.channels.get(&topic).and_then(|channel| channel.room.as_ref());
        let has_room = room.is_some_and(|room| room.has(&user) || room.len() < limit);
        let joins = || self.hub.presence.join(&room_topic(&topic), &Who::User(&user), &info, Some(limit));
        if !has_room || joins() == Joined::Full {
            self.leave_channel(id, &topic, false);
            return Err(("LimitReached", "the presence channel has too many members", 4004));
        }
        let room = self.pushers.channels.get(&topic).and_then(|channel| channel.room.as_ref());
        Ok(room.map(|room| room.list(&user, &info)))
    }

    pub(super) fn kind_of(&self, topic: &str) -> TopicKind {
        self.rules.grant(None, topic).terms.kind(&self.hub.config, topic)
    }

    /// Sends the last event of a cache channel, or that there is none.
    fn send_kept(&self, conn: &mut Conn<'_, ()>, name: &str) {
        let Some(pusher) = self.pushers.conns.get(&conn.id()) else { return };
        if !Channel::read(name).is_some_and(|channel| channel.is_cached) {
            return;
        }
        match self.hub.channels.kept(&pusher.app.topic(name), Instant::now()) {
            Some(frame) => conn.text(&frame),
            None => conn.text(&wire::told("pusher:cache_miss", Some(name), &json!({}))),
        };
    }

    /// Has a connection get the events of a channel.
    fn enter_channel(&mut self, id: ConnId, topic: &Arc<str>, name: &str, user: Option<Arc<str>>) {
        let Some(mailbox) = self.mailbox.clone() else { return };
        let is_presence = user.is_some();
        self.hub.channels.enter(topic, &mailbox);
        if !self.pushers.channels.contains_key(topic) {
            let mut room = is_presence.then(Room::default);
            if let Some(room) = &mut room {
                let own = room_topic(topic);
                let _ = self.hub.presence.watch(&own, &mailbox);
                // Nobody is here yet who has to be told.
                let _ = room.replace(&self.hub.presence.list(&own));
            }
            let channel = LoopChannel { name: name.into(), subscribers: Subscribers::default(), room };
            self.pushers.channels.insert(topic.clone(), Box::new(channel));
            self.account.bytes += CHANNEL + name_memory(topic);
        }
        if let Some(channel) = self.pushers.channels.get_mut(topic) {
            channel.subscribers.add(id);
        }
        if let Some(pusher) = self.pushers.conns.get_mut(&id) {
            pusher.channels.insert(topic.clone(), user);
        }
    }

    fn part(&mut self, conn: &Conn<'_, ()>, name: &str) {
        let id = conn.id();
        let Some(pusher) = self.pushers.conns.get(&id) else { return };
        let topic = pusher.app.topic(name);
        self.leave_channel(id, &topic, true);
    }

    /// Ends a subscription. `is_member` if its user is a member.
    fn leave_channel(&mut self, id: ConnId, topic: &Arc<str>, is_member: bool) {
        let Some(pusher) = self.pushers.conns.get_mut(&id) else { return };
        let Some(user) = pusher.channels.remove(topic) else { return };
        self.forget_subscriber(id, topic, user.filter(|_| is_member).as_deref());
    }

    fn forget_subscriber(&mut self, id: ConnId, topic: &Arc<str>, member: Option<&str>) {
        let Some(mailbox) = self.mailbox.clone() else { return };
        self.hub.channels.leave(topic, &mailbox);
        if let Some(user) = member {
            self.hub.presence.leave(&room_topic(topic), &Who::User(user));
        }
        let Some(channel) = self.pushers.channels.get_mut(topic) else { return };
        channel.subscribers.remove(id);
        if channel.subscribers.list().is_empty() {
            if channel.room.is_some() {
                self.hub.presence.unwatch(&room_topic(topic), &mailbox);
            }
            self.pushers.channels.remove(topic);
            shrink_map(&mut self.pushers.channels);
            self.account.bytes -= CHANNEL + name_memory(topic);
        }
    }

    fn sign_in(&mut self, conn: &mut Conn<'_, ()>, sign_in: &SignIn) {
        let id = conn.id();
        let Some(pusher) = self.pushers.conns.get(&id) else { return };
        let SignIn { auth, user_data } = sign_in;
        let text = format!("{}::user::{user_data}", pusher.socket);
        let user = serde_json::from_str::<Value>(user_data).ok().and_then(|data| wire::identifier(&data["id"]));
        let Some(user) = user.filter(|user| fits_user(user) && is_signed(&pusher.app, &text, auth)) else {
            return fail(conn, code::UNAUTHORIZED, "the signature of the user is not that of the app's secret");
        };
        if pusher.user.is_some() {
            conn.text(&wire::error(None, "the connection has signed in already"));
            return;
        }
        let name = format!("{OF_USER}{user}");
        let topic = pusher.app.topic(&name);
        if let Some(pusher) = self.pushers.conns.get_mut(&id) {
            pusher.user = Some(user.into());
        }
        self.enter_channel(id, &topic, &name, None);
        conn.text(&wire::told("pusher:signin_success", None, &json!({ "user_data": user_data })));
    }

    fn client_event(
        &mut self,
        conn: &mut Conn<'_, ()>,
        event: &str,
        channel: Option<&str>,
        data: Option<&RawValue>,
    ) -> Result<(), (Option<u16>, &'static str)> {
        let Some(pusher) = self.pushers.conns.get_mut(&conn.id()) else { return Ok(()) };
        let name = channel.ok_or((None, "an event without a channel"))?;
        let topic = pusher.app.topic(name);
        let user = pusher.channels.get(&topic).ok_or((None, "the connection is not subscribed to this channel"))?;
        if !pusher.app.client_events {
            return Err((None, "To send client events, set `client-events` of the app in the file of rules."));
        }
        if !Channel::read(name).is_some_and(|channel| channel.kind != Kind::Public && !channel.is_encrypted) {
            return Err((None, "Client event rejected - only supported on private and presence channels"));
        }
        let data = data.map_or("null", RawValue::get);
        if event.len() > MOST_EVENT || data.len() > pusher.app.limits.data || depth(data) > MOST_DEPTH {
            return Err((None, "the event is too large, or nested too deeply"));
        }
        let now = Instant::now();
        if now.saturating_duration_since(pusher.rate.0) >= Duration::from_secs(1) {
            pusher.rate = (now, 0);
        }
        if pusher.rate.1 >= MOST_EVENTS {
            return Err((Some(code::TOO_OFTEN), "more than 10 events in a second"));
        }
        pusher.rate.1 += 1;
        let frame = wire::client_event(event, name, data, user.as_deref());
        self.hub.channels.publish(&topic, &frame, Some(&pusher.socket));
        conn.publish(&topic, Outgoing::text(&message_of_client(&topic, event, data)));
        Ok(())
    }

    /// Passes an event to the subscribers of this loop.
    pub(crate) fn deliver(&mut self, shard: &mut ShardContext<'_>, delivery: &Delivery) {
        let Some(channel) = self.pushers.channels.get_mut(&delivery.topic) else { return };
        let frame = match &delivery.what {
            What::Event(frame) => Outgoing::prepared(frame),
            What::End => {
                for conn in channel.subscribers.list() {
                    // They are of this loop, which takes that at any time.
                    let _ = shard.close(*conn, CloseCode::new(code::UNAUTHORIZED), "the application has ended it");
                }
                return;
            }
        };
        match delivery.except.as_ref().and_then(|socket| self.pushers.sockets.get(&**socket)) {
            Some(except) => {
                let others = channel.subscribers.list().iter().filter(|conn| *conn != except);
                shard.send_to(&others.copied().collect::<Vec<_>>(), frame);
            }
            None => shard.send_to_list(channel.subscribers.shared(), frame),
        }
    }

    /// Tells subscribers of a presence channel news of its members. Returns their number.
    pub(crate) fn tell_members(&mut self, shard: &mut ShardContext<'_>, topic: &str, news: &Event) -> usize {
        let Some(channel) = self.pushers.channels.get_mut(topic) else { return 0 };
        let Some(room) = &mut channel.room else { return 0 };
        let news = match news {
            Event::Presence { frame, .. } => match serde_json::from_str::<Answer<'_>>(frame) {
                Ok(Answer { action, member: Some(member), name, .. }) => {
                    let joins = action == "join";
                    if joins { room.join(&member, &name.unwrap_or_default()) } else { room.leave(&member) }
                }
                _ => None,
            }
            .into_iter()
            .collect(),
            _ => room.replace(&self.hub.presence.list(&room_topic(topic))),
        };
        for news in &news {
            let (event, user, data) = match news {
                News::Added(user, info) => {
                    ("pusher_internal:member_added", user, json!({ "user_id": &**user, "user_info": info }))
                }
                News::Removed(user) => ("pusher_internal:member_removed", user, json!({ "user_id": &**user })),
            };
            let is_own = |conn: &ConnId| {
                let of = self.pushers.conns.get(conn).and_then(|pusher| pusher.channels.get(topic));
                of.is_some_and(|of| of.as_ref() == Some(user))
            };
            let others: Vec<ConnId> = channel.subscribers.list().iter().copied().filter(|conn| !is_own(conn)).collect();
            shard.send_to(&others, Outgoing::text(&wire::told(event, Some(&channel.name), &data)));
        }
        news.len() * channel.subscribers.list().len()
    }

    /// A connection has ended. False if it was none of this protocol.
    pub(crate) fn close_pusher(&mut self, id: ConnId) -> bool {
        let Some(pusher) = self.pushers.conns.remove(&id) else { return false };
        self.pushers.sockets.remove(&pusher.socket);
        self.hub.channels.disconnect(&pusher.app);
        self.account.bytes -= pusher.told;
        for (topic, user) in &pusher.channels {
            self.forget_subscriber(id, topic, user.as_deref());
        }
        shrink_map(&mut self.pushers.conns);
        shrink_map(&mut self.pushers.sockets);
        true
    }

    /// Other rules hold. Connections whose app has others now come again.
    pub(crate) fn recheck_pushers(&mut self, shard: &mut ShardContext<'_>) {
        let rules = self.rules.clone();
        for (conn, pusher) in &mut self.pushers.conns {
            let (code, why) = match rules.apps.iter().find(|app| app.key == pusher.app.key) {
                Some(app) if app.continues_as(&pusher.app) => {
                    pusher.app = app.clone();
                    continue;
                }
                Some(app) if !app.is_enabled => (code::DISABLED, "the app is disabled"),
                Some(_) => (code::AGAIN, "the rules of the app have changed"),
                None => (code::NO_APP, "there is no app with this key any more"),
            };
            let _ = shard.close(*conn, CloseCode::new(code), why);
        }
    }

    /// Counts the memory of a connection.
    fn weigh(&mut self, conn: &mut Conn<'_, ()>) {
        let id = conn.id();
        let Some(pusher) = self.pushers.conns.get_mut(&id) else { return };
        let names = |(topic, user): (&Arc<str>, &Option<Arc<str>>)| {
            topic.len() + user.as_ref().map_or(0, |user| MOST_INFO + user.len())
        };
        let now = size_of::<Pusher>() + map_memory(&pusher.channels) + pusher.channels.iter().map(names).sum::<usize>();
        if now != pusher.told {
            self.account.bytes = self.account.bytes - pusher.told + now;
            pusher.told = now;
            self.tell_tables();
            conn.shard().set_memory_of(id, 0, now);
        }
    }
}

/// The hub's own message for an event of a client.
fn message_of_client(topic: &str, event: &str, data: &str) -> String {
    // A text may have JSON, as that of a server does.
    match serde_json::from_str::<String>(data) {
        Ok(text) => message(topic, event, &text),
        Err(_) => message(topic, event, data),
    }
}

/// Tells a client why, and closes its connection.
fn fail(conn: &mut Conn<'_, ()>, code: u16, why: &str) {
    conn.text(&wire::error(Some(code), why));
    conn.close(CloseCode::new(code), why);
}

/// Whether `auth` is `KEY:SIGNATURE` of a text.
fn is_signed(app: &App, text: &str, auth: &str) -> bool {
    auth.split_once(':').is_some_and(|(key, signature)| key == app.key && app.secret.verifies(text, signature))
}

fn check_auth(pusher: &Pusher, subscribe: &Subscribe) -> Result<(), Refused> {
    let Subscribe { channel, auth, channel_data } = subscribe;
    let mut text = format!("{}:{channel}", pusher.socket);
    if let Some(data) = channel_data {
        text = format!("{text}:{data}");
    }
    let is_good = auth.as_deref().is_some_and(|auth| is_signed(&pusher.app, &text, auth));
    if is_good {
        Ok(())
    } else {
        Err(("AuthError", "the signature is not that of the app's secret for this socket", 401))
    }
}

/// The user that a subscription to a presence channel names, and the user's information as JSON.
fn member_of(subscribe: &Subscribe) -> Result<(Arc<str>, String), Refused> {
    let wrong = ("AuthError", "channel_data has no user_id of 1 to 128 bytes, or a user_info of more than 1 KiB", 400);
    let data = subscribe.channel_data.as_deref().and_then(|data| serde_json::from_str::<Member>(data).ok());
    let data = data.ok_or(wrong)?;
    let user = data.user().filter(|user| fits_user(user)).ok_or(wrong)?;
    // Written anew, it has no control characters.
    let info = data.user_info.to_string();
    if info.len() > MOST_INFO { Err(wrong) } else { Ok((user.into(), info)) }
}

/// A name for a connection: two numbers, as libraries demand it, that nobody guesses.
fn socket_name() -> Arc<str> {
    let name = random_name();
    let number =
        |digits: Option<&str>| digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default();
    format!("{}.{}", number(name.get(..16)), number(name.get(16..))).into()
}
