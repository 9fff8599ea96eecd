//! The application is asked before a connection opens, a topic is subscribed to or a message is published.
//!
//! This is the same for all protocols. A connection that asks has its later messages wait (see [`Asking`](crate::asked::Asking)).

use crate::asked::Admitted;
use crate::hooks::{Question, Verdict};
use crate::mailbox::{Event, Mailbox};
use crate::protocol::random_name;
use crate::rules::{About, Hooks, Identity, Rules, TokenError};
use crate::shared::Shared;
use serde_json::{Map, Value};
use std::sync::Arc;
use tautline::http::{Response, StatusCode};
use tautline::{ConnId, Push, Reply, Request, Ticket, Upgrade};

/// The questions of a loop.
#[derive(Default)]
pub(crate) struct Questions {
    /// Connections that the application has allowed.
    pub(crate) admitted: Admitted,
    /// Questions about subscriptions and messages so far.
    last: u64,
}

/// A connection that is not allowed: a status, and the reason.
pub(crate) type Refusal = (u16, Box<str>);

/// The answer to a request, once the application has decided about it.
pub(crate) enum Decided {
    Upgrade(Upgrade),
    Push(Push<()>),
    Respond(Response<Vec<u8>>),
}

/// A question about a topic.
pub(crate) struct Matter<'m> {
    pub(crate) conn: ConnId,
    pub(crate) user: Option<&'m str>,
    pub(crate) topic: &'m str,
    pub(crate) wish: Wish<'m>,
}

/// The wish of a client.
#[derive(Clone, Copy)]
pub(crate) enum Wish<'m> {
    Subscribe {
        history: bool,
        presence: bool,
    },
    Publish {
        key: Option<&'m str>,
        /// The name of an event of the Pusher protocol.
        event: Option<&'m str>,
        /// JSON.
        data: &'m str,
    },
}

/// Whether a message can be done now.
pub(crate) enum Held {
    /// The application is not asked, or has allowed it before.
    No,
    /// It is asked. The answer has this number.
    Asked(u64),
    /// It has refused it before.
    Refused(Verdict),
}

impl Wish<'_> {
    pub(crate) const fn about(&self) -> About {
        match self {
            Self::Subscribe { .. } => About::SUBSCRIBE,
            Self::Publish { .. } => About::PUBLISH,
        }
    }

    /// The name under which an answer is kept. An answer about a subscription is none about one that asks for more.
    const fn name(&self) -> &'static str {
        match self {
            Self::Subscribe { history: false, presence: false } => "subscribe",
            Self::Subscribe { history: true, presence: false } => "subscribe, history",
            Self::Subscribe { history: false, presence: true } => "subscribe, presence",
            Self::Subscribe { history: true, presence: true } => "subscribe, history, presence",
            Self::Publish { .. } => "publish",
        }
    }
}

impl Questions {
    /// Asks whether a connection may open, and has the request wait for the answer. `decide` gets the user, or the refusal.
    pub(crate) fn connect(
        &self,
        (hub, rules, hooks): (&Arc<Shared>, &Arc<Rules>, &Arc<Hooks>),
        request: &Request<'_>,
        identity: Option<Arc<Identity>>,
        decide: impl FnOnce(Result<Option<&Identity>, &Refusal>) -> Decided + Send + 'static,
    ) -> Reply {
        let Some(conn) = request.conn() else { return Reply::status(StatusCode::SERVICE_UNAVAILABLE) };
        let user = identity.as_ref().and_then(|identity| identity.user.as_deref());
        let mut body = event("connect", user, hub.control.name(conn));
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
        let (admitted, hub, rules) = (self.admitted.clone(), hub.clone(), rules.clone());
        let (calls, hooks) = (hub.calls.clone(), hooks.clone());
        request.later(move |ticket: Ticket<()>| {
            let done = move |verdict| {
                let found = hub.admit(&rules, verdict, identity);
                let decided = decide(found.as_ref().map(|identity| identity.as_deref()));
                if let Ok(identity) = found
                    && !matches!(decided, Decided::Respond(_))
                {
                    admitted.add(conn, identity);
                }
                let answered = match decided {
                    Decided::Upgrade(upgrade) => ticket.upgrade(upgrade),
                    Decided::Push(push) => ticket.push(push),
                    Decided::Respond(response) => ticket.respond(response),
                };
                if answered.is_err() {
                    // It has left.
                    admitted.take(conn);
                }
            };
            calls.ask(Question { hooks, body: text(body), kept_as: None, done: Some(Box::new(done)) });
        })
    }

    /// Asks about a subscription or a message, if a topic's rules want that. The answer comes to the mailbox.
    pub(crate) fn ask(
        &mut self,
        (hub, rules, mailbox): (&Shared, &Rules, &Arc<Mailbox>),
        asks: About,
        Matter { conn, user, topic, wish }: Matter<'_>,
    ) -> Held {
        let Some(hooks) = rules.hooks.as_ref().filter(|_| asks.has(wish.about())) else { return Held::No };
        let kind = if let Wish::Subscribe { .. } = wish { "subscribe" } else { "publish" };
        let kept_as = user.map(|user| (wish.name(), user.into(), topic.into()));
        match kept_as.as_ref().and_then(|key| hub.calls.known(key)) {
            Some(Verdict::Allowed(_)) => return Held::No,
            Some(verdict) => return Held::Refused(verdict),
            None => {}
        }
        let mut body = event(kind, user, hub.control.name(conn));
        body.insert("topic".to_owned(), topic.into());
        let body = match wish {
            Wish::Subscribe { history, presence } => {
                body.insert("history".to_owned(), history.into());
                body.insert("presence".to_owned(), presence.into());
                text(body)
            }
            Wish::Publish { key, event, data } => {
                for (name, value) in [("key", key), ("event", event)] {
                    if let Some(value) = value {
                        body.insert(name.to_owned(), value.into());
                    }
                }
                let mut body = text(body);
                // As it came: a number of many digits would not survive another form.
                body.pop();
                body.push_str(",\"data\":");
                body.push_str(data);
                body.push('}');
                body
            }
        };
        self.last += 1;
        let (number, mailbox) = (self.last, mailbox.clone());
        let done = move |verdict| mailbox.push(Event::Verdict { conn, number, verdict });
        hub.calls.ask(Question { hooks: hooks.clone(), body, kept_as, done: Some(Box::new(done)) });
        Held::Asked(number)
    }
}

impl Shared {
    /// The user of a connection by the application's verdict, or by the token of the request.
    fn admit(
        &self,
        rules: &Rules,
        verdict: Verdict,
        of_token: Option<Arc<Identity>>,
    ) -> Result<Option<Arc<Identity>>, Refusal> {
        let named = match verdict {
            Verdict::Allowed(allowed) => allowed.identity,
            Verdict::Refused(status, reason) => return Err((status, reason)),
            Verdict::Unanswered(reason) => return Err((503, reason.into())),
        };
        let at = std::time::Instant::now();
        let is_revoked = |one: &Arc<Identity>| rules.is_revoked(one) || self.revoked.has_any(one, at);
        if [&named, &of_token].into_iter().flatten().any(is_revoked) {
            return Err((401, TokenError::Revoked.reason().into()));
        }
        // The connection came with this token all the same, and ends if it is revoked.
        let id = of_token.as_ref().and_then(|token| token.id.clone());
        Ok(match named {
            Some(named) if id.is_some() => Some(Arc::new(Identity { id, ..(*named).clone() })),
            named => named.or(of_token),
        })
    }

    /// Tells the application something that needs no answer. `topic` comes with the change of its members.
    pub(crate) fn tell_application(
        &self,
        rules: &Rules,
        about: About,
        (conn, user): (ConnId, Option<&str>),
        topic: Option<(&str, &str)>,
    ) {
        let Some(hooks) = &rules.hooks else { return };
        let wanted = match topic {
            Some((topic, _)) => rules.grant(None, topic).terms.about,
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
        let mut body = event(kind, user, self.control.name(conn));
        if let Some((topic, _)) = topic {
            body.insert("topic".to_owned(), topic.into());
        }
        if let Some(change) = change {
            body.insert("change".to_owned(), change.into());
        }
        let question = Question { hooks: hooks.clone(), body: text(body), kept_as: None, done: None };
        self.calls.ask(question);
    }
}

/// The members that all events have. `id` is that of the event.
fn event(kind: &str, user: Option<&str>, conn: String) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("type".to_owned(), kind.into());
    body.insert("id".to_owned(), random_name().into());
    if let Some(user) = user {
        body.insert("user".to_owned(), user.into());
    }
    body.insert("connection".to_owned(), conn.into());
    body
}

fn text(body: Map<String, Value>) -> String {
    Value::Object(body).to_string()
}
