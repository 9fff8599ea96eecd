//! One HTTP request, as WebSocket upgrade or as plain GET, and the answer in full.

use super::dialer::{Dialer, Kind};
use super::facts::{Http, Trouble, TroubleKind};
use super::stream::{Stream, io_trouble};
use std::io;
use std::time::{Duration, Instant};
use tautline::http::header::{ACCEPT, CONTENT_LENGTH, HOST, LOCATION, USER_AGENT};
use tautline::http::{HeaderMap, HeaderValue, Response, Uri};
use tautline::layers::buf::Buf;
use tautline::layers::ws::deflate::{DeflateConfig, DeflateParams};
use tautline::layers::ws::handshake::{HandshakeError, HeadLimits, HeadReader, Opening, Options, Target};

/// The contents of a request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The URL, with its scheme.
    pub uri: Uri,
    /// Whether it asks for an upgrade; otherwise it is a plain GET.
    pub websocket: bool,
    /// Headers beside the usual ones.
    pub headers: HeaderMap,
    /// The origin to send.
    pub origin: Option<String>,
    /// Subprotocols to offer, the preferred first.
    pub subprotocols: Vec<String>,
    /// Whether the user relies on compression, which is always offered.
    pub deflate_wanted: bool,
}

impl Request {
    /// Checks that the parts form an upgrade that can be sent.
    ///
    /// # Errors
    /// If a header or a subprotocol cannot be sent.
    pub fn check(&self) -> Result<(), HandshakeError> {
        if self.websocket { opening(self, [0; 16]).map(drop) } else { Ok(()) }
    }
}

/// The bytes behind the head of an upgrade's answer, and how messages are compressed.
pub(crate) struct Upgraded {
    pub(crate) early: Vec<u8>,
    pub(crate) deflate: Option<DeflateParams>,
    /// When the head arrived.
    pub(crate) at: Instant,
}

/// Most bytes of a body that are read.
const MOST_BODY: usize = 64 << 10;

/// Most bytes of a body that are kept to be shown.
const SHOWN: usize = 1024;

/// Longest wait for more of a body whose length the server does not tell.
const BODY_WAIT: Duration = Duration::from_millis(300);

/// Sends the request, and reads the answer. The second value is there if the server upgraded the connection.
pub(crate) fn send(
    stream: &mut Stream,
    dialer: &Dialer,
    request: &Request,
    nonce: [u8; 16],
) -> (Http, Option<Upgraded>) {
    if !dialer.allows(Kind::Request) {
        let error = Some("not tried: the plan has no more requests".to_owned());
        return (Http { error, ..Http::default() }, None);
    }
    if request.websocket { upgrade(stream, dialer, request, nonce) } else { (get(stream, dialer, request), None) }
}

/// Makes the opening handshake of a request.
pub(crate) fn opening(request: &Request, nonce: [u8; 16]) -> Result<Opening, HandshakeError> {
    let mut options = Options::default();
    options.headers.clone_from(&request.headers);
    options.origin.clone_from(&request.origin);
    options.subprotocols.clone_from(&request.subprotocols);
    // With every parameter that a server may choose.
    options.deflate = Some(DeflateConfig::with_context_takeover());
    Opening::new(&request.uri, nonce, &options)
}

fn upgrade(stream: &mut Stream, dialer: &Dialer, request: &Request, nonce: [u8; 16]) -> (Http, Option<Upgraded>) {
    let mut http = Http {
        subprotocols_offered: request.subprotocols.clone(),
        deflate_wanted: request.deflate_wanted,
        ..Http::default()
    };
    let mut opening = match opening(request, nonce) {
        Ok(opening) => opening,
        Err(error) => {
            http.error = Some(error.to_string());
            return (http, None);
        }
    };
    let offered = opening.request().headers().get("sec-websocket-extensions");
    http.extensions_offered = offered.map_or_else(String::new, text);
    let mut out = Buf::new();
    opening.write(&mut out);
    let (start, until) = (Instant::now(), dialer.until());
    let head = HeadReader::new(HeadLimits::default());
    let mut bytes = Vec::new();
    if let Err(error) = stream.write(out.filled(), until) {
        fail(&mut http, stream, &error);
        return (http, None);
    }
    loop {
        if let Err(error) = receive(stream, &mut bytes, until) {
            // A body without a length lasts until the end of the connection.
            match opening.take_rejection() {
                Some(rejected) => keep_rejection(&mut http, rejected),
                None => fail(&mut http, stream, &error),
            }
            return (http, None);
        }
        let at = Instant::now();
        if http.status.is_none_or(|status| status < 200 && status != 101)
            && let Ok(Some((response, _))) = head.clone().response(&bytes)
        {
            http.ms = (at - start).as_secs_f64() * 1e3;
            keep_head(&mut http, &response);
        }
        match opening.read(&bytes) {
            Ok(None) => {}
            Ok(Some((established, used))) => {
                keep_head(&mut http, &established.response);
                http.upgraded = true;
                http.subprotocol.clone_from(&established.negotiated.subprotocol);
                let deflate = established.negotiated.deflate;
                http.deflate = deflate.map(|params| describe(&params));
                let early = bytes.get(used..).unwrap_or_default().to_vec();
                return (http, Some(Upgraded { early, deflate, at }));
            }
            Err(error) => {
                if http.status.is_none() {
                    // The answer is not HTTP, so its first bytes are shown.
                    http.body = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]).into_owned();
                }
                keep_rejection(&mut http, error);
                return (http, None);
            }
        }
    }
}

/// The parameters of permessage-deflate in words.
pub(crate) fn describe(params: &DeflateParams) -> String {
    let side = |name: &str, bits: u8, fresh: bool| {
        let window = if fresh { "a window per message" } else { "a window kept between messages" };
        format!("{name}: {window}, {} KiB", f64::from(1_u32 << bits) / 1024.0)
    };
    let server = side("server", params.server_max_window_bits, params.server_no_context_takeover);
    let client = side("client", params.client_max_window_bits, params.client_no_context_takeover);
    format!("permessage-deflate ({server}; {client})")
}

fn keep_rejection(http: &mut Http, error: HandshakeError) {
    match error {
        HandshakeError::Rejected { response } => {
            let body = response.body();
            http.body_bytes = body.len();
            http.body = String::from_utf8_lossy(&body[..body.len().min(SHOWN)]).into_owned();
        }
        HandshakeError::Redirected { location, .. } => http.location = location,
        error => http.error = Some(error.to_string()),
    }
}

/// Records that no answer arrived.
fn fail(http: &mut Http, stream: &Stream, error: &io::Error) {
    let mut trouble = io_trouble(error);
    if stream.first.starts_with(&[21, 3]) {
        trouble = Trouble { kind: TroubleKind::NotTls, text: "the port answers in TLS".to_owned() };
    }
    http.trouble = Some(trouble);
}

fn keep_head(http: &mut Http, response: &Response<()>) {
    http.status = Some(response.status().as_u16());
    http.version = format!("{:?}", response.version());
    http.headers = response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    http.extensions = response.headers().get("sec-websocket-extensions").map(text);
    http.location = response.headers().get(LOCATION).map(text);
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// Reads more bytes. The end of the connection is an error.
fn receive(stream: &mut Stream, bytes: &mut Vec<u8>, until: Instant) -> io::Result<()> {
    let mut chunk = [0; 4096];
    let n = stream.read(&mut chunk, until)?;
    if n == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.extend_from_slice(&chunk[..n]);
    Ok(())
}

/// A plain GET of an https or http endpoint.
fn get(stream: &mut Stream, dialer: &Dialer, request: &Request) -> Http {
    let mut http = Http::default();
    let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
    let host = Target::of(&request.uri).map_or_else(|_| dialer.host.clone(), |target| target.host_header());
    let mut head = format!("GET {path} HTTP/1.1\r\n");
    let mut put = |name: &str, value: &str| head += &format!("{name}: {value}\r\n");
    put(HOST.as_str(), &host);
    put(USER_AGENT.as_str(), "taut-probe");
    put(ACCEPT.as_str(), "*/*");
    put("connection", "close");
    for (name, value) in &request.headers {
        put(name.as_str(), &text(value));
    }
    head += "\r\n";
    let (start, until) = (Instant::now(), dialer.until());
    if let Err(error) = stream.write(head.as_bytes(), until) {
        fail(&mut http, stream, &error);
        return http;
    }
    let mut reader = HeadReader::new(HeadLimits::default());
    let mut bytes = Vec::new();
    let (response, used) = loop {
        if let Err(error) = receive(stream, &mut bytes, until) {
            fail(&mut http, stream, &error);
            return http;
        }
        match reader.response(&bytes) {
            Ok(None) => {}
            Ok(Some(found)) => break found,
            Err(error) => {
                http.error = Some(error.to_string());
                return http;
            }
        }
    };
    http.ms = start.elapsed().as_secs_f64() * 1e3;
    keep_head(&mut http, &response);
    let length = response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let most = length.unwrap_or(MOST_BODY).min(MOST_BODY);
    bytes.drain(..used);
    while bytes.len() < most {
        let wait = until.min(Instant::now() + BODY_WAIT);
        if receive(stream, &mut bytes, wait).is_err() {
            break;
        }
    }
    http.body_bytes = bytes.len();
    http.body = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]).into_owned();
    http
}
