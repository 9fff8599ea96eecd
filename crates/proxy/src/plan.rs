//! The plan: all that a proxy does, in values that never change. A reload makes another one.

use crate::balance::{Balance, Group, Key, Lease, Server, Unavailable, Wish};
use crate::certificates::CertificateNames;
pub use crate::certificates::{CertificatePaths, Certified};
use crate::forward::ProxyProtocol;
use crate::messages::Messages;
use crate::prefix::Prefix;
use crate::rates::{Cap, Limit};
use crate::resolved::Resolved;
use crate::route::{Host, NormalPath, PathPattern, Table};
use crate::tally::{RouteTally, Tallies};
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use tautline::{Origins, StaticFiles};

/// The name of requests without a route.
pub(crate) const NO_ROUTE: &str = "-";

/// All that a proxy does.
#[derive(Debug, Default)]
pub struct Plan {
    /// Addresses to listen at, as `--listen` takes them. A reload does not change them.
    pub listen: Vec<String>,
    /// Certificates; without any the proxy makes a development certificate.
    pub certificates: Vec<CertificatePaths>,
    /// The names of these certificates, if there are several or if they have rules about clients: a request for a host of
    /// another one is misdirected.
    pub names: Option<CertificateNames>,
    /// The file of the authorities of client certificates, for certificates without a rule of their own. A reload does not
    /// change it for those that are not in the plan.
    pub client_ca: Option<PathBuf>,
    /// Whether a client needs a certificate to connect, if there are authorities.
    pub client_certificate: Certified,
    /// Certificates that the proxy orders itself.
    pub acme: Option<Ordered>,
    /// Limits of the listener. A reload does not change them.
    pub listener: Listener,
    /// Limits of requests by source.
    pub limits: Vec<Limit>,
    /// Bounds on the connections that a source has at a time.
    pub caps: Vec<Cap>,
    /// Limits of new connections by source.
    pub handshakes: Vec<Limit>,
    /// Whether clients come without TLS. A reload does not change it.
    pub plain: bool,
    /// Whether clients may speak HTTP/2. A reload does not change it.
    pub http2: bool,
    /// The routes, in the order of the configuration.
    pub routes: Vec<Route>,
    /// The groups of servers.
    pub backends: Vec<Arc<Backend>>,
    /// From hosts and paths to routes.
    pub table: Table,
    /// Files that the configuration names, for answers and pages.
    pub files: Vec<PathBuf>,
    /// Folders whose files routes answer with.
    pub folders: Vec<PathBuf>,
    /// Answers in place of the short texts that the proxy itself gives.
    pub pages: Vec<(StatusCode, Vec<u8>)>,
    /// Whether each request gets an `X-Request-Id`.
    pub request_id: bool,
    /// Whether a request without a `traceparent` gets one.
    pub traceparent: bool,
    /// The counts of requests without a route.
    pub(crate) unrouted: Tallies<RouteTally>,
}

/// Certificates by ACME: the options of `taut serve --acme`, by their names there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ordered {
    /// The names of the certificate.
    pub names: Vec<String>,
    /// The directory of the authority, if it is not the usual one.
    pub directory: Option<String>,
    /// Addresses for messages of the authority.
    pub contacts: Vec<String>,
    /// The folder of the account and the certificate.
    pub folder: Option<PathBuf>,
    /// Roots of the authority's own server.
    pub ca: Option<PathBuf>,
    /// The file with the account to which the ACME account is bound.
    pub eab: Option<PathBuf>,
    /// The profile of the certificate.
    pub profile: Option<String>,
    /// Whether the certificate needs a stapled OCSP response.
    pub must_staple: bool,
    /// The address for HTTP-01.
    pub http: Option<String>,
}

/// Limits of the connections of clients. One that is not set is that of the options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listener {
    /// Connections of all loops.
    pub connections: Option<usize>,
    /// Connections whose handshake or first request is awaited.
    pub handshakes: Option<usize>,
    /// From the connection to the end of the head of its first request, TLS included.
    pub head_time: Option<Duration>,
    /// From a response to the end of the head of the next request.
    pub idle_time: Option<Duration>,
    /// While bytes wait for a client that takes none.
    pub send_time: Option<Duration>,
}

/// One route.
#[derive(Debug)]
pub struct Route {
    /// Its name in logs: the one of the configuration, or host and path.
    pub name: String,
    /// The path that requests fit.
    pub path: PathPattern,
    /// The outcome for a request.
    pub action: Action,
    /// Source addresses that may use it; empty for all.
    pub allow: Vec<Prefix>,
    /// Source addresses that may not use it. They take precedence.
    pub deny: Vec<Prefix>,
    /// Whether only clients with a certificate may use it.
    pub needs_certificate: bool,
    /// Pages that may open WebSockets; `None` for all, since the backend has its own rule.
    pub origins: Option<Origins>,
    /// Its counts.
    pub(crate) tallies: Tallies<RouteTally>,
}

/// The outcome for a request.
#[derive(Debug)]
pub enum Action {
    /// Pass it to a server.
    Forward(Forward),
    /// Send the client elsewhere.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: StatusCode,
        /// The target; one that ends in `*` gets path and query of the request in its place.
        to: String,
        /// Changes of the response's headers.
        response: Edits,
    },
    /// Answer with this.
    Answer(Answer),
    /// Answer with the files of a folder.
    Files(Folder),
}

/// A folder whose files are the answers.
#[derive(Debug)]
pub struct Folder {
    /// The files.
    pub files: StaticFiles,
    /// The path in place of the route's own.
    pub rewrite: Option<String>,
    /// Changes of the response's headers.
    pub response: Edits,
}

/// How requests are passed on.
#[derive(Debug)]
pub struct Forward {
    /// The index of the group in [`Plan::backends`].
    pub backend: usize,
    /// The path in place of the route's own.
    pub rewrite: Option<String>,
    /// The host that the server is told.
    pub host: HostSent,
    /// Changes of the request's headers.
    pub request: Edits,
    /// Changes of the response's headers.
    pub response: Edits,
    /// Whether messages pass, by these rules. Otherwise the bytes of WebSockets do.
    pub messages: Option<Arc<Messages>>,
}

/// The host that a server is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostSent {
    /// That of the client.
    #[default]
    Client,
    /// That of the server's address.
    Server,
    /// This one.
    Name(HeaderValue),
}

/// Changes of headers: removals first, then values that replace all of their name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// Names to remove.
    pub remove: Vec<HeaderName>,
    /// Headers to set.
    pub set: Vec<(HeaderName, HeaderValue)>,
}

impl Edits {
    /// Changes these headers, and removes others that differ by underscores: servers that have fields as variables take both for
    /// one.
    pub fn apply(&self, headers: &mut HeaderMap) {
        let is_named = |name: &str| self.names().any(|own| own.as_str().replace('_', "-") == name.replace('_', "-"));
        let alike = headers.keys().filter(|name| name.as_str().contains('_') && is_named(name.as_str()));
        let alike: Vec<HeaderName> = alike.cloned().collect();
        alike.iter().for_each(|name| _ = headers.remove(name));
        self.remove.iter().for_each(|name| _ = headers.remove(name));
        for (name, value) in &self.set {
            headers.insert(name, value.clone());
        }
    }

    fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.remove.iter().chain(self.set.iter().map(|(name, _)| name))
    }
}

/// A fixed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The type of the body.
    pub content_type: HeaderValue,
    /// The body.
    pub body: Vec<u8>,
    /// Changes of the response's headers.
    pub response: Edits,
}

/// A group of servers with its rules.
#[derive(Debug)]
pub struct Backend {
    /// Its name in the configuration.
    pub name: String,
    /// The addresses of the servers, by their numbers.
    pub endpoints: Vec<Endpoint>,
    /// The addresses of the servers' names, by their numbers, if they are looked up again and again.
    pub resolved: Vec<Resolved>,
    /// Time between two look-ups of a name. Without it each connection looks the name up by itself.
    pub resolve_every: Option<Duration>,
    /// The servers.
    pub group: Group,
    /// The part of a request whose hash chooses a server.
    pub hash: Option<HashOf>,
    /// The cookie that the proxy sets to bind clients to a server.
    pub sticky: Option<String>,
    /// Deadlines.
    pub times: Times,
    /// The wait of a request if all servers have as many connections as they may have.
    pub wait: Wait,
    /// The header with which connections to its servers begin. Such a connection serves one request.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Active checks.
    pub check: Option<Check>,
}

/// The part of a request whose hash chooses a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashOf {
    /// The client's address.
    Address,
    /// A header.
    Header(HeaderName),
    /// A cookie.
    Cookie(String),
}

/// The place of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether it is reached by TLS.
    pub tls: bool,
    /// Its address.
    pub place: Place,
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A host and a port.
    Tcp {
        /// A name or an address; one of version 6 without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

impl Endpoint {
    /// The value of `Host` for this server.
    #[must_use]
    pub fn authority(&self) -> String {
        match &self.place {
            Place::Tcp { host, port } => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                if *port == if self.tls { 443 } else { 80 } { host } else { format!("{host}:{port}") }
            }
            Place::Unix(_) => "localhost".to_owned(),
        }
    }
}

/// Deadlines of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// From the attempt to the connection, TLS included.
    pub connect: Duration,
    /// From the request's end to the response's head.
    pub head: Duration,
    /// Without a byte of a body either way.
    pub body: Duration,
    /// For which a connection without a request is kept.
    pub idle: Duration,
    /// Without a byte either way on an upgraded connection.
    pub tunnel: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(5), head: seconds(60), body: seconds(60), idle: seconds(30), tunnel: seconds(3600) }
    }
}

/// The wait for a server that has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Requests that may wait, over all loops.
    pub most: usize,
    /// The longest wait of each.
    pub time: Duration,
}

impl Default for Wait {
    fn default() -> Self {
        Self { most: 100, time: Duration::from_secs(5) }
    }
}

/// Active checks: requests of the proxy's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The path of a GET that must be answered with a status below 400; `None` only connects.
    pub path: Option<String>,
    /// Time between two checks.
    pub every: Duration,
    /// Time for one check.
    pub timeout: Duration,
    /// Failures in a row that make a server unhealthy.
    pub fall: u32,
    /// Successes in a row that make it healthy again.
    pub rise: u32,
}

/// The reason why a request has no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoute {
    /// The host or the path has no form that proxy and backend agree on: status 400.
    BadRequest(&'static str),
    /// No route fits: status 404.
    NotFound,
    /// The route is not for this source: status 403.
    Forbidden,
}

impl NoRoute {
    /// The status to answer with.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Forbidden => StatusCode::FORBIDDEN,
        }
    }
}

impl Plan {
    /// Whether clients of any host are asked for certificates.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        self.client_ca.is_some() || self.certificates.iter().any(|one| one.clients.is_some())
    }

    /// Finds the route of a request.
    ///
    /// # Errors
    /// If there is none for it.
    pub fn route(
        &self,
        host: Option<&str>,
        target: &str,
        source: Option<IpAddr>,
    ) -> Result<(&Route, NormalPath), NoRoute> {
        let host = match host.filter(|host| !host.is_empty()) {
            Some(host) => Some(Host::new(host).ok_or(NoRoute::BadRequest("Host names no host"))?),
            None => None,
        };
        let path = NormalPath::new(target).map_err(|error| NoRoute::BadRequest(error.reason()))?;
        let found = self.table.find(host.as_ref(), &path).and_then(|at| self.routes.get(at));
        let route = found.ok_or(NoRoute::NotFound)?;
        if route.allows(source) { Ok((route, path)) } else { Err(NoRoute::Forbidden) }
    }

    /// The counts of one loop for a route, or for requests without one.
    pub(crate) fn tally(&self, route: Option<&Route>, shard: u32) -> Arc<RouteTally> {
        let (name, tallies) = route.map_or((NO_ROUTE, &self.unrouted), |route| (route.name.as_str(), &route.tallies));
        tallies.of(shard, || RouteTally::named(name))
    }

    /// The rules for messages of the route of this name.
    pub(crate) fn messages_of(&self, name: &str) -> Option<Arc<Messages>> {
        self.routes.iter().filter(|route| route.name == name).find_map(|route| match &route.action {
            Action::Forward(forward) => forward.messages.clone(),
            _ => None,
        })
    }

    /// The counts of one loop for the route of this name. If there is none, they are nobody's.
    pub(crate) fn tally_of(&self, name: &str, shard: u32) -> Arc<RouteTally> {
        let route = self.routes.iter().find(|route| route.name == name);
        route.map_or_else(|| Arc::new(RouteTally::named(name)), |route| self.tally(Some(route), shard))
    }

    /// Goes on with the counts of the plan before, by the names of routes. Routes with one name share their counts.
    pub(crate) fn count_on(&mut self, before: Option<&Self>) {
        let old = before.into_iter().flat_map(|before| &before.routes);
        let mut known: HashMap<String, Tallies<RouteTally>> =
            old.map(|route| (route.name.clone(), route.tallies.clone())).collect();
        for route in &mut self.routes {
            route.tallies = known.entry(route.name.clone()).or_default().clone();
        }
        if let Some(before) = before {
            self.unrouted = before.unrouted.clone();
        }
    }

    /// The body for an answer of the proxy itself, if the configuration has one.
    #[must_use]
    pub fn page(&self, status: StatusCode) -> Option<&[u8]> {
        self.pages.iter().find(|(of, _)| *of == status).map(|(_, page)| page.as_slice())
    }
}

impl Route {
    /// Whether a client may use it. Clients of Unix sockets have no address, and no list keeps them out.
    fn allows(&self, source: Option<IpAddr>) -> bool {
        let Some(source) = source else { return true };
        let is_in = |list: &[Prefix]| list.iter().any(|prefix| prefix.contains(source));
        !is_in(&self.deny) && (self.allow.is_empty() || is_in(&self.allow))
    }
}

impl Action {
    /// The target of a redirect for a request.
    #[must_use]
    pub fn location(to: &str, path: &NormalPath) -> String {
        match to.strip_suffix('*') {
            Some(to) => format!("{}{}{}", to.trim_end_matches('/'), path.as_str(), path.query()),
            None => to.to_owned(),
        }
    }
}

impl Backend {
    /// Time between two looks at the deadline of a request, whose stages have different ones.
    pub(crate) fn look(&self) -> Duration {
        let Times { connect, head, body, .. } = self.times;
        connect.min(head).min(body).min(self.wait.time).max(Duration::from_millis(10))
    }

    /// Chooses a server for a request. `tried` are those that it has tried.
    ///
    /// # Errors
    /// If no server may have one more connection now.
    pub fn choose(
        &self,
        headers: &HeaderMap,
        source: Option<IpAddr>,
        tried: &[usize],
        now: Instant,
    ) -> Result<Lease, Unavailable> {
        let key = match &self.hash {
            None => None,
            Some(HashOf::Address) => source.map(|source| Key::new(source.to_canonical().to_string().as_bytes())),
            Some(HashOf::Header(name)) => headers.get(name).map(|value| Key::new(value.as_bytes())),
            Some(HashOf::Cookie(name)) => cookie(headers, name).map(|value| Key::new(value.as_bytes())),
        };
        let sticky = self.sticky.as_deref().and_then(|name| cookie(headers, name));
        self.group.choose(&Wish { key, sticky, tried }, now)
    }

    /// The `Set-Cookie` that binds a client to a server, if it is not bound to it already.
    #[must_use]
    pub fn set_cookie(&self, headers: &HeaderMap, server: &Server, secure: bool) -> Option<HeaderValue> {
        let name = self.sticky.as_deref()?;
        if cookie(headers, name) == Some(&*server.cookie) {
            return None;
        }
        let secure = if secure { "; Secure" } else { "" };
        let text = format!("{name}={}; Path=/; HttpOnly; SameSite=Lax{secure}", server.cookie);
        HeaderValue::try_from(text).ok()
    }

    /// A backend that the configuration has no more, with a tunnel that has outlived it.
    #[must_use]
    pub(crate) fn gone(name: &str, tunnel: Duration) -> Self {
        Self {
            name: name.to_owned(),
            endpoints: Vec::new(),
            resolved: Vec::new(),
            resolve_every: None,
            group: Group::new(Balance::RoundRobin, Vec::new(), Arc::default()),
            hash: None,
            sticky: None,
            times: Times { tunnel, ..Times::default() },
            wait: Wait::default(),
            proxy_protocol: None,
            check: None,
        }
    }

    /// Lets servers that stay go on with the counts and health that they had before a reload.
    pub(crate) fn servers_from(servers: Vec<Server>, before: Option<&Self>) -> Vec<Arc<Server>> {
        let known = |name: &str| before?.group.servers().iter().find(|server| server.name == name);
        let goes_on = |mut server: Server| {
            known(&server.name).into_iter().for_each(|before| server.go_on_from(before));
            Arc::new(server)
        };
        servers.into_iter().map(goes_on).collect()
    }
}

/// The value of a cookie.
fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_leaves_no_field_that_differs_by_underscores() {
        let secret = HeaderName::from_static("x-user-id");
        let set = Edits { remove: Vec::new(), set: vec![(secret.clone(), HeaderValue::from_static("7"))] };
        for forged in ["x_user_id", "x-user_id", "x-user-id"] {
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::from_static(forged), HeaderValue::from_static("1"));
            headers.insert("x_other", HeaderValue::from_static("1"));
            set.apply(&mut headers);
            assert!(headers.len() == 2 && headers[&secret] == "7", "{forged}: {headers:?}");
        }
    }
}
