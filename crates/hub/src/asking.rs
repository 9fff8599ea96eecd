//! The application is asked before a connection opens, a topic is subscribed to or a message is published.

use crate::asked::{Step, Turn};
use crate::entry::{RESUME, call};
use crate::handler::HubHandler;
use crate::hooks::{Question, Verdict};
use crate::mailbox::Event;
use crate::protocol::{Object, Request, random_name};
use crate::rules::{About, Grant, Hooks, Identity, TokenError};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Instant;
use tautline::http::{HeaderValue, Response, StatusCode, header};
use tautline::{Conn, ConnId, Reply, ShardHandleError, Ticket, Upgrade};

impl HubHandler {
    /// Asks whether a connection may open, and has the request wait for the answer.
    pub(crate) fn ask_to_connect(
        &self,
        request: &tautline::Request<'_>,
        upgrade: Upgrade,
        identity: Option<Arc<Identity>>,
        hooks: &Arc<Hooks>,
    ) -> Reply {
        let Some(conn) = request.conn() else { return Reply::status(StatusCode::SERVICE_UNAVAILABLE) };
        let user = identity.as_ref().and_then(|identity| identity.user.as_deref());
        let mut body = event("connect", user, Some(conn));
        let headers = hooks.headers.iter().filter_map(|name| {
            let values = request.http.headers().get_all(name).iter().filter_map(|value| value.to_str().ok());
            let values: Vec<&str> = values.collect();
            (!values.is_empty()).then(|| (name.to_string(), values.join(", ").into()))
        });
        body.insert("headers".to_owned(), Value::Object(headers.collect()));
        body.insert("address".to_owned(), request.peer.to_string().into());
        let uri = request.http.uri();
        body.insert("path".to_owned(), uri.path().into());
        body.insert("query".to_owned(), uri.query().unwrap_or_default().into());
        let (admitted, hub, rules) = (self.admitted.clone(), self.hub.clone(), self.rules.clone());
        let (calls, hooks) = (self.hub.calls.clone(), hooks.clone());
        request.later(move |ticket: Ticket<()>| {
            let done = move |verdict| {
                let is_revoked =
                    |one: &Arc<Identity>| rules.is_revoked(one) || hub.revoked.has_any(one, Instant::now());
                let refused = match verdict {
                    Verdict::Allowed(allowed) => {
                        let identity = allowed.identity.or(identity);
                        if !identity.as_ref().is_some_and(is_revoked) {
                            admitted.add(conn, identity);
                            if ticket.upgrade(upgrade).is_err() {
                                // It has left.
                                admitted.take(conn);
                            }
                            return;
                        }
                        refusal(401, TokenError::Revoked.reason())
                    }
                    Verdict::Refused(status, reason) => refusal(status, &reason),
                    Verdict::Unanswered(reason) => refusal(503, reason),
                };
                // Nobody has to wait for it any more.
                let _ = ticket.respond(refused);
            };
            calls.ask(Question { hooks, body: text(body), kept_as: None, done: Box::new(done) });
        })
    }

    /// Whether a subscription is not to begin now. One that comes too often is refused before the application is asked.
    pub(crate) fn is_subscription_held(
        &mut self,
        conn: &mut Conn<'_, ()>,
        grant: Grant,
        (topic, request, message): (&Arc<str>, &Request<'_>, &str),
    ) -> Result<bool, &'static str> {
        let user = self.user(conn.id());
        self.hub.bounds.subscribe(&self.rules.limits, user.as_deref(), conn.peer())?;
        self.is_held(conn, (About::SUBSCRIBE, grant), (topic, request, message))
    }

    /// Whether a message is not to be done now: the application is asked about it, or has refused it.
    pub(crate) fn is_held(
        &mut self,
        conn: &mut Conn<'_, ()>,
        (about, grant): (About, Grant),
        (topic, request, message): (&Arc<str>, &Request<'_>, &str),
    ) -> Result<bool, &'static str> {
        if !grant.terms.about.has(about) {
            return Ok(false);
        }
        let (id, rules) = (conn.id(), self.rules.clone());
        let Some(hooks) = &rules.hooks else { return Ok(false) };
        if self.access(id).is_none() {
            return Err("the rules of this hub have changed; connect again");
        }
        let Some(mailbox) = self.mailbox.clone() else { return Err("the hub has not started") };
        let user = self.user(id);
        let kind = if about == About::SUBSCRIBE { "subscribe" } else { "publish" };
        let kept_as = user.as_ref().map(|user| (kind, (&**user).into(), (&**topic).into()));
        match kept_as.as_ref().and_then(|key| self.hub.calls.known(key)) {
            Some(Verdict::Allowed(_)) => return Ok(false),
            Some(verdict) => {
                refuse(conn, &verdict, request, topic);
                return Ok(true);
            }
            None => {}
        }
        let mut body = event(kind, user.as_deref(), Some(id));
        body.insert("topic".to_owned(), (&**topic).into());
        let mut body = if about == About::SUBSCRIBE {
            body.insert("history".to_owned(), request.after.is_some().into());
            body.insert("presence".to_owned(), (request.presence || request.member.is_some()).into());
            text(body)
        } else {
            if let Some(key) = &request.key {
                body.insert("key".to_owned(), (&**key).into());
            }
            text(body)
        };
        if let Some(data) = request.data.filter(|_| about == About::PUBLISH) {
            // As it came: a number of many digits would not survive another form.
            body.pop();
            body.push_str(",\"data\":");
            body.push_str(data.get());
            body.push('}');
        }
        self.last_question += 1;
        let number = self.last_question;
        let Some(client) = self.conns.get_mut(&id) else { return Ok(true) };
        client.asking.get_or_insert_default().question = Some((number, message.into()));
        client.settle(&mut self.account.bytes);
        self.account.is_changed = true;
        let done = move |verdict| mailbox.push(Event::Verdict { conn: id, number, verdict });
        self.hub.calls.ask(Question { hooks: hooks.clone(), body, kept_as, done: Box::new(done) });
        Ok(true)
    }

    /// Has a message wait behind one that the application is asked about. False if there is none.
    pub(crate) fn waits(&mut self, conn: &mut Conn<'_, ()>, message: &str) -> Result<bool, &'static str> {
        let (most, bytes) = (self.hub.config.max_unanswered, self.hub.config.max_unanswered_bytes);
        let Some(client) = self.conns.get_mut(&conn.id()) else { return Ok(false) };
        let Some(asking) = &mut client.asking else { return Ok(false) };
        if !asking.wait(message, most, bytes) {
            return Err("too many messages wait for the application");
        }
        if asking.is_long() {
            asking.is_paused = true;
            conn.pause(true);
        }
        client.settle(&mut self.account.bytes);
        self.account.is_changed = true;
        Ok(true)
    }

    /// An answer of the application has come.
    pub(crate) fn take_verdict(&mut self, conn: ConnId, number: u64, verdict: Verdict) {
        let Some(client) = self.conns.get_mut(&conn) else { return };
        let Some(asking) = &mut client.asking else { return };
        if asking.question.as_ref().is_some_and(|(other, _)| *other == number) {
            asking.verdict = Some(verdict);
            self.resumes.push(conn);
        }
    }

    /// Has connections whose answers have come go on. True if there are more.
    pub(crate) fn resume_some(&mut self) -> bool {
        let Self { resumes, conns, .. } = self;
        while let Some(conn) = resumes.last() {
            let access = conns.get(conn).and_then(|client| client.access.as_ref());
            if access.is_some_and(|access| call(&access.handle, RESUME) == Err(ShardHandleError::Full)) {
                return true;
            }
            resumes.pop();
        }
        false
    }

    /// Goes on with the messages of a connection.
    pub(crate) fn resume(&mut self, conn: &mut Conn<'_, ()>) {
        let id = conn.id();
        loop {
            let Some(client) = self.conns.get_mut(&id) else { return };
            match client.asking.as_mut().map_or(Step::End, |asking| asking.next()) {
                Step::Decided(message, Verdict::Allowed(allowed)) => {
                    self.take_text(conn, &message, Turn::Allowed(allowed))
                }
                Step::Decided(message, verdict) => {
                    if let Ok(request) = serde_json::from_str::<Request<'_>>(&message) {
                        let topic = request.topic.as_deref().unwrap_or_default();
                        refuse(conn, &verdict, &request, topic);
                    }
                }
                Step::Next(message) => self.take_text(conn, &message, Turn::Next),
                Step::Wait => break,
                Step::End => {
                    if client.asking.take().is_some_and(|asking| asking.is_paused) {
                        conn.pause(false);
                    }
                    break;
                }
            }
        }
        if let Some(client) = self.conns.get_mut(&id) {
            client.settle(&mut self.account.bytes);
            self.account.is_changed = true;
        }
        self.tell_memory(&mut conn.shard(), id);
    }

    /// Tells the application something that needs no answer.
    pub(crate) fn tell_application(
        &self,
        about: About,
        conn: Option<ConnId>,
        user: Option<&str>,
        topic: Option<(&str, &str)>,
    ) {
        let Some(hooks) = &self.rules.hooks else { return };
        let wanted = match topic {
            Some((topic, _)) => self.rules.grant(None, topic).terms.about,
            None => hooks.about,
        };
        if !wanted.has(about) {
            return;
        }
        let (kind, change) = match about {
            About::DISCONNECT => ("disconnect", None),
            About::UNSUBSCRIBE => ("unsubscribe", None),
            _ => ("presence", topic.map(|(_, change)| change)),
        };
        let mut body = event(kind, user, conn);
        if let Some((topic, _)) = topic {
            body.insert("topic".to_owned(), topic.into());
        }
        if let Some(change) = change {
            body.insert("change".to_owned(), change.into());
        }
        let question = Question { hooks: hooks.clone(), body: text(body), kept_as: None, done: Box::new(|_| ()) };
        self.hub.calls.ask(question);
    }
}

/// The members that all events have. `id` is that of the event.
fn event(kind: &str, user: Option<&str>, conn: Option<ConnId>) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("type".to_owned(), kind.into());
    body.insert("id".to_owned(), random_name().into());
    if let Some(user) = user {
        body.insert("user".to_owned(), user.into());
    }
    if let Some(conn) = conn {
        body.insert("connection".to_owned(), conn.to_string().into());
    }
    body
}

fn text(body: Map<String, Value>) -> String {
    Value::Object(body).to_string()
}

/// Tells a client that the application has not allowed its message.
fn refuse(conn: &mut Conn<'_, ()>, verdict: &Verdict, request: &Request<'_>, topic: &str) {
    let reason = match verdict {
        Verdict::Allowed(_) => return,
        Verdict::Refused(_, reason) => reason,
        Verdict::Unanswered(reason) => *reason,
    };
    let answer = Object::new("error").text("reason", reason).text("topic", topic);
    conn.text(&answer.optional("id", request.id.as_deref()).end());
}

/// The answer to a request to connect that is not allowed.
fn refusal(status: u16, reason: &str) -> Response<Vec<u8>> {
    let mut response = Response::new(format!("{reason}\n").into_bytes());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::FORBIDDEN);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
