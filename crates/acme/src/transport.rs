//! HTTPS to the authority, and HTTP to its responder: one request for each connection, bounded in time and size.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Body;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient, Problem};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tautline_tls::{pem, trust_named};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

/// The time that an authority has for one answer, the connection included.
const TIME: Duration = Duration::from_secs(30);

/// The time that others have for an answer. An order may wait for it.
const SHORT_TIME: Duration = Duration::from_secs(10);

/// Largest body of an authority's answer: chains and orders have some kilobytes.
const LARGEST: usize = 1 << 20;

/// The remedy if nobody has vouched for the authority's own server.
const ROOTS: &str = " (an authority for tests, or of your own, needs its roots: --acme-ca)";

/// The longest time after which an authority can want to be asked again, in seconds. The protocol's crate adds it to the time of
/// day, and panics if the sum has no representation.
const LONGEST_WAIT: u64 = 24 * 60 * 60;

/// The client of one authority. Its roots are read once, before a server gives up the right to read them.
#[derive(Clone)]
pub(crate) struct Transport {
    tls: Arc<ClientConfig>,
    /// The seconds for which the latest answer, an error of load, asks to be left alone; 0 without.
    wait: Arc<AtomicU64>,
}

impl Transport {
    /// Trusts these roots in PEM, or else those of the platform.
    pub(crate) fn new(roots: Option<&[u8]>) -> Result<Self, String> {
        let mut store = RootCertStore::empty();
        match roots {
            Some(pem) => {
                for section in pem::certificates(pem, "authorities").map_err(|error| error.to_string())? {
                    let added = store.add(CertificateDer::from(section.der.to_vec()));
                    added.map_err(|error| format!("line {}: {error}", section.line))?;
                }
            }
            None => {
                let mut add = |der: &[u8]| store.add(CertificateDer::from(der.to_vec())).is_ok();
                if trust_named(&mut add).is_none() {
                    rustls_native_certs::load_native_certs().certs.iter().for_each(|root| _ = add(root));
                }
            }
        }
        if store.is_empty() {
            return Err(
                "no trusted authority in the platform's trust store: install the system's CA certificates, or give \
                        the roots of the authority's server"
                    .to_owned(),
            );
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut tls = builder.map_err(|error| error.to_string())?.with_root_certificates(store).with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { tls: Arc::new(tls), wait: Arc::default() })
    }

    /// The time for which the authority asked not to be asked again in its latest answer, a status 429 or 503.
    pub(crate) fn wait(&self) -> Option<Duration> {
        let seconds = self.wait.load(Ordering::Relaxed);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    /// Sends a body of this type, and returns that of the answer, which has at most `largest` bytes.
    pub(crate) async fn post(&self, url: &Uri, kind: &str, body: Vec<u8>, largest: usize) -> Result<Bytes, String> {
        if !matches!(url.scheme_str(), Some("http" | "https")) {
            return Err("its URL begins with neither http:// nor https://".to_owned());
        }
        let request = Request::post(url.clone()).header(CONTENT_TYPE, kind).body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| error.to_string())?;
        let (parts, body) = within(SHORT_TIME, exchange(self.tls.clone(), request, largest)).await?;
        if parts.status != StatusCode::OK {
            return Err(format!("it answers with status {}", parts.status.as_u16()));
        }
        Ok(body)
    }
}

impl HttpClient for Transport {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (tls, wait) = (self.tls.clone(), self.wait.clone());
        Box::pin(async move {
            let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
            let is_plain = request.method() == Method::GET;
            let answered = match request.uri().scheme_str() {
                Some("https") => within(TIME, exchange(tls, request, LARGEST)).await,
                _ => Err("its directory names a URL without https://".to_owned()),
            };
            let answered = answered.and_then(|(parts, body)| Ok((checked(parts)?, body)));
            wait.store(answered.as_ref().map_or(0, |(parts, _)| asked_wait(parts)), Ordering::Relaxed);
            if let Ok((parts, body)) = &answered
                && is_plain
                && let Some(problem) = problem(parts.status, body)
            {
                return Err(problem.into());
            }
            let answered =
                answered.map(|(parts, body)| BytesResponse::from(Response::from_parts(parts, Full::new(body))));
            answered.map_err(|why| {
                let remedy = if why.contains("UnknownIssuer") { ROOTS } else { "" };
                Error::Other(format!("cannot reach the authority at {host}: {why}{remedy}").into())
            })
        })
    }
}

/// The problem for which an authority has not answered a request without a signature; `None` if it has.
///
/// The protocol's crate looks at other parts of such an answer first, and misses them.
fn problem(status: StatusCode, body: &[u8]) -> Option<Problem> {
    if !status.is_client_error() && !status.is_server_error() {
        return None;
    }
    let said =
        serde_json::from_slice(body).ok().filter(|said: &Problem| said.detail.is_some() || said.r#type.is_some());
    let mut problem = said.unwrap_or_else(|| Problem {
        r#type: None,
        detail: Some("no reason: is the directory's URL right?".to_owned()),
        status: None,
        subproblems: Vec::new(),
    });
    problem.status = Some(status.as_u16());
    Some(problem)
}

/// The head of an authority's answer, without a wait that is too long.
///
/// A redirect is an error: requests are signed for one URL.
fn checked(mut head: http::response::Parts) -> Result<http::response::Parts, String> {
    if head.status.is_redirection() {
        let place = head.headers.get(LOCATION).and_then(|place| place.to_str().ok()).unwrap_or_default();
        return Err(format!("it redirects to {place:?}, which is not followed: is the directory's URL right?"));
    }
    if retry_after(&head).is_some_and(|seconds| seconds > LONGEST_WAIT) {
        head.headers.insert(RETRY_AFTER, LONGEST_WAIT.into());
    }
    Ok(head)
}

/// The seconds after which the authority wants to be asked again.
fn retry_after(head: &http::response::Parts) -> Option<u64> {
    head.headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

/// The seconds for which an authority with too much load asks to be left alone (RFC 8555, section 6.6); 0 without.
fn asked_wait(head: &http::response::Parts) -> u64 {
    let is_load = matches!(head.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    retry_after(head).filter(|_| is_load).unwrap_or(0)
}

/// Sends one request, and receives the whole answer, whose body has at most this length.
async fn exchange<B>(
    tls: Arc<ClientConfig>,
    request: Request<B>,
    largest: usize,
) -> Result<(http::response::Parts, Bytes), String>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let is_tls = request.uri().scheme_str() == Some("https");
    let host = request.uri().host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = request.uri().port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let connect = TcpStream::connect((host.clone(), port));
    if !is_tls {
        return over(connect.await.map_err(|error| error.to_string())?, request, largest).await;
    }
    let name = ServerName::try_from(host).map_err(|_| "its name is none that a certificate can have".to_owned())?;
    let socket = connect.await.map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(tls).connect(name, socket).await.map_err(|error| error.to_string())?;
    over(stream, request, largest).await
}

/// Sends one request over this stream.
async fn over<S, B>(stream: S, request: Request<B>, largest: usize) -> Result<(http::response::Parts, Bytes), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // It ends with the answer, or when the runtime ends.
    let driving = Driving(tokio::spawn(connection));
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut sent = Request::builder().method(parts.method).uri(path.parse::<Uri>().map_err(|error| error.to_string())?);
    if let Some(headers) = sent.headers_mut() {
        *headers = parts.headers;
    }
    let authority = parts.uri.authority().map_or("", |authority| authority.as_str());
    let sent = sent.header(http::header::HOST, authority).body(body).map_err(|error| error.to_string())?;
    let answer = sender.send_request(sent).await.map_err(|error| error.to_string())?;
    let (parts, body) = answer.into_parts();
    let body = Limited::new(body, largest).collect().await.map_err(|error| error.to_string())?.to_bytes();
    drop(driving);
    Ok((parts, body))
}

/// The task of a connection, which ends with this. A peer that sends without end keeps none.
struct Driving<T>(JoinHandle<T>);

impl<T> Drop for Driving<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The result of some work, unless it takes longer than this.
async fn within<T>(time: Duration, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    match tokio::time::timeout(time, work).await {
        Ok(result) => result,
        Err(_) => Err(format!("no answer within {} seconds", time.as_secs())),
    }
}

#[cfg(test)]
mod tests;
