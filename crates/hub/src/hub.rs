//! The hub of a host: the parts that its loops share.

use crate::account::CommonAccount;
use crate::census::Census;
use crate::config::Config;
use crate::control::{Control, decided, is_name};
use crate::credentials::now;
use crate::elsewhere::Elsewhere;
use crate::feed::Feeds;
use crate::figures::NamespaceFigures;
use crate::handler::HubHandler;
use crate::hooks::{Calls, HookCounts};
use crate::limits::Bounds;
use crate::log::Log;
use crate::memory_log::MemoryLog;
use crate::presence::Presence;
use crate::pusher::channels::Channels;
use crate::repeats::Repeats;
use crate::rules::Rules;
use crate::sessions::{Revoked, Sessions};
use crate::shared::{LiveRules, Shared};
use crate::streams::Streams;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
use tautline::{Bridge, Origins, Reply, Request, Totals};

/// The begin of the name of a revocation among totals. The millisecond of its decision follows, and then its own name. Its number is
/// the second since 1970 at which it ends, or 0 if it was taken back.
const REVOKED: &str = "revoked/";

/// A hub: makes the handlers of a server. Clones are one hub.
///
/// ```
/// use tautline::http::StatusCode;
/// use tautline::{Reply, Server};
/// use tautline_hub::{Config, Hub};
///
/// let hub = Hub::new(Config::default()).on_request(|request| {
///     let is_known = request.http.headers().get("authorization").is_some_and(|value| value == "Bearer secret");
///     if request.is_upgrade && is_known { Reply::upgrade() } else { Reply::status(StatusCode::UNAUTHORIZED) }
/// });
/// let server = Server::plain().listen("127.0.0.1:0".parse()?).shards(2).start(hub.handlers())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Hub(Arc<Shared>);

impl Default for Hub {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl Hub {
    /// A hub of one host, with a [`MemoryLog`].
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::with_log(config, Arc::new(MemoryLog::default()), None)
    }

    /// A hub whose history is in `log`. Its presence reaches other hosts by `bridge`, which the server
    /// [has](tautline::Server::bridge) too.
    #[must_use]
    pub fn with_log(config: Config, log: Arc<dyn Log>, bridge: Option<Bridge>) -> Self {
        let (presence, lease) = (Presence::new(&config, bridge.clone()), config.lease);
        let control = Control::new(&presence.host, bridge.clone());
        let (census, mut rules) = (Census::default(), Rules::open());
        census.equip(&mut rules);
        Self(Arc::new(Shared {
            config,
            log,
            feeds: Feeds::default(),
            presence,
            account: CommonAccount::default(),
            gate: None,
            pages: None,
            rules: LiveRules::new(rules),
            sessions: Sessions::default(),
            revoked: Revoked::default(),
            elsewhere: Elsewhere::new(bridge.clone(), lease),
            control,
            bounds: Bounds::default(),
            census,
            repeats: Arc::new(Repeats::default()),
            calls: Arc::new(Calls::default()),
            streams: Streams::default(),
            channels: Channels::new(bridge),
        }))
    }

    /// Has `gate` decide about requests, before the hub has handlers. The default upgrades all WebSocket requests.
    ///
    /// It decides about requests for server-sent events (`GET /events`), too, and lets them in by [`Reply::upgrade`]. Requests to
    /// the HTTP interface have keys of their own.
    #[must_use]
    pub fn on_request(self, gate: impl Fn(&Request<'_>) -> Reply + Send + Sync + 'static) -> Self {
        self.change("on_request", |shared| Shared { gate: Some(Arc::new(gate)), ..shared })
    }

    /// Has pages of other hosts read no events of a hub without rules: those whose name is no loopback address, and which `pages`
    /// does not [allow](Origins::allow_host). For servers on loopback, before the hub has handlers.
    ///
    /// A foreign page can have its own name resolve to 127.0.0.1 (DNS rebinding), and a browser tells no origin when a page asks
    /// its own host.
    #[must_use]
    pub fn for_pages(self, pages: Origins) -> Self {
        self.change("for_pages", |shared| Shared { pages: Some(pages), ..shared })
    }

    fn change(self, name: &str, change: impl FnOnce(Shared) -> Shared) -> Self {
        match Arc::try_unwrap(self.0) {
            Ok(shared) => Self(Arc::new(change(shared))),
            Err(shared) => {
                log::error!("Hub::{name} has no effect: the hub is in use already");
                Self(shared)
            }
        }
    }

    /// Has these rules decide who may do what. The default is [`Rules::open`].
    #[must_use]
    pub fn with_rules(self, rules: Rules) -> Self {
        self.set_rules(rules);
        self
    }

    /// Replaces all rules. Subscriptions without a right to them end, and so do connections of users that are revoked. Keys and
    /// conditions on tokens hold for later tokens: connections keep what theirs gave until it expires.
    pub fn set_rules(&self, mut rules: Rules) {
        self.0.census.equip(&mut rules);
        self.0.rules.replace(rules);
    }

    /// The questions to the application of the rules.
    #[must_use]
    pub fn hook_counts(&self) -> HookCounts {
        self.0.calls.counts()
    }

    /// The bounds of the rules by their names, each with the number of requests that were refused for it.
    #[must_use]
    pub fn bounds_met(&self) -> Vec<(&'static str, u64)> {
        self.0.bounds.met()
    }

    /// The figures of each namespace of the rules on this host, and of the topics without one.
    #[must_use]
    pub fn namespaces(&self) -> Vec<NamespaceFigures> {
        self.0.census.figures()
    }

    /// The totals of namespaces, for the process that [takes over](tautline::HandOver::totals), and the ends of revocations.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = self.0.census.totals();
        for (name, until, at) in self.0.revoked.list(Instant::now(), now().as_secs()) {
            totals.put(format!("{REVOKED}{at}/{name}"), until);
        }
        totals
    }

    /// Goes on with the totals and revocations of an earlier process.
    pub fn add_totals(&self, totals: &Totals) {
        self.0.census.add_totals(totals);
        for (name, until) in totals.iter() {
            let Some((at, name)) = name.strip_prefix(REVOKED).and_then(|name| name.split_once('/')) else { continue };
            let decision = at.parse().ok().and_then(|at| decided(until, at));
            if let Some(decision) = decision.filter(|_| is_name(name)) {
                self.0.revoke(&name.into(), decision);
            }
        }
    }

    /// Whether requests with this path may be for the hub's HTTP interfaces, for a server that has other pages beside them.
    #[must_use]
    pub fn has_path(path: &str) -> bool {
        path == crate::events::PATH || path.starts_with(crate::api::PREFIX) || path.starts_with(crate::pusher::PATH)
    }

    /// The handler of one loop.
    #[must_use]
    pub fn handler(&self) -> HubHandler {
        HubHandler::new(self.0.clone())
    }

    /// Makes the handlers of a server's loops.
    pub fn handlers(&self) -> impl Fn(u32) -> HubHandler + Send + Sync + 'static {
        let hub = self.clone();
        move |_| hub.handler()
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hub").field(&self.0.config).finish()
    }
}
