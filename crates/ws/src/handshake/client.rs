use super::rejection::Rejection;
use super::response::write_fields;
use super::uri::{basic_auth, split_host_port};
use super::{HandshakeError, HeadLimits, HeadReader, Negotiated, Target, key};
use crate::deflate::{self, DeflateConfig};
use crate::extension::Extension;
use crate::fields::{at_most_one, has_token, is_token};
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, ORIGIN,
    SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{Request, Response, StatusCode, Uri, Version};
use tautline_buf::Buf;

/// Most interim responses (1xx) before the answer. Servers send one or two.
const MAX_INTERIM: usize = 32;

/// A client's options for the opening handshake.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Additional headers, such as `Authorization` or `Cookie`.
    ///
    /// Headers that the handshake sets are rejected: `Host`, `Connection`, `Upgrade`, `Sec-WebSocket-…`, `Origin`, and
    /// those of a body.
    pub headers: HeaderMap,
    /// Application protocols, the preferred first.
    pub subprotocols: Vec<String>,
    /// Compression to offer.
    pub deflate: Option<DeflateConfig>,
    /// The `Host` to send, if it is not that of the URI.
    pub host: Option<String>,
    /// The `Origin` to send; only browsers must send one (RFC 6455, section 4.1).
    pub origin: Option<String>,
    /// Limits on the head of the server's answer.
    pub limits: HeadLimits,
}

/// The result of a client's opening handshake.
#[derive(Debug)]
#[non_exhaustive]
pub struct Established {
    /// The server's 101 response.
    pub response: Response<()>,
    /// The negotiated options.
    pub negotiated: Negotiated,
}

/// A client's opening handshake (RFC 6455, section 4.1).
#[derive(Debug)]
pub struct Opening {
    target: Target,
    request: Request<()>,
    /// The server's answer to our key, if it is right.
    accept: String,
    subprotocols: Vec<String>,
    deflate: Option<DeflateConfig>,
    reader: HeadReader,
    /// Number of bytes of interim responses so far.
    skipped: usize,
    /// Number of interim responses so far.
    interim: usize,
    max_bytes: usize,
    /// The server's answer, if it is no upgrade.
    rejection: Option<Box<Rejection>>,
}

impl Opening {
    /// Makes a handshake for `uri`, whose forms [`Target`] lists, with a fresh `nonce` of random bytes.
    ///
    /// # Errors
    /// [`HandshakeError::Uri`], [`HandshakeError::Options`] or [`HandshakeError::ReservedHeader`].
    pub fn new(uri: &Uri, nonce: [u8; 16], options: &Options) -> Result<Self, HandshakeError> {
        let target = Target::of(uri)?;
        let key = key::encode(nonce);
        let mut request = Request::new(());
        *request.version_mut() = Version::HTTP_11;
        *request.uri_mut() = request_target(uri)?;
        let headers = request.headers_mut();
        headers.insert(HOST, host(&target, options)?);
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(SEC_WEBSOCKET_KEY, value(&*key, "key")?);
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        add_options(uri, options, headers)?;
        Ok(Self {
            target,
            request,
            accept: key::accept(key.as_bytes()),
            subprotocols: options.subprotocols.clone(),
            deflate: options.deflate,
            reader: HeadReader::new(options.limits),
            skipped: 0,
            interim: 0,
            max_bytes: options.limits.max_bytes,
            rejection: None,
        })
    }

    /// The server to connect to.
    #[must_use]
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// The request.
    #[must_use]
    pub const fn request(&self) -> &Request<()> {
        &self.request
    }

    /// Appends the request.
    pub fn write(&self, out: &mut Buf) {
        let uri = self.request.uri();
        out.put(b"GET ");
        out.put(uri.path().as_bytes());
        if let Some(query) = uri.query() {
            out.put(b"?");
            out.put(query.as_bytes());
        }
        out.put(b" HTTP/1.1\r\n");
        write_fields(self.request.headers(), out);
        out.put(b"\r\n");
    }

    /// Reads the server's answer from a growing run of bytes; `None` if it is incomplete.
    ///
    /// Each call presents the same bytes, with more behind them. The result has the number of bytes used; the server's
    /// first frames lie behind them. Up to 32 interim responses (1xx) are skipped. If the server rejects the upgrade, the body of
    /// its answer is read first, up to 16 KiB.
    ///
    /// # Errors
    /// [`HandshakeError::Redirected`], [`HandshakeError::Rejected`], [`HandshakeError::Answer`], or an error of
    /// [`HeadReader::response`].
    pub fn read(&mut self, bytes: &[u8]) -> Result<Option<(Established, usize)>, HandshakeError> {
        if let Some(rejection) = self.rejection.take() {
            return self.read_rejection(rejection, bytes);
        }
        loop {
            let rest = bytes.get(self.skipped..).unwrap_or_default();
            let Some((response, used)) = self.reader.response(rest)? else { return Ok(None) };
            let status = response.status();
            if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
                self.skipped += used;
                self.interim += 1;
                if self.skipped > self.max_bytes {
                    return Err(HandshakeError::HeadTooLarge(self.max_bytes));
                }
                if self.interim > MAX_INTERIM {
                    return Err(HandshakeError::Malformed("too many interim responses (1xx)"));
                }
                continue;
            }
            let read = self.skipped + used;
            return match status.as_u16() {
                101 | 301 | 302 | 303 | 307 | 308 => self.check_response(response).map(|done| Some((done, read))),
                _ => self.read_rejection(Box::new(Rejection::new(response, read)), bytes),
            };
        }
    }

    /// Reads more of a rejection's body.
    fn read_rejection(
        &mut self,
        mut rejection: Box<Rejection>,
        bytes: &[u8],
    ) -> Result<Option<(Established, usize)>, HandshakeError> {
        if rejection.read(bytes) {
            return Err(rejection.into_error());
        }
        self.rejection = Some(rejection);
        Ok(None)
    }

    /// The server's rejection with its body so far, if the server has sent one, and no more is to come.
    ///
    /// A body without a length lasts until the end of the connection.
    pub fn take_rejection(&mut self) -> Option<HandshakeError> {
        self.rejection.take().map(|rejection| rejection.into_error())
    }

    fn check_response(&self, response: Response<()>) -> Result<Established, HandshakeError> {
        match response.status().as_u16() {
            101 => {}
            _ => {
                let location = response.headers().get(LOCATION);
                let location = location.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
                return Err(HandshakeError::Redirected { status: response.status(), location });
            }
        }
        let headers = response.headers();
        if response.version() < Version::HTTP_11 {
            return Err(HandshakeError::Answer("it is HTTP/1.0"));
        }
        if !has_token(headers, UPGRADE, "websocket") {
            return Err(HandshakeError::Answer("Upgrade does not name websocket"));
        }
        if !has_token(headers, CONNECTION, "upgrade") {
            return Err(HandshakeError::Answer("Connection does not name Upgrade"));
        }
        if !matches!(at_most_one(headers, SEC_WEBSOCKET_ACCEPT), Ok(Some(accept)) if *accept == *self.accept) {
            return Err(HandshakeError::Answer("Sec-WebSocket-Accept does not match our key"));
        }
        let negotiated = Negotiated { subprotocol: self.subprotocol(headers)?, deflate: self.extensions(headers)? };
        Ok(Established { response, negotiated })
    }

    fn subprotocol(&self, headers: &HeaderMap) -> Result<Option<String>, HandshakeError> {
        let chosen = at_most_one(headers, SEC_WEBSOCKET_PROTOCOL)
            .map_err(|_| HandshakeError::Answer("it names several subprotocols"))?;
        let Some(chosen) = chosen else { return Ok(None) };
        if chosen.is_empty() {
            return Err(HandshakeError::Answer(
                "its Sec-WebSocket-Protocol is empty; a server that chooses no subprotocol leaves the header out",
            ));
        }
        let offered = self.subprotocols.iter().find(|name| *chosen == ***name);
        offered.cloned().map(Some).ok_or(HandshakeError::Answer("it names a subprotocol that was not offered"))
    }

    fn extensions(&self, headers: &HeaderMap) -> Result<Option<deflate::DeflateParams>, HandshakeError> {
        let extensions = Extension::from_headers(headers)
            .map_err(|_| HandshakeError::Answer("Sec-WebSocket-Extensions is malformed"))?;
        match (extensions.as_slice(), &self.deflate) {
            ([], _) => Ok(None),
            ([one], Some(config)) => match deflate::check(one, config) {
                Ok(params) => Ok(Some(params)),
                Err(deflate::Declined) => Err(HandshakeError::Answer("its extension does not fit the offer")),
            },
            _ => Err(HandshakeError::Answer("it has an extension that was not offered")),
        }
    }
}

/// The value of `Host`: that of the options, or of the URI.
fn host(target: &Target, options: &Options) -> Result<HeaderValue, HandshakeError> {
    let Some(host) = &options.host else { return value(target.host_header(), "host") };
    let is_valid = split_host_port(host).is_ok();
    if is_valid { value(&**host, "host") } else { Err(HandshakeError::Options("the host is no HOST or HOST:PORT")) }
}

/// Makes the request's target of the URI's path and query: the origin form (RFC 9112, section 3.2.1).
fn request_target(uri: &Uri) -> Result<Uri, HandshakeError> {
    const WRONG: HandshakeError = HandshakeError::Uri("its path or query has characters that must be written as %XX");
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let target = format!("{}{query}", if uri.path().is_empty() { "/" } else { uri.path() });
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(WRONG);
    }
    target.parse().map_err(|_| WRONG)
}

fn add_options(uri: &Uri, options: &Options, headers: &mut HeaderMap) -> Result<(), HandshakeError> {
    if let Some(origin) = &options.origin {
        headers.insert(ORIGIN, value(&**origin, "origin")?);
    }
    let distinct = |(index, name): (usize, &String)| !options.subprotocols[..index].contains(name);
    if !options.subprotocols.iter().all(|name| is_token(name.as_bytes())) {
        return Err(HandshakeError::Options("a subprotocol is not a token (letters, digits, and !#$%&'*+-.^_`|~)"));
    }
    if !options.subprotocols.iter().enumerate().all(distinct) {
        return Err(HandshakeError::Options("a subprotocol is named twice"));
    }
    if !options.subprotocols.is_empty() {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, value(options.subprotocols.join(", "), "subprotocols")?);
    }
    if let Some(config) = &options.deflate {
        headers.insert(SEC_WEBSOCKET_EXTENSIONS, value(deflate::offer(config).to_string(), "deflate")?);
    }
    if let Some(credentials) = basic_auth(uri)? {
        if options.headers.contains_key(AUTHORIZATION) {
            return Err(HandshakeError::Options("both the URI and the headers have credentials"));
        }
        headers.insert(AUTHORIZATION, credentials);
    }
    for (name, value) in &options.headers {
        if is_reserved(name) {
            return Err(HandshakeError::ReservedHeader(name.clone()));
        }
        let appended = headers.try_append(name.clone(), value.clone());
        appended.map_err(|_| HandshakeError::Options("there are too many headers"))?;
    }
    Ok(())
}

fn is_reserved(name: &HeaderName) -> bool {
    matches!(*name, HOST | CONNECTION | UPGRADE | ORIGIN | CONTENT_LENGTH | TRANSFER_ENCODING)
        || name.as_str().starts_with("sec-websocket-")
}

fn value<T: TryInto<HeaderValue>>(value: T, what: &'static str) -> Result<HeaderValue, HandshakeError> {
    value.try_into().map_err(|_| HandshakeError::Options(what))
}

#[cfg(test)]
mod tests;
