use super::local::{check, is_local_host};
use super::view;
use crate::{Address, Config, Conn, EngineChoice, Error, Handler, Message, Reply, Request, Server, ServerHandle};
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use std::fmt;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::str::FromStr;
use std::sync::Arc;
use tautline_metrics::CONTENT_TYPE;
use tautline_metrics::prometheus_client::registry::Registry;

/// Connections to the admin listener at once.
const CONNECTIONS: usize = 64;
/// Most bytes of the body of a request.
const BODY: usize = 1024;
/// Connections that are listed if a request names no number, and the largest number that it may name.
const LISTED: usize = 20;
const MOST_LISTED: usize = 1000;
/// Mode of a Unix socket: its owner and its group may connect.
const MODE: u32 = 0o660;

const INDEX: &str = "\
/metrics      OpenMetrics, for Prometheus
/healthz      200 while all loops turn, otherwise 503
/readyz       200 while new connections are welcome, otherwise 503: during a drain, or when a loop has ended
/connections  the connections that hold the most memory, as JSON; ?most=100
/log          the level of the log; PUT or POST another one
";

/// Shows a server's metrics, health and heaviest connections over HTTP, and changes the log level.
///
/// | request | answer |
/// |---|---|
/// | `GET /metrics` | all figures in OpenMetrics |
/// | `GET /healthz` | 200 if every loop answers within a second, or else 503 with the reason |
/// | `GET /readyz` | 200, or 503 with the reason: a drain has begun, or a loop has ended |
/// | `GET /connections?most=N` | the connections that hold the most memory, as JSON; by default 20 |
/// | `GET /log`, `PUT /log` | the [level](LogLevel) of the log |
///
/// It runs in a loop and thread of its own. Counters are read from memory that the loops write anyway. Only `/healthz`,
/// `/connections` and stages ask the loops, and wait at most a second.
///
/// There is no login. [`listen`](Self::listen) takes only addresses that other machines cannot reach, and requests over TCP
/// must name this machine in `Host`, so that no web page can send any. All users of the machine reach a loopback address. A
/// Unix socket is for its owner and group.
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
}

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
        Self { server: server.clone(), own: Arc::default(), level: Arc::new(MaxLevel) }
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

    /// Serves at a Unix socket or a loopback address, on a thread of its own, until the handle [drains](ServerHandle::drain).
    ///
    /// # Errors
    /// If other machines can reach the address, or if it cannot listen there.
    pub fn listen(self, address: Address) -> Result<ServerHandle, Error> {
        let server = Self::prepare(Server::plain(), &address)?.listen(address.clone());
        let handle = server.start(move |_| self.clone())?;
        Self::restrict(&address)?;
        Ok(handle)
    }

    /// Makes a server an admin listener, for programs that start all loops with one handler type of their own, or take an
    /// admin listener over.
    ///
    /// The program has it listen at the address or [take over](Server::take_over), starts it with this admin as its handler, and
    /// then calls [`restrict`](Self::restrict).
    ///
    /// # Errors
    /// If other machines can reach the address.
    pub fn prepare<E: EngineChoice>(server: Server<E>, address: &Address) -> Result<Server<E>, Error> {
        check(address)?;
        let mut config = Config::untrusted_internet();
        config.limits.max_connections = CONNECTIONS;
        config.limits.max_body = BODY;
        Ok(server.config(config).named("tautline-admin"))
    }

    /// Lets only its owner and group connect to a Unix socket. Nothing happens for other addresses.
    ///
    /// # Errors
    /// If the system does not change the mode of the socket.
    pub fn restrict(address: &Address) -> Result<(), Error> {
        let Address::Unix(path) = address else { return Ok(()) };
        let what = "cannot set the mode of the admin socket";
        set_permissions(path, Permissions::from_mode(MODE)).map_err(|error| Error::Machine { what, error })
    }

    fn answer(&self, request: &Request<'_>) -> Reply {
        let uri = request.http.uri();
        if matches!(request.peer, Address::Tcp(_)) && !is_from_here(request) {
            return text(
                StatusCode::FORBIDDEN,
                "only for requests to this machine by its loopback address or localhost\n",
            );
        }
        let is_read = matches!(*request.http.method(), Method::GET | Method::HEAD);
        match uri.path() {
            "/log" if matches!(*request.http.method(), Method::PUT | Method::POST) => self.set_level(request.body),
            "/" | "/metrics" | "/healthz" | "/readyz" | "/connections" | "/log" if !is_read => {
                text(StatusCode::METHOD_NOT_ALLOWED, "only GET; /log also takes PUT and POST\n")
            }
            "/" => text(StatusCode::OK, INDEX),
            "/metrics" => respond(StatusCode::OK, CONTENT_TYPE, view::figures(&self.server).encode_with(&self.own)),
            "/healthz" => verdict(view::illness(&self.server)),
            "/readyz" => verdict(view::unreadiness(&self.server)),
            "/connections" => match most(uri.query().unwrap_or("")) {
                Some(most) => {
                    let json = format!("{:#}\n", view::connections(&self.server, most));
                    respond(StatusCode::OK, "application/json", json)
                }
                None => text(StatusCode::BAD_REQUEST, "write ?most=N, with N from 1 to 1000\n"),
            },
            "/log" => text(StatusCode::OK, &format!("{}\n", self.level.get())),
            _ => text(StatusCode::NOT_FOUND, INDEX),
        }
    }

    fn set_level(&self, body: &[u8]) -> Reply {
        let level = std::str::from_utf8(body).unwrap_or_default().trim();
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
    host.is_some_and(is_local_host) && !headers.contains_key(header::ORIGIN)
}

/// The number of connections that a query asks for; `None` if it is none.
fn most(query: &str) -> Option<usize> {
    let asked = query.split('&').find_map(|pair| pair.strip_prefix("most="));
    asked.map_or(Some(LISTED), |most| most.parse().ok().filter(|most| (1..=MOST_LISTED).contains(most)))
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

#[cfg(test)]
mod tests {
    use super::most;

    #[test]
    fn the_number_of_connections_is_bounded() {
        assert_eq!([most(""), most("other=1"), most("a=b&most=7")], [Some(20), Some(20), Some(7)]);
        assert_eq!([most("most="), most("most=0"), most("most=1001"), most("most=x")], [None; 4]);
    }
}
