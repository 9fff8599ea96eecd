use crate::plan::{Action, Answer, Folder, Forward, NoRoute, Plan, Route};
use crate::route::{Host, NormalPath};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tautline::http::{HeaderValue, Method, Response, StatusCode, header};
use tautline::layers::ws::handshake::authority;
use tautline::{Address, Reply, Request};

/// The outcome for a request, as far as its head decides it.
#[derive(Debug)]
pub enum Decision<'p> {
    /// Pass it on.
    Forward {
        /// The route.
        route: &'p Route,
        /// How it is passed on.
        forward: &'p Forward,
        /// The target of the request for the server.
        target: String,
    },
    /// Answer it with a file, by this route.
    Files {
        /// The route.
        route: &'p Route,
        /// The folder.
        folder: &'p Folder,
        /// The path below it, with a slash at its front.
        path: String,
    },
    /// Answer it, by this route if there is one.
    Answer(Option<&'p Route>, Response<Vec<u8>>),
}

impl Plan {
    /// Decides about a request.
    #[must_use]
    pub fn decide(&self, request: &Request<'_>) -> Decision<'_> {
        let head = request.http;
        // TRACE would show a client the fields that the proxy sets.
        if matches!(*head.method(), Method::CONNECT | Method::TRACE) {
            return Decision::Answer(None, self.status(StatusCode::METHOD_NOT_ALLOWED, ""));
        }
        if let Some(why) = self.misdirection(request) {
            return Decision::Answer(None, self.status(StatusCode::MISDIRECTED_REQUEST, why));
        }
        let target = head.uri().path_and_query().map_or("/", |target| target.as_str());
        let (route, path) = match self.route(authority(head), target, source(request.peer)) {
            Ok(found) => found,
            Err(error) => {
                let why = if let NoRoute::BadRequest(why) = error { why } else { "" };
                return Decision::Answer(None, self.status(error.status(), why));
            }
        };
        if route.needs_certificate && request.tls.peer_certificates.is_empty() {
            let why = "a client certificate is needed";
            return Decision::Answer(Some(route), self.status(StatusCode::FORBIDDEN, why));
        }
        match &route.action {
            Action::Forward(forward) => {
                if request.is_upgrade && route.origins.as_ref().is_some_and(|origins| !origins.allow(head)) {
                    return Decision::Answer(
                        Some(route),
                        self.status(StatusCode::FORBIDDEN, "this Origin may not connect"),
                    );
                }
                let target = target_for(route, forward.rewrite.as_deref(), &path);
                Decision::Forward { route, forward, target }
            }
            Action::Files(_) if request.is_upgrade => {
                let why = "there are files here, and no WebSocket";
                Decision::Answer(Some(route), self.status(StatusCode::NOT_FOUND, why))
            }
            Action::Files(folder) => {
                let asked = path;
                let mut path = target_for(route, folder.rewrite.as_deref(), &asked);
                path.truncate(path.find('?').unwrap_or(path.len()));
                // Relative links of the folder's page begin behind the slash.
                if path.ends_with('/') && !asked.as_str().ends_with('/') {
                    let to = HeaderValue::try_from(format!("{}/{}", asked.as_str(), asked.query()));
                    let mut response = self.status(StatusCode::PERMANENT_REDIRECT, "");
                    match to {
                        Ok(to) => _ = response.headers_mut().insert(header::LOCATION, to),
                        Err(_) => return Decision::Answer(Some(route), self.status(StatusCode::BAD_REQUEST, "")),
                    }
                    folder.response.apply(response.headers_mut());
                    return Decision::Answer(Some(route), response);
                }
                Decision::Files { route, folder, path }
            }
            Action::Redirect { status, to, response: edits } => {
                let mut response = self.status(*status, "");
                match HeaderValue::try_from(Action::location(to, &path)) {
                    Ok(location) => _ = response.headers_mut().insert(header::LOCATION, location),
                    Err(_) => return Decision::Answer(Some(route), self.status(StatusCode::BAD_REQUEST, "")),
                }
                edits.apply(response.headers_mut());
                Decision::Answer(Some(route), response)
            }
            Action::Answer(Answer { status, content_type, body, response: edits }) => {
                let mut response = Response::new(body.clone());
                *response.status_mut() = *status;
                response.headers_mut().insert(header::CONTENT_TYPE, content_type.clone());
                edits.apply(response.headers_mut());
                Decision::Answer(Some(route), response)
            }
        }
    }

    /// The answer to a request of a source that has had too many.
    pub(crate) fn too_many(&self, request: &Request<'_>, now: Instant) -> Option<Response<Vec<u8>>> {
        let source = source(request.peer)?;
        let wait = self.limits.iter().find_map(|limit| limit.count(source, now).err())?;
        let mut response = self.status(StatusCode::TOO_MANY_REQUESTS, "");
        let seconds = wait.saturating_add(Duration::from_millis(999)).as_secs();
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        Some(response)
    }

    /// The reason why the connection of a request is not for its host (RFC 9110, section 7.4), if it is not.
    ///
    /// The host has another certificate, or its clients show other certificates than those of the connection. The connection
    /// tells its own rule, so it counts too that a reload has changed the rule of the host since.
    ///
    /// A client without a name in TLS has got the first certificate, and has decided that it will do. The rule about clients is
    /// not for the client to decide.
    fn misdirection(&self, request: &Request<'_>) -> Option<&'static str> {
        let host = authority(request.http).and_then(Host::new);
        let (host, server_name) = (host.as_ref().map(Host::as_str), request.tls.server_name.as_deref());
        if let Some(((names, server_name), host)) = self.names.as_ref().zip(server_name).zip(host)
            && !names.serve(server_name, host)
        {
            return Some("this connection is for the host of another certificate");
        }
        let rule = self.names.as_ref().and_then(|names| names.rule(host.or(server_name)));
        let is_other = rule != request.tls.client_rule.as_deref();
        is_other.then_some("this connection has another rule about client certificates than the host: connect anew")
    }

    /// An answer of the proxy itself: the page of the configuration, or the status in words.
    #[must_use]
    pub fn status(&self, status: StatusCode, why: &str) -> Response<Vec<u8>> {
        let page = self.page(status);
        let words = || {
            let reason = status.canonical_reason().unwrap_or("");
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            format!("{} {reason}{why}\n", status.as_u16()).into_bytes()
        };
        let content_type = if page.is_some() { "text/html; charset=utf-8" } else { "text/plain; charset=utf-8" };
        let mut response = Response::new(page.map_or_else(words, <[u8]>::to_vec));
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        response
    }
}

impl Folder {
    /// The answer to a request for a file.
    pub(crate) fn reply<T>(&self, plan: &Plan, request: &Request<'_>, path: &str) -> Reply<T> {
        let mut reply = self.files.reply_at(request, path);
        match &mut reply {
            Reply::Respond(response) => {
                if plan.page(response.status()).is_some() {
                    let page = plan.status(response.status(), "");
                    *response.body_mut() = page.body().clone();
                    response.headers_mut().extend(page.headers().clone());
                }
                self.response.apply(response.headers_mut());
            }
            Reply::Stream(response) => self.response.apply(response.headers_mut()),
            _ => {}
        }
        reply
    }
}

/// The address of a client, if it has one.
pub(crate) fn source(peer: &Address) -> Option<IpAddr> {
    match peer {
        Address::Tcp(address) => Some(address.ip()),
        _ => None,
    }
}

/// The address of the proxy that told of the client in the request's fields, which the loop's configuration trusts.
pub(crate) fn proxy_before<'r>(request: &Request<'r>) -> Option<&'r Address> {
    // Nothing but these fields names another client than the connection itself.
    let before = request.via?.base();
    (before != request.peer).then_some(before)
}

fn target_for(route: &Route, rewrite: Option<&str>, path: &NormalPath) -> String {
    match rewrite {
        Some(with) => route.path.rewrite(path, with),
        None => format!("{}{}", path.as_str(), path.query()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use std::path::Path;
    use tautline::{ProxyHeader, Via, http};

    const TEXT: &str = r#"
[[route]]
path = "/api"
rewrite = "/"
to = "app"
origins = ["https://app.example"]
[[route]]
path = "/old"
redirect = { to = "https://new.example/*", status = 301 }
response = { set = { Cache-Control = "max-age=60" }, remove = ["Content-Type"] }
[[route]]
path = "/down"
answer = { status = 503, body = "back soon" }
response.set = { Retry-After = "120" }
[backend.app]
servers = ["http://127.0.0.1:1"]
"#;

    /// The target that is passed on, or the status, the body and the location of an answer.
    fn decide(request: http::request::Builder) -> Result<String, (u16, String, String)> {
        let plan = config::parse(Path::new("t"), TEXT, None, Instant::now()).unwrap();
        let (head, peer) = (request.body(()).unwrap(), "192.0.2.1:1".parse().unwrap());
        match plan.decide(&Request::new(&head, &peer, &Default::default())) {
            Decision::Files { path, .. } => Ok(path),
            Decision::Forward { target, .. } => Ok(target),
            Decision::Answer(_, response) => {
                let location = response.headers().get("location").map(|location| location.to_str().unwrap().to_owned());
                let (parts, body) = response.into_parts();
                Err((parts.status.as_u16(), String::from_utf8(body).unwrap(), location.unwrap_or_default()))
            }
        }
    }

    #[test]
    fn a_request_gets_what_its_route_says() {
        let get = |target: &str| http::Request::get(target).header("Host", "a");
        assert_eq!(decide(get("/api/x?y=1")), Ok("/x?y=1".to_owned()));
        assert_eq!(decide(get("http://b/api/./x")), Ok("/x".to_owned()));
        let (status, _, location) = decide(get("/old/a?b")).unwrap_err();
        assert_eq!((status, location.as_str()), (301, "https://new.example/old/a?b"));
        assert_eq!(decide(get("/down")), Err((503, "back soon".to_owned(), String::new())));
        assert_eq!(decide(get("/none")).unwrap_err().0, 404);
        assert_eq!(decide(get("/api/%2e%2e/%2e%2e/x")).unwrap_err().0, 400);
        assert_eq!(decide(http::Request::connect("a:1")).unwrap_err().0, 405);
        assert_eq!(decide(http::Request::trace("/api").header("Host", "a")).unwrap_err().0, 405);
    }

    #[test]
    fn the_folder_of_a_route_is_asked_for_with_a_slash() {
        let text = "[[route]]\npath = \"/static\"\nrewrite = \"/\"\nfiles = \"/proc\"\n";
        let plan = config::parse(Path::new("t"), text, None, Instant::now()).unwrap();
        let decide = |target: &str| {
            let head = http::Request::get(target).header("Host", "a").body(()).unwrap();
            match plan.decide(&Request::new(&head, &"192.0.2.1:1".parse().unwrap(), &Default::default())) {
                Decision::Files { path, .. } => path,
                Decision::Answer(_, answer) => {
                    format!("{} {}", answer.status().as_u16(), answer.headers()["location"].to_str().unwrap())
                }
                Decision::Forward { .. } => panic!("it is a folder"),
            }
        };
        assert_eq!(decide("/static?a=b"), "308 /static/?a=b");
        assert_eq!((decide("/static/"), decide("/static/x.txt")), ("/".to_owned(), "/x.txt".to_owned()));
    }

    #[test]
    fn redirects_and_fixed_answers_get_the_headers_of_their_route() {
        let plan = config::parse(Path::new("t"), TEXT, None, Instant::now()).unwrap();
        let headers = |target: &str| {
            let head = http::Request::get(target).header("Host", "a").body(()).unwrap();
            let peer = "192.0.2.1:1".parse().unwrap();
            match plan.decide(&Request::new(&head, &peer, &Default::default())) {
                Decision::Answer(_, response) => response.into_parts().0.headers,
                other => panic!("{other:?}"),
            }
        };
        let redirect = headers("/old/a");
        assert!(redirect["cache-control"] == "max-age=60" && !redirect.contains_key("content-type"), "{redirect:?}");
        assert_eq!(headers("/down")["retry-after"], "120");
    }

    #[test]
    fn the_proxy_that_told_of_a_client_is_known_whatever_its_address() {
        let (head, peer, tls) = (http::Request::new(()), "192.0.2.7:0".parse().unwrap(), Default::default());
        let told = |via: Via| {
            let mut request = Request::new(&head, &peer, &tls);
            request.via = Some(&via);
            proxy_before(&request).map(ToString::to_string)
        };
        let at = |text: &str| text.parse::<Address>().unwrap();
        let header = |client: &str| Some(ProxyHeader::new(at(client), at("198.51.100.1:443")));
        assert_eq!(told(Via::new(at("10.0.0.1:5"), None)).as_deref(), Some("10.0.0.1:5"));
        assert_eq!(told(Via::new(Address::UnixUnnamed, None)).as_deref(), Some("unix:"));
        assert_eq!(told(Via::new(at("10.0.0.1:5"), header("10.0.0.2:6"))).as_deref(), Some("10.0.0.2:6"));
        // The header itself names the client.
        assert_eq!(told(Via::new(at("10.0.0.1:5"), header("192.0.2.7:0"))), None);
    }

    #[test]
    fn pages_of_other_origins_open_no_websocket() {
        let upgrade = |origin: &str| {
            let request = http::Request::get("/api").header("Host", "a").header("Connection", "Upgrade");
            let request = request.header("Upgrade", "websocket").header("Sec-WebSocket-Version", "13");
            decide(request.header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==").header("Origin", origin))
        };
        assert!(upgrade("https://app.example").is_ok());
        assert_eq!(upgrade("https://evil.example").unwrap_err().0, 403);
    }
}
