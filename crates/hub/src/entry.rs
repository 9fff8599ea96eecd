//! The entry of connections: tokens, their expiry, and rules that change.

use crate::access::{Access, Arriving, check_subscription, code};
use crate::answer::plain;
use crate::asked::{Pace, RESUME, Turn};
use crate::asking::Decided;
use crate::connected::Connected;
use crate::credentials::{Found, find, now};
use crate::events;
use crate::frames::{hello, is_array, messages};
use crate::handler::HubHandler;
use crate::mailbox::ToUser;
use crate::protocol::Object;
use crate::pusher;
use crate::rules::{About, Grant, Identity, Rules, TokenError};
use crate::sessions::TOKEN;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::http::{HeaderValue, StatusCode, header};
use tautline::{
    CloseCode, Conn, ConnHandle, ConnId, Handler, Opening, Outgoing, Reply, Request, ShardContext, ShardHandle,
    ShardHandleError, Upgrade,
};

/// Timers of a connection: the first message is due, another token is wanted, the token has expired.
const LOGIN: u64 = 0;
const REFRESH: u64 = 1;
const EXPIRY: u64 = 2;
/// No timer: subscriptions may have lost their right.
const RECHECK: u64 = 3;

/// The longest time of a timer, and the time by which a fresh token may be asked for too early.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);
const EARLY: Duration = Duration::from_secs(1);

/// Connections whose rights are looked at in one turn, when rules have changed.
const RECHECKS: usize = 512;

impl HubHandler {
    /// Answers a request of a client: for a WebSocket, or for events.
    pub(crate) fn receive(&mut self, request: &Request<'_>) -> Reply {
        let is_events = events::is_for(request);
        let reply = match &self.hub.gate {
            // A browser asks without the headers by which a gate knows its user.
            Some(gate) if !(is_events && events::is_preflight(request)) => gate(request),
            _ if request.is_upgrade || is_events => Reply::upgrade(),
            _ => Reply::status(StatusCode::NOT_FOUND),
        };
        // A gate that answers later is followed by the look at the token when the connection opens.
        let Reply::Upgrade(upgrade) = reply else { return reply };
        if is_events {
            let (reply, arriving) = events::begin((&self.hub, &self.rules, &self.questions), request);
            self.arriving = arriving.or_else(|| self.arriving.take());
            return reply;
        }
        if pusher::app_key(&self.rules, request.http).is_some() {
            // Signatures say what it may do.
            return pusher::admit((&self.hub, &self.rules, &self.questions), request, upgrade);
        }
        self.admit(request, upgrade)
    }

    /// Answers a request for a WebSocket by its token.
    pub(crate) fn admit(&mut self, request: &Request<'_>, upgrade: Upgrade) -> Reply {
        if self.rules.is_open {
            return Reply::Upgrade(upgrade);
        }
        let arriving = match find(request.http, &self.rules.tokens) {
            Found::Token(token) => match self.hub.identify(&self.rules, token) {
                Ok(identity) => Some((token.into(), identity)),
                Err(error) => return unauthorized(error.reason()),
            },
            // The first message may bring one.
            Found::None => None,
            Found::Bad(reason) => return unauthorized(reason),
        };
        if let Some(hooks) = self.rules.hooks_about(About::CONNECT) {
            let asked = (&self.hub, &self.rules, hooks);
            let identity = arriving.map(|(_, identity)| identity);
            return self.questions.connect(asked, request, identity, |found| match found {
                Ok(_) => Decided::Upgrade(upgrade),
                Err((status, reason)) => Decided::Respond(plain(*status, reason)),
            });
        }
        self.arriving = arriving;
        Reply::Upgrade(upgrade)
    }

    /// A connection has opened. False if it is not allowed, and closes.
    pub(crate) fn enter(&mut self, conn: &mut Conn<'_, ()>, opening: &Opening<'_>) -> bool {
        if self.rules.is_open {
            return true;
        }
        let rules = self.rules.clone();
        let arriving = self.arriving.take();
        let found = opening.request.map_or(Found::None, |request| find(request, &rules.tokens));
        let identity = match self.questions.admitted.take(conn.id()) {
            Some(identity) => self.recheck_revoked(identity),
            None if rules.hooks_about(About::CONNECT).is_some() => {
                let reason = "the application was not asked about this connection";
                conn.close(CloseCode::new(code::REFUSED), reason);
                return false;
            }
            None => self.identity_of(found, arriving),
        };
        let identity = match identity {
            Ok(identity) => identity,
            Err(error) => {
                conn.close(CloseCode::new(code::REFUSED), error.reason());
                return false;
            }
        };
        let is_waiting = identity.is_none() && rules.tokens.is_required;
        if is_waiting {
            conn.set_timer(rules.tokens.login, LOGIN);
        }
        let access = Access::new(None, is_waiting, conn.handle());
        self.conns.entry(conn.id()).or_default().access = Some(Box::new(access));
        let fits = identity.is_none_or(|identity| self.become_user(conn, identity));
        self.settle(conn.id());
        fits
    }

    /// The user of a connection that opens, by the token of its request.
    fn identity_of(&self, found: Found<'_>, arriving: Option<Arriving>) -> Result<Option<Arc<Identity>>, TokenError> {
        match found {
            // A gate may have answered for another connection meanwhile.
            Found::Token(token) => match arriving.filter(|(other, _)| **other == *token) {
                Some((_, identity)) => Ok(Some(identity)),
                None => self.hub.identify(&self.rules, token).map(Some),
            },
            Found::None => Ok(None),
            Found::Bad(_) => Err(TokenError::Malformed),
        }
    }

    /// Whether a user was revoked while the application was asked.
    fn recheck_revoked(&self, identity: Option<Arc<Identity>>) -> Result<Option<Arc<Identity>>, TokenError> {
        let is_revoked = |identity: &Arc<Identity>| self.hub.revoked.has_any(identity, Instant::now());
        if identity.as_ref().is_some_and(is_revoked) { Err(TokenError::Revoked) } else { Ok(identity) }
    }

    /// The client says the version of the protocol that it speaks.
    pub(crate) fn greet(&mut self, conn: &mut Conn<'_, ()>, version: Option<u64>) -> Result<(), &'static str> {
        if let Some(many) = hello(conn, version)? {
            self.conns.entry(conn.id()).or_default().takes_many = many;
        }
        Ok(())
    }

    /// Takes a frame of a client: a message, or an array of them.
    pub(crate) fn take_frame(&mut self, conn: &mut Conn<'_, ()>, text: &str) {
        if !is_array(text) || !self.conns.get(&conn.id()).is_some_and(|client| client.takes_many) {
            self.take_text(conn, text, Turn::Arrived);
            return;
        }
        let messages = match messages(text) {
            Ok(messages) => messages,
            Err(reason) => {
                conn.text(&Object::new("error").text("reason", reason).end());
                return;
            }
        };
        let (pace, mut messages) = (Pace::begin(conn), messages.into_iter());
        while let Some(message) = messages.next().filter(|_| conn.takes_messages()) {
            self.take_text(conn, message, Turn::Arrived);
            if messages.len() > 0 && pace.is_over(conn) {
                // As if each had come alone: a client that has to read first is not read on.
                let client = self.conns.entry(conn.id()).or_default();
                let asking = client.asking.get_or_insert_default();
                messages.by_ref().for_each(|message| asking.wait_for_reader(message));
                asking.rest(conn, pace);
                self.settle(conn.id());
            }
        }
    }

    /// Takes a token of a message: the first one, or a fresh one of the same user.
    pub(crate) fn take_token(&mut self, conn: &mut Conn<'_, ()>, token: Option<&str>) -> Result<(), &'static str> {
        if self.rules.is_open {
            return Err("this hub takes no tokens");
        }
        let id = conn.id();
        self.access(id).map_or(Ok(()), |access| access.count_token(Instant::now()))?;
        let before = self.access(id).and_then(|access| access.identity.clone());
        let identity = token.map_or(Err(TokenError::Malformed), |token| self.hub.identify(&self.rules, token));
        let is_same = |identity: &Arc<Identity>| before.as_ref().is_none_or(|before| before.user == identity.user);
        let identity = match identity {
            Ok(identity) if is_same(&identity) => identity,
            refused => {
                let error = refused.err().unwrap_or(TokenError::OtherUser);
                conn.close(CloseCode::new(code::REFUSED), error.reason());
                return Ok(());
            }
        };
        let (user, left) = (identity.user.clone(), identity.expires.saturating_sub(now()));
        if !self.become_user(conn, identity) {
            return Ok(());
        }
        let answer = Object::new("welcome").optional("user", user.as_deref()).number("expires", left.as_secs());
        conn.text(&answer.end());
        // A token that stands in for one with more rights takes these away.
        self.end_lost(conn);
        self.settle(id);
        Ok(())
    }

    /// Gives a connection the rights of a token. False if the user has too many connections.
    fn become_user(&mut self, conn: &mut Conn<'_, ()>, identity: Arc<Identity>) -> bool {
        let (id, rules) = (conn.id(), self.rules.clone());
        let Some(client) = self.conns.get_mut(&id) else { return false };
        if client.access.is_none() {
            client.access = Some(Box::new(Access::new(None, false, conn.handle())));
        }
        let Some(access) = client.access.as_mut() else { return false };
        let is_new = access.identity.as_ref().is_none_or(|before| before.user != identity.user);
        if is_new
            && let Some(user) = &identity.user
            && !self.users.enter(&self.hub.sessions, (user, id), self.hub.most_sessions(&rules, user))
        {
            conn.close(CloseCode::new(code::TOO_MANY), "the user has too many connections");
            return false;
        }
        let left = identity.expires.saturating_add(rules.tokens.conditions.leeway).saturating_sub(now());
        access.identity = Some(identity);
        access.is_waiting = false;
        access.forget();
        conn.cancel_timer(LOGIN);
        // Half of a short life. A client that brings such tokens would else be asked again at once, and for ever.
        let ask = left.saturating_sub(rules.tokens.refresh.min(left / 2));
        conn.set_timer(timer(ask), REFRESH);
        conn.set_timer(timer(left), EXPIRY);
        true
    }

    /// Whether a connection has to bring a token first.
    pub(crate) fn is_unknown(&mut self, conn: ConnId) -> bool {
        let needs_token = !self.rules.is_open && self.rules.tokens.is_required;
        self.access(conn).map_or(needs_token, |access| access.is_waiting)
    }

    /// The rights of a connection in a topic.
    pub(crate) fn grant(&mut self, conn: ConnId, topic: &str) -> Grant {
        let rules = self.rules.clone();
        let identity = self.access(conn).and_then(|access| access.identity.as_deref());
        rules.grant(identity, topic)
    }

    /// The user of a connection.
    pub(crate) fn user(&mut self, conn: ConnId) -> Option<Arc<str>> {
        self.access(conn)?.identity.as_ref()?.user.clone()
    }

    /// A timer of a connection is due.
    pub(crate) fn take_timer(&mut self, conn: &mut Conn<'_, ()>, timer: u64) {
        match timer {
            RECHECK => return self.end_lost(conn),
            RESUME => return self.resume(conn),
            _ => {}
        }
        if self.pushers.has(conn.id()) {
            return self.pushers.expire(conn);
        }
        let rules = self.rules.clone();
        let Some(access) = self.access(conn.id()) else { return };
        let until = access.identity.as_ref().map(|identity| identity.expires);
        match (timer, until) {
            (LOGIN, _) if access.is_waiting => {
                conn.close(CloseCode::new(code::NO_TOKEN), "no token came: send one in the first message");
            }
            (REFRESH, Some(until)) => {
                // Timers have an end that tokens may exceed.
                let left = until.saturating_sub(now());
                match left.checked_sub(rules.tokens.refresh).filter(|early| *early > EARLY) {
                    Some(early) => conn.set_timer(self::timer(early), REFRESH),
                    None => _ = conn.text(&Object::new("token").number("expires", left.as_secs()).end()),
                }
            }
            (EXPIRY, Some(until)) => {
                let left = until.saturating_add(rules.tokens.conditions.leeway).saturating_sub(now());
                if left.is_zero() {
                    conn.close(CloseCode::new(code::EXPIRED), TokenError::Expired.reason());
                } else {
                    conn.set_timer(self::timer(left), EXPIRY);
                }
            }
            _ => {}
        }
    }

    /// Sends something to all connections of a user, or ends them, or those with a token.
    pub(crate) fn take_for_user(&self, shard: &mut ShardContext<'_>, user: &str, what: &ToUser) {
        let of_token: Vec<ConnId>;
        let conns = match user.strip_prefix(TOKEN) {
            Some(token) => {
                let is_its = |client: &Connected| client.identity().is_some_and(|one| one.id.as_deref() == Some(token));
                of_token = self.conns.iter().filter(|(_, client)| is_its(client)).map(|(conn, _)| *conn).collect();
                &of_token
            }
            None => self.users.of(user),
        };
        match what {
            ToUser::Send(frame) => {
                let (of_pusher, own): (Vec<_>, Vec<_>) =
                    conns.iter().copied().partition(|conn| self.pushers.has(*conn));
                shard.send_to(&own, Outgoing::text(frame));
                self.pushers.send_to_user(shard, &of_pusher, (user, frame));
            }
            ToUser::End => {
                for conn in conns {
                    self.end_conn(shard, *conn);
                }
            }
        }
    }

    /// Ends a connection, if it is one of this loop: the application wants that.
    pub(crate) fn end_conn(&self, shard: &mut ShardContext<'_>, conn: ConnId) {
        let code = match (self.pushers.has(conn), self.conns.contains_key(&conn)) {
            (true, _) => pusher::ENDED,
            (false, true) => code::DISCONNECTED,
            (false, false) => return,
        };
        // This loop takes that at any time.
        let _ = shard.close(conn, CloseCode::new(code), "the application has ended this connection");
    }

    pub(crate) fn access(&mut self, conn: ConnId) -> Option<&mut Access> {
        self.conns.get_mut(&conn)?.access.as_deref_mut()
    }

    /// Other rules hold from now on. Rights are looked at in turns, so that nobody waits for long.
    pub(crate) fn take_rules(&mut self, shard: &mut ShardContext<'_>, rules: Arc<Rules>) {
        let before = std::mem::replace(&mut self.rules, rules);
        if !self.rules.has_namespaces_of(&before) {
            self.count_anew(shard);
        }
        // Each loop forgets, since another may have asked by the rules of before meanwhile.
        self.hub.calls.forget_all();
        let is_required = self.rules.tokens.is_required;
        for access in self.conns.values_mut().filter_map(|client| client.access.as_mut()) {
            access.forget_rules();
            // Nobody waits for a token that is not needed any more.
            access.is_waiting &= is_required;
        }
        self.rechecks = self.conns.keys().copied().collect();
    }

    /// Has topics counted in the figures of their namespaces by the rules of now.
    fn count_anew(&mut self, shard: &mut ShardContext<'_>) {
        let rules = self.rules.clone();
        for (topic, track) in &mut self.tracks {
            track.live.count_in(rules.counts_of(topic));
        }
        self.pushers.count_anew(&rules);
        shard.count_anew(|topic| rules.counts_of(topic).map(|counts| counts.topics.clone()));
    }

    /// Looks at the rights of some connections. True if there are more.
    pub(crate) fn recheck_some(&mut self, shard: &ShardContext<'_>) -> bool {
        for _ in 0..RECHECKS {
            let Some(conn) = self.rechecks.pop() else { break };
            if !self.recheck(&shard.handle(), conn) {
                self.rechecks.push(conn);
                break;
            }
        }
        if self.rechecks.is_empty() {
            self.rechecks = Vec::new();
        }
        !self.rechecks.is_empty()
    }

    /// Ends a connection, or has its lost subscriptions end. False if the loop has to do it later.
    fn recheck(&self, shard: &ShardHandle, id: ConnId) -> bool {
        let rules = &self.rules;
        let Some(client) = self.conns.get(&id).filter(|_| !rules.is_open) else { return true };
        let Some(access) = &client.access else {
            // It came when everybody might do everything.
            return shard.close(id, CloseCode::new(code::DISCONNECTED), "the rules of this hub have changed") != FULL;
        };
        if access.identity.as_ref().is_some_and(|identity| rules.is_revoked(identity)) {
            return shard.close(id, CloseCode::new(code::DISCONNECTED), TokenError::Revoked.reason()) != FULL;
        }
        if access.identity.is_none() && rules.tokens.is_required && !access.is_waiting {
            return shard.close(id, CloseCode::new(code::NO_TOKEN), "this hub needs a token now") != FULL;
        }
        self.lost(id).is_empty() || call(&access.handle, RECHECK) != FULL
    }

    /// Ends the subscriptions that a connection has no right to any more, and says why.
    fn end_lost(&mut self, conn: &mut Conn<'_, ()>) {
        for (topic, reason) in self.lost(conn.id()) {
            self.unsubscribe(conn, &topic);
            conn.text(&Object::new("unsubscribed").text("topic", &topic).text("reason", reason).end());
        }
        let id = conn.id();
        self.tell_memory(&mut conn.shard(), id);
    }

    /// The subscriptions that a connection has no right to, and the reasons.
    fn lost(&self, id: ConnId) -> Vec<(Arc<str>, &'static str)> {
        let (rules, config) = (&self.rules, &self.hub.config);
        let Some(client) = self.conns.get(&id) else { return Vec::new() };
        let identity = client.access.as_ref().and_then(|access| access.identity.as_deref());
        let lost = client.subscriptions.iter().filter_map(|(topic, subscription)| {
            let grant = rules.grant(identity, topic);
            if grant.terms.kind(config, topic) != subscription.kind {
                return Some((topic.clone(), "the kind of this topic has changed"));
            }
            let presence = subscription.is_member || subscription.watches || subscription.counts;
            if presence && grant.terms.is_counted != subscription.is_counted {
                return Some((topic.clone(), "whether this topic lists its members has changed"));
            }
            // One that has all of it gets no more of it.
            let history = subscription.history && self.catches_up(topic, id);
            Some((topic.clone(), check_subscription(grant, presence, history).err()?))
        });
        lost.collect()
    }

    /// Counts the memory of a connection.
    pub(crate) fn settle(&mut self, conn: ConnId) {
        if let Some(client) = self.conns.get_mut(&conn) {
            client.settle(&mut self.account);
        }
    }
}

/// A loop's commands are too many.
const FULL: Result<(), ShardHandleError> = Err(ShardHandleError::Full);

/// Has the hub of a connection take a timer that is none.
pub(crate) fn call(handle: &ConnHandle, timer: u64) -> Result<(), ShardHandleError> {
    type Boxed = Box<dyn Handler<State = ()>>;
    match handle.with_conn(move |hub: &mut HubHandler, conn| hub.take_timer(conn, timer)) {
        Err(ShardHandleError::OtherHandler) => handle.with_conn(move |hub: &mut Boxed, conn| hub.on_timer(conn, timer)),
        other => other,
    }
}

/// The time of a timer.
fn timer(left: Duration) -> Duration {
    left.min(LONGEST)
}

/// The answer to a request without a right to connect.
fn unauthorized(reason: &str) -> Reply {
    let mut response = plain(401, reason);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer error=\"invalid_token\""));
    Reply::Respond(response)
}
