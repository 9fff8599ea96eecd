use crate::dev_cert::DevCert;
use crate::failure::Failure;
use crate::local::loopback;
use crate::output;
use serde::Serialize;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tautline::http::{self, HeaderValue, Method, StatusCode, header};
use tautline::layers::ws::handshake::{authority, is_loopback};
use tautline::{
    Address, CertificateFiles, CloseCode, Config, Conn, Handler, Message, Opening, Origins, Outgoing, Reply, Request,
    Server, ServerConfig, ServerFiles, ServerHandle, Tls, TlsEngine,
};
use tautline_lab::loops;

/// The page. It asks for nothing but its own WebSocket.
const PAGE: &str = include_str!("page.html");
/// The page's own script and style, and its own WebSocket: nothing else may load.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// The path of the page's WebSocket, and the topic of its figures.
const LIVE: &str = "/live";
/// Time between two figures of a chart.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
/// Figures that a page gets which is opened late: those of ten minutes.
const PAST: usize = 600;
/// Browsers at once.
const BROWSERS: usize = 64;
/// Time that browsers have to close at the end.
const DRAIN: Duration = Duration::from_millis(500);

/// The page of live figures.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DashboardArguments {
    /// Show live figures on a page at this address of the machine itself: IP:PORT or localhost:PORT. Without ADDR it is
    /// 127.0.0.1:8444.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:8444",
          value_parser = loopback)]
    dashboard: Option<SocketAddr>,
}

impl DashboardArguments {
    /// Whether there is to be a page.
    pub(crate) const fn is_on(&self) -> bool {
        self.dashboard.is_some()
    }

    /// Reads the certificate of the page, if there is to be one. It has TLS if the traffic that it shows has.
    pub(crate) fn prepare(&self, secure: bool) -> Result<Option<Prepared>, Failure> {
        let Some(address) = self.dashboard else { return Ok(None) };
        let tls = if secure {
            Tls { engine: TlsEngine::default(), config: dev_cert()? }
        } else {
            Tls { engine: TlsEngine::Plain, config: ServerConfig::default() }
        };
        Ok(Some(Prepared { address, tls }))
    }
}

/// A page that is not served yet.
pub(crate) struct Prepared {
    address: SocketAddr,
    tls: Tls<ServerConfig, TlsEngine>,
}

/// A chart's latest figures.
#[derive(Serialize)]
pub(super) struct Chart {
    name: &'static str,
    unit: &'static str,
    /// Names of the lines, with their values.
    lines: Vec<(&'static str, f64)>,
}

impl Chart {
    pub(super) fn new(name: &'static str, unit: &'static str, lines: impl Into<Vec<(&'static str, f64)>>) -> Self {
        Self { name, unit, lines: lines.into() }
    }
}

/// A table of the present.
#[derive(Serialize)]
pub(crate) struct Table {
    pub(super) name: &'static str,
    pub(super) head: Vec<&'static str>,
    /// Texts and numbers, a row each. The last row may have one cell alone.
    pub(super) rows: Vec<Vec<serde_json::Value>>,
}

/// The figures of one instant.
#[derive(Serialize)]
struct Figures {
    /// Since the dashboard began.
    seconds: f64,
    charts: Vec<Chart>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tables: Vec<Table>,
}

/// A server of its own, so that a busy one does not delay its figures, and no figure counts itself.
pub(super) struct Dashboard {
    server: ServerHandle,
    past: Arc<Past>,
    began: Instant,
}

/// Figures for pages that are opened late.
struct Past {
    title: String,
    /// JSON texts of figures, oldest first.
    figures: Mutex<VecDeque<String>>,
}

impl Past {
    fn figures(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All figures in one text.
    fn text(&self) -> String {
        let title = serde_json::Value::from(self.title.as_str());
        let figures = self.figures();
        let figures: Vec<&str> = figures.iter().map(String::as_str).collect();
        format!("{{\"title\":{title},\"past\":[{}]}}", figures.join(","))
    }
}

impl Dashboard {
    /// Serves the page, and prints its address.
    pub(super) fn start(Prepared { address, tls }: Prepared, title: String) -> Result<Self, Failure> {
        let scheme = if tls.engine == TlsEngine::Plain { "http" } else { "https" };
        let past = Arc::new(Past { title, figures: Mutex::default() });
        let pages = Arc::clone(&past);
        let mut config = Config::untrusted_internet();
        config.limits.max_connections = BROWSERS;
        config.upgrade.origins = Origins::Loopback;
        let server = Server::new(tls).config(config).listen(Address::Tcp(address));
        let server = loops::start_server(server, false, Box::new(move |_| Box::new(Pages(Arc::clone(&pages)))))?;
        output::note(format_args!("live figures at {scheme}://{}/", server.addresses()[0]));
        Ok(Self { server, past, began: Instant::now() })
    }

    /// Sends figures to all pages.
    pub(super) fn show(&self, charts: Vec<Chart>, tables: Vec<Table>) {
        let mut figures = Figures { seconds: self.began.elapsed().as_secs_f64(), charts, tables };
        let Ok(text) = serde_json::to_string(&figures) else { return };
        // Tables have no past.
        figures.tables.clear();
        let Ok(kept) = serde_json::to_string(&figures) else { return };
        let mut past = self.past.figures();
        if past.len() == PAST {
            past.pop_front();
        }
        past.push_back(kept);
        drop(past);
        for shard in self.server.shards() {
            // A page that does not keep up misses figures, and a loop that has stopped has no page.
            let _ = shard.publish(LIVE, Outgoing::text(&text));
        }
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.server.drain(CloseCode::GOING_AWAY, "this run has ended", DRAIN);
        // An error of the loop is no error of what was measured.
        let _ = self.server.clone().join();
    }
}

fn dev_cert() -> Result<ServerConfig, Failure> {
    let dev_cert = DevCert::locate().ok_or_else(|| Failure::usage("no home folder for --dashboard's certificate"))?;
    dev_cert.ensure()?;
    let files = ServerFiles::new(ServerConfig::default());
    Ok(files.certificate(CertificateFiles::new(dev_cert.chain, dev_cert.key)).load()?)
}

/// Answers with the page, and subscribes its WebSockets.
struct Pages(Arc<Past>);

impl Handler for Pages {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        // A page of others can have its name lead here (DNS rebinding). Nothing forwards to this page.
        if !authority(request.http).is_some_and(is_loopback) {
            return not_local();
        }
        match (request.is_upgrade, request.http.uri().path()) {
            (true, LIVE) => Reply::upgrade(),
            (false, "/") if request.http.method() == Method::GET => page(),
            _ => Reply::status(StatusCode::NOT_FOUND),
        }
    }

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _opening: &Opening<'_>) {
        conn.subscribe(LIVE);
        conn.send(Outgoing::text(&self.0.text()));
    }

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, _message: Message<'_>) {}
}

fn not_local() -> Reply {
    let mut response =
        http::Response::new(b"only for requests to this machine by its loopback address or localhost\n".to_vec());
    *response.status_mut() = StatusCode::FORBIDDEN;
    Reply::Respond(response)
}

fn page() -> Reply {
    let mut response = http::Response::new(PAGE.as_bytes().to_vec());
    response.headers_mut().extend([
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ]);
    Reply::Respond(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use tautline::Incoming;

    #[test]
    fn a_late_page_gets_the_past_and_then_the_present() {
        let arguments = DashboardArguments { dashboard: Some(([127, 0, 0, 1], 0).into()) };
        let prepared = arguments.prepare(false).unwrap().unwrap();
        let dashboard = Dashboard::start(prepared, "a \"title\"".to_owned()).unwrap();
        for value in 0..PAST as u64 + 5 {
            dashboard.show(vec![Chart::new("Load", "/s", [("all", value as f64)])], Vec::new());
        }
        let at = &dashboard.server.addresses()[0];
        let mut socket = tautline::connect(&format!("ws://{at}{LIVE}")).unwrap();
        let mut next = || match socket.receive().unwrap() {
            Incoming::Text(text) => serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            other => panic!("{other:?}"),
        };
        let past = next();
        assert_eq!(past["title"], "a \"title\"");
        let figures = past["past"].as_array().unwrap();
        assert_eq!(figures.len(), PAST);
        assert_eq!(figures[0]["charts"][0]["lines"][0], serde_json::json!(["all", 5.0]));
        let table = Table { name: "Routes", head: vec!["route"], rows: vec![vec!["a<b".into()]] };
        dashboard.show(vec![Chart::new("Load", "/s", [("all", -1.0)])], vec![table]);
        let live = next();
        assert_eq!(live["charts"][0]["lines"][0][1], -1.0);
        assert_eq!(live["tables"][0]["rows"], serde_json::json!([["a<b"]]));
        assert!(!dashboard.past.text().contains("a<b"));
        assert!(tautline::connect(&format!("ws://{at}/other")).is_err());
        let ask = |host: &str, more: &str| {
            let mut stream = TcpStream::connect(at.to_string()).unwrap();
            write!(stream, "GET {more}HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer.split(' ').nth(1).unwrap().to_owned()
        };
        assert_eq!([ask("localhost", "/ "), ask("[::1]:1", "/ ")], ["200", "200"]);
        for (host, more) in [("evil.example", "/ "), ("", "/ "), ("localhost", "http://evil.example/ ")] {
            assert_eq!(ask(host, more), "403", "{host} {more}");
        }
        // A page whose name leads here, and one of another server of this machine.
        for (host, origin) in [("evil.example:8444", "http://evil.example:8444"), ("localhost:1", "http://localhost:2")]
        {
            let mut target = tautline::Target::new(&format!("ws://{at}{LIVE}")).unwrap();
            target.host_header = Some(host.to_owned());
            target.origin = Some(origin.to_owned());
            let plain = Tls { engine: TlsEngine::Plain, config: tautline::ClientConfig::default() };
            let error = tautline::Socket::connect(target, plain, Config::default()).err().unwrap();
            assert!(format!("{error:#}").contains("403"), "{error:#}");
        }
        drop(dashboard);
        let end = socket.receive().unwrap_err().to_string();
        assert!(end.contains("1001") && end.contains("this run has ended"), "{end}");
    }
}
