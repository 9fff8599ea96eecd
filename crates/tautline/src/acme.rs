//! Certificates by themselves: a server orders, renews and uses its certificate (ACME, RFC 8555).
//!
//! ```no_run
//! use tautline::acme::{Acme, AcmeConfig};
//! use tautline::{Conn, Handler, Message, Reloader, Server, ServerConfig, ServerFiles, Tls};
//!
//! # struct App;
//! # impl Handler for App {
//! #     type State = ();
//! #     fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}
//! # }
//! let config = AcmeConfig::new(["www.example.com"], "/var/lib/app/acme")?.with_contacts(["operator@example.com"]);
//! let acme = Acme::open(config)?;
//! let server = Server::new(Tls::with_acme(&acme)?).listen("0.0.0.0:443".parse()?).start(|_shard| App)?;
//! let files = ServerFiles::new(ServerConfig::default()).acme(&acme);
//! let _renewal = files.renew(&acme, server.reloader())?;
//! server.join()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The authority connects to port 443 of each name, which must lead to this server (TLS-ALPN-01). [`HttpChallenges`] serves
//! port 80 beside it (HTTP-01). By using an authority you accept its terms of service.

use crate::{
    CertificateFiles, Config, Conn, EngineChoice, Error, Handler, Message, Reloader, Reply, Request, Server,
    ServerConfig, ServerFiles, Tls,
};
use http::{HeaderValue, Method, StatusCode, header};
use std::fmt;
use std::time::Duration;
pub use tautline_acme::{AccountBinding, Acme, AcmeConfig, FailureKind, LETS_ENCRYPT, Renewal, Report, Status};

/// Time for the head of a request to port 80.
const HEAD: Duration = Duration::from_secs(5);
/// Connections to port 80 at once.
const CONNECTIONS: usize = 256;

impl ServerFiles {
    /// Adds the certificate of `acme`, and the answers to its challenges.
    #[must_use]
    pub fn acme(self, acme: &Acme) -> Self {
        let file = acme.certificate_file();
        let certificate = CertificateFiles::new(file.clone(), file);
        let files = self.certificate(if acme.staples() { certificate } else { certificate.without_stapling() });
        match acme.challenges() {
            Some(challenges) => files.challenges(challenges),
            None => files,
        }
    }

    /// Orders and renews the certificate of `acme` on a thread of its own, and reloads these files after each change.
    ///
    /// # Errors
    /// [`Error::Machine`] if the thread cannot be started.
    pub fn renew(&self, acme: &Acme, reloader: Reloader) -> Result<Renewal, Error> {
        let files = self.clone();
        let started = acme.renew(move || reloader.reload_files(&files).map_err(|error| format!("{error:#}")));
        started
            .map_err(|error| Error::Machine { what: "no renewal of certificates", error: std::io::Error::other(error) })
    }
}

impl Tls<ServerConfig> {
    /// The default engine, with the certificate of `acme` and the answers to its challenges.
    ///
    /// [`ServerFiles::renew`] starts the renewal, once the server runs.
    ///
    /// # Errors
    /// [`Error::Tls`] if the file cannot be read.
    pub fn with_acme(acme: &Acme) -> Result<Self, Error> {
        Ok(ServerFiles::new(ServerConfig::default()).acme(acme).load()?.into())
    }
}

/// Answers authorities at port 80 (HTTP-01, RFC 8555, section 8.3), and redirects all others to HTTPS.
///
/// It serves nothing else: requests for other names than those of the certificate get 404.
///
/// ```no_run
/// use tautline::Server;
/// use tautline::acme::{Acme, HttpChallenges};
///
/// # fn serve(acme: Acme) -> Result<(), tautline::Error> {
/// let http = HttpChallenges::new(acme, 443);
/// let server = HttpChallenges::prepare(Server::plain()).listen("0.0.0.0:80".parse().unwrap());
/// let server = server.start(move |_shard| http.clone())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HttpChallenges {
    acme: Acme,
    port: u16,
}

impl HttpChallenges {
    /// Redirects to this port of the same name.
    #[must_use]
    pub const fn new(acme: Acme, port: u16) -> Self {
        Self { acme, port }
    }

    /// Gives a server limits that fit: few connections, and no bodies.
    pub fn prepare<E: EngineChoice>(server: Server<E>) -> Server<E> {
        let mut config = Config::untrusted_internet();
        config.limits.max_connections = CONNECTIONS;
        config.limits.max_body = 0;
        config.deadlines.handshake = HEAD;
        server.config(config)
    }

    fn answer(&self, request: &Request<'_>) -> Reply {
        if !matches!(*request.http.method(), Method::GET | Method::HEAD) {
            return Reply::status(StatusCode::METHOD_NOT_ALLOWED);
        }
        let uri = request.http.uri();
        if let Some(text) = self.acme.http_answer(uri.path()) {
            let mut response = http::Response::new(text.into_bytes());
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
            return Reply::Respond(response);
        }
        let host = request.http.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        match self.elsewhere(host, uri.path_and_query().map_or("/", |path| path.as_str())) {
            Some(place) => {
                let mut response = http::Response::new(Vec::new());
                *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
                response.headers_mut().insert(header::LOCATION, place);
                Reply::Respond(response)
            }
            None => Reply::status(StatusCode::NOT_FOUND),
        }
    }

    /// The URL of a place over HTTPS; `None` if the host is none of this server's.
    fn elsewhere(&self, host: &str, path: &str) -> Option<HeaderValue> {
        let name = host.split_once(':').map_or(host, |(name, _)| name).trim_end_matches('.').to_ascii_lowercase();
        // A challenge that is unknown here is answered by nobody, and a redirect would hide that.
        let is_challenge = path.starts_with("/.well-known/acme-challenge/");
        if !self.acme.names().contains(&name) || !path.starts_with('/') || is_challenge {
            return None;
        }
        let port = if self.port == 443 { String::new() } else { format!(":{}", self.port) };
        HeaderValue::from_str(&format!("https://{name}{port}{path}")).ok()
    }
}

impl Handler for HttpChallenges {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        self.answer(request)
    }

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, _message: Message<'_>) {}
}

impl fmt::Debug for HttpChallenges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpChallenges")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_names_of_the_certificate_are_redirected() {
        let folder = std::env::temp_dir().join(format!("tautline-http-challenges-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let acme = Acme::open(AcmeConfig::new(["one.example"], &folder).unwrap()).unwrap();
        let to = |port, host: &str, path: &str| {
            let place = HttpChallenges::new(acme.clone(), port).elsewhere(host, path);
            place.map(|place| place.to_str().unwrap().to_owned())
        };
        assert_eq!(to(443, "One.example:80", "/a?b=c").as_deref(), Some("https://one.example/a?b=c"));
        assert_eq!(to(8443, "one.example", "/").as_deref(), Some("https://one.example:8443/"));
        for host in ["two.example", "", "one.example@two.example", "one.example.two.example"] {
            assert_eq!(to(443, host, "/"), None, "{host}");
        }
        assert_eq!(to(443, "one.example", "@two.example"), None);
        assert_eq!(to(443, "one.example", "/.well-known/acme-challenge/unknown"), None);
        assert!(to(443, "one.example", "/.well-known/security.txt").is_some());
        // A server starts with the certificate that stands for the first one, and says that nobody trusts it.
        assert_eq!(Tls::with_acme(&acme).unwrap().config.certificates.len(), 1);
        let chain = &Tls::with_acme(&acme).unwrap().config.certificates[0].chain;
        assert!(!String::from_utf8_lossy(chain).contains("PRIVATE"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
