use super::accepts::prefers_plain;
use super::local::check;
use super::query::{Wanted, close_code};
use super::token::AdminToken;
use super::view;
use crate::{Address, Config, Conn, EngineChoice, Error, Handler, Message, Reply, Request, Server, ServerHandle};
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use serde_json::Value;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tautline_engine::ParseConnIdError;
use tautline_io::machine;
use tautline_metrics::prometheus_client::registry::Registry;
use tautline_metrics::{CONTENT_TYPE, Figures, PLAIN_CONTENT_TYPE};
use tautline_ws::handshake::is_loopback;

/// Connections to the admin listener at once, at most and at least.
const CONNECTIONS: usize = 64;
const LEAST: usize = 8;
/// Time for the head of a request. Others that only connect thus keep nobody out.
const HEAD: Duration = Duration::from_secs(2);
/// Most bytes of the body of a request.
const BODY: usize = 1024;
/// Mode of a Unix socket: its owner and its group may connect.
const MODE: u32 = 0o660;

const INDEX: &str = "\
/metrics      OpenMetrics, or the text format 0.0.4 if `Accept` prefers text/plain
/healthz      200 while all loops turn, otherwise 503
/readyz       200 while new connections are welcome, otherwise 503 with the reason, such as a drain
/connections  the connections that hold the most memory first, as JSON; ?most=100, and ?order=id for all, page by page
/connections/ID  one connection; DELETE closes it, by default with ?code=1008
/log          the level of the log; PUT or POST another one
";

/// Shows a server's metrics, health and connections over HTTP, closes connections, and changes the log level.
///
/// | request | answer |
/// |---|---|
/// | `GET /metrics` | all figures in OpenMetrics, or in the text format 0.0.4 if `Accept` prefers `text/plain` |
/// | `GET /healthz` | 200 if every loop answers within a second, or else 503 with the reason |
/// | `GET /readyz` | 200, or 503 with the reason: a drain has begun, a loop has ended, a certificate is still ordered, or the [application's](Self::with_readiness) |
/// | `GET /connections?most=N` | connections as JSON, those that hold the most memory first; by default 20 |
/// | `GET /connections?order=id&most=N` | a page of all connections; `next` is the path of the next page |
/// | `GET /connections/ID` | one connection |
/// | `DELETE /connections/ID?code=N` | closes it, by default with 1008 |
/// | `GET /log`, `PUT /log` | the [level](LogLevel) of the log |
///
/// It runs in a loop and thread of its own. Counters are read from memory that the loops write anyway. Only `/healthz`,
/// `/connections` and stages ask the loops, and wait at most a second.
///
/// Connections have their paths in the list if the server has an [`access_log`](crate::Config::access_log), for example
/// [`AccessLog::discard`](crate::AccessLog::discard).
///
/// Without a [token](Self::with_token) there is no login. [`listen`](Self::listen) then takes only addresses that other machines
/// cannot reach, and requests over TCP must name this machine in `Host`, so that no web page can send any. All users of the
/// machine reach a loopback address. A Unix socket is for its owner and group.
///
/// ```
/// use tautline::{Admin, Conn, Handler, Message, Server};
///
/// struct App;
///
/// impl Handler for App {
///     type State = ();
///     fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}
/// }
///
/// let server = Server::plain().listen("127.0.0.1:0".parse()?).start(|_shard| App)?;
/// let admin = Admin::new(&server).listen("127.0.0.1:0".parse()?)?;
/// println!("curl http://{}/metrics", admin.addresses()[0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Admin {
    server: ServerHandle,
    own: Arc<Registry>,
    level: Arc<dyn LogLevel>,
    token: Option<AdminToken>,
    unready: Vec<Unready>,
    #[cfg(feature = "acme")]
    acme: Option<crate::acme::Acme>,
}

/// Tells why the application should get no new connections.
type Unready = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// The level of the log, as [`Admin`] shows and changes it.
///
/// The default takes `off`, `error`, `warn`, `info`, `debug` and `trace`, and sets [`log::max_level`]. It cannot show what the
/// logger itself leaves out.
///
/// ```
/// use std::sync::Mutex;
/// use tautline::LogLevel;
///
/// /// Keeps the text for a logger of the application.
/// struct Filter(Mutex<String>);
///
/// impl LogLevel for Filter {
///     fn get(&self) -> String {
///         self.0.lock().unwrap().clone()
///     }
///     fn set(&self, level: &str) -> Result<(), String> {
///         *self.0.lock().unwrap() = level.to_owned();
///         Ok(())
///     }
/// }
/// ```
pub trait LogLevel: Send + Sync {
    /// The present level, in the words that [`set`](Self::set) takes.
    fn get(&self) -> String;

    /// Changes the level.
    ///
    /// # Errors
    /// The reason why this is no level, for the operator.
    fn set(&self, level: &str) -> Result<(), String>;
}

/// The level of the crate `log`.
struct MaxLevel;

impl LogLevel for MaxLevel {
    fn get(&self) -> String {
        log::max_level().as_str().to_ascii_lowercase()
    }

    fn set(&self, level: &str) -> Result<(), String> {
        let known = log::LevelFilter::from_str(level);
        log::set_max_level(known.map_err(|_| "write off, error, warn, info, debug or trace".to_owned())?);
        Ok(())
    }
}

impl Admin {
    /// Shows this server.
    #[must_use]
    pub fn new(server: &ServerHandle) -> Self {
        Self {
            server: server.clone(),
            own: Arc::default(),
            level: Arc::new(MaxLevel),
            token: None,
            unready: Vec::new(),
            #[cfg(feature = "acme")]
            acme: None,
        }
    }

    /// Adds the figures of a certificate that the server orders itself. The server is ready once it has the first one.
    #[cfg(feature = "acme")]
    #[must_use]
    pub fn with_acme(mut self, acme: crate::acme::Acme) -> Self {
        self.acme = Some(acme);
        self
    }

    /// Adds the application's own metrics behind those of the server.
    ///
    /// Their names must not begin with `tautline_` or `process_`.
    #[must_use]
    pub fn with_metrics(mut self, own: Registry) -> Self {
        self.own = Arc::new(own);
        self
    }

    /// Sets how the log level is read and changed.
    #[must_use]
    pub fn with_log_level(mut self, level: impl LogLevel + 'static) -> Self {
        self.level = Arc::new(level);
        self
    }

    /// Refuses requests over TCP without this token. The listener may then be reached from other machines.
    ///
    /// The token crosses the network as it is, so let it be a network of your own, or serve with TLS.
    #[must_use]
    pub fn with_token(mut self, token: AdminToken) -> Self {
        self.token = Some(token);
        self
    }

    /// Adds a reason for `/readyz` to answer 503: the one that `unready` returns, as long as it returns one.
    ///
    /// It is called on the listener's thread for each such request.
    #[must_use]
    pub fn with_readiness(mut self, unready: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.unready.push(Arc::new(unready));
        self
    }

    /// Serves at an address, on a thread of its own, until the handle [drains](ServerHandle::drain).
    ///
    /// # Errors
    /// If other machines can reach the address and there is no token, or if it cannot listen there.
    // Optimised, a loop is compiled again by each crate that starts it: so only programs that listen here compile this one.
    #[cfg_attr(not(debug_assertions), inline)]
    pub fn listen(self, address: Address) -> Result<ServerHandle, Error> {
        let server = self.prepare(Server::plain(), &address)?.listen(address.clone());
        server.start(move |_| self.clone())
    }

    /// Makes a server an admin listener, for programs that start all loops with one handler type of their own, or take an
    /// admin listener over.
    ///
    /// The program has it listen at the address or [take over](Server::take_over), and starts it with this admin as its
    /// handler. Only its owner and group can connect to a Unix socket.
    ///
    /// # Errors
    /// If other machines can reach the address and there is no token.
    pub fn prepare<E: EngineChoice>(&self, server: Server<E>, address: &Address) -> Result<Server<E>, Error> {
        if self.token.is_none() {
            check(address)?;
        }
        let mut config = Config::untrusted_internet();
        // A part of what the server's loops leave.
        let free = machine::free_descriptors().unwrap_or(usize::MAX);
        config.limits.max_connections = CONNECTIONS.min(free / 6).max(LEAST);
        config.limits.max_body = BODY;
        config.limits.spare_descriptors = 0;
        config.deadlines.handshake = HEAD;
        Ok(server.config(config).unix_mode(MODE).named("tautline-admin"))
    }

    fn answer(&self, request: &Request<'_>) -> Reply {
        if let Some(refusal) = self.refusal(request) {
            return refusal;
        }
        let uri = request.http.uri();
        let is_read = matches!(*request.http.method(), Method::GET | Method::HEAD);
        match uri.path() {
            "/log" if is_write(request) => self.set_level(request),
            "/" | "/metrics" | "/healthz" | "/readyz" | "/connections" | "/log" if !is_read => text(
                StatusCode::METHOD_NOT_ALLOWED,
                "only GET; /log also takes PUT and POST, and /connections/ID takes DELETE\n",
            ),
            "/" => text(StatusCode::OK, INDEX),
            "/metrics" if prefers_plain(request.http.headers()) => {
                respond(StatusCode::OK, PLAIN_CONTENT_TYPE, self.figures().encode_plain_with(&self.own))
            }
            "/metrics" => respond(StatusCode::OK, CONTENT_TYPE, self.figures().encode_with(&self.own)),
            "/healthz" => verdict(view::illness(&self.server)),
            "/readyz" => verdict(self.unreadiness()),
            "/connections" => match Wanted::parse(uri.query().unwrap_or("")) {
                Ok(wanted) => json(StatusCode::OK, &view::connections(&self.server, wanted)),
                Err(how) => text(StatusCode::BAD_REQUEST, &format!("{how}\n")),
            },
            "/log" => text(StatusCode::OK, &format!("{}\n", self.level.get())),
            path => match path.strip_prefix("/connections/") {
                Some(id) => self.connection(request, id),
                None => text(StatusCode::NOT_FOUND, INDEX),
            },
        }
    }

    /// Refuses requests of web pages and, if there is a token, those without it. A process that can open the Unix socket may do all.
    fn refusal(&self, request: &Request<'_>) -> Option<Reply> {
        let headers = request.http.headers();
        if matches!(request.peer, Address::Tcp(_)) {
            match &self.token {
                Some(token) if !token.is_in(headers) => return Some(unauthorized()),
                // No web page knows the token.
                Some(_) => return None,
                None if !is_from_here(request) => {
                    let why = "only for requests to this machine by its loopback address or localhost\n";
                    return Some(text(StatusCode::FORBIDDEN, why));
                }
                None => {}
            }
        }
        let is_foreign = !matches!(*request.http.method(), Method::GET | Method::HEAD) && !is_from_own_page(request);
        is_foreign.then(|| text(StatusCode::FORBIDDEN, "pages of others may not change anything\n"))
    }

    /// Shows or closes one connection.
    fn connection(&self, request: &Request<'_>, id: &str) -> Reply {
        let (method, uri) = (request.http.method(), request.http.uri());
        let is_close = *method == Method::DELETE;
        if !is_close && !matches!(*method, Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET and DELETE\n");
        }
        let found = id.parse().map_err(|error: ParseConnIdError| error.to_string());
        let (shard, weight) = match found.and_then(|conn| view::find(&self.server, conn)) {
            Ok(found) => found,
            Err(why) => return text(StatusCode::NOT_FOUND, &format!("{why}\n")),
        };
        if !is_close {
            return json(StatusCode::OK, &view::connection(&weight));
        }
        let code = match close_code(uri.query().unwrap_or("")) {
            Ok(code) => code,
            Err(how) => return text(StatusCode::BAD_REQUEST, &format!("{how}\n")),
        };
        if weight.state != "open" {
            let why = format!("the connection is no open WebSocket ({}); a deadline ends it\n", weight.state);
            return text(StatusCode::CONFLICT, &why);
        }
        log::warn!("connection {id} of {} is closed with {code}, by the admin listener", weight.peer);
        match shard.close(weight.conn, code, "closed by an operator") {
            Ok(()) => json(StatusCode::OK, &view::connection(&weight)),
            Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("{error}\n")),
        }
    }

    fn unreadiness(&self) -> Option<String> {
        let of_server = view::unreadiness(&self.server).or_else(|| self.waits_for_certificate());
        of_server.or_else(|| self.unready.iter().find_map(|unready| unready()))
    }

    fn figures(&self) -> Figures {
        #[cfg_attr(not(feature = "acme"), expect(unused_mut, reason = "only this feature adds figures"))]
        let mut figures = view::figures(&self.server);
        #[cfg(feature = "acme")]
        {
            figures.acme = self.acme.as_ref().map(|acme| view::acme(&acme.status()));
        }
        figures
    }

    /// Why clients would not trust the server yet.
    #[cfg_attr(not(feature = "acme"), expect(clippy::unused_self, reason = "as with the feature"))]
    fn waits_for_certificate(&self) -> Option<String> {
        #[cfg(feature = "acme")]
        return self.acme.as_ref().and_then(|acme| acme.status().unreadiness());
        #[cfg(not(feature = "acme"))]
        None
    }

    fn set_level(&self, request: &Request<'_>) -> Reply {
        let level = std::str::from_utf8(request.body).unwrap_or_default().trim();
        match self.level.set(level) {
            Ok(()) => {
                log::warn!("the log level is {} now, by the admin listener", self.level.get());
                text(StatusCode::OK, &format!("{}\n", self.level.get()))
            }
            Err(why) => text(StatusCode::BAD_REQUEST, &format!("{why}\n")),
        }
    }
}

impl Handler for Admin {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        self.answer(request)
    }

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, _message: Message<'_>) {}
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admin")
    }
}

/// Whether a request names this machine, and comes from no web page of others.
fn is_from_here(request: &Request<'_>) -> bool {
    let headers = request.http.headers();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    host.is_some_and(is_loopback) && !headers.contains_key(header::ORIGIN)
}

fn is_write(request: &Request<'_>) -> bool {
    matches!(*request.http.method(), Method::PUT | Method::POST)
}

/// Whether a request comes from no web page, or from one of this listener, as browsers tell.
fn is_from_own_page(request: &Request<'_>) -> bool {
    let sites = request.http.headers().get_all("sec-fetch-site");
    sites.iter().all(|site| site == "same-origin" || site == "none")
}

fn unauthorized() -> Reply {
    let mut reply =
        text(StatusCode::UNAUTHORIZED, "send `Authorization: Bearer TOKEN` with the token of this listener\n");
    if let Reply::Respond(response) = &mut reply {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    reply
}

fn verdict(why_not: Option<String>) -> Reply {
    match why_not {
        None => text(StatusCode::OK, "ok\n"),
        Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("{why}\n")),
    }
}

fn text(status: StatusCode, body: &str) -> Reply {
    respond(status, "text/plain; charset=utf-8", body.to_owned())
}

fn json(status: StatusCode, value: &Value) -> Reply {
    respond(status, "application/json", format!("{value:#}\n"))
}

fn respond(status: StatusCode, kind: &'static str, body: String) -> Reply {
    let mut response = http::Response::new(body.into_bytes());
    *response.status_mut() = status;
    let headers: [(HeaderName, &'static str); 3] = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Reply::Respond(response)
}
