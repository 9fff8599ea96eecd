//! Messages of clients on their way to the application, to subscribers or to the log.

use crate::access::check_publish;
use crate::asked::{Pace, RESUME, Step, Turn};
use crate::asking::{Held, Matter, Wish};
use crate::config::Kind;
use crate::connected::texts;
use crate::entry::call;
use crate::handler::HubHandler;
use crate::hooks::Verdict;
use crate::log::{Append, LogError, Position};
use crate::mailbox::Event;
use crate::protocol::{MOST_DEPTH, Object, Request, depth};
use crate::rules::Grant;
use std::collections::VecDeque;
use std::sync::Arc;
use tautline::{Conn, ConnId, Outgoing, Reach, ShardContext, ShardHandleError};

impl HubHandler {
    pub(crate) fn publish(
        &mut self,
        conn: &mut Conn<'_, ()>,
        topic: &Arc<str>,
        request: &Request<'_>,
        (text, turn): (&str, Turn),
    ) -> Result<(), &'static str> {
        let hub = self.hub.clone();
        let config = &hub.config;
        let allowed = if let Turn::Allowed(allowed) = turn { Some(allowed) } else { None };
        let data = request.data.ok_or("a message without data")?.get();
        let replaced = allowed.as_ref().and_then(|allowed| allowed.data.as_deref());
        let data = replaced.unwrap_or(data);
        if depth(data) > MOST_DEPTH {
            return Err("the data is nested too deeply");
        }
        let (key, id) = (request.key.as_deref(), request.id.as_deref());
        let grant = match self.conns.get_mut(&conn.id()).and_then(|client| client.access.as_mut()) {
            // Its rate was counted before the application was asked.
            Some(access) if allowed.is_some() => {
                let grant = self.rules.grant(access.identity.as_deref(), topic);
                check_publish(grant, data.len()).map(|()| grant)?
            }
            Some(access) => access.publish(&self.rules, topic, data.len())?,
            None => {
                let grant = self.rules.grant(None, topic);
                check_publish(grant, data.len()).map(|()| grant)?
            }
        };
        if allowed.is_none() && !self.rules.is_open {
            let user = self.user(conn.id());
            hub.bounds.publish(&self.rules.limits, (user.as_deref(), topic, conn.peer()))?;
        }
        let wish = Wish::Publish { key, event: None, data };
        if allowed.is_none() && self.is_held(conn, grant, wish, (topic, request, text))? {
            return Ok(());
        }
        let kind = grant.terms.kind(config, topic);
        if kind == Kind::Plain {
            self.rules.publish(grant.namespace);
            let message = Object::new("message").text("topic", topic).optional("key", key).raw("data", data).end();
            self.hub.channels.publish_message(&self.rules, topic, data);
            let message = Outgoing::text(&message);
            let message = grant.terms.slow.map_or(message, |policy| message.with_policy(policy));
            let reach = match conn.publish(topic, message) {
                Reach::ThisHost(reason) if reason != tautline::Withheld::NoBroker => "host",
                _ => "all",
            };
            if let Some(id) = id {
                conn.text(&Object::new("published").text("id", id).text("reach", reach).end());
            }
            return Ok(());
        }
        let client = self.conns.entry(conn.id()).or_default();
        let most_taken = config.max_unanswered.saturating_mul(2);
        if id.is_some_and(|id| client.taken.as_ref().is_some_and(|taken| taken.contains(id))) {
            // Its answer comes, or has gone.
            return Ok(());
        }
        if client.blocked_on.as_deref().is_some_and(|first| id != Some(first)) {
            conn.text(&not_now("an earlier message has to be repeated first", id));
            return Ok(());
        }
        let is_full = client.waiting_bytes >= config.max_unanswered_bytes;
        if client.waiting.len() >= config.max_unanswered || is_full {
            if id.is_some() {
                client.blocked_on = id.map(Into::into);
                client.begin_repeating(most_taken);
                client.settle(&mut self.account);
            }
            conn.text(&not_now("too many messages wait for the log", id));
            return Ok(());
        }
        client.blocked_on = None;
        let append = Append { kind, key: key.map(Into::into), data: data.into(), id: id.map(Into::into) };
        if let (Some(taken), Some(id)) = (&mut client.taken, id) {
            taken.add(id, most_taken);
        }
        client.waiting_bytes += data.len();
        client.waiting_texts += texts(topic, &append);
        client.waiting.push_back((topic.clone(), append));
        self.rules.publish(grant.namespace);
        client.settle(&mut self.account);
        self.append_next(conn.id());
        Ok(())
    }

    /// Gives the log a client's next message, unless it has one.
    fn append_next(&mut self, conn: ConnId) {
        let Some(mailbox) = self.mailbox.clone() else { return };
        let Some(client) = self.conns.get_mut(&conn).filter(|client| !client.is_appending) else { return };
        let Some((topic, mut append)) = client.waiting.pop_front() else {
            client.waiting = VecDeque::new();
            return client.settle(&mut self.account);
        };
        client.waiting_bytes -= append.data.len();
        client.waiting_texts -= texts(&topic, &append);
        client.settle(&mut self.account);
        client.is_appending = true;
        let id = append.id.take();
        client.appending.clone_from(&id);
        append.id = match (&client.access, &id) {
            (Some(access), Some(id)) => Some(access.name(id)),
            _ => id.clone(),
        };
        let done = move |result| mailbox.push(Event::Appended { conn, id, result });
        self.hub.log.append(&topic, append, Box::new(done));
    }

    /// Answers a client's message, and goes on with its next one.
    pub(crate) fn appended(
        &mut self,
        shard: &mut ShardContext<'_>,
        conn: ConnId,
        id: Option<&str>,
        result: Result<Position, LogError>,
    ) {
        let most_taken = self.hub.config.max_unanswered.saturating_mul(2);
        let Some(client) = self.conns.get_mut(&conn) else { return };
        client.is_appending = false;
        client.appending = None;
        let answer = match result {
            Ok(at) => Object::new("published").position(&at).optional("id", id).end(),
            Err(error @ (LogError::Away | LogError::Full)) => {
                let mut refused = VecDeque::new();
                // The client repeats all of them in their order.
                if id.is_some() {
                    client.blocked_on = id.map(Into::into);
                    (client.waiting_bytes, client.waiting_texts) = (0, 0);
                    refused = std::mem::take(&mut client.waiting);
                    let again = refused.iter().filter_map(|(_, append)| append.id.as_deref());
                    client.begin_repeating(most_taken).remove(id.into_iter().chain(again));
                }
                for id in refused.iter().filter_map(|(_, append)| append.id.as_deref()) {
                    shard.send_to(&[conn], Outgoing::text(&not_now(&error.to_string(), Some(id))));
                }
                not_now(&error.to_string(), id)
            }
            Err(error) => Object::new("error").text("reason", &error.to_string()).optional("id", id).end(),
        };
        if id.is_some() {
            shard.send_to(&[conn], Outgoing::text(&answer));
        }
        self.append_next(conn);
        self.hub.account.log.tell(|| self.hub.log.memory());
        self.tell_memory(shard, conn);
    }

    /// Whether a message is not to be done now: the application is asked about it, or has refused it.
    pub(crate) fn is_held(
        &mut self,
        conn: &mut Conn<'_, ()>,
        grant: Grant,
        wish: Wish<'_>,
        (topic, request, message): (&Arc<str>, &Request<'_>, &str),
    ) -> Result<bool, &'static str> {
        if !grant.terms.about.has(wish.about()) {
            return Ok(false);
        }
        let (id, rules) = (conn.id(), self.rules.clone());
        if self.access(id).is_none() {
            return Err("the rules of this hub have changed; connect again");
        }
        let Some(mailbox) = self.mailbox.clone() else { return Err("the hub has not started") };
        let user = self.user(id);
        let matter = Matter { conn: id, user: user.as_deref(), topic, wish };
        match self.questions.ask((&self.hub, &rules, &mailbox), grant.terms.about, matter) {
            Held::No => Ok(false),
            Held::Refused(verdict) => {
                refuse(conn, &verdict, request, topic);
                Ok(true)
            }
            Held::Asked(number) => {
                if let Some(client) = self.conns.get_mut(&id) {
                    client.asking.get_or_insert_default().ask(number, message);
                    client.settle(&mut self.account);
                }
                Ok(true)
            }
        }
    }

    /// Has a message wait behind one that the application is asked about. False if there is none.
    pub(crate) fn waits(&mut self, conn: &mut Conn<'_, ()>, message: &str) -> Result<bool, &'static str> {
        let Some(client) = self.conns.get_mut(&conn.id()) else { return Ok(false) };
        let Some(asking) = &mut client.asking else { return Ok(false) };
        asking.hold(conn, message, &self.hub.config)?;
        client.settle(&mut self.account);
        Ok(true)
    }

    /// An answer of the application has come.
    pub(crate) fn take_verdict(&mut self, conn: ConnId, number: u64, verdict: Verdict) {
        let asking = match self.conns.get_mut(&conn) {
            Some(client) => client.asking.as_deref_mut(),
            None => self.pushers.asking(conn),
        };
        if asking.is_some_and(|asking| asking.decide(number, verdict)) {
            self.resumes.push(conn);
        }
    }

    /// Has connections whose answers have come go on. True if there are more.
    pub(crate) fn resume_some(&mut self) -> bool {
        let Self { resumes, conns, pushers, .. } = self;
        while let Some(conn) = resumes.last() {
            let access = conns.get(conn).and_then(|client| client.access.as_ref());
            let handle = access.map(|access| &access.handle).or_else(|| pushers.handle(*conn));
            if handle.is_some_and(|handle| call(handle, RESUME) == Err(ShardHandleError::Full)) {
                return true;
            }
            resumes.pop();
        }
        false
    }

    /// Goes on with the messages of a client that had to read.
    pub(crate) fn resume_reader(&mut self, conn: &mut Conn<'_, ()>) {
        if self.conns.get(&conn.id()).is_some_and(|client| client.asking.is_some()) {
            self.resume(conn);
        }
    }

    /// Goes on with the messages of a connection.
    pub(crate) fn resume(&mut self, conn: &mut Conn<'_, ()>) {
        let id = conn.id();
        if self.pushers.has(id) {
            return self.with_pushers(|pushers, around| pushers.resume(around, conn));
        }
        let pace = Pace::begin(conn);
        if self.conns.get_mut(&id).and_then(|client| client.asking.as_mut()).is_some_and(|asking| asking.rests(conn)) {
            return;
        }
        loop {
            let Some(client) = self.conns.get_mut(&id) else { return };
            if let Some(asking) = client.asking.as_mut().filter(|_| pace.is_over(conn)) {
                asking.rest(conn, pace);
                break;
            }
            match client.asking.as_mut().map_or(Step::End, |asking| asking.next()) {
                Step::Decided(message, Verdict::Allowed(allowed)) => {
                    self.take_text(conn, &message, Turn::Allowed(allowed));
                }
                Step::Decided(message, verdict) => {
                    if let Some(request) = Request::read(&message) {
                        let topic = request.topic.as_deref().unwrap_or_default();
                        refuse(conn, &verdict, &request, topic);
                    }
                }
                Step::Next(message) => _ = self.take_text(conn, &message, Turn::Next),
                Step::Wait => break,
                Step::End => {
                    if client.asking.take().is_some_and(|asking| asking.is_paused) {
                        conn.pause(false);
                    }
                    break;
                }
            }
        }
        self.settle(id);
        self.tell_memory(&mut conn.shard(), id);
    }
}

/// Tells a client that the application has not allowed its message.
fn refuse(conn: &mut Conn<'_, ()>, verdict: &Verdict, request: &Request<'_>, topic: &str) {
    let Some(reason) = verdict.reason() else { return };
    let answer = Object::new("error").text("reason", reason).text("topic", topic);
    conn.text(&answer.optional("id", request.id.as_deref()).end());
}

/// The answer to a message that may be repeated.
fn not_now(reason: &str, id: Option<&str>) -> String {
    Object::new("error").text("reason", reason).raw("retry", "true").optional("id", id).end()
}
