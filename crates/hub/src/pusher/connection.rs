//! Connections of the Pusher protocol on one loop.

use super::app::App;
use super::auth::{Refused, check_auth, is_signed, member_of};
use super::channels::message;
use super::name::{Channel, Kind, MOST_EVENT, MOST_INFO, OF_USER, fits_user, room_topic, user_of};
use super::room::Room;
use super::wire::{self, Message, SignIn, Subscribe, code};
use crate::account::Account;
use crate::answer::plain;
use crate::asked::{Asking, Step, Turn};
use crate::asking::{Decided, Held, Matter, Questions, Wish};
use crate::config::Kind as TopicKind;
use crate::credentials::{now, parameter};
use crate::hooks::Verdict;
use crate::mailbox::Mailbox;
use crate::presence::{Joined, Who};
use crate::protocol::{MOST_DEPTH, depth, random_name};
use crate::rate::Rate;
use crate::rules::{About, Grant, Identity, Rules};
use crate::sessions::LoopUsers;
use crate::shared::Shared;
use crate::track::Subscribers;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::http::Request;
use tautline::layers::engine::sized::{map_memory, name_memory, shrink_map};
use tautline::{CloseCode, Conn, ConnHandle, ConnId, Outgoing, Reply, Request as HttpRequest, ShardContext, Upgrade};

/// Where connections begin.
const PATH: &str = "/app/";
/// The version of the protocol.
const VERSION: u32 = 7;
/// Seconds without a message after which a client asks whether the connection works.
const ACTIVITY: u32 = 120;
/// Events that a client may send in a second.
const MOST_EVENTS: u32 = 10;
/// The longest time of a timer.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);
/// The timer of a connection: the time that the application gave it is over.
const EXPIRY: u64 = 2;
/// The code of connections that the application ends. Clients do not come back.
pub(crate) const ENDED: u16 = code::UNAUTHORIZED;
/// Memory of a channel on a loop beside its subscribers, in bytes.
const CHANNEL: usize = 600;

/// The part of a loop.
#[derive(Default)]
pub(crate) struct Pushers {
    pub(super) conns: HashMap<ConnId, Box<Pusher>>,
    /// Connections by the names that their clients know.
    pub(super) sockets: HashMap<Arc<str>, ConnId>,
    /// Channels with subscribers, by topic.
    pub(super) channels: HashMap<Arc<str>, Box<LoopChannel>>,
}

/// A connection.
pub(super) struct Pusher {
    app: Arc<App>,
    socket: Arc<str>,
    /// Its channels by topic, with its user in a presence channel.
    pub(super) channels: HashMap<Arc<str>, Option<Arc<str>>>,
    /// The user that it has signed in as, and the one that the application has named.
    pub(super) user: Option<Arc<str>>,
    known: Option<Arc<Identity>>,
    /// Messages that wait for the application's answer, and the way back to them.
    asking: Option<Box<Asking>>,
    handle: ConnHandle,
    /// Its events of a second.
    rate: Rate,
    /// Its memory as it was counted, in bytes.
    told: usize,
}

pub(super) struct LoopChannel {
    pub(super) name: Arc<str>,
    pub(super) subscribers: Subscribers,
    /// The members of a presence channel.
    pub(super) room: Option<Room>,
    /// Whether subscribers are told their number.
    is_counted: bool,
}

impl Pushers {
    pub(crate) fn has(&self, conn: ConnId) -> bool {
        self.conns.contains_key(&conn)
    }

    /// The way to a connection.
    pub(crate) fn handle(&self, conn: ConnId) -> Option<&ConnHandle> {
        self.conns.get(&conn).map(|pusher| &pusher.handle)
    }

    /// The messages of a connection that wait for the application.
    pub(crate) fn asking(&mut self, conn: ConnId) -> Option<&mut Asking> {
        self.conns.get_mut(&conn)?.asking.as_deref_mut()
    }

    /// Memory of its tables, in bytes.
    pub(crate) fn memory(&self) -> usize {
        map_memory(&self.conns) + map_memory(&self.sockets) + map_memory(&self.channels)
    }

    /// Leaves all channels, at the loop's end.
    pub(crate) fn end(&self, hub: &Shared, mailbox: &Arc<Mailbox>) {
        for (topic, channel) in &self.channels {
            for _ in channel.subscribers.list() {
                hub.channels.leave(topic, mailbox);
                if channel.is_counted {
                    hub.presence.leave_counted(&room_topic(topic), &Who::Conn(""));
                }
            }
            if channel.is_counted {
                hub.presence.unwatch_number(&room_topic(topic), mailbox);
            }
            if channel.room.is_some() {
                hub.presence.unwatch(&room_topic(topic), mailbox);
            }
        }
    }
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

/// The reason why an event of a client is refused, and a code.
type Rejected = (Option<u16>, Cow<'static, str>);

/// The parts of a loop that connections of this protocol use.
pub(crate) struct Around<'h> {
    pub(crate) hub: &'h Arc<Shared>,
    pub(crate) rules: &'h Arc<Rules>,
    pub(crate) mailbox: &'h Arc<Mailbox>,
    pub(crate) questions: &'h mut Questions,
    pub(crate) users: &'h mut LoopUsers,
    pub(crate) account: &'h mut Account,
}

/// The result of a subscription.
enum Entered {
    /// The data of the answer.
    Done(Value),
    Before,
    /// The application is asked first.
    Held,
}

/// The key of the app that a request is for.
pub(crate) fn app_key<'r>(rules: &Rules, request: &'r Request<()>) -> Option<&'r str> {
    if rules.apps.is_empty() {
        return None;
    }
    request.uri().path().strip_prefix(PATH)
}

/// Answers a request for a connection to an app. Its key is what lets it in, unless the application is asked.
pub(crate) fn admit(
    (hub, rules, questions): (&Arc<Shared>, &Arc<Rules>, &Questions),
    request: &HttpRequest<'_>,
    upgrade: Upgrade,
) -> Reply {
    let key = app_key(rules, request.http);
    let is_known = rules.apps.iter().any(|app| key == Some(&*app.key) && app.is_enabled);
    let Some(hooks) = rules.hooks_about(About::CONNECT).filter(|_| is_known) else { return Reply::Upgrade(upgrade) };
    questions.connect((hub, rules, hooks), request, None, |found| match found {
        // It is told by a code of the protocol, or it would come again and again.
        Ok(_) | Err((400..500, _)) => Decided::Upgrade(upgrade),
        Err((status, reason)) => Decided::Respond(plain(*status, reason)),
    })
}

impl Pusher {
    /// The user whom connections to the hub may be ended for.
    fn name(&self) -> Option<&Arc<str>> {
        self.user.as_ref().or_else(|| self.known_name())
    }

    fn known_name(&self) -> Option<&Arc<str>> {
        self.known.as_ref().and_then(|known| known.user.as_ref())
    }
}

impl Pushers {
    /// A connection has opened.
    pub(crate) fn open(&mut self, around: &mut Around<'_>, conn: &mut Conn<'_, ()>, key: &str, request: &Request<()>) {
        let found = around.questions.admitted.take(conn.id());
        let version =
            parameter(request.uri().query().unwrap_or_default(), "protocol").map(|version| version.parse::<u32>());
        let app = around.rules.apps.iter().find(|app| app.key == key).cloned();
        let (code, why) = match (app, version) {
            _ if key.is_empty() || key.contains('/') => (code::NO_PATH, "the path is /app/KEY"),
            (None, _) => (code::NO_APP, "there is no app with this key"),
            (_, None) => (code::NO_VERSION, "the query has no protocol"),
            (_, Some(Err(_))) => (code::BAD_VERSION, "the protocol is no number"),
            (_, Some(Ok(version))) if version != VERSION => (code::OTHER_VERSION, "this hub speaks protocol 7"),
            (Some(app), _) if !app.is_enabled => (code::DISABLED, "the app is disabled"),
            _ if found.is_none() && around.rules.hooks_about(About::CONNECT).is_some() => {
                (code::UNAUTHORIZED, "the application has not allowed this connection")
            }
            (Some(app), _) if !around.hub.channels.connect(&app) => (code::QUOTA, "the app has too many connections"),
            (Some(app), _) => return self.establish(around, conn, (app, found.flatten())),
        };
        fail(conn, code, why);
    }

    fn establish(
        &mut self,
        around: &mut Around<'_>,
        conn: &mut Conn<'_, ()>,
        (app, known): (Arc<App>, Option<Arc<Identity>>),
    ) {
        let (id, socket) = (conn.id(), socket_name());
        let user = known.as_ref().and_then(|known| known.user.as_ref());
        if let Some(user) = user
            && let Err((code, why)) = around.enter(user, id)
        {
            around.hub.channels.disconnect(&app);
            return fail(conn, code, why);
        }
        self.sockets.insert(socket.clone(), id);
        let data = json!({ "socket_id": &*socket, "activity_timeout": ACTIVITY });
        conn.text(&wire::told("pusher:connection_established", None, &data));
        let (channels, handle, rate) = (HashMap::new(), conn.handle(), Rate::begin(Instant::now()));
        let pusher = Pusher { app, socket, channels, user: None, known, asking: None, handle, rate, told: 0 };
        self.conns.insert(id, Box::new(pusher));
        self.expire(conn);
        self.weigh(around, conn);
    }

    /// Ends a connection whose time is over, by the application's answer.
    pub(crate) fn expire(&self, conn: &mut Conn<'_, ()>) {
        let Some(known) = self.conns.get(&conn.id()).and_then(|pusher| pusher.known.as_ref()) else { return };
        let left = known.expires.saturating_sub(now());
        if left.is_zero() {
            return fail(conn, code::UNAUTHORIZED, "the time that the application gave is over");
        }
        conn.set_timer(left.min(LONGEST), EXPIRY);
    }

    /// Takes a message of a client.
    pub(crate) fn take(&mut self, around: &mut Around<'_>, conn: &mut Conn<'_, ()>, text: Option<&str>) {
        let parsed = text.and_then(|text| Some((text, serde_json::from_str::<Message<'_>>(text).ok()?)));
        match parsed {
            Some((text, message)) => self.act(around, conn, &message, (text, Turn::Arrived)),
            None => _ = conn.text(&wire::error(None, "no JSON object of the Pusher protocol")),
        }
        self.weigh(around, conn);
    }

    /// Goes on with messages that have waited for the application.
    pub(crate) fn resume(&mut self, around: &mut Around<'_>, conn: &mut Conn<'_, ()>) {
        let id = conn.id();
        loop {
            let Some(pusher) = self.conns.get_mut(&id) else { return };
            let (text, turn) = match pusher.asking.as_mut().map_or(Step::End, |asking| asking.next()) {
                Step::Decided(text, Verdict::Allowed(allowed)) => (text, Turn::Allowed(allowed)),
                Step::Decided(text, verdict) => {
                    refuse(conn, &text, &verdict);
                    continue;
                }
                Step::Next(text) => (text, Turn::Next),
                Step::Wait => break,
                Step::End => {
                    if pusher.asking.take().is_some_and(|asking| asking.is_paused) {
                        conn.pause(false);
                    }
                    break;
                }
            };
            if let Ok(message) = serde_json::from_str::<Message<'_>>(&text) {
                self.act(around, conn, &message, (&text, turn));
            }
        }
        self.weigh(around, conn);
    }

    fn act(
        &mut self,
        around: &mut Around<'_>,
        conn: &mut Conn<'_, ()>,
        Message { event, channel, data }: &Message<'_>,
        (text, turn): (&str, Turn),
    ) {
        let (id, data) = (conn.id(), *data);
        match &**event {
            "pusher:ping" => {
                conn.text(r#"{"event":"pusher:pong","data":{}}"#);
                return;
            }
            "pusher:pong" => return,
            _ => {}
        }
        // Later messages wait, so that their order holds.
        if matches!(turn, Turn::Arrived)
            && let Some(asking) = self.asking(id)
        {
            if let Err(reason) = asking.hold(conn, text, &around.hub.config) {
                conn.text(&wire::error(None, reason));
            }
            return;
        }
        match &**event {
            "pusher:subscribe" => match object(data) {
                Some(subscribe) => self.join_channel(around, conn, &subscribe, (text, &turn)),
                None => _ = conn.text(&wire::error(None, "a subscription without a channel")),
            },
            "pusher:unsubscribe" => {
                if let Some(subscribe) = object::<Subscribe>(data).filter(|data| user_of(&data.channel).is_none()) {
                    self.part(around, id, &subscribe.channel);
                }
            }
            "pusher:signin" => match object(data) {
                Some(sign_in) => self.sign_in(around, conn, &sign_in),
                None => _ = conn.text(&wire::error(None, "a sign-in without auth and user_data")),
            },
            client if client.starts_with("client-") => {
                let event = (client, channel.as_deref(), data);
                if let Err((code, why)) = self.client_event(around, conn, event, (text, turn)) {
                    conn.text(&wire::error(code, &why));
                }
            }
            _ => _ = conn.text(&wire::error(None, "this event is not known; those of clients begin with `client-`")),
        }
    }

    fn join_channel(
        &mut self,
        around: &mut Around<'_>,
        conn: &mut Conn<'_, ()>,
        subscribe: &Subscribe,
        message: (&str, &Turn),
    ) {
        let name = &*subscribe.channel;
        match self.try_join(around, conn, subscribe, message) {
            Ok(Entered::Done(succeeded)) => {
                conn.text(&wire::told("pusher_internal:subscription_succeeded", Some(name), &succeeded));
                self.send_count(around, conn, name);
                self.send_kept(around, conn, name);
            }
            Ok(Entered::Before) => {
                conn.text(&wire::error(None, &format!("Existing subscription to channel {name}")));
            }
            Ok(Entered::Held) => {}
            Err((kind, reason, status)) => _ = conn.text(&wire::refused(name, kind, &reason, status)),
        }
    }

    fn try_join(
        &mut self,
        around: &mut Around<'_>,
        conn: &mut Conn<'_, ()>,
        subscribe: &Subscribe,
        (text, turn): (&str, &Turn),
    ) -> Result<Entered, Refused> {
        let (id, name) = (conn.id(), &*subscribe.channel);
        let Some(pusher) = self.conns.get(&id) else { return Ok(Entered::Before) };
        let app = pusher.app.clone();
        if let Some(user) = user_of(name) {
            // Its connection has subscribed when it signed in.
            let is_own = pusher.user.as_deref() == Some(user);
            return if is_own {
                Ok(Entered::Done(json!({})))
            } else {
                Err(("AuthError", "sign in as this user first".into(), 401))
            };
        }
        let no_name = || ("InvalidChannel", "names of channels have 1 to 164 letters, digits and _-=@,.;".into(), 400);
        let channel = Channel::read(name).ok_or_else(no_name)?;
        if channel.kind != Kind::Public {
            check_auth((&pusher.app, &pusher.socket), subscribe)?;
        }
        let topic = app.topic(name);
        if pusher.channels.contains_key(&topic) {
            return Ok(Entered::Before);
        }
        if pusher.channels.len() >= around.hub.config.max_subscriptions {
            return Err(("LimitReached", "the connection has too many subscriptions".into(), 4004));
        }
        if conn.shard().is_memory_short() {
            return Err(("LimitReached", "memory is short; try again later".into(), 4100));
        }
        if around.rules.kind(&around.hub.config, &topic) != TopicKind::Plain {
            return Err((
                "InvalidChannel",
                "this topic has history, and its messages are for other clients".into(),
                400,
            ));
        }
        let member = if channel.kind == Kind::Presence { Some(member_of(subscribe)?) } else { None };
        if !matches!(turn, Turn::Allowed(_)) {
            let user = pusher.name().cloned().or_else(|| member.as_ref().map(|(user, _)| user.clone()));
            let limits = &around.rules.limits;
            let limited = around.hub.bounds.subscribe(limits, user.as_deref(), conn.peer());
            limited.map_err(|reason| ("LimitReached", reason.into(), 4301))?;
            let wish = Wish::Subscribe { history: false, presence: member.is_some() };
            let matter = Matter { conn: id, user: user.as_deref(), topic: &topic, wish };
            if let Some(reason) = self.holds(around, matter, text) {
                return reason.map_or(Ok(Entered::Held), |reason| Err(("AuthError", reason.into(), 403)));
            }
        }
        let Some((user, info)) = member else {
            self.enter_channel(around, id, &topic, (name, None));
            return Ok(Entered::Done(json!({})));
        };
        self.enter_channel(around, id, &topic, (name, Some(user.clone())));
        let limit = app.limits.members;
        let room = self.channels.get(&topic).and_then(|channel| channel.room.as_ref());
        let has_room = room.is_some_and(|room| room.has(&user) || room.len() < limit);
        let joins = || around.hub.presence.join(&room_topic(&topic), &Who::User(&user), &info, Some(limit));
        let joined = if has_room { joins() } else { Joined::Full };
        match joined {
            Joined::Full => {
                self.leave_channel(around, id, &topic, false);
                return Err(("LimitReached", "the presence channel has too many members".into(), 4004));
            }
            Joined::First => around.tell(About::PRESENCE, (id, Some(&user)), Some((&topic, "join"))),
            Joined::Again => {}
        }
        let room = self.channels.get(&topic).and_then(|channel| channel.room.as_ref());
        Ok(room.map_or(Entered::Before, |room| Entered::Done(room.list(&user, &info))))
    }

    /// Asks the application about a message. `None` if it may be done now, and a reason if it may not be done at all.
    fn holds(&mut self, around: &mut Around<'_>, matter: Matter<'_>, text: &str) -> Option<Option<String>> {
        let (id, asks) = (matter.conn, around.rules.grant(None, matter.topic).terms.about);
        match around.questions.ask((around.hub, around.rules, around.mailbox), asks, matter) {
            Held::No => None,
            Held::Refused(verdict) => Some(Some(verdict.reason().unwrap_or_default().to_owned())),
            Held::Asked(number) => {
                if let Some(pusher) = self.conns.get_mut(&id) {
                    pusher.asking.get_or_insert_default().ask(number, text);
                }
                Some(None)
            }
        }
    }

    /// Sends the number of a channel's subscribers, if its app says so.
    fn send_count(&self, around: &Around<'_>, conn: &mut Conn<'_, ()>, name: &str) {
        let Some(pusher) = self.conns.get(&conn.id()) else { return };
        let topic = pusher.app.topic(name);
        if self.channels.get(&topic).is_some_and(|channel| channel.is_counted) {
            let number = around.hub.presence.watch_number(&room_topic(&topic), around.mailbox);
            conn.text(&wire::subscription_count(name, number));
        }
    }

    /// Sends the last event of a cache channel, or that there is none.
    fn send_kept(&self, around: &Around<'_>, conn: &mut Conn<'_, ()>, name: &str) {
        let Some(pusher) = self.conns.get(&conn.id()) else { return };
        if !Channel::read(name).is_some_and(|channel| channel.is_cached) {
            return;
        }
        match around.hub.channels.kept(&pusher.app.topic(name), Instant::now()) {
            Some(frame) => conn.text(&frame),
            None => conn.text(&wire::told("pusher:cache_miss", Some(name), &json!({}))),
        };
    }

    /// Has a connection get the events of a channel.
    fn enter_channel(
        &mut self,
        around: &mut Around<'_>,
        id: ConnId,
        topic: &Arc<str>,
        (name, user): (&str, Option<Arc<str>>),
    ) {
        let Around { hub, mailbox, account, .. } = around;
        let is_presence = user.is_some();
        hub.channels.enter(topic, mailbox);
        if !self.channels.contains_key(topic) {
            let mut room = is_presence.then(Room::default);
            if let Some(room) = &mut room {
                let own = room_topic(topic);
                let _ = hub.presence.watch(&own, mailbox);
                // Nobody is here yet who has to be told.
                let _ = room.replace(&hub.presence.list(&own));
            }
            // Members of presence channels are known.
            let counts = self.conns.get(&id).is_some_and(|pusher| pusher.app.counts);
            let is_counted = counts && !is_presence && user_of(name).is_none();
            let subscribers = Subscribers::counted_in(around.rules.counts_of(topic));
            let channel = LoopChannel { name: name.into(), subscribers, room, is_counted };
            self.channels.insert(topic.clone(), Box::new(channel));
            account.bytes += CHANNEL + name_memory(topic);
        }
        if let Some(channel) = self.channels.get_mut(topic) {
            channel.subscribers.add(id);
            if channel.is_counted {
                // One more of many without names.
                hub.presence.join_counted(&room_topic(topic), &Who::Conn(""), None);
            }
        }
        if let Some(pusher) = self.conns.get_mut(&id) {
            pusher.channels.insert(topic.clone(), user);
        }
    }

    fn part(&mut self, around: &mut Around<'_>, id: ConnId, name: &str) {
        let Some(pusher) = self.conns.get(&id) else { return };
        let topic = pusher.app.topic(name);
        self.leave_channel(around, id, &topic, true);
    }

    /// Ends a subscription. `is_member` if its user is a member.
    fn leave_channel(&mut self, around: &mut Around<'_>, id: ConnId, topic: &Arc<str>, is_member: bool) {
        let Some(pusher) = self.conns.get_mut(&id) else { return };
        let Some(user) = pusher.channels.remove(topic) else { return };
        let name = pusher.name().cloned();
        let member = user.filter(|_| is_member);
        if is_member {
            let user = member.as_ref().or(name.as_ref()).map(|user| &**user);
            around.tell(About::UNSUBSCRIBE, (id, user), Some((topic, "")));
        }
        self.forget_subscriber(around, id, topic, member.as_deref());
    }

    fn forget_subscriber(&mut self, around: &mut Around<'_>, id: ConnId, topic: &Arc<str>, member: Option<&str>) {
        around.hub.channels.leave(topic, around.mailbox);
        if let Some(user) = member
            && around.hub.presence.leave(&room_topic(topic), &Who::User(user))
        {
            around.tell(About::PRESENCE, (id, Some(user)), Some((topic, "leave")));
        }
        let Some(channel) = self.channels.get_mut(topic) else { return };
        channel.subscribers.remove(id);
        if channel.is_counted {
            around.hub.presence.leave_counted(&room_topic(topic), &Who::Conn(""));
        }
        if channel.subscribers.list().is_empty() {
            if channel.is_counted {
                around.hub.presence.unwatch_number(&room_topic(topic), around.mailbox);
            }
            if channel.room.is_some() {
                around.hub.presence.unwatch(&room_topic(topic), around.mailbox);
            }
            self.channels.remove(topic);
            shrink_map(&mut self.channels);
            around.account.bytes -= CHANNEL + name_memory(topic);
        }
    }

    fn sign_in(&mut self, around: &mut Around<'_>, conn: &mut Conn<'_, ()>, sign_in: &SignIn) {
        let id = conn.id();
        let Some(pusher) = self.conns.get_mut(&id) else { return };
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
        let (name, user): (_, Arc<str>) = (format!("{OF_USER}{user}"), user.into());
        if pusher.known_name() != Some(&user)
            && let Err((code, why)) = around.enter(&user, id)
        {
            return fail(conn, code, why);
        }
        let topic = pusher.app.topic(&name);
        pusher.user = Some(user);
        self.enter_channel(around, id, &topic, (&name, None));
        conn.text(&wire::told("pusher:signin_success", None, &json!({ "user_data": user_data })));
    }

    fn client_event(
        &mut self,
        around: &mut Around<'_>,
        conn: &mut Conn<'_, ()>,
        (event, channel, data): (&str, Option<&str>, Option<&RawValue>),
        (text, turn): (&str, Turn),
    ) -> Result<(), Rejected> {
        let Some(pusher) = self.conns.get_mut(&conn.id()) else { return Ok(()) };
        let name = channel.ok_or_else(|| (None, "an event without a channel".into()))?;
        let topic = pusher.app.topic(name);
        let not_in = || (None, "the connection is not subscribed to this channel".into());
        let member = pusher.channels.get(&topic).ok_or_else(not_in)?.clone();
        if !pusher.app.client_events {
            return Err((None, "To send client events, set `client-events` of the app in the file of rules.".into()));
        }
        if !Channel::read(name).is_some_and(|channel| channel.kind != Kind::Public && !channel.is_encrypted) {
            return Err((None, "Client event rejected - only supported on private and presence channels".into()));
        }
        let allowed = if let Turn::Allowed(allowed) = turn { Some(allowed) } else { None };
        let replaced = allowed.as_ref().and_then(|allowed| allowed.data.as_deref());
        let data = replaced.unwrap_or_else(|| data.map_or("null", RawValue::get));
        let Grant { terms, namespace, .. } = around.rules.grant(None, &topic);
        let most = terms.max_message.unwrap_or(usize::MAX).min(pusher.app.limits.data);
        if event.len() > MOST_EVENT || data.len() > most || depth(data) > MOST_DEPTH {
            return Err((None, "the event is too large, or nested too deeply".into()));
        }
        // Its rate was counted before the application was asked.
        if allowed.is_none() {
            if !pusher.rate.take(MOST_EVENTS, Duration::from_secs(1), Instant::now()) {
                return Err((Some(code::TOO_OFTEN), "more than 10 events in a second".into()));
            }
            let user = pusher.name().cloned().or_else(|| member.clone());
            let limited = around.hub.bounds.publish(&around.rules.limits, (user.as_deref(), &topic, conn.peer()));
            limited.map_err(|reason| (Some(code::TOO_OFTEN), reason.into()))?;
            let wish = Wish::Publish { key: None, event: Some(event), data };
            let matter = Matter { conn: conn.id(), user: user.as_deref(), topic: &topic, wish };
            if let Some(reason) = self.holds(around, matter, text) {
                return reason.map_or(Ok(()), |reason| Err((None, reason.into())));
            }
        }
        let Some(pusher) = self.conns.get(&conn.id()) else { return Ok(()) };
        let frame = wire::client_event(event, name, data, member.as_deref());
        around.rules.publish(namespace);
        around.hub.channels.publish(&topic, &frame, Some(&pusher.socket));
        let message = message_of_client(&topic, event, data);
        let message = Outgoing::text(&message);
        conn.publish(&topic, terms.slow.map_or(message, |policy| message.with_policy(policy)));
        Ok(())
    }

    /// A connection has ended.
    pub(crate) fn close(&mut self, around: &mut Around<'_>, id: ConnId) {
        let Some(pusher) = self.conns.remove(&id) else { return };
        self.sockets.remove(&pusher.socket);
        around.hub.channels.disconnect(&pusher.app);
        around.account.bytes -= pusher.told;
        let (user, known) = (pusher.user.as_ref(), pusher.known_name());
        for name in user.into_iter().chain(known.filter(|known| user != Some(*known))) {
            around.users.leave(&around.hub.sessions, name, id);
        }
        let name = pusher.name().map(|name| &**name);
        around.tell(About::DISCONNECT, (id, name), None);
        for (topic, member) in &pusher.channels {
            around.tell(About::UNSUBSCRIBE, (id, member.as_deref().or(name)), Some((topic, "")));
            self.forget_subscriber(around, id, topic, member.as_deref());
        }
        shrink_map(&mut self.conns);
        shrink_map(&mut self.sockets);
    }

    /// Other rules hold. Connections whose app has others now come again.
    pub(crate) fn recheck(&mut self, rules: &Rules, shard: &mut ShardContext<'_>) {
        for (conn, pusher) in &mut self.conns {
            let mut users = pusher.user.iter().chain(pusher.known_name());
            let is_revoked = users.any(|user| rules.revoked.contains(&**user));
            let (code, why) = match rules.apps.iter().find(|app| app.key == pusher.app.key) {
                _ if is_revoked => (ENDED, "the user is revoked"),
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
    fn weigh(&mut self, around: &mut Around<'_>, conn: &mut Conn<'_, ()>) {
        let id = conn.id();
        let Some(pusher) = self.conns.get_mut(&id) else { return };
        let names = |(topic, user): (&Arc<str>, &Option<Arc<str>>)| {
            topic.len() + user.as_ref().map_or(0, |user| MOST_INFO + user.len())
        };
        let asking = pusher.asking.as_ref().map_or(0, |asking| asking.memory());
        let known = pusher.known.as_ref().map_or(0, |known| known.memory());
        let names = pusher.channels.iter().map(names).sum::<usize>();
        let now = size_of::<Pusher>() + map_memory(&pusher.channels) + names + asking + known;
        if now != pusher.told {
            around.account.bytes = around.account.bytes - pusher.told + now;
            pusher.told = now;
            around.account.is_changed = true;
            conn.shard().set_memory_of(id, 0, now);
        }
    }
}

impl Around<'_> {
    /// Makes a connection one of a user, unless the user is refused or has too many.
    fn enter(&mut self, user: &Arc<str>, conn: ConnId) -> Result<(), (u16, &'static str)> {
        if self.hub.refuses(self.rules, user) {
            return Err((ENDED, "the user is revoked"));
        }
        let most = self.hub.most_sessions(self.rules, user);
        if !self.users.enter(&self.hub.sessions, (user, conn), most) {
            return Err((code::QUOTA, "the user has too many connections"));
        }
        Ok(())
    }

    fn tell(&self, about: About, who: (ConnId, Option<&str>), topic: Option<(&str, &str)>) {
        self.hub.tell_application(self.rules, about, who, topic);
    }
}

/// Tells a client that the application has not allowed its message.
fn refuse(conn: &mut Conn<'_, ()>, text: &str, verdict: &Verdict) {
    let reason = verdict.reason().unwrap_or_default();
    let subscribe =
        serde_json::from_str::<Message<'_>>(text).ok().filter(|message| message.event == "pusher:subscribe");
    match subscribe.and_then(|message| object::<Subscribe>(message.data)) {
        Some(subscribe) => conn.text(&wire::refused(&subscribe.channel, "AuthError", reason, 403)),
        None => conn.text(&wire::error(None, reason)),
    };
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

/// A name for a connection: two numbers, as libraries demand it, that nobody guesses.
fn socket_name() -> Arc<str> {
    let name = random_name();
    let number =
        |digits: Option<&str>| digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default();
    format!("{}.{}", number(name.get(..16)), number(name.get(16..))).into()
}
