//! From fields to requests and responses, with the rules against smuggling (RFC 9113, sections 8.2 and 8.3; RFC 8441).

use crate::block::Fields;
use http::header::{CONTENT_LENGTH, COOKIE, HOST};
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};

/// The head of a request.
#[derive(Debug)]
#[non_exhaustive]
pub struct RequestHead {
    /// Method, URI with scheme and authority, and fields. Cookies are one field.
    pub request: Request<()>,
    /// The protocol of an extended CONNECT request, such as `websocket` (RFC 8441, section 4).
    pub protocol: Option<String>,
    /// The length of the body, if the peer says it.
    pub length: Option<u64>,
}

/// The head of a response.
#[derive(Debug)]
#[non_exhaustive]
pub struct ResponseHead {
    /// Status and fields.
    pub response: Response<()>,
    /// The length of the body, if the peer says it.
    pub length: Option<u64>,
}

/// The rule that a field section breaks. The stream ends with PROTOCOL_ERROR.
pub(crate) type Malformed = &'static str;

/// Values of pseudo-header fields.
#[derive(Default)]
struct Pseudo<'f> {
    method: Option<&'f [u8]>,
    scheme: Option<&'f [u8]>,
    authority: Option<&'f [u8]>,
    path: Option<&'f [u8]>,
    protocol: Option<&'f [u8]>,
    status: Option<&'f [u8]>,
}

impl<'f> Pseudo<'f> {
    fn slot(&mut self, name: &[u8]) -> Result<&mut Option<&'f [u8]>, Malformed> {
        Ok(match name {
            b":method" => &mut self.method,
            b":scheme" => &mut self.scheme,
            b":authority" => &mut self.authority,
            b":path" => &mut self.path,
            b":protocol" => &mut self.protocol,
            b":status" => &mut self.status,
            _ => return Err("a pseudo-header field is unknown"),
        })
    }
}

/// Parts fields from pseudo-header fields, which come first.
fn parted(fields: &Fields) -> Result<(Pseudo<'_>, HeaderMap), Malformed> {
    let (mut pseudo, mut headers, mut cookies) = (Pseudo::default(), HeaderMap::new(), Vec::new());
    let mut regular = false;
    for (name, value) in fields.iter() {
        if name.first() == Some(&b':') {
            if regular {
                return Err("a pseudo-header field follows a field");
            }
            if pseudo.slot(name)?.replace(value).is_some() {
                return Err("a pseudo-header field comes twice");
            }
            continue;
        }
        regular = true;
        let (name, value) = field(name, value)?;
        if name == COOKIE {
            // RFC 9113, section 8.2.3.
            if !cookies.is_empty() {
                cookies.extend_from_slice(b"; ");
            }
            cookies.extend_from_slice(value.as_bytes());
        } else {
            headers.try_append(name, value).map_err(|_| "there are too many fields")?;
        }
    }
    if !cookies.is_empty() {
        headers.insert(COOKIE, HeaderValue::from_bytes(&cookies).map_err(|_| "a cookie has forbidden bytes")?);
    }
    Ok((pseudo, headers))
}

/// Checks a field (RFC 9113, section 8.2.1 and 8.2.2).
fn field(name: &[u8], value: &[u8]) -> Result<(HeaderName, HeaderValue), Malformed> {
    if name.iter().any(u8::is_ascii_uppercase) {
        return Err("a field name has upper case");
    }
    let (name, checked) = HeaderName::from_bytes(name)
        .ok()
        .zip(HeaderValue::from_bytes(value).ok())
        .ok_or("a field has forbidden bytes")?;
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if is_blank(value.first()) || is_blank(value.last()) {
        return Err("a field value begins or ends with a space");
    }
    match name.as_str() {
        "connection" | "proxy-connection" | "keep-alive" | "transfer-encoding" | "upgrade" => {
            Err("a field is of one connection of HTTP/1.1")
        }
        "te" if value != b"trailers" => Err("the field te has another value than trailers"),
        _ => Ok((name, checked)),
    }
}

/// The one length that all fields `content-length` say.
fn length(headers: &HeaderMap) -> Result<Option<u64>, Malformed> {
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let text = value.to_str().map_err(|_| "content-length is no number")?;
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err("content-length is no number");
        }
        let number = text.parse::<u64>().map_err(|_| "content-length is too large")?;
        if length.replace(number).is_some_and(|before| before != number) {
            return Err("fields content-length differ");
        }
    }
    Ok(length)
}

fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    core::str::from_utf8(bytes).map_err(|_| "a pseudo-header field has forbidden bytes")
}

/// Reads a request. `websockets`: whether extended CONNECT was offered.
pub(crate) fn request(fields: &Fields, websockets: bool) -> Result<RequestHead, Malformed> {
    let (pseudo, headers) = parted(fields)?;
    if pseudo.status.is_some() {
        return Err("a request has :status");
    }
    let method = pseudo.method.ok_or("a request has no :method")?;
    let method = Method::from_bytes(method).map_err(|_| "the method has forbidden bytes")?;
    let is_connect = method == Method::CONNECT;
    let protocol = match pseudo.protocol {
        Some(_) if !websockets => return Err(":protocol was not offered"),
        Some(_) if !is_connect => return Err("a request has :protocol, and its method is not CONNECT"),
        Some(protocol) => Some(text(protocol)?.to_owned()),
        None => None,
    };
    let authority = match pseudo.authority {
        Some(authority) => Some(authority_of(authority)?),
        None => None,
    };
    if let Some(host) = host(&headers)?
        && authority.as_ref().is_some_and(|authority| !authority.as_str().eq_ignore_ascii_case(host))
    {
        return Err(":authority and host differ");
    }
    let mut uri = Uri::builder();
    if is_connect && protocol.is_none() {
        if pseudo.scheme.is_some() || pseudo.path.is_some() {
            return Err("a CONNECT request has :scheme or :path");
        }
        uri = uri.authority(authority.ok_or("a CONNECT request has no :authority")?);
    } else {
        let scheme = text(pseudo.scheme.ok_or("a request has no :scheme")?)?;
        let path = text(pseudo.path.ok_or("a request has no :path")?)?;
        let may_be_asterisk = method == Method::OPTIONS && path == "*";
        if !path.starts_with('/') && !may_be_asterisk || path.contains('#') {
            return Err(":path is no path");
        }
        let path = path.parse::<PathAndQuery>().map_err(|_| ":path has forbidden bytes")?;
        let authority = match authority {
            Some(authority) => Some(authority),
            None if protocol.is_some() => return Err("an extended CONNECT request has no :authority"),
            None => host(&headers)?.map(|host| authority_of(host.as_bytes())).transpose()?,
        };
        if let Some(authority) = authority {
            let scheme = Scheme::try_from(scheme).map_err(|_| "the scheme has forbidden bytes")?;
            uri = uri.scheme(scheme).authority(authority);
        }
        uri = uri.path_and_query(path);
    }
    let length = length(&headers)?;
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = uri.build().map_err(|_| "scheme, authority and path are no URI")?;
    *request.version_mut() = Version::HTTP_2;
    *request.headers_mut() = headers;
    Ok(RequestHead { request, protocol, length })
}

/// The one `host` of a request.
fn host(headers: &HeaderMap) -> Result<Option<&str>, Malformed> {
    let mut hosts = headers.get_all(HOST).iter();
    let Some(host) = hosts.next() else { return Ok(None) };
    if hosts.next().is_some() {
        return Err("host comes twice");
    }
    host.to_str().map(Some).map_err(|_| "host has forbidden bytes")
}

fn authority_of(bytes: &[u8]) -> Result<Authority, Malformed> {
    let authority = Authority::try_from(bytes).map_err(|_| ":authority has forbidden bytes")?;
    // RFC 9113, section 8.3.1.
    if authority.as_str().contains('@') { Err(":authority has user information") } else { Ok(authority) }
}

/// Reads a response.
pub(crate) fn response(fields: &Fields) -> Result<ResponseHead, Malformed> {
    let (pseudo, headers) = parted(fields)?;
    let Pseudo { method: None, scheme: None, authority: None, path: None, protocol: None, status: Some(status) } =
        pseudo
    else {
        return Err("a response has other pseudo-header fields than :status");
    };
    let status = StatusCode::from_bytes(status).map_err(|_| ":status is no number of three digits")?;
    // RFC 9113, section 8.6.
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err("status 101 is not of HTTP/2");
    }
    let length = length(&headers)?;
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.version_mut() = Version::HTTP_2;
    *response.headers_mut() = headers;
    Ok(ResponseHead { response, length })
}

/// Checks trailers, which are dropped.
pub(crate) fn trailers(fields: &Fields) -> Result<(), Malformed> {
    for (name, value) in fields.iter() {
        if name.first() == Some(&b':') {
            return Err("trailers have a pseudo-header field");
        }
        field(name, value)?;
    }
    Ok(())
}

/// The fields of an answer or a request that leave. Those of one connection of HTTP/1.1 stay behind.
pub(crate) fn leaving(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers.iter().filter_map(|(name, value)| match name.as_str() {
        "connection" | "proxy-connection" | "keep-alive" | "transfer-encoding" | "upgrade" | "host" => None,
        name => Some((name.as_bytes(), value.as_bytes())),
    })
}
