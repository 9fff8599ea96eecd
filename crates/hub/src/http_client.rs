//! Requests to an application: one POST at a time, on a thread that waits for its answer.
//!
//! `ureq` blocks, has no runtime, and is the client that the program `taut` has anyway. A client on the loops' own connections would
//! need a handler, pools and deadlines of its own beside those of the hub.

use rustls::crypto::aws_lc_rs;
use std::io::ErrorKind;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tautline::http::Uri;
use tautline::layers::tls::pem;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Error, Timeout};

/// Bytes of an answer, at most.
const LARGEST: u64 = 1 << 20;
/// Time after which a connection without requests is not used any more: shorter than that of common servers, which close theirs.
const IDLE: Duration = Duration::from_secs(3);

/// The client of one application.
#[derive(Debug)]
pub(crate) struct HttpClient {
    agent: Agent,
    url: String,
}

/// An answer with status 200.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) body: Vec<u8>,
    /// The time for which the answer may be used again.
    pub(crate) max_age: Duration,
}

/// The reason why there is no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// No byte of the request has left.
    NotSent(String),
    Failed(String),
}

impl HttpClient {
    /// A client for this URL. Authorities in PEM stand in for those of the system.
    pub(crate) fn new(url: &str, authorities: Option<&[u8]>, connections: usize) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("`url` is no URL: {error}"))?;
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        if !is_http || uri.host().is_none_or(str::is_empty) || uri.authority().is_some_and(|a| a.as_str().contains('@'))
        {
            return Err("`url` is one like https://app.example/hub".to_owned());
        }
        let tls = TlsConfig::builder().provider(TlsProvider::Rustls);
        let tls = tls.unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()));
        let roots = match authorities {
            Some(pem) => {
                let found = pem::certificates(pem, "authorities").map_err(|error| error.to_string())?;
                found.iter().map(|one| Certificate::from_der(&one.der).to_owned()).collect()
            }
            None => system_roots().to_vec(),
        };
        let tls = tls.root_certs(RootCerts::Specific(Arc::new(roots))).build();
        let config = Agent::config_builder().tls_config(tls).http_status_as_error(false).max_redirects(0);
        let config = config.proxy(None).max_idle_age(IDLE);
        let config = config.max_idle_connections(connections).max_idle_connections_per_host(connections);
        let agent = config.user_agent(concat!("tautline-hub/", env!("CARGO_PKG_VERSION"))).build().new_agent();
        Ok(Self { agent, url: url.to_owned() })
    }

    /// Sends a JSON text, and waits for the answer.
    pub(crate) fn post(&self, signature: &str, body: &str, within: Duration) -> Result<Answered, Unanswered> {
        let request = self.agent.post(&self.url).header(super::hooks::SIGNATURE, signature);
        let request = request.config().timeout_global(Some(within)).build();
        let mut answer = request.content_type("application/json").send(body).map_err(unanswered)?;
        let status = answer.status();
        if status.as_u16() != 200 {
            return Err(Unanswered::Failed(format!("it answered with status {status}")));
        }
        let control = answer.headers().get_all("cache-control").iter().filter_map(|value| value.to_str().ok());
        let max_age = max_age(control);
        let body = answer.body_mut().with_config().limit(LARGEST).read_to_vec().map_err(unanswered)?;
        Ok(Answered { body, max_age })
    }
}

fn unanswered(error: Error) -> Unanswered {
    let what = error.to_string();
    match error {
        Error::HostNotFound | Error::ConnectionFailed | Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
            Unanswered::NotSent(what)
        }
        Error::Io(error)
            if [ErrorKind::ConnectionRefused, ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable]
                .contains(&error.kind()) =>
        {
            Unanswered::NotSent(what)
        }
        _ => Unanswered::Failed(what),
    }
}

/// The time for which values of `Cache-Control` allow an answer to be used again.
fn max_age<'v>(values: impl Iterator<Item = &'v str>) -> Duration {
    let mut age = None;
    for directive in values.flat_map(|value| value.split(',')).map(str::trim) {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        if ["no-store", "no-cache"].iter().any(|no| name.eq_ignore_ascii_case(no)) {
            return Duration::ZERO;
        }
        if name.eq_ignore_ascii_case("max-age") {
            // Of two the shorter one counts, and one that cannot be read is none.
            let seconds = value.trim_matches('"').parse().unwrap_or(0);
            age = Some(age.unwrap_or(u64::MAX).min(seconds));
        }
    }
    age.map_or(Duration::ZERO, Duration::from_secs)
}

/// The authorities of the system. They are read once: a hardened server cannot open their files later.
fn system_roots() -> &'static [Certificate<'static>] {
    static ROOTS: OnceLock<Vec<Certificate<'static>>> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let found = rustls_native_certs::load_native_certs().certs;
        found.iter().map(|der| Certificate::from_der(der).to_owned()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::{HttpClient, max_age};
    use std::time::Duration;

    #[test]
    fn an_answer_is_kept_only_as_long_as_it_says() {
        let table: [(&[&str], u64); 9] = [
            (&[], 0),
            (&["max-age=60"], 60),
            (&["private, Max-Age=5"], 5),
            (&["max-age=60, no-store"], 0),
            (&["max-age=60", "no-cache"], 0),
            (&["max-age=60", "max-age=7"], 7),
            (&["max-age=-1"], 0),
            (&["max-age=x"], 0),
            (&["s-maxage=60"], 0),
        ];
        for (values, seconds) in table {
            assert_eq!(max_age(values.iter().copied()), Duration::from_secs(seconds), "{values:?}");
        }
    }

    #[test]
    fn a_url_is_one_of_http() {
        for bad in ["", "app.example", "ftp://app.example/", "https:///x", "/hub", "http://user:word@app.example/"] {
            assert!(HttpClient::new(bad, None, 1).is_err(), "{bad}");
        }
        for good in ["http://127.0.0.1:1/hub", "https://app.example"] {
            assert!(HttpClient::new(good, None, 1).is_ok(), "{good}");
        }
        assert!(HttpClient::new("https://app.example", Some(b"no certificate"), 1).is_err());
    }
}
