//! The hub on one loop.

use crate::access::{Arriving, check_list, check_subscription};
use crate::account::Account;
use crate::arrays::{arrays, send_all};
use crate::asked::Turn;
use crate::asking::{Questions, Wish};
use crate::config::Kind;
use crate::connected::{Connected, FOLLOWED, Subscription};
use crate::events;
use crate::feed::frame;
use crate::figures::subscribe_plain;
use crate::log::{LogError, Page, Position};
use crate::mailbox::{Event, Mailbox};
use crate::presence::{Joined, Who};
use crate::protocol::{Object, Request};
use crate::pusher::{self, Around, Pushers};
use crate::readings::Readings;
use crate::rules::{About, Rights, Rules, Terms};
use crate::sessions::LoopUsers;
use crate::shared::Shared;
use crate::track::{CatchUp, Next, Stage, Track};
use crate::watchers::Watchers;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::layers::engine::sized::{map_memory, name_memory, shrink_map};
use tautline::{
    CloseCode, Closed, Conn, ConnId, Handler, Message, Opening, Outgoing, Reply, ShardContext, ShardHandle,
    ShardHandleError, SlowConsumer,
};

/// Timers of a loop: events of other threads, subscribers that rest, and everything that takes its time.
const POKE: u64 = u64::MAX;
const RESTED: u64 = u64::MAX - 1;
const TICK: u64 = u64::MAX - 2;

const REST: Duration = Duration::from_millis(200);
const TICKS: Duration = Duration::from_secs(1);
/// Events that a loop takes in one turn, if they publish nothing.
const MOST_EVENTS: usize = 1024;
/// The log takes at most this part of the budget of memory, and topics without subscribers take at most that.
const LOG_PART: usize = 4;
const UNUSED_PART: usize = 64;
/// Ticks after which a topic without subscribers is not followed any more.
const IDLE_TICKS: u32 = 10;

/// The handler of one loop. [`Hub::handlers`](crate::Hub::handlers) makes it.
pub struct HubHandler {
    pub(crate) hub: Arc<Shared>,
    /// The rules of the moment, and connections whose rights are looked at since these rules hold.
    pub(crate) rules: Arc<Rules>,
    pub(crate) rechecks: Vec<ConnId>,
    /// The token of a request whose connection opens next.
    pub(crate) arriving: Option<Arriving>,
    /// Questions to the application, and connections whose answers have come.
    pub(crate) questions: Questions,
    pub(crate) resumes: Vec<ConnId>,
    /// Connections of users.
    pub(crate) users: LoopUsers,
    pub(crate) mailbox: Option<Arc<Mailbox>>,
    pub(crate) tracks: HashMap<Arc<str>, Box<Track>>,
    pub(crate) conns: HashMap<ConnId, Box<Connected>>,
    /// Connections of the Pusher protocol.
    pub(crate) pushers: Pushers,
    /// Subscribers that are told the members of a topic, and those that are told their number.
    pub(crate) watchers: Watchers,
    pub(crate) counters: Watchers,
    readings: Readings,
    /// Topics without subscribers that are still followed; some too many between two ticks. Then the most of them.
    unused: usize,
    max_unused: usize,
    /// Whether a subscriber rests.
    has_resting: bool,
    /// News that were published, counted for each watcher, less those of the turns since.
    pub(crate) told_news: usize,
    pub(crate) account: Account,
}

/// Has a loop's hub take the events of other threads.
fn poke(shard: &ShardHandle) -> Result<(), ShardHandleError> {
    type Boxed = Box<dyn Handler<State = ()>>;
    match shard.with_handler::<HubHandler>(|hub, shard| hub.on_shard_timer(shard, POKE)) {
        Err(ShardHandleError::OtherHandler) => {
            shard.with_handler::<Boxed>(|hub, shard| hub.on_shard_timer(shard, POKE))
        }
        other => other,
    }
}

impl HubHandler {
    pub(crate) fn new(hub: Arc<Shared>) -> Self {
        Self {
            rules: hub.rules.get(),
            hub,
            rechecks: Vec::new(),
            arriving: None,
            questions: Questions::default(),
            resumes: Vec::new(),
            users: LoopUsers::default(),
            mailbox: None,
            tracks: HashMap::new(),
            conns: HashMap::new(),
            pushers: Pushers::default(),
            watchers: Watchers::default(),
            counters: Watchers::default(),
            readings: Readings::default(),
            unused: 0,
            max_unused: 0,
            has_resting: false,
            told_news: 0,
            account: Account::default(),
        }
    }

    /// Tells the server's account of memory what has changed, and with it what a client has.
    pub(crate) fn tell_memory(&mut self, shard: &mut ShardContext<'_>, conn: ConnId) {
        if !std::mem::take(&mut self.account.is_changed) {
            return;
        }
        self.tell_tables();
        let weight = self.conns.get(&conn).map_or(0, |client| client.told + client.parts);
        shard.set_memory_of(conn, 0, weight);
    }

    pub(crate) fn tell_tables(&mut self) {
        let watchers = self.watchers.memory() + self.counters.memory();
        let tables = map_memory(&self.tracks) + map_memory(&self.conns) + watchers;
        let users = self.users.memory() + self.rechecks.capacity() * size_of::<ConnId>();
        self.account.tell(tables + users + self.readings.memory() + self.pushers.memory());
    }

    /// Has the connections of the Pusher protocol do something.
    pub(crate) fn with_pushers(&mut self, act: impl FnOnce(&mut Pushers, &mut Around<'_>)) {
        let Self { hub, rules, mailbox, questions, users, account, .. } = self;
        let Some(mailbox) = mailbox else { return };
        act(&mut self.pushers, &mut Around { hub, rules, mailbox, questions, users, account });
        if std::mem::take(&mut self.account.is_changed) {
            self.tell_tables();
        }
    }

    /// A response with events has begun: subscribes to its topics.
    fn open_events(&mut self, conn: &mut Conn<'_, ()>, request: &tautline::http::Request<()>) {
        if !self.hub.streams.enter(conn.peer(), &self.rules.events) {
            return conn.close(CloseCode::TRY_AGAIN_LATER, events::TOO_MANY.reason);
        }
        self.conns.entry(conn.id()).or_default().is_stream = true;
        for text in events::subscriptions(&self.hub.config, request) {
            if let Some(reason) = self.take_text(conn, &text, Turn::Arrived) {
                return conn.close(CloseCode::TRY_AGAIN_LATER, reason);
            }
        }
    }

    /// Does what a message asks for, or says why not. Returns that reason.
    pub(crate) fn take_text(&mut self, conn: &mut Conn<'_, ()>, text: &str, turn: Turn) -> Option<&'static str> {
        let Refusal { reason, topic, id } = self.request(conn, text, turn).err()?;
        let answer = Object::new("error").text("reason", reason);
        conn.text(&answer.optional("topic", topic.as_deref()).optional("id", id.as_deref()).end());
        Some(reason)
    }

    fn request(&mut self, conn: &mut Conn<'_, ()>, text: &str, turn: Turn) -> Result<(), Refusal> {
        let Some(request) = Request::read(text) else {
            return Err(Refusal { reason: "no JSON object of this protocol", topic: None, id: None });
        };
        let named = |text: Option<&str>| text.filter(|text| self.hub.config.fits(text)).map(str::to_owned);
        let (topic, id) = (named(request.topic.as_deref()), named(request.id.as_deref()));
        self.act(conn, &request, (text, turn)).map_err(|reason| Refusal { reason, topic, id })
    }

    fn act(
        &mut self,
        conn: &mut Conn<'_, ()>,
        request: &Request<'_>,
        (text, turn): (&str, Turn),
    ) -> Result<(), &'static str> {
        match &*request.action {
            "ping" => {
                let id = request.id.as_deref().filter(|id| self.hub.config.fits(id));
                conn.text(&Object::new("pong").optional("id", id).end());
                return Ok(());
            }
            "hello" => return self.greet(conn, request.version),
            "token" => return self.take_token(conn, request.token.as_deref()),
            "subscribe" | "unsubscribe" | "publish" => {}
            _ => {
                return Err(
                    "this type of message is not known: write subscribe, unsubscribe, publish, token, ping or hello",
                );
            }
        }
        if self.is_unknown(conn.id()) {
            return Err("this hub needs a token: send one in the first message");
        }
        if matches!(turn, Turn::Arrived) && self.waits(conn, text)? {
            return Ok(());
        }
        let topic = request.topic.as_deref().filter(|topic| self.hub.config.allows(topic));
        let topic: Arc<str> = topic.ok_or("the name of the topic is missing or not allowed")?.into();
        let texts = [&request.member, &request.key, &request.id, &request.epoch];
        if texts.into_iter().flatten().any(|text| !self.hub.config.fits(text)) {
            return Err("a name, key, identifier or epoch is too long or has control characters");
        }
        match &*request.action {
            "subscribe" => self.subscribe(conn, &topic, request, (text, &turn)),
            "unsubscribe" => {
                self.unsubscribe(conn, &topic);
                conn.text(&Object::new("unsubscribed").text("topic", &topic).end());
                Ok(())
            }
            _ => self.publish(conn, &topic, request, (text, turn)),
        }
    }

    pub(crate) fn subscribe(
        &mut self,
        conn: &mut Conn<'_, ()>,
        topic: &Arc<str>,
        request: &Request<'_>,
        (text, turn): (&str, &Turn),
    ) -> Result<(), &'static str> {
        let Some(mailbox) = self.mailbox.clone() else { return Err("the hub has not started") };
        if conn.shard().is_memory_short() {
            return Err("memory is short; try again later");
        }
        let grant = self.grant(conn.id(), topic);
        let kind = grant.terms.kind(&self.hub.config, topic);
        let presence = request.member.is_some() || request.presence || request.count;
        let after = request.after.filter(|_| kind == Kind::History);
        // One that returns with its offset goes on from now, and is told if it is late. That of an empty topic is 0, with an epoch.
        let is_barred = after.is_some_and(|n| n > 0 || request.epoch.is_some()) && !grant.rights.has(Rights::HISTORY);
        let history = after.is_some() && !is_barred;
        check_subscription(grant, presence, history)?;
        check_list(grant, request.presence)?;
        if !matches!(turn, Turn::Allowed(_)) {
            // One that comes too often is refused before the application is asked.
            let user = self.user(conn.id());
            self.hub.bounds.subscribe(&self.rules.limits, user.as_deref(), conn.peer())?;
            let wish = Wish::Subscribe { history: request.after.is_some(), presence };
            if self.is_held(conn, grant, wish, (topic, request, text))? {
                return Ok(());
            }
        }
        self.unsubscribe(conn, topic);
        let (hub, id) = (self.hub.clone(), conn.id());
        // Nobody is a member under the name of somebody else.
        let user = self.user(id);
        let name = request.member.as_deref().map(|name| user.as_deref().unwrap_or(name));
        if self.conns.get(&id).is_some_and(|client| client.subscriptions.len() >= hub.config.max_subscriptions) {
            return Err("too many subscriptions");
        }
        if self.tracks.get(topic).is_some_and(|track| track.kind != kind) {
            // Rules have changed it. Subscriptions of before end.
            self.forget(topic);
        }
        if kind != Kind::Plain && !self.tracks.contains_key(topic) && self.tracks.len() >= hub.config.max_topics {
            return Err("too many topics are followed; try again later");
        }
        let counts = self.rules.counts(grant.namespace).cloned();
        if kind == Kind::Plain && !subscribe_plain(conn, topic, counts.as_ref()) {
            return Err("too many subscriptions");
        }
        // All who have a topic's name share it.
        let known = self.tracks.get_key_value(topic).map(|(name, _)| name.clone());
        let topic = &known.or_else(|| conn.subscribed(topic)).unwrap_or_else(|| topic.clone());
        let mut subscription = Subscription::new(kind, topic, request, hub.log.memory_of_topic());
        subscription.as_user = subscription.is_member && user.is_some();
        subscription.is_counted = grant.terms.is_counted;
        subscription.history = history;
        let conn_id = id.to_string();
        let who = user.as_deref().map_or(Who::Conn(&conn_id), Who::User);
        if name.is_some_and(|name| !self.join(id, topic, (&who, name), &grant.terms)) {
            conn.unsubscribe(topic);
            return Err("too many members");
        }
        let client = self.conns.entry(id).or_default();
        client.subscriptions.insert(topic.clone(), subscription);
        client.parts += subscription.part as usize;
        client.settle(&mut self.account);
        if kind == Kind::Plain {
            conn.text(&Object::new("subscribed").text("topic", topic).end());
        } else {
            if !self.tracks.contains_key(topic) {
                self.tracks.insert(topic.clone(), Box::new(Track::new(kind, counts.as_ref())));
                self.account.bytes += name_memory(topic);
                hub.feeds.follow(&*hub.log, (topic, kind), &mailbox);
                hub.account.feeds.tell(|| hub.feeds.memory());
                hub.account.log.tell(|| hub.log.memory());
            }
            if let Some(track) = self.tracks.get_mut(topic) {
                let epoch = request.epoch.as_deref().map(Into::into);
                track.catching.insert(id, CatchUp::new(request.after, epoch, is_barred));
                self.advance(&mut conn.shard(), topic, id);
            }
        }
        if request.presence {
            self.watchers.add(topic, id, &mut self.account.bytes);
            for page in hub.presence.watch(topic, &mailbox) {
                // An answer: the client is not read on while many bytes of these wait for it.
                conn.send(Outgoing::prepared(&page).with_policy(SlowConsumer::Disconnect(hub.config.max_lag)));
            }
        }
        if request.count {
            self.begin_counting(conn, topic, &mailbox);
        }
        Ok(())
    }

    /// Makes a connection or its user a member. False if there are too many.
    fn join(&self, conn: ConnId, topic: &Arc<str>, (who, name): (&Who<'_>, &str), terms: &Terms) -> bool {
        let (presence, most) = (&self.hub.presence, terms.max_members);
        let joined = if terms.is_counted {
            presence.join_counted(topic, who, most)
        } else {
            presence.join(topic, who, name, most)
        };
        if joined == Joined::First {
            let user = if let Who::User(user) = who { Some(*user) } else { None };
            self.hub.tell_application(&self.rules, About::PRESENCE, (conn, user), Some((topic, "join")));
        }
        joined != Joined::Full
    }

    pub(crate) fn unsubscribe(&mut self, conn: &mut Conn<'_, ()>, topic: &Arc<str>) {
        let id = conn.id();
        let Some(client) = self.conns.get_mut(&id) else { return };
        let Some(subscription) = client.subscriptions.remove(topic) else { return };
        client.parts -= subscription.part as usize;
        client.settle(&mut self.account);
        conn.unsubscribe(topic);
        let user = self.user(id);
        self.end(id, topic, subscription, user.as_deref());
    }

    /// Ends a subscription, but for that of the loop's own topics.
    fn end(&mut self, conn: ConnId, topic: &Arc<str>, subscription: Subscription, user: Option<&str>) {
        let Subscription { is_member, as_user, is_counted, watches, counts, .. } = subscription;
        self.hub.tell_application(&self.rules, About::UNSUBSCRIBE, (conn, user), Some((topic, "")));
        if let Some(track) = self.tracks.get_mut(topic) {
            track.remove(conn);
            track.settle(&mut self.account.bytes);
            // Each is kept for a while, unless a client that changes its topics fills the loop with them.
            if track.is_unused() {
                self.unused += 1;
                if self.unused > self.max_unused {
                    self.unused -= 1;
                    self.forget(topic);
                }
            }
        }
        if is_member {
            let name = conn.to_string();
            let who = user.filter(|_| as_user).map_or(Who::Conn(&name), Who::User);
            let presence = &self.hub.presence;
            let leaves = if is_counted { presence.leave_counted(topic, &who) } else { presence.leave(topic, &who) };
            if leaves {
                self.hub.tell_application(&self.rules, About::PRESENCE, (conn, user), Some((topic, "leave")));
            }
        }
        if watches && self.watchers.remove(topic, conn, &mut self.account.bytes) {
            self.mailbox.iter().for_each(|mailbox| self.hub.presence.unwatch(topic, mailbox));
        }
        if counts && self.counters.remove(topic, conn, &mut self.account.bytes) {
            self.mailbox.iter().for_each(|mailbox| self.hub.presence.unwatch_number(topic, mailbox));
        }
    }

    /// Does not follow a topic any more.
    fn forget(&mut self, topic: &Arc<str>) -> Option<Box<Track>> {
        let track = self.tracks.remove(topic)?;
        track.forget(&mut self.account.bytes);
        self.account.bytes -= name_memory(topic);
        shrink_map(&mut self.tracks);
        self.mailbox.iter().for_each(|mailbox| self.hub.feeds.unfollow(topic, mailbox));
        self.hub.account.feeds.tell(|| self.hub.feeds.memory());
        Some(track)
    }

    /// Takes events of other threads, as many as a turn may publish. The next turn goes on with the rest.
    fn take_events(&mut self, shard: &mut ShardContext<'_>) {
        let Some(mailbox) = self.mailbox.clone() else { return };
        for _ in 0..MOST_EVENTS {
            if shard.is_full() {
                break;
            }
            let Some(event) = mailbox.next() else { break };
            self.take_event(shard, event);
        }
        let has_rechecks = self.recheck_some(shard) | self.resume_some();
        self.take_some_news(shard, &mailbox);
        self.tell_tables();
        if !mailbox.rest() || has_rechecks {
            shard.set_timer(Duration::ZERO, POKE);
        }
    }

    fn take_event(&mut self, shard: &mut ShardContext<'_>, event: Event) {
        match event {
            Event::Begin(topic, at) => {
                let Some(track) = self.tracks.get_mut(&topic) else { return };
                track.begin(at);
                track.settle(&mut self.account.bytes);
                for conn in track.subscribers() {
                    self.advance(shard, &topic, conn);
                }
            }
            Event::Entry(entry) => {
                let Some(track) = self.tracks.get_mut(&entry.topic) else { return };
                if !track.push(&entry) {
                    return;
                }
                track.settle(&mut self.account.bytes);
                if !track.live.list().is_empty() {
                    track.live.deliver(track.live.list().len());
                    let policy = SlowConsumer::Disconnect(self.hub.config.max_lag);
                    shard.send_to_list(track.live.shared(), Outgoing::prepared(&entry.message).with_policy(policy));
                }
                for conn in track.ready(entry.offset) {
                    self.advance(shard, &entry.topic, conn);
                }
            }
            Event::Lost(topic) => self.lose(shard, &topic),
            Event::Page { topic, conn, reading, page } => {
                self.readings.end();
                if !self.take_page(shard, (&topic, conn, reading), page) {
                    self.free(shard, conn, reading);
                }
                while let Some((topic, conn)) = self.readings.next() {
                    self.advance(shard, &topic, conn);
                }
            }
            Event::Delivered { topic, conn, reading, lags } => {
                if let Some(catch_up) = self.reader(&topic, conn, reading) {
                    catch_up.stage = Stage::Behind;
                    // Behind the connection's other topics.
                    self.advance(shard, &topic, conn);
                }
                if !lags || !self.readings.queue(conn, reading) {
                    self.free(shard, conn, reading);
                }
            }
            Event::Appended { conn, id, result } => self.appended(shard, conn, id.as_deref(), result),
            Event::Presence { .. } | Event::Members(_) | Event::Number { .. } => self.take_news(shard, event),
            Event::Rules(rules) => {
                self.take_rules(shard, rules);
                self.pushers.recheck(&self.rules, shard);
            }
            Event::Pusher(delivery) => self.pushers.deliver(&self.rules, shard, &delivery),
            Event::Post { topic, frame, slow } => {
                let message = Outgoing::text(&frame);
                shard.publish(&topic, slow.map_or(message, |policy| message.with_policy(policy)));
            }
            Event::User(user, what) => self.take_for_user(shard, &user, &what),
            Event::End(conn) => self.end_conn(shard, conn),
            Event::Verdict { conn, number, verdict } => self.take_verdict(conn, number, verdict),
        }
    }

    /// Takes the next step for a subscriber that catches up.
    fn advance(&mut self, shard: &mut ShardContext<'_>, topic: &Arc<str>, conn: ConnId) {
        self.step(shard, topic, conn);
        if let Some(track) = self.tracks.get_mut(topic) {
            track.settle(&mut self.account.bytes);
        }
    }

    fn step(&mut self, shard: &mut ShardContext<'_>, topic: &Arc<str>, conn: ConnId) {
        let hub = self.hub.clone();
        let Some(track) = self.tracks.get_mut(topic) else { return };
        let (kind, Some(at)) = (track.kind, track.at.clone()) else { return };
        let Some(catch_up) = track.catching.get_mut(&conn) else { return };
        if catch_up.stage == Stage::New
            && let Some(answer) = catch_up.begin(topic, kind, &at)
        {
            shard.send_to(&[conn], Outgoing::text(&answer));
        }
        if catch_up.stage != Stage::Behind {
            return;
        }
        let after = catch_up.after;
        match track.next(after) {
            Next::Wait => {}
            Next::Join(entries) => {
                let delivery = match entries.last() {
                    Some(last) => match self.readings.deliver(topic, conn) {
                        Some(number) => Some((last, number)),
                        None => return,
                    },
                    None => None,
                };
                track.end_catching(conn);
                track.live.add(conn);
                self.rules.send_history(topic, entries.len());
                let policy = SlowConsumer::Disconnect(hub.config.max_lag);
                let many = self.conns.get(&conn).is_some_and(|client| client.takes_many);
                let Some(((_, reading), mailbox)) = delivery.zip(self.mailbox.as_ref()) else { return };
                let done = mailbox.delivery(topic, conn, reading);
                if many {
                    let texts = entries.iter().map(|entry| Cow::Borrowed(entry.text()));
                    return send_all(shard, conn, policy, &arrays(texts), done);
                }
                let Some((last, first)) = entries.split_last() else { return };
                for entry in first {
                    shard.send_to(&[conn], Outgoing::prepared(&entry.message).with_policy(policy));
                }
                shard.publish_counted(&[conn][..], Outgoing::prepared(&last.message).with_policy(policy), done);
            }
            Next::Read(after) => {
                let (Some(mailbox), Some(catch_up)) = (self.mailbox.clone(), track.catching.get_mut(&conn)) else {
                    return;
                };
                let Some(reading) = self.readings.begin(topic, conn) else { return };
                (catch_up.stage, catch_up.reading) = (Stage::Reading, reading);
                let to = topic.clone();
                let done = move |page| mailbox.push(Event::Page { topic: to, conn, reading, page });
                hub.log.read(topic, kind, after, Box::new(done));
            }
        }
    }

    /// Sends a page of the log to a subscriber that catches up. False if there is nothing to send.
    fn take_page(
        &mut self,
        shard: &mut ShardContext<'_>,
        (topic, conn, reading): (&Arc<str>, ConnId, u64),
        page: Result<Page, LogError>,
    ) -> bool {
        let at = self.tracks.get(topic).and_then(|track| track.at.clone());
        let Some(catch_up) = self.reader(topic, conn, reading) else { return false };
        let page = match page {
            Ok(page) if catch_up.after.is_none_or(|after| page.upto.offset > after) => page,
            Err(LogError::TooLate) => {
                (catch_up.stage, catch_up.after, catch_up.is_late) = (Stage::Behind, None, true);
                self.advance(shard, topic, conn);
                return false;
            }
            // The log is away, or knows less than this loop. It is asked again.
            Ok(_) | Err(_) => {
                catch_up.stage = Stage::Resting;
                self.rest(shard);
                return false;
            }
        };
        catch_up.after = Some(page.upto.offset);
        if let Some(at) = at.filter(|_| std::mem::take(&mut catch_up.is_late)) {
            // The messages that are kept follow, and the client misses those before them.
            let offset = page.entries.first().map_or(page.upto.offset, |first| first.offset.saturating_sub(1));
            let answer = Object::new("late").text("topic", topic).position(&Position { offset, ..at }).end();
            shard.send_to(&[conn], Outgoing::text(&answer));
        }
        if page.entries.is_empty() {
            catch_up.stage = Stage::Behind;
            self.advance(shard, topic, conn);
            return false;
        }
        self.rules.send_history(topic, page.entries.len());
        let Some(mailbox) = &self.mailbox else { return false };
        let texts = page.entries.iter().map(|entry| Cow::Owned(frame(topic, entry)));
        let many = self.conns.get(&conn).is_some_and(|client| client.takes_many);
        let texts = if many { arrays(texts) } else { texts.collect() };
        let policy = SlowConsumer::Disconnect(self.hub.config.max_lag);
        // The next page follows once this one was delivered.
        send_all(shard, conn, policy, &texts, mailbox.delivery(topic, conn, reading));
        true
    }

    /// Has a connection's next topics go on, since the page of a reading was delivered or there is none.
    fn free(&mut self, shard: &mut ShardContext<'_>, conn: ConnId, reading: u64) {
        let mut next = self.readings.free(conn, reading);
        while let Some(topic) = next {
            self.advance(shard, &topic, conn);
            next = self.readings.next_of(conn);
        }
    }

    /// Whether a subscriber of a topic still gets messages that are kept.
    pub(crate) fn catches_up(&self, topic: &str, conn: ConnId) -> bool {
        self.tracks.get(topic).is_some_and(|track| track.catching.contains_key(&conn))
    }

    /// The subscriber whose current reading has this number.
    fn reader(&mut self, topic: &Arc<str>, conn: ConnId, reading: u64) -> Option<&mut CatchUp> {
        let catch_up = self.tracks.get_mut(topic)?.catching.get_mut(&conn)?;
        (catch_up.stage == Stage::Reading && catch_up.reading == reading).then_some(catch_up)
    }

    /// Messages of a topic are missing: its subscribers come back with the last offset that they have.
    fn lose(&mut self, shard: &mut ShardContext<'_>, topic: &Arc<str>) {
        let Some(track) = self.forget(topic) else { return };
        let answer = Object::new("resync").text("topic", topic).end();
        let subscribers = track.subscribers();
        shard.send_to(&subscribers, Outgoing::text(&answer));
        for conn in subscribers {
            if self.conns.get(&conn).is_some_and(|client| client.is_stream) {
                // It cannot subscribe again but by a new request, with the place that it has.
                let _ = shard.close(conn, CloseCode::SERVICE_RESTART, "resync");
            }
        }
    }

    fn rest(&mut self, shard: &mut ShardContext<'_>) {
        if !std::mem::replace(&mut self.has_resting, true) {
            shard.set_timer(REST, RESTED);
        }
    }

    /// Goes on with the subscribers that rested.
    fn wake_resting(&mut self, shard: &mut ShardContext<'_>) {
        self.has_resting = false;
        let mut rested = Vec::new();
        for (topic, track) in &mut self.tracks {
            rested.extend(track.wake().into_iter().map(|conn| (topic.clone(), conn)));
        }
        for (topic, conn) in rested {
            self.advance(shard, &topic, conn);
        }
    }

    fn tick(&mut self) {
        let Some(mailbox) = &self.mailbox else { return };
        self.hub.presence.tick(Instant::now());
        self.hub.control.tick(&self.hub.revoked, Instant::now());
        if self.rules.max_sessions < usize::MAX {
            self.hub.elsewhere.tick(&self.hub.sessions, Instant::now());
        }
        let (hub, bytes) = (&self.hub, &mut self.account.bytes);
        self.tracks.retain(|topic, track| {
            track.idle = if track.is_unused() { track.idle + 1 } else { 0 };
            let stays = track.idle < IDLE_TICKS;
            if !stays {
                track.forget(bytes);
                *bytes -= name_memory(topic);
                hub.feeds.unfollow(topic, mailbox);
            }
            stays
        });
        shrink_map(&mut self.tracks);
        self.unused = self.tracks.values().filter(|track| track.is_unused()).count();
        hub.tell_memory();
        self.questions.admitted.tick(Instant::now());
        self.tell_tables();
    }
}

/// A request that was not granted.
struct Refusal {
    reason: &'static str,
    topic: Option<String>,
    id: Option<String>,
}

impl Handler for HubHandler {
    type State = ();

    fn on_start(&mut self, shard: &mut ShardContext<'_>) {
        let memory = shard.memory();
        self.hub.presence.count(&memory);
        self.hub.account.begin(&memory);
        self.hub.begin();
        let budget = shard.memory_budget();
        self.hub.log.bound(budget / LOG_PART);
        let of_topic = FOLLOWED + self.hub.log.memory_of_topic();
        self.max_unused = (self.hub.config.max_topics / 8).min(budget / UNUSED_PART / of_topic);
        self.account.begin(&memory);
        let mailbox = Mailbox::new(shard.handle(), poke, memory);
        self.rules = self.hub.rules.follow(&mailbox);
        self.mailbox = Some(mailbox);
        shard.set_timer(TICKS, TICK);
    }

    fn on_request(&mut self, request: &tautline::Request<'_>) -> Reply {
        self.call(request).or_else(|| self.call_app(request)).unwrap_or_else(|| self.receive(request))
    }

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, opening: &Opening<'_>) {
        if let Some(request) = opening.request
            && let Some(key) = pusher::app_key(&self.rules, request)
            && !conn.is_push()
        {
            return self.with_pushers(|pushers, around| pushers.open(around, conn, key, request));
        }
        let is_allowed = self.enter(conn, opening);
        let id = conn.id();
        if let Some(request) = opening.request.filter(|_| is_allowed && conn.is_push()) {
            self.open_events(conn, request);
        }
        self.tell_memory(&mut conn.shard(), id);
    }

    fn on_timer(&mut self, conn: &mut Conn<'_, ()>, id: u64) {
        self.take_timer(conn, id);
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        if self.pushers.has(conn.id()) {
            return self.with_pushers(|pushers, around| pushers.take(around, conn, message.text()));
        }
        match message.text() {
            Some(text) => self.take_frame(conn, text),
            None => _ = conn.text(&Object::new("error").text("reason", "a binary message; the protocol is JSON").end()),
        }
        let id = conn.id();
        self.tell_memory(&mut conn.shard(), id);
    }

    fn on_shard_timer(&mut self, shard: &mut ShardContext<'_>, id: u64) {
        match id {
            POKE => self.take_events(shard),
            RESTED => self.wake_resting(shard),
            TICK => {
                self.take_events(shard);
                self.tick();
                shard.set_timer(TICKS, TICK);
            }
            _ => {}
        }
    }

    fn on_drain(&mut self, conn: &mut Conn<'_, ()>) {
        let id = conn.id();
        if let Some(reading) = self.readings.drain(id) {
            self.free(&mut conn.shard(), id, reading);
        }
        self.resume_reader(conn);
    }

    fn on_close(&mut self, conn: &mut Conn<'_, ()>, _closed: &Closed) {
        let id = conn.id();
        if self.pushers.has(id) {
            self.with_pushers(|pushers, around| pushers.close(around, id));
            return self.tell_tables();
        }
        self.readings.forget(id);
        let Some(client) = self.conns.remove(&id) else { return };
        if client.is_stream {
            self.hub.streams.leave(conn.peer());
        }
        self.account.bytes -= client.told;
        shrink_map(&mut self.conns);
        let identity = client.access.as_ref().and_then(|access| access.identity.as_ref());
        let user = identity.and_then(|identity| identity.user.clone());
        if let Some(user) = &user {
            self.users.leave(&self.hub.sessions, user, id);
        }
        if client.access.is_some() {
            self.hub.tell_application(&self.rules, About::DISCONNECT, (id, user.as_deref()), None);
        }
        for (topic, subscription) in client.subscriptions {
            self.end(id, &topic, subscription, user.as_deref());
        }
        self.tell_tables();
    }
}

impl Drop for HubHandler {
    fn drop(&mut self) {
        let Some(mailbox) = &self.mailbox else { return };
        for topic in self.tracks.keys() {
            self.hub.feeds.unfollow(topic, mailbox);
        }
        for topic in self.watchers.topics() {
            self.hub.presence.unwatch(topic, mailbox);
        }
        for topic in self.counters.topics() {
            self.hub.presence.unwatch_number(topic, mailbox);
        }
        self.pushers.end(&self.hub, mailbox);
    }
}

impl std::fmt::Debug for HubHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HubHandler").field("topics", &self.tracks.len()).finish_non_exhaustive()
    }
}
